"""How the blocks of a language model train on a GPU: by hand where they are GPT-2's, else compiled where it pays.

Between its products a Transformer's block only passes over its vectors: norms, sums, the GELU, and the same backward.
Each is a reading and a writing of the whole batch, and several can be one. For GPT-2's block without dropout that is
done by hand (fast/fused_block.py). For others PyTorch's compiler does it (Ansel et al. 2024). All blocks are alike,
so it compiles one, for batches of one shape, the first full one; others, such as the last of an epoch, and whatever is
read in eval(), go the way that is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor

from regard.base.errors import RegardError
from regard.fast.fused_block import BY_HAND
from regard.fast.row_table import Row, Use, Why, installed
from regard.layers.blocks import Block
from regard.layers.state import State
from regard.systems.model import Model, Stack
from regard.training.hyperparameters import Learning, Training
from regard.training.loop import Trainer
from regard.training.objective import TensorBatch

BACKEND = "inductor"
RATE = 400e12  # operations per second that an H200 reaches in GPT-2 as it is written
LAUNCHING = 5e-4  # seconds that the host takes for a block, however small, forward and backward
SECONDS = 120.0  # of training from which compiling pays: it takes 8 of them and saves an eighth of the others


def compiles(model: Model, settings: Learning) -> bool:
    """Are the blocks to be compiled? By themselves on a GPU, where they are not by hand and there is so much to train
    that it pays: two minutes, or as many tokens as take them. Only the settings decide, so a resume goes on alike."""
    if not isinstance(settings, Training) or settings.batches != "windows" or settings.shard or not blocks_of(model):
        if getattr(settings, "compile", "auto") == "on":
            raise RegardError(
                "training.compile on is for a language model of Transformer blocks that reads windows, not sharded: "
                "leave it at auto."
            )
        return False
    if settings.compile != "auto":
        return settings.compile == "on"
    return model.device.type == "cuda" and not installed(model, BY_HAND) and planned_seconds(model, settings) >= SECONDS


def planned_seconds(model: Model, settings: Learning) -> float:
    """What a training will take about, on a GPU."""
    limit = settings.limit
    if limit.unit == "seconds":
        return limit.amount
    steps = limit.amount / (1 if limit.unit == "steps" else settings.batch_tokens)
    return steps * max(settings.batch_tokens * model.flops_per_token / RATE, len(blocks_of(model)) * LAUNCHING)


def blocks_of(model: Model) -> list[Block]:
    """The blocks of a model that is made of nothing else; none of any other."""
    layers = list(model.layers) if isinstance(model, Stack) else []
    blocks = [layer for layer in layers if isinstance(layer, Block)]
    return blocks if len(blocks) == len(layers) else []


class Compiled:
    """The blocks of a model in two forms, as written and compiled; the names of weights are those of the first."""

    def __init__(self, model: Model, backend: str | None = None) -> None:
        self.blocks = blocks_of(model)
        self.fast: list[Callable[..., Any]] = [
            torch.compile(block.forward, dynamic=False, backend=backend or BACKEND) for block in self.blocks
        ]
        self.shape: torch.Size | None = None  # the first full batch decides

    @contextmanager
    def reading(self, batch: TensorBatch) -> Iterator[None]:
        """Within, the blocks are compiled if the batch is one of those they are compiled for."""
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
    """`Trainer.forward` with compiled blocks, unless they turn out to be by hand."""

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
