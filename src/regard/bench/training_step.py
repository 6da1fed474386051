"""A whole training step by Regard's Trainer, and as a plain PyTorch loop.

Both read the same batches, made by the same code; minimise the mean cross-entropy in bf16 autocast on a GPU and fp32
on a CPU; clip the gradient's norm to 1; and step with AdamW (the peer's is fused) with weight decay on matrices only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from regard.bench.contenders import BenchPlace
from regard.fast.training.captured_step import PAIR_SHAPES, Captured
from regard.layers.state import State, detach
from regard.runs.speed import install
from regard.systems.model import Model
from regard.text.batches.pair_batches import PairBatch
from regard.text.batches.text_batches import Batch, Windows
from regard.training.hyperparameters import GradientTraining
from regard.training.loop import Batches, Trainer
from regard.training.objective import TensorBatch, micro_batches, to_device
from regard.training.validation import ValidationResult

LEARNING: dict[str, Any] = {  # of both sides
    "optimizer": "adamw",
    "learning_rate": 3e-4,
    "schedule": "constant",
    "warmup": 0,
    "weight_decay": 0.1,
    "beta2": 0.95,
    "clip": 1.0,
}


def count(model: nn.Module) -> int:
    return sum(weight.numel() for weight in model.parameters() if weight.requires_grad)


class RegardTraining:
    """The trainer of `regard train`, with the same fast paths, but without validation and files."""

    def __init__(self, model: Model, batches: Batches, settings: GradientTraining, place: BenchPlace) -> None:
        self.model = model.to(place.device)
        bf16, nowhere = place.dtype == torch.bfloat16, Path("never-written")
        self.trainer = Trainer(self.model, batches, _unseen, settings, nowhere, bf16=bf16, install=install)
        self.model.train()
        self.parameters = count(self.model)

    def __call__(self) -> int:
        self.loss, tokens = self.trainer.step()
        return tokens


def _unseen(model: Model) -> ValidationResult:
    raise AssertionError("a benchmark never validates")


Loss = Callable[[TensorBatch, State | None], tuple[Tensor, State | None]]


class PlainTraining:
    """`loss(batch, state)` is the mean over the batch, and the state that the next batch begins with, if any."""

    def __init__(
        self,
        model: nn.Module,
        loss: Loss,
        batches: Batches,
        place: BenchPlace,
        *,
        begin: Callable[[int], State] | None = None,
        captured: bool = False,
        parts: int = 1,
    ) -> None:
        """`parts`: micro-batches of a step, where the state is not carried."""
        self.parts = parts
        self.model = model.to(place.device).train()
        self.mean_loss, self.batches, self.place, self.begin = loss, batches, place, begin
        self.optimizer = adamw(self.model, captured)
        self.captured = Captured(self._update, begin, shapes=PAIR_SHAPES) if captured else None
        self.parameters = count(model)
        self.state: State | None = None
        self.step = 0

    def __call__(self) -> int:
        found = self.batches.batch(self.step)
        batch = to_device(found, self.place.device)
        if self.begin is not None and (getattr(found, "fresh", True) or self.state is None):
            self.state = self.begin(len(batch.tokens))
        update = self.captured if self.captured is not None and self.captured.fits(found) else self._update
        self.loss, self.state = update(batch, self.state)
        self.step += 1
        return found.targets.size if found.lengths is None else int(found.lengths.sum())

    def _update(self, batch: TensorBatch, state: State | None) -> tuple[Tensor, State | None]:
        self.optimizer.zero_grad(set_to_none=True)
        for _, part in micro_batches(batch, self.parts):
            with torch.autocast(self.place.device.type, torch.bfloat16, enabled=self.place.dtype == torch.bfloat16):
                loss, state = self.mean_loss(part, state)
            (loss / self.parts).backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), LEARNING["clip"])
        self.optimizer.step()
        return loss.detach(), None if state is None else detach(state)


def adamw(model: nn.Module, captured: bool) -> torch.optim.AdamW:
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    groups = [
        {"params": [weight for weight in weights if weight.dim() >= 2], "weight_decay": LEARNING["weight_decay"]},
        {"params": [weight for weight in weights if weight.dim() < 2], "weight_decay": 0.0},
    ]
    betas = (0.9, LEARNING["beta2"])
    return torch.optim.AdamW(groups, lr=LEARNING["learning_rate"], betas=betas, fused=True, capturable=captured)


class Pool:
    """A few batches, over and over."""

    def __init__(self, pool: Sequence[Batch | PairBatch]) -> None:
        self.pool, self.steps_per_epoch = pool, len(pool)

    def batch(self, step: int) -> Batch | PairBatch:
        return self.pool[step % len(self.pool)]


def random_tokens(vocabulary: int, amount: int) -> np.ndarray:
    """Random ids from 1 on: no line ends."""
    return np.random.default_rng(0).integers(1, vocabulary, amount).astype(np.uint16)


def full_windows(vocabulary: int, rows: int, window: int) -> Pool:
    """Random text, in windows as in training."""
    windows = Windows(random_tokens(vocabulary, (8 * rows + 1) * window), rows, window, 0, seed=1)
    batches = (windows.batch(step) for step in range(windows.steps_per_epoch))
    return Pool([batch for batch in batches if batch.lengths is None and batch.tokens.shape == (rows, window)])
