"""What only a GPU can show: bf16 training with carried states, and captured steps, of decoding and of training, that
replay in place."""

import numpy as np
import pytest
import torch

from regard.errors import Stopped
from regard.layers.recurrent import LSTM
from regard.layers.state import Span, detach
from regard.recipe import compose
from regard.systems import dan, gpt, gru, lstm, nnlm, rnn, self_attention
from regard.systems.model import Model
from regard.text.batches import Streams, Windows
from regard.training.loop import Trainer
from regard.training.validation import TextValidation

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def systems() -> list[Model]:
    torch.manual_seed(0)
    regular = {"dropout": 0.1, "dropout_recurrent": 0.2, "dropout_embedding": 0.1, "variational": True}
    return [
        lstm.LSTMModel(50, lstm.Settings(width=64, **regular)),
        lstm.LSTMModel(50, lstm.Settings(width=64, embedding=48, tied=False)),
        gpt.GPT(50, gpt.Settings(layers=2, width=64, heads=2, context=64)),
        gpt.GPT(50, gpt.Settings(layers=2, width=64, heads=2, context=64, position="rotary", norm="post")),
        rnn.RNN(50, rnn.Settings(width=64)),
        rnn.RNN(50, rnn.Settings(width=64, activation="sigmoid", initialisation="orthogonal")),
        gru.GRUModel(50, gru.Settings(width=64)),
        nnlm.NNLM(50, nnlm.Settings(order=4, width=64, embedding=32, direct=True)),
        dan.DAN(50, dan.Settings(width=64)),
        *(
            self_attention.SelfAttentionModel(50, self_attention.Settings(width=64, score=score, context=64))
            for score in ("scaled-dot", "additive", "gaussian", "epanechnikov")
        ),
    ]


NUMBERS = range(13)


@pytest.mark.parametrize("number", NUMBERS)
def test_bf16_training_with_carried_states_learns(number):
    model = systems()[number].cuda().train()
    tokens = torch.randint(50, (4, 33), generator=torch.Generator().manual_seed(0)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(120):
        state, total = None, 0.0
        for start in (0, 16):  # two windows of one text, the second from the first's state
            piece = tokens[:, start : start + 17]
            with torch.autocast("cuda", torch.bfloat16):
                surprise, state = model.loss(piece[:, :-1], piece[:, 1:], state)
            assert surprise.dtype == torch.float32
            state = detach(state)
            total = total + surprise.mean()
        optimizer.zero_grad()
        total.backward()
        optimizer.step()
        losses.append(float(total.detach()) / 2)
    assert losses[-1] < 0.7 * losses[0]


def test_the_recurrence_stays_in_fp32_under_autocast():
    model = systems()[0].cuda().train()
    with torch.autocast("cuda", torch.bfloat16):
        _, state = model.read(torch.randint(50, (4, 16)).cuda())
    cell = state["past"]["0"]["cell"]
    assert cell.dtype == torch.float32
    assert not torch.equal(cell, cell.half().float())  # nor had it been rounded to fp16 on the way


@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("number", NUMBERS)
def test_ragged_rows_agree_with_the_cpu(number, precision):
    model = systems()[number].eval()
    calls = [([6, 3, 0, 1], 6), ([1, 0, 1, 1], 1), ([2, 2, 2, 2], 2)]
    text = torch.randint(50, (4, 9), generator=torch.Generator().manual_seed(1))

    def read(device: str, capacity: int | None) -> list[torch.Tensor]:
        model.to(device)
        outputs, start = [], 0
        with torch.no_grad(), torch.autocast(device, precision, enabled=precision != torch.float32):
            state = model.begin(rows=4, capacity=capacity)
            for lengths, columns in calls:
                tokens = text[:, start : start + columns].to(device)
                logits, state = model(tokens, state, torch.tensor(lengths, device=device))
                real = torch.arange(columns) < torch.tensor(lengths)[:, None]
                outputs.append(logits.float().cpu()[real])
                start += columns
        return outputs

    exact = 2e-2 if precision != torch.float32 else 2e-3  # tf32 may be on
    for capacity in (None, 9):
        for one, other in zip(read("cuda", capacity), read("cpu", None), strict=True):
            torch.testing.assert_close(one, other, rtol=0.0, atol=exact)


@pytest.mark.parametrize("number", NUMBERS)
def test_a_captured_step_replays_in_place(number):
    model = systems()[number].cuda().eval()
    text = torch.randint(50, (3, 12)).cuda()
    with torch.no_grad():
        expected, _ = model(text)
        state = model.begin(rows=3, capacity=12)
        word = text[:, :1].clone()
        warm = torch.cuda.Stream()
        warm.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(warm):
            model(word, model.begin(rows=3, capacity=12))
        torch.cuda.current_stream().wait_stream(warm)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):  # captured, not run: the state has still read nothing
            logits, _ = model(word, state)
        steps = []
        for t in range(12):
            word.copy_(text[:, t : t + 1])
            graph.replay()
            steps.append(logits.clone())
    torch.testing.assert_close(torch.cat(steps, dim=1), expected, rtol=0.0, atol=2e-3)
    assert state["seen"].tolist() == [12, 12, 12]


# -- the training step in one graph ----------------------------------------------------------------------------------


@pytest.fixture
def _exact(monkeypatch):
    """No TF32: cuDNN and a chain of kernels then compute the same."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)


def trainer(folder, model, capture, bf16=False, **training):
    """On a text that ends raggedly after seven windows, so that captured and plain steps take turns."""
    settings = {"steps": 17, "batch_tokens": 64, "window": 16, "warmup": 3, "evaluate_every": 4, "clip": 0.5}
    recipe = compose("lstm", "tiny", {"training": {**settings, "learning_rate": 1e-3, "capture": capture, **training}})
    kind, ids = recipe.training, np.random.default_rng(0).integers(50, size=4 * (7 * 16 + 5)).astype(np.uint16)
    batches = Streams(ids, 4, 16, 0) if kind.batches == "stream" else Windows(ids, 4, 16, 0, seed=1)
    folder.mkdir(exist_ok=True)
    return Trainer(model.cuda(), batches, TextValidation(ids[:100], 0), kind, folder, bf16=bf16)


def assert_same(one, other, losses=((), ())):
    for a, b in zip(*losses, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=0.0)
    for (name, a), b in zip(one.model.named_parameters(), other.model.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.usefixtures("_exact")
@pytest.mark.parametrize("bf16", [False, True])
@pytest.mark.parametrize("number", NUMBERS)
def test_a_captured_training_step_is_the_plain_one_dropout_included(number, bf16, tmp_path):
    runs, losses = [], []
    for capture in ("off", "on"):
        model = systems()[number]
        batches = "stream" if number in (0, 1, 4, 5, 6) else "windows"
        runs.append(trainer(tmp_path / capture, model, capture, bf16, batches=batches))
        torch.manual_seed(5)
        runs[-1].model.train()
        losses.append([runs[-1].step()[0] for _ in range(17)])
    assert runs[0].captured is None
    assert runs[1].captured.graph is not None
    assert len({float(loss) for loss in losses[1]}) == 17  # each step's own, not the last one's seventeen times
    if bf16:
        return torch.testing.assert_close(torch.stack(losses[0]), torch.stack(losses[1]), rtol=1e-2, atol=0.0)
    assert_same(*runs, losses=losses)


LEARNING = [
    {},
    {"accumulate": 2},
    {"optimizer": "sgd", "schedule": "plateau", "learning_rate": 1.0, "weight_decay": 1e-3},
    {"optimizer": "sgd", "schedule": "decay", "learning_rate": 1.0, "decay": 0.5, "decay_after": 1},
    {"optimizer": "asgd", "learning_rate": 4.0, "evaluate_every": 1, "steps": 24},
]


@pytest.mark.usefixtures("_exact")
@pytest.mark.parametrize("settings", LEARNING)
def test_a_captured_training_ends_where_the_plain_one_does(settings, tmp_path):
    runs = []
    for capture in ("off", "auto"):
        runs.append(trainer(tmp_path / capture, systems()[0], capture, **settings))
        torch.manual_seed(5)
        runs[-1].train()
    assert runs[1].captured.graph is not None
    assert_same(*runs)
    if settings.get("optimizer") == "asgd":
        assert all(run.average.active for run in runs)


@pytest.mark.usefixtures("_exact")
@pytest.mark.parametrize("inputs, width", [(6, 5), (48, 650), (650, 64)])
def test_the_chain_agrees_with_cudnn_values_and_gradients(inputs, width):
    torch.manual_seed(0)
    layer = LSTM(inputs, width).cuda().train()
    state = {name: torch.randn(4, width, device="cuda") for name in layer.memory}
    x = torch.randn(4, 9, inputs, device="cuda", requires_grad=True)
    wanted = torch.randn(4, 9, width, device="cuda")
    answers = []
    for layer.chained in (False, True):
        hidden, after = layer(x, state, Span(torch.zeros(4, device="cuda")))
        cost = (hidden * wanted).sum() + (after["cell"] * after["hidden"]).sum()
        answers.append([hidden, after["cell"], *torch.autograd.grad(cost, [x, *layer.parameters()])])
    for one, other in zip(*answers, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("settings", LEARNING)
@pytest.mark.parametrize("stop", [1, 9, 13])
def test_a_captured_training_that_was_stopped_goes_on_where_it_was(settings, stop, tmp_path):
    whole = trainer(tmp_path / "whole", systems()[0], "on", **settings)
    torch.manual_seed(5)
    whole.train()
    first = trainer(tmp_path / "cut", systems()[0], "on", **settings)
    torch.manual_seed(5)
    batch = first.batches.batch

    def interrupting(step):
        first.stop_requested = step == stop
        return batch(step)

    first.batches.batch = interrupting
    with pytest.raises(Stopped):
        first.train()
    torch.manual_seed(999)
    second = trainer(tmp_path / "cut", systems()[0], "on", **settings)
    second.restore()
    second.train()
    assert second.at.step == whole.at.step
    assert_same(second, whole)
