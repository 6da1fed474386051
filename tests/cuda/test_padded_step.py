"""Padded weights on a GPU: the kernels, and a training by them, are PyTorch's."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from regard.base.errors import Stopped
from regard.fast.training import padded_step
from regard.systems import gru, lstm, rnn

padded = pytest.importorskip("regard.fast.kernels.padded", reason="needs Triton")
HALF = torch.bfloat16


@pytest.mark.parametrize("rows, steps, width", [(20, 35, 650), (3, 2, 13), (64, 40, 1024)])
def test_copies_are_pytorchs(rows, steps, width):
    torch.manual_seed(0)
    more = -width % 8
    x = torch.randn(rows, steps, width, device="cuda")
    assert torch.equal(padded.padded(x.transpose(0, 1), HALF, 8), F.pad(x.transpose(0, 1), (0, more)).to(HALF))
    wide = torch.randn(steps, rows, width + more, device="cuda").to(HALF)[..., :width].transpose(0, 1)
    assert torch.equal(padded.padded(wide, HALF, 8, 1.0), F.pad(wide, (0, more), value=1.0))
    hidden, cell = torch.randn(2, rows, width, device="cuda")
    hiddens = torch.zeros(steps + 1, rows, width + more, dtype=torch.int16, device="cuda")
    cells = torch.zeros(steps + 1, rows, width, device="cuda")
    padded.begun(hidden, cell, hiddens, cells)
    assert torch.equal(hiddens[0].view(HALF), F.pad(hidden, (0, more)).to(HALF))
    assert (hiddens[1:] == -1).all()
    assert torch.equal(cells[0], cell)
    assert not cells[1:].any()
    padded.marked(hiddens)
    assert (hiddens[:-1] == -1).all()
    assert not hiddens[-1].any()


@pytest.mark.parametrize("rows, steps, width, words", [(20, 35, 650, 10_000), (20, 35, 1500, 3), (64, 64, 24, 50)])
def test_gradients_of_words_are_added_by_word_and_always_in_the_same_order(rows, steps, width, words):
    torch.manual_seed(0)
    tokens = torch.randint(words, (rows, steps), device="cuda")
    d_vectors = torch.randn(steps, rows, width + 6, device="cuda").to(HALF)[..., :width].transpose(0, 1)
    given, factor = torch.randn(words + 3, width + 6, device="cuda"), torch.tensor(1 / 700, device="cuda")
    wanted = given.double()
    wanted[:, :width].index_add_(0, tokens.flatten(), d_vectors.double().reshape(-1, width) / factor.double())
    answers = [given.clone() for _ in range(3)]
    for gradient in answers:
        padded.add_words(tokens, d_vectors, gradient, factor)
    torch.testing.assert_close(answers[0].double(), wanted, rtol=1e-4, atol=1e-3 * float(wanted.abs().max()))
    assert torch.equal(answers[0], answers[1])
    assert torch.equal(answers[0], answers[2])


@pytest.mark.parametrize("clip", [0.0, 0.5, 1e6])
@pytest.mark.parametrize("width", [13, 650, 1500])
def test_the_optimisers_step_is_adamws(width, clip):
    torch.manual_seed(0)
    shapes = [(1000, width), *[(4 * width, width)] * 4, *[(4 * width,)] * 8, (1000,)]  # more than one launch takes
    weights = [nn.Parameter(torch.randn(shape, device="cuda")) for shape in shapes]
    copied = [weight.detach().clone() for weight in weights]
    decay = [0.1 if weight.dim() > 1 else 0.0 for weight in weights]
    groups = [{"params": [weight], "weight_decay": share} for weight, share in zip(weights, decay, strict=True)]
    rate = torch.tensor(1e-2, device="cuda")
    written = torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.95), fused=True, capturable=True)
    more = -width % 8
    halves = [None if w.dim() == 1 else torch.zeros(len(w), width + more, dtype=HALF, device="cuda") for w in copied]
    kept = [(torch.zeros_like(w), torch.zeros_like(w), torch.zeros((), device="cuda")) for w in copied]
    factors = torch.tensor([0.5, 1.0], device="cuda").unbind()
    for _ in range(3):
        parts = []
        for number, (weight, copy) in enumerate(zip(weights, copied, strict=True)):
            gradient = torch.randn(weight.shape, device="cuda")
            gradient = F.pad(gradient, (0, more), value=9.0) if weight.dim() == 2 else gradient
            weight.grad = gradient[tuple(map(slice, weight.shape))].contiguous() * factors[number % 2]
            given = (copy, gradient, factors[number % 2], *kept[number], rate, decay[number], halves[number])
            parts.append(padded.Part(*given))
        if clip:
            nn.utils.clip_grad_norm_(weights, clip)
        written.step()
        padded.adamw(parts, (0.9, 0.95), 1e-8, clip)
    for weight, copy, (first, second, step), half in zip(weights, copied, kept, halves, strict=True):
        torch.testing.assert_close(copy, weight.detach(), rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(first, written.state[weight]["exp_avg"], rtol=1e-4, atol=1e-7)
        torch.testing.assert_close(second, written.state[weight]["exp_avg_sq"], rtol=1e-4, atol=1e-9)
        assert float(step) == 3
        if half is not None:
            assert torch.equal(half, F.pad(copy, (0, more)).to(HALF))


# -- a training ------------------------------------------------------------------------------------------------------

SYSTEMS = {
    "lstm, tied": lambda: lstm.LSTMModel(50, lstm.Settings(width=44, dropout=0.0)),
    "lstm, untied": lambda: lstm.LSTMModel(50, lstm.Settings(width=64, embedding=50, tied=False, dropout=0.0)),
    "lstm, regularised": lambda: lstm.LSTMModel(
        50, lstm.Settings(width=50, dropout=0.1, dropout_recurrent=0.2, dropout_embedding=0.1, variational=True)
    ),
    "rnn": lambda: rnn.RNN(50, rnn.Settings(width=50, dropout=0.0)),
    "sigmoid": lambda: rnn.RNN(50, rnn.Settings(width=50, activation="sigmoid", dropout=0.0)),
    "gru": lambda: gru.GRUModel(50, gru.Settings(width=50, dropout=0.1)),
}


def model(name):
    torch.manual_seed(0)
    return SYSTEMS[name]()


def step_of(run):
    return run.runner.padded


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_padded_training_is_the_plain_one(name, trainer, monkeypatch):
    """The text ends raggedly, so recorded steps, which are padded, and plain ones take turns."""
    runs, losses = [], []
    for way in ("off", "captured", "padded"):
        with monkeypatch.context() as patch:
            if way != "padded":
                patch.setattr(padded_step, "takes", lambda trainer: False)
            run = trainer(way, model(name), "off" if way == "off" else "on", True)
            torch.manual_seed(5)
            run.model.train()
            losses.append(torch.stack([run.step()[0] for _ in range(17)]))
            runs.append(run)
    assert step_of(runs[1]) is None
    assert step_of(runs[2]) is not None
    for other in losses[:2]:
        torch.testing.assert_close(losses[2], other, rtol=3e-3, atol=0.0)
    for other in runs[:2]:
        for (part, a), b in zip(runs[2].model.named_parameters(), other.model.named_parameters(), strict=True):
            assert float((a - b[1]).norm()) < 0.02 * float(b[1].norm()) + 2e-3, part
    states = [list(run.optimizer.state.values()) for run in runs]
    assert [sorted(state) for state in states[2]] == [sorted(state) for state in states[0]]
    assert all(float(state["step"]) == 17 for state in states[2])


@pytest.mark.parametrize("stop", [1, 9, 13])
def test_a_padded_training_that_was_stopped_goes_on_where_it_was(stop, trainer):
    whole = trainer("whole", model("lstm, tied"), "on", True)
    torch.manual_seed(5)
    whole.train()
    first = trainer("cut", model("lstm, tied"), "on", True)
    torch.manual_seed(5)
    batch = first.batches.batch

    def interrupting(step):
        first.stop_requested |= step == stop
        return batch(step)

    first.batches.batch = interrupting
    with pytest.raises(Stopped):
        first.train()
    second = trainer("cut", model("lstm, tied"), "on", True)
    second.restore()
    second.train()
    assert step_of(second) is not None
    assert second.progress.step == whole.progress.step
    for (part, a), b in zip(second.model.named_parameters(), whole.model.parameters(), strict=True):
        assert float((a - b).norm()) < 0.01 * float(b.norm()) + 1e-3, part


def test_weights_that_were_changed_between_recorded_steps_are_read_anew(trainer):
    run = trainer("changed", model("lstm, tied"), "on", True)
    run.model.train()
    for _ in range(6):
        run.step()
    with torch.no_grad():
        for weight in run.model.parameters():
            weight.zero_()
    loss, _ = run.step()
    torch.testing.assert_close(float(loss), float(torch.tensor(50.0).log()), rtol=1e-3, atol=0.0)


@pytest.mark.parametrize("settings", [{"accumulate": 2}, {"optimizer": "sgd", "learning_rate": 1.0}])
def test_other_optimisers_and_several_backward_passes_are_as_they_were(settings, trainer):
    run = trainer("other", model("lstm, tied"), "on", True, **settings)
    run.model.train()
    for _ in range(6):
        run.step()
    assert step_of(run) is None
