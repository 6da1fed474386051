"""What only a GPU can show: bf16 training with carried states, and captured steps, of decoding and of training, that
replay in place."""

import copy
from dataclasses import replace
from importlib import import_module

import numpy as np
import pytest
import torch

from regard.base.errors import RegardError, Stopped
from regard.decoding.beam import Beam, beam_search
from regard.decoding.beam_engine import BeamEngine
from regard.decoding.beam_slots import Slots, Terms
from regard.decoding.engine import Engine
from regard.decoding.generate import generate, read_prompts
from regard.decoding.sampling import GREEDY, Sampling, mask_tokens, pick
from regard.decoding.translate import translate
from regard.fast import Use, install
from regard.fast.captured_step import captures
from regard.fast.choose_token import FusedChoice
from regard.fast.decode_step import fast_step
from regard.fast.linear_cross_entropy import linear_cross_entropy, rows_, written_rows_
from regard.layers.state import detach
from regard.runs.recipe import compose
from regard.systems import dan, gpt, gru, lstm, ngram, nnlm, rnn, self_attention, transformer
from regard.systems.catalogue import load_class
from regard.systems.model import Model
from regard.text.batches import Streams, Windows
from regard.text.pair_batches import PairBatches
from regard.text.pair_shapes import ShapedPairBatches
from regard.text.pair_tokens import TokenPairs, offsets_of
from regard.training.loop import Trainer
from regard.training.optimisers import clip
from regard.training.validation import TextValidation, Verdict

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
    install(model, Use(training=True, bf16=True))
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


@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("number", NUMBERS)
def test_ragged_rows_agree_with_the_cpu(number, precision):
    model = systems()[number].eval()
    calls = [([6, 3, 0, 1], 6), ([1, 0, 1, 1], 1), ([2, 2, 2, 2], 2)]
    text = torch.randint(50, (4, 9), generator=torch.Generator().manual_seed(1))

    def read(device: str, capacity: int | None) -> list[torch.Tensor]:
        model.to(device)
        install(model)
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


# -- the decoding step in few kernels --------------------------------------------------------------------------------


PLAIN = {"layers": 2, "width": 96, "heads": 3}
LARGE = {"layers": 2, "width": 768, "heads": 12}
TURNED = {"layers": 2, "width": 80, "heads": 2, "position": "rotary", "bias": False, "activation": "relu"}
ODD = {"layers": 1, "width": 64, "heads": 1, "position": "none", "feedforward": 100, "tied": False}


@pytest.mark.parametrize(
    ("settings", "rows", "precision"),
    [
        (PLAIN, 1, torch.bfloat16),
        (PLAIN, 6, torch.float32),
        (LARGE, 1, torch.float32),
        (LARGE, 70, torch.bfloat16),
        (TURNED, 3, torch.float16),
        (TURNED, 33, torch.float32),
        (ODD, 2, torch.float32),
        (ODD, 40, torch.bfloat16),
    ],
)
@torch.no_grad()
def test_the_fused_step_is_the_models_in_ragged_rows_and_in_a_graph(settings, rows, precision):
    torch.manual_seed(rows)
    exact = gpt.GPT(300, gpt.Settings(context=64, **settings)).cuda().eval()
    for weight in exact.parameters():
        weight += 0.05 * torch.randn_like(weight)  # so that norms and biases count
    model = gpt.GPT(300, gpt.Settings(context=64, **settings)).to("cuda", precision).eval()
    model.load_state_dict(exact.state_dict())
    step = fast_step(model)
    assert step is not None
    prompt, lengths = torch.randint(300, (rows, 50)).cuda(), torch.randint(1, 51, (rows,)).cuda()
    capacity = 400 if rows % 2 == 0 else 64  # attention is cut differently where there is much to look at
    plain, fused, reference = (which.begin(rows=rows, capacity=capacity) for which in (model, model, exact))
    for which, state in ((model, plain), (model, fused), (exact, reference)):
        which(prompt, state, lengths)
    word = torch.zeros(rows, dtype=torch.int64, device="cuda")
    step(word, model.begin(rows=rows, capacity=capacity))  # compiles
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step(word, fused)
    for number in range(8):
        word.copy_(torch.randint(300, (rows,)))
        if number % 2:
            graph.replay()
        logits = captured if number % 2 else step(word, fused)
        expected, (best, _) = model(word[:, None], plain)[0][:, 0], exact(word[:, None], reference)
        error, usual = ((given.float() - best[:, 0]).norm() / best.norm() for given in (logits, expected))
        assert error < max(1.5 * usual, 1e-5), (number, float(error), float(usual))
    assert torch.equal(fused["seen"], plain["seen"])
    for name, caches in plain["past"].items():
        for kind, cache in caches.items():
            written, kept = (of[:, :, :capacity] for of in (fused["past"][name][kind], cache))  # not the scratch slot
            assert (written - kept).norm() / kept.norm() < (1e-5 if precision == torch.float32 else 2e-2)


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
        first.stop_requested |= step == stop  # batches are made ahead, so this is some steps before
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


# -- pairs: a graph for each of a few shapes, and attention between short sentences ----------------------------------


def pair_trainer(folder, capture, bf16=False, size=None, **training):
    """Pairs of a few lengths, in batches so small that most of their shapes come several times."""
    random = np.random.default_rng(0)
    sides = []
    for _ in range(2):
        lengths = random.integers(2, 5, 120) ** 2 // 2
        ids, offsets = random.integers(1, 50, int(lengths.sum())).astype(np.uint16), offsets_of(lengths)
        ids[offsets[1:] - 1] = 0
        sides += [ids, offsets]
    pairs = TokenPairs(*sides, kept=np.arange(120), dropped={}, truncated=0, longest=256, characters=0, unknown=0)
    settings = {"steps": 40, "batch_tokens": 100, "warmup": 3, "evaluate_every": 20, "clip": 0.5, "keep": 0}
    shape = {"layers": 2, "width": 64, "heads": 2, "feedforward": 96, "dropout": 0.1, "dropout_attention": 0.1}
    recipe = compose(
        "transformer",
        "tiny",
        {"model": shape | (size or {}), "training": settings | {"learning_rate": 1e-3, "capture": capture} | training},
    )
    torch.manual_seed(0)
    model = transformer.Transformer(50, recipe.model).cuda()
    folder.mkdir(exist_ok=True)
    run = Trainer(model, PairBatches(pairs, 100, 1), lambda _: Verdict(1.0), recipe.training, folder, bf16=bf16)
    run.batches = ShapedPairBatches.of(PairBatches(pairs, 100, 1))  # the plain one reads the same batches
    torch.manual_seed(5)
    run.model.train()
    return run


@pytest.mark.parametrize("bf16", [False, True])
@pytest.mark.parametrize(
    "settings",
    [{}, {"consistency": 2.0, "ema": 0.9}, {"accumulate": 2, "label_smoothing": 0.0}, {"optimizer": "sgd"}],
)
def test_a_captured_step_on_pairs_is_the_plain_one_in_every_shape(settings, bf16, tmp_path):
    runs = [pair_trainer(tmp_path / capture, capture, bf16, **settings) for capture in ("off", "auto")]
    losses, counts = [], []
    for run in runs:
        torch.manual_seed(5)
        steps = [run.step() for _ in range(40)]
        losses.append(torch.stack([loss for loss, _ in steps]))
        counts.append([count for _, count in steps])
    assert counts[0] == counts[1]
    assert runs[0].captured is None
    assert sum(found.graph is not None for found in runs[1].captured.recordings.values()) > 3
    torch.testing.assert_close(*losses, rtol=1e-2 if bf16 else 1e-4, atol=0.0)
    if not bf16:
        assert_same(*runs)


def test_a_captured_training_on_pairs_that_was_stopped_goes_on_where_it_was(tmp_path):
    whole, first = pair_trainer(tmp_path / "whole", "on"), pair_trainer(tmp_path / "cut", "on")
    torch.manual_seed(5)
    for _ in range(40):
        whole.step()
    torch.manual_seed(5)
    for _ in range(27):
        first.step()
    first.save()
    torch.manual_seed(999)
    second = pair_trainer(tmp_path / "cut", "on")
    second.restore()
    second.model.train()
    for _ in range(40 - 27):
        second.step()
    assert_same(second, whole)


def test_systems_that_pack_their_sources_are_not_captured(tmp_path):
    for system in ("seq2seq", "bahdanau"):
        model = load_class(system)(50, compose(system, "tiny").model).cuda()
        assert not captures(model, compose(system, "tiny").training)
        with pytest.raises(RegardError, match="packs sources"):
            captures(model, compose(system, "tiny", {"training": {"capture": "on"}}).training)


@pytest.mark.parametrize("most", [0.1, 1e6])
def test_clipping_within_adamw_is_clipping_before_it(most):
    answers = []
    for within in (True, False):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(9, 5), torch.nn.Linear(5, 3)).cuda()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, eps=1e-2, fused=True)  # so that the length counts
        for _ in range(3):
            optimizer.zero_grad(set_to_none=True)
            model(torch.ones(4, 9, device="cuda")).square().sum().backward()
            if within:
                clip(model, most, optimizer)
            else:
                torch.nn.utils.clip_grad_norm_(model.parameters(), most)
            optimizer.step()
        answers.append([weight.detach() for weight in model.parameters()])
    for one, other in zip(*answers, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


# -- generation: eight steps in one graph ----------------------------------------------------------------------------


def by_the_plain_loop(model, prompts, **options):
    rows = zip(*generate(model, prompts, eos=0, **options))
    return [[token for token in row if token is not None] for row in rows]


@pytest.mark.parametrize(
    "sampling, lines",
    [(GREEDY, 0), (Sampling(0.9), 1), (Sampling(1.2, top_k=9), 0), (Sampling(top_p=0.8), 1)],
    ids=["greedy", "drawn", "top k", "top p"],
)
@pytest.mark.parametrize("number", NUMBERS)
def test_the_engine_writes_what_the_plain_loop_writes(number, sampling, lines):
    """In fp64, where no near-tie depends on the shape of a product; texts longer than the context and than a graph."""
    model = systems()[number].double().cuda().eval()
    random = torch.Generator().manual_seed(3)
    prompts = [[0, *torch.randint(50, (length,), generator=random).tolist()] for length in (3, 0, 9, 70, 1, 5, 2)]
    options = {"max_tokens": 85 if sampling == GREEDY else 30, "lines": lines, "seed": 4}
    engine = Engine(model, eos=0, sampling=sampling, forbidden=[7], rows=3)
    expected = by_the_plain_loop(model, prompts, sampling=sampling, forbidden=[7], **options)
    assert list(engine.texts(prompts, **options)) == expected
    assert engine.manner.recorder.on
    assert engine.writer.graphs
    assert list(engine.texts(prompts, **options)) == expected  # with what the first call has recorded


@pytest.mark.parametrize("number", [2, 7, 8])
def test_a_reading_that_comes_again_is_recorded(number):
    model, options = systems()[number].double().cuda().eval(), {"max_tokens": 20, "seed": 1}
    prompts = [[0, *range(1, length)] for length in (3, 1, 9, 12, 5, 7, 2, 2)]
    engine = Engine(model, eos=0, sampling=Sampling(), rows=4)
    for given in (prompts, prompts[::-1], prompts[1:] + prompts):
        expected = by_the_plain_loop(model, given, sampling=Sampling(), **options)
        assert list(engine.texts(given, **options)) == expected
    assert any(reading.graph is not None for reading in engine.writer.readings.values())


@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    "sampling",
    [
        GREEDY,
        Sampling(),
        Sampling(1e-300),
        Sampling(0.5, top_k=20),
        Sampling(1.3, top_p=0.7),
        Sampling(top_p=0.99),
        Sampling(top_p=1e-9),
        Sampling(2.0, top_k=30, top_p=0.8),
    ],
    ids=str,
)
@pytest.mark.parametrize("vocabulary", [17, 5000, 50257])
def test_the_kernel_chooses_what_is_chosen_step_by_step(vocabulary, sampling, precision):
    torch.manual_seed(0)
    logits = (3 * torch.randn(64, vocabulary, device="cuda")).to(precision)
    uniform = torch.rand(64, dtype=torch.float64, device="cuda")
    uniform[:2] = torch.tensor([0.0, 1 - 2.0**-53])
    forbidden = [*range(3, vocabulary, 7)]
    choice = FusedChoice(sampling, forbidden, logits.device, vocabulary)
    written, highest = torch.zeros_like(uniform).long(), torch.zeros_like(uniform)
    choice(logits, uniform, written, highest)
    tokens, top = pick(mask_tokens(logits, forbidden), sampling, uniform)
    assert torch.equal(written, tokens)
    assert torch.equal(highest, top.double())
    logits[3, 1] = torch.nan
    choice(logits, uniform, written, highest)
    assert (~(highest < torch.inf)).nonzero().tolist() == [[3]]


def test_a_counted_model_is_generated_from_without_a_graph():
    model = ngram.NGram(50, ngram.Settings(order=3))
    model.count(np.random.default_rng(0).integers(0, 50, 2000))
    prompts, options = [[0, 3], [0], [0, 4, 4, 9]], {"max_tokens": 20, "lines": 1, "seed": 1}
    expected = by_the_plain_loop(model.double(), prompts, sampling=Sampling(), **options)
    engine = Engine(model.cuda(), eos=0, sampling=Sampling(), rows=2)
    assert list(engine.texts(prompts, **options)) == expected
    assert not engine.manner.recorder.on


def test_a_model_that_asks_the_device_is_generated_from_without_a_graph():
    class Asking(lstm.LSTMModel):
        def predict(self, hidden):
            assert float(hidden.sum()) < 1e9  # makes the host wait
            return super().predict(hidden)

    torch.manual_seed(0)
    model = Asking(50, lstm.Settings(width=64)).double().cuda().eval()
    prompts, options = [[0, 3], [0], [0, 4, 4, 9]], {"max_tokens": 30, "seed": 1}
    engine = Engine(model, eos=0, sampling=Sampling(), rows=2)
    assert list(engine.texts(prompts, **options)) == by_the_plain_loop(model, prompts, sampling=Sampling(), **options)
    assert not engine.manner.recorder.on


@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("number", [0, 2, 3])
def test_in_low_precision_only_near_ties_are_decided_otherwise(number, precision):
    """Each word the engine writes is, to rounding, as probable as the best that a fresh reading of the text finds."""
    model = systems()[number].cuda().to(precision).eval()
    prompts = [[0, 3, 5], [0], [0, 9, 9, 1, 2]]
    exact = systems()[number].double().cuda().eval()
    exact.load_state_dict(model.state_dict())
    for prompt, tokens in zip(prompts, Engine(model, eos=0, rows=3).texts(prompts, max_tokens=40)):
        with torch.no_grad():
            logits, _ = exact(torch.tensor([[*prompt, *tokens]], device="cuda"))
        of_text = logits[0, len(prompt) - 1 : -1]
        chosen = of_text.gather(-1, torch.tensor(tokens, device="cuda")[:, None])[:, 0]
        assert float((of_text.amax(-1) - chosen).max()) < (1e-3 if precision == torch.float32 else 5e-2)


# -- the loss that never holds its logits; compiled blocks -----------------------------------------------------------


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("biased, masked", [(True, True), (False, False)])
@pytest.mark.parametrize("words, width", [(50, 30), (1000, 64), (33_278, 650)])
@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
@pytest.mark.usefixtures("_exact")
def test_the_fused_loss_is_the_plain_one_in_value_and_gradient(smoothing, biased, masked, words, width, precision):
    draw = torch.Generator("cuda").manual_seed(0)
    hidden = torch.randn(3, 40, width, device="cuda", generator=draw).requires_grad_()
    weight = (torch.randn(words, width, device="cuda", generator=draw) * width**-0.5).requires_grad_()
    bias = torch.randn(words, device="cuda", generator=draw).requires_grad_() if biased else None
    targets = torch.randint(words, (3, 40), device="cuda", generator=draw)
    valid = torch.rand(3, 40, device="cuda", generator=draw) < 0.7 if masked else torch.ones_like(targets).bool()
    of = [hidden, weight] + ([] if bias is None else [bias])
    with torch.autocast("cuda", torch.bfloat16, enabled=precision == torch.bfloat16):
        rows = (torch.nn.functional.linear(hidden, weight, bias)[valid].float(), targets[valid])
        plain = torch.nn.functional.cross_entropy(*rows, reduction="sum", label_smoothing=smoothing)
        given = {"valid": valid if masked else None, "smoothing": smoothing, "at_once": 35 * words}
        fused = linear_cross_entropy(hidden, weight, bias, targets, **given)
    error = 1e-4 if precision == torch.float32 else 1e-2  # of a gradient that bf16 rounds in other places
    torch.testing.assert_close(fused, plain, rtol=error / 10, atol=0.0)
    for one, other in zip(torch.autograd.grad(fused / 7, of), torch.autograd.grad(plain / 7, of), strict=True):
        assert (one - other).norm() < error * other.norm()


@pytest.mark.parametrize("words", [37, 10_000, 20_000])
@pytest.mark.parametrize("biased", [False, True])
def test_the_kernel_is_the_written_pass_over_rows(biased, words):
    torch.manual_seed(0)
    width, bias = -(-words // 64) * 64, torch.randn(words, device="cuda") if biased else None
    logits = torch.randn(70, width, device="cuda") * 5
    targets = torch.randint(-1, words, (70,), device="cuda")
    targets[:3] = -1
    other = logits.clone()
    costs = rows_(logits, bias, targets, words, 0.1, True)
    torch.testing.assert_close(costs, written_rows_(other, bias, targets, words, 0.1, True), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(logits, other, rtol=1e-4, atol=1e-6)


def test_compiled_blocks_train_as_written_ones_do_also_after_a_stop(tmp_path):
    """The text ends raggedly, so compiled and written steps take turns; no dropout, which draws otherwise there."""
    losses = {}
    for compile in ("off", "on"):
        torch.manual_seed(0)
        model = gpt.GPT(50, gpt.Settings(layers=2, width=128, heads=2, context=16, dropout=0.0))
        run = trainer(tmp_path / compile, model, "off", True, batches="windows", compile=compile)
        assert (run.compiled is not None) == (compile == "on")
        run.model.train()
        losses[compile] = [run.step()[0] for _ in range(17)]
        if compile == "on":
            run.save()
            after = [run.step()[0] for _ in range(3)]
            again = trainer(tmp_path / compile, model, "off", True, batches="windows", compile=compile)
            again.restore()
            again.model.train()
            torch.testing.assert_close([again.step()[0] for _ in range(3)], after, rtol=1e-4, atol=0.0)
    torch.testing.assert_close(losses["on"], losses["off"], rtol=1e-2, atol=0.0)


# -- memory, batches made ahead, Muon --------------------------------------------------------------------------------


class Growing:
    """The batches of a training, but for the one of a step, which has far more rows than the GPU's memory holds."""

    def __init__(self, batches, step):
        self.batches, self.step, self.steps_per_epoch = batches, step, batches.steps_per_epoch

    def batch(self, step):
        batch = self.batches.batch(step)
        if step != self.step:
            return batch
        more = [np.resize(part, (200_000, part.shape[1])) for part in (batch.tokens, batch.targets)]
        return replace(batch, tokens=more[0], targets=more[1], lengths=None, fresh=True)


@pytest.mark.parametrize("number", [0, 2])
def test_a_step_that_does_not_fit_leaves_the_step_before_to_go_on_from(number, tmp_path):
    batches = {0: "stream", 2: "windows"}[number]
    ends = []
    for name in ("whole", "short"):
        run = trainer(tmp_path / name, systems()[number], "off", batches=batches)
        torch.manual_seed(5)
        run.save()
        if name == "short":
            run.batches = Growing(run.batches, 6)
            room = torch.cuda.memory_reserved() + (256 << 20)
            torch.cuda.set_per_process_memory_fraction(room / torch.cuda.get_device_properties(0).total_memory)
            with pytest.raises(RegardError, match=r"in step 7: `regard resume .* --training.accumulate 2` goes on"):
                run.train()
            torch.cuda.set_per_process_memory_fraction(1.0)
            run = trainer(tmp_path / name, systems()[number], "off", batches=batches)
            run.restore()
            assert run.at.step == 6
        run.train()
        ends.append(run)
    assert_same(*ends)


@pytest.mark.parametrize("capture", ["on", "off"])
def test_batches_made_ahead_change_nothing(capture, tmp_path):
    runs = []
    for ahead in (0, 4):
        runs.append(trainer(tmp_path / str(ahead), systems()[0], capture, batches="stream"))
        assert runs[-1].feed.ahead == 4  # on a GPU that is the default
        runs[-1].feed.ahead = ahead
        torch.manual_seed(5)
        runs[-1].train()
    assert_same(*runs)


def test_a_captured_step_of_muon_is_the_plain_one(tmp_path):
    runs = []
    for capture in ("off", "on"):
        runs.append(trainer(tmp_path / capture, systems()[2], capture, batches="windows", optimizer="muon"))
        torch.manual_seed(5)
        runs[-1].train()
    assert runs[1].captured.graph is not None
    for a, b in zip(runs[0].model.parameters(), runs[1].model.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-2, atol=1e-4)  # matrices are turned in bf16


# -- beam search, recorded -------------------------------------------------------------------------------------------


def translators(dtype=torch.float32):
    """The Transformer in the ways its own kernels know, and others; of so few words that one of them, <eos>, comes."""
    kinds = [
        ("transformer", {"width": 96}),
        ("transformer", {"width": 64, "norm": "post", "activation": "gelu", "position": "learned"}),
        ("transformer", {"width": 48, "heads": 3, "position": "rotary", "shared": False, "tied": False}),
        ("bahdanau", {"width": 32}),
        ("seq2seq", {"width": 32}),
    ]
    for name, settings in kinds:
        torch.manual_seed(0)
        yield load_class(name)(13, import_module(load_class(name).__module__).Settings(**settings)).to(dtype).eval()


SENTENCES = [[1 + (n * k) % 12 for k in range(1, n % 19)] for n in range(70)]


@pytest.mark.usefixtures("_exact")
@pytest.mark.parametrize("number", range(5))
@pytest.mark.parametrize(
    "how, bounds",
    [
        (Beam(1), {}),
        (Beam(5, 1.0), {"min_tokens": 5, "max_tokens": 12}),
        (Beam(4, 0.6, 4), {"forbidden": (3,), "min_tokens": 2}),
        (Beam(3, -0.5, 2), {}),
    ],
    ids=str,
)
def test_a_recorded_beam_search_finds_what_the_plain_one_finds(number, how, bounds):
    model = [*translators()][number]
    expected = [*translate(model, SENTENCES, eos=0, beam=how, **bounds)]  # on the CPU
    model.cuda()
    engine = BeamEngine(model, batch_tokens=16 * how.width * 24)  # few places: sources come and go
    for _ in range(2):
        found = [*translate(model, SENTENCES, eos=0, beam=how, engine=engine, **bounds)]
        assert [[h.tokens for h in best] for best in found] == [[h.tokens for h in best] for best in expected]
        for best, reference in zip(found, expected, strict=True):
            assert [h.score for h in best] == pytest.approx([h.score for h in reference], abs=1e-4)
    assert all(stage.graph is not None for stage in engine.stages.values())


@pytest.mark.parametrize("number", range(5))
def test_a_recorded_search_in_bf16_finds_as_good_ones(number, monkeypatch):
    model = [*translators()][number].to("cuda", torch.bfloat16)
    bounds = {"beam": Beam(5, 1.0), "min_tokens": 8, "max_tokens": 8}
    found = [*translate(model, SENTENCES, eos=0, **bounds)]
    monkeypatch.setattr("regard.decoding.translate.is_captured", lambda model: False)
    expected = [*translate(model, SENTENCES, eos=0, **bounds)]
    exact = copy.deepcopy(model).double()
    for source, (best,) in zip(SENTENCES, found, strict=True):  # it says of what it found what the model says
        begun = exact.begin(torch.tensor([[*source, 0]]).cuda(), torch.tensor([len(source) + 1]))
        logits, _ = exact(torch.tensor([[0, *best.tokens[:-1]]]).cuda(), begun)
        chosen = logits.log_softmax(-1)[0, range(len(best.tokens)), best.tokens]
        assert best.log_probability == pytest.approx(chosen.sum().item(), abs=0.1)
    # a near-tie may lead either search astray, and at times to something better
    means = [sum(best.score for (best,) in side) / len(side) for side in (found, expected)]
    assert means[0] == pytest.approx(means[1], abs=0.02)


@pytest.mark.parametrize("number", [2, 6, 7])
def test_a_recorded_search_after_prompts_finds_what_the_plain_one_finds(number):
    model = systems()[number].double().cuda().eval()
    prompts = [[0, 4, 5], [0], [0, 9, 9, 2, 1]]
    options = {"width": 3, "max_tokens": torch.tensor([7, 3, 9]), "eos": 0, "forbidden": [2], "length_penalty": 0.7}
    with torch.no_grad():
        plain, recorded = (
            beam_search(model, *read_prompts(model, prompts, capacity), **options) for capacity in (None, 20)
        )
    assert [[h.tokens for h in best] for best in plain] == [[h.tokens for h in best] for best in recorded]


@pytest.mark.parametrize("dtype, exact", [(torch.float32, 1e-5), (torch.bfloat16, 2e-2)])
@pytest.mark.parametrize("sources, width, heads, size, room, length", [(5, 5, 4, 128, 40, 33), (3, 1, 2, 24, 9, 70)])
def test_a_beams_kernels_compute_what_is_written(dtype, exact, sources, width, heads, size, room, length):
    from regard.fast.kernels import add_norm, beam_attention

    torch.manual_seed(0)

    def numbers(*shape):
        return torch.randn(*shape, device="cuda", dtype=dtype)

    keys, values = numbers(sources, width, room, heads, size), numbers(sources, width, room, heads, size)
    ancestors = torch.randint(width, (2, sources, width, room), device="cuda", dtype=torch.uint8)
    seen = torch.randint(room, (sources,), device="cuda")
    asked = numbers(sources * width, 3 * heads * size)
    query, key, value = asked.view(sources, width, 3, heads, size).unbind(2)
    common = (seen * torch.rand(sources, device="cuda")).long()  # positions whose ancestors are everyone's
    first = torch.arange(room, device="cuda") < common[:, None, None]
    ancestors = torch.where(first, ancestors[:, :, :1], ancestors)
    found = beam_attention.attend_to_own_words(asked, keys, values, ancestors, common, seen).view_as(query)
    rows = torch.arange(sources, device="cuda")
    assert torch.equal(keys[rows, :, seen], key)
    assert torch.equal(values[rows, :, seen], value)
    expected = beam_attention.own_words(query, keys, values, ancestors[seen % 2, rows], seen)
    torch.testing.assert_close(found, expected, rtol=exact, atol=exact)

    memory = numbers(sources, length, 2, heads, size)
    lengths = torch.randint(1, length + 1, (sources,), device="cuda")
    found = beam_attention.attend_to_source(query.flatten(0, 1).flatten(1), memory, lengths, width).view_as(query)
    expected = beam_attention.source(query, *memory.unbind(2), lengths)
    torch.testing.assert_close(found, expected, rtol=exact, atol=exact)

    norm = torch.nn.LayerNorm(heads * size).to("cuda", dtype)
    x, y = numbers(7, heads * size), numbers(7, heads * size)
    with torch.no_grad():
        pairs = zip(add_norm.add_norm(x, y, norm), add_norm.added_and_normed(x, y, norm), strict=True)
        for one, other in pairs:
            torch.testing.assert_close(one, other, rtol=exact, atol=exact)


@pytest.mark.parametrize("vocabulary", [3, 97, 10_000])
@pytest.mark.parametrize(
    "terms", [Terms(5, 0, 1, 1.0, 4), Terms(4, 2, 3, 0.0, 0, (1,)), Terms(1, 0, 1), Terms(7, 0, 7, -0.5)], ids=str
)
def test_a_beams_choice_by_kernels_is_the_written_one(vocabulary, terms):
    from regard.fast.kernels.beam_choice import choose

    torch.manual_seed(0)
    one, other = (Slots(6, 9, vocabulary, terms, torch.device("cuda")) for _ in range(2))
    places = torch.arange(6, device="cuda")
    for slots in (one, other):
        slots.fill(places, torch.tensor([5, 9, 9, 1, 2, 9], device="cuda"))
    for step in range(9):
        logits = 2 * torch.randn(6 * terms.width, vocabulary, device="cuda")
        logits[:, terms.eos] += 2.0
        logits = logits.round() if step % 3 == 1 else logits  # equals
        one.choose(logits)
        choose(other, logits)
        other.total.copy_(one.total.where(one.total.isclose(other.total, rtol=0.0, atol=1e-4), torch.nan))
        for name in ("length", "count", "going", "damaged"):
            assert torch.equal(getattr(one, name), getattr(other, name))
        assert torch.equal(one.total, other.total)
        is_open = one.total > -torch.inf
        for name in ("parent", "token"):
            assert torch.equal(getattr(one, name)[is_open], getattr(other, name)[is_open])
    found, expected = other.best(places)(), one.best(places)()
    assert [[h.tokens for h in best] for best in found] == [[h.tokens for h in best] for best in expected]
