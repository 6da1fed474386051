"""The minimal GRU on a GPU: all steps in one kernel, and their gradient in another.

The tree of layers/scan.py reads and writes everything log₂ T times, in as many launches; the kernel reads z and n once
and writes h once. See kernels/gated_scan.py.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from regard.fast.table import Row, needs_triton
from regard.layers.scan import MinGRU

CHUNK, BLOCK = 64, 32  # steps and components of a program at a time


class GatedScan(torch.autograd.Function):
    """Every h_t [R, T, D] from z, n [R, T, D] and h_0 [R, D]."""

    @staticmethod
    def forward(ctx: Any, update: Tensor, candidate: Tensor, first: Tensor) -> Tensor:
        from regard.fast.kernels.gated_scan import scan_forward

        update, candidate, first = update.contiguous(), candidate.contiguous(), first.contiguous()
        hidden = torch.empty_like(update)
        rows, steps, width = update.shape
        scan_forward[_grid(rows, width)](update, candidate, first, hidden, steps, width, CHUNK=CHUNK, BLOCK=BLOCK)
        ctx.save_for_backward(update, candidate, first, hidden)
        return hidden

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        from regard.fast.kernels.gated_scan import scan_backward

        kept = ctx.saved_tensors
        found = tuple(torch.empty_like(part) for part in kept[:3])
        rows, steps, width = kept[0].shape
        given = gradients[0].contiguous()
        scan_backward[_grid(rows, width)](*kept, given, *found, steps, width, CHUNK=CHUNK, BLOCK=BLOCK)
        return found  # type: ignore[return-value]  # three of them


def _grid(rows: int, width: int) -> tuple[int, int]:
    return rows, -(-width // BLOCK)


def run(layer: MinGRU, update: Tensor, candidate: Tensor, hidden: Tensor) -> Tensor:
    return GatedScan.apply(update, candidate, hidden.to(update.dtype))


def _fits(layer: MinGRU, update: Tensor, candidate: Tensor, hidden: Tensor) -> bool:
    return update.size(1) > 1 and update.numel() > 0


ROWS = (Row("minimal GRU in one kernel", "regard.layers.scan:MinGRU.run", run, _fits, needs=needs_triton),)
