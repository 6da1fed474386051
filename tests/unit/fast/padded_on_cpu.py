"""The kernels of padded matrices on a CPU, by Triton's interpreter, against plain PyTorch; test_padded.py runs this.

The interpreter cuts where a GPU rounds to bf16, so numbers that are cast are chosen to be exact in it, or compared to
within its last digit."""

from pathlib import Path

import numpy as np
import torch
from torch import nn
from triton.runtime import interpreter

from regard.fast import install
from regard.fast.kernels import padded
from regard.fast.recurrence.table_lookup import WordVectors
from regard.fast.training.padded_step import PaddedStep
from regard.runs.recipe import compose
from regard.systems.lstm import LSTMModel, Settings
from regard.text.batches.text_batches import Streams
from regard.training.loop import Trainer
from regard.training.objective import to_device

patch = interpreter._patch_lang_tensor


def patch_for_numpy_2_4(tensor, scope):  # which makes no number of an array of one
    patch(tensor, scope)
    scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))


interpreter._patch_lang_tensor = patch_for_numpy_2_4
padded.PROGRAMS = 4
HALF = torch.bfloat16
LAST_DIGIT = 2**-7


def exact(*shape):
    return torch.randn(*shape).to(HALF).float()


def copies():
    x = exact(5, 7, 13)
    found = padded.padded(x.transpose(0, 1), HALF, 8)
    assert torch.equal(found, nn.functional.pad(x.transpose(0, 1), (0, 3)).to(HALF))
    found = padded.padded(x[0], HALF, 8, 1.0)
    assert torch.equal(found, nn.functional.pad(x[0], (0, 3), value=1.0).to(HALF))
    hidden, cell = exact(5, 13), torch.randn(5, 13)
    hiddens, cells = torch.zeros(4, 5, 16, dtype=torch.int16), torch.zeros(4, 5, 13)
    padded.begun(hidden, cell, hiddens, cells)
    assert torch.equal(hiddens[0].view(HALF), nn.functional.pad(hidden, (0, 3)).to(HALF))
    assert (hiddens[1:] == -1).all()
    assert torch.equal(cells[0], cell)
    assert not cells[1:].any()
    marks = torch.zeros(4, 5, 16, dtype=torch.int16)
    padded.marked(marks)
    assert (marks[:-1] == -1).all()
    assert not marks[-1].any()


def words():
    tokens, weigh = torch.randint(6, (5, 7)), exact(5, 7, 13)
    table = exact(9, 13).requires_grad_()
    vectors = WordVectors.apply(table, tokens, None)
    assert torch.equal(vectors, table[tokens])
    found = torch.autograd.grad((vectors * weigh).sum(), table)
    torch.testing.assert_close(found, torch.autograd.grad((table[tokens] * weigh).sum(), table))
    gradient, factor = torch.randn(16, 16), torch.tensor(0.25)
    wanted = gradient.clone()
    wanted[:9, :13] += found[0] / factor
    padded.add_words(tokens, weigh.to(HALF).transpose(0, 1).contiguous().transpose(0, 1), gradient, factor)
    torch.testing.assert_close(gradient, wanted)


def optimiser(clip):
    weights = [nn.Parameter(torch.randn(shape)) for shape in [(9, 13), (300,), (17, 520), (4, 8)]]
    copied = [nn.Parameter(weight.detach().clone()) for weight in weights]
    decay = [0.1 if weight.dim() > 1 else 0.0 for weight in weights]
    groups = [{"params": [weight], "weight_decay": share} for weight, share in zip(weights, decay, strict=True)]
    written = torch.optim.AdamW(groups, lr=1e-2, betas=(0.9, 0.95))
    halves = [None if w.dim() == 1 else torch.zeros(len(w), -(-w.size(1) // 8) * 8, dtype=HALF) for w in copied]
    kept = [(torch.zeros_like(w), torch.zeros_like(w), torch.zeros(())) for w in copied]
    rate, factors = torch.tensor(1e-2), [torch.tensor(0.5), torch.tensor(1.0)]
    for _ in range(3):
        parts = []
        for number, (weight, copy) in enumerate(zip(weights, copied, strict=True)):
            more = (3, 5) if weight.dim() == 2 else (0,)
            gradient = torch.randn([size + extra for size, extra in zip(weight.shape, more, strict=True)])
            weight.grad = gradient[tuple(map(slice, weight.shape))] * factors[number % 2]
            given = (copy, gradient, factors[number % 2], *kept[number], rate, decay[number], halves[number])
            parts.append(padded.Part(*given))
        if clip:
            nn.utils.clip_grad_norm_(weights, clip)
        written.step()
        with torch.no_grad():
            padded.adamw(parts, (0.9, 0.95), 1e-8, clip)
    for weight, copy, (first, second, step), half in zip(weights, copied, kept, halves, strict=True):
        torch.testing.assert_close(copy, weight, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(first, written.state[weight]["exp_avg"])
        torch.testing.assert_close(second, written.state[weight]["exp_avg_sq"])
        assert float(step) == 3
        if half is not None:
            torch.testing.assert_close(half[:, : copy.size(1)].float(), copy.detach(), rtol=LAST_DIGIT, atol=0.0)
            assert not half[:, copy.size(1) :].any()


def trainer(tied):
    torch.manual_seed(0)
    model = LSTMModel(20, Settings(layers=1, width=16, embedding=16, dropout=0.0, tied=tied))
    given = {"batch_tokens": 32, "window": 8, "clip": 0.1, "device": "cpu", "learning_rate": 1e-2, "weight_decay": 0.1}
    settings = compose("lstm", "tiny", {"training": given}).training
    ids = np.random.default_rng(0).integers(20, size=4 * 8 * 6 + 4).astype(np.uint16)
    made = Trainer(
        model, Streams(ids, 4, 8, 0), lambda model: None, settings, Path("never-written"), bf16=True, install=install
    )
    made.model.train()
    return made


def steps(tied):
    """Padded steps and written ones take turns, and end where written ones alone do."""
    plain, turns = trainer(tied), trainer(tied)
    for group in turns.optimizer.param_groups:
        group["lr"] = torch.tensor(float(group["lr"]))
    step = PaddedStep(turns)
    for number in range(5):
        losses = [plain.step()[0]]
        if number == 2:
            losses.append(turns.step()[0])
            step.forget()
        else:
            for group in turns.optimizer.param_groups:
                group["lr"].fill_(turns.learning_rate)
            batch = turns.batches.batch(number)
            step.refresh()
            loss, turns.state = step(to_device(batch, turns.device), None if batch.fresh else turns.state)
            turns.progress.step += 1
            losses.append(loss)
        torch.testing.assert_close(*losses, rtol=1e-3, atol=0.0)
    for (name, one), other in zip(plain.model.named_parameters(), turns.model.parameters(), strict=True):
        difference = float((one - other).norm() / one.norm())
        assert difference < 2e-3, (name, difference)
    for one, other in zip(plain.optimizer.state.values(), turns.optimizer.state.values(), strict=True):
        assert one.keys() == other.keys()
        assert float(one["step"]) == float(other["step"]) == 5


torch.manual_seed(0)
copies()
words()
for clip in (0.0, 0.5, 1e4):
    optimiser(clip)
for tied in (True, False):
    steps(tied)
