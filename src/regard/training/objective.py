"""What training minimises: the sum of −log P(token) over a batch, with the number of tokens summed.

    L = Σ −log P(x_t | x_<t)  /  number of targets in the whole batch

Sum and count are kept apart because averages of averages are wrong as soon as rows, micro-batches or processes
hold different numbers of tokens. This one module is what a wrapper (compile, data parallel) would wrap.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from regard.layers.state import State
from regard.systems.model import Model
from regard.text.batches import Batch


class TensorBatch(NamedTuple):
    """A batch on the model's device. `lengths` None: every row is full."""

    tokens: Tensor  # [R, T]
    targets: Tensor  # [R, T]
    lengths: Tensor | None  # [R]


class Objective(nn.Module):
    def __init__(self, model: Model):
        super().__init__()
        self.model = model

    def forward(self, batch: TensorBatch, state: State | None) -> tuple[Tensor, int | Tensor, State]:
        nll, state = self.model.loss(batch.tokens, batch.targets, state, batch.lengths)  # [R, T], 0 where padded
        count = batch.targets.numel() if batch.lengths is None else batch.lengths.sum()
        return nll.sum(), count, state


def to_device(batch: Batch, device: torch.device) -> TensorBatch:
    def move(array: np.ndarray) -> Tensor:
        tensor = torch.from_numpy(array)
        return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)

    lengths = None if batch.lengths is None else move(batch.lengths)
    return TensorBatch(move(batch.tokens), move(batch.targets), lengths)


def micro_batches(batch: TensorBatch, parts: int) -> list[tuple[slice, TensorBatch]]:
    """The batch cut into at most `parts` groups of rows, each with the rows it holds."""
    rows = batch.tokens.size(0)
    edges = [rows * k // parts for k in range(parts + 1)]
    slices = [slice(a, b) for a, b in pairwise(edges) if b > a]
    return [
        (
            rows,
            TensorBatch(
                batch.tokens[rows], batch.targets[rows], None if batch.lengths is None else batch.lengths[rows]
            ),
        )
        for rows in slices
    ]
