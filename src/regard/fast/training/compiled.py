"""Training a language model's Transformer blocks with torch.compile, where that pays (Ansel et al. 2024).

Between its matrix products a block is bound by memory: norms, sums, the GELU, and their backward each read and write
the whole batch. Fusing them saves passes. Most blocks have hand-written kernels (fast/attention/fused_block.py,
language_blocks.py); others are compiled. Blocks are compiled for one batch shape, that of the first full batch. Other
batches, such as the last of an epoch, and evaluation run as written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor

from regard.base.errors import RegardError
from regard.fast.attention import fused_block, language_blocks
from regard.fast.table import Row, Use, Why, installed
from regard.layers.blocks import Block
from regard.layers.state import State
from regard.systems.model import Model, Stack
from regard.training.hyperparameters import GradientTraining, Training
from regard.training.loop import Trainer
from regard.training.objective import TensorBatch

BACKEND = "inductor"
RATE = 400e12  # FLOP/s that an H200 reaches with GPT-2 as written
LAUNCHING = 5e-4  # seconds of host time to launch a block, forward and backward, however small
SECONDS = 120.0  # compiling pays if training takes longer: it costs 8 seconds and saves an eighth of the rest


def compiles(model: Model, settings: GradientTraining) -> bool:
    """True if the blocks are to be compiled; `auto` compiles on a GPU if the blocks have no hand-written kernels and
    training will take at least `SECONDS`. It depends on the settings alone, so a resumed run decides the same."""
    if not isinstance(settings, Training) or settings.batches != "windows" or settings.shard or not blocks_of(model):
        if getattr(settings, "compile", "auto") == "on":
            raise RegardError(
                "training.compile on needs an unsharded language model of Transformer blocks that reads windows: "
                "leave it at auto."
            )
        return False
    if settings.compile != "auto":
        return settings.compile == "on"
    by_hand = any(installed(model, row) for row in (*fused_block.ROWS, *language_blocks.ROWS))
    return model.device.type == "cuda" and not by_hand and planned_seconds(model, settings) >= SECONDS


def planned_seconds(model: Model, settings: GradientTraining) -> float:
    """Roughly how long training will take on a GPU."""
    limit = settings.limit
    if limit.unit == "seconds":
        return limit.amount
    steps = limit.amount / (1 if limit.unit == "steps" else settings.batch_tokens)
    return steps * max(settings.batch_tokens * model.flops_per_token / RATE, len(blocks_of(model)) * LAUNCHING)


def blocks_of(model: Model) -> list[Block]:
    """The model's layers if all of them are blocks, else none."""
    layers = list(model.layers) if isinstance(model, Stack) else []
    blocks = [layer for layer in layers if isinstance(layer, Block)]
    return blocks if len(blocks) == len(layers) else []


class Compiled:
    """Compiled forwards of a model's blocks. The modules stay, so parameter names do not change."""

    def __init__(self, model: Model, backend: str | None = None) -> None:
        self.blocks = blocks_of(model)
        self.fast: list[Callable[..., Any]] = [
            torch.compile(block.forward, dynamic=False, backend=backend or BACKEND) for block in self.blocks
        ]
        self.shape: torch.Size | None = None  # that of the first full batch

    @contextmanager
    def reading(self, batch: TensorBatch) -> Iterator[None]:
        """Inside this context the blocks run compiled, if the batch has the compiled shape."""
        if batch.lengths is None and self.shape is None:
            self.shape = batch.tokens.shape
        if batch.lengths is not None or batch.tokens.shape != self.shape:
            yield
            return
        before = [vars(block).get("forward") for block in self.blocks]  # what `install` put there
        for block, fast in zip(self.blocks, self.fast, strict=True):
            block.forward = fast  # type: ignore[method-assign]
        try:
            yield
        finally:
            for block, forward in zip(self.blocks, before, strict=True):
                del block.forward
                if forward is not None:
                    block.forward = forward  # type: ignore[method-assign]


class CompiledForward:
    """`Trainer.forward` with compiled blocks, unless hand-written kernels were installed for them."""

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = trainer
        self.compiled: Compiled | None = None

    def __call__(self, batch: TensorBatch, state: State | None) -> tuple[Tensor, State]:
        if self.compiled is None and compiles(self.trainer.model, self.trainer.settings):
            self.compiled = Compiled(self.trainer.model)
        with nullcontext() if self.compiled is None else self.compiled.reading(batch):
            return Trainer.forward(self.trainer, batch, state)


def allows(trainer: Trainer, use: Use) -> Why:
    return None if compiles(trainer.model, trainer.settings) else "there are no blocks, or too little to train"


ROWS = (Row("compiled blocks", "regard.training.loop:Trainer.forward", makes=CompiledForward, allows=allows),)
