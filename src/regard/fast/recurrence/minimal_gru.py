"""The minimal GRU on a GPU: all steps in one kernel, and their gradient in another.

The tree of layers/scan.py reads and writes everything log₂ T times, in as many launches; the kernel reads both halves
of the product once, as they are, and writes h once. See kernels/gated_scan.py.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from regard.fast.table import Row, needs_triton
from regard.layers.scan import MinGRU
from regard.layers.state import Span, State

CHUNK, BLOCK, WARPS = 64, 32, 4  # steps and components of a program at a time, and its warps


class GatedScan(torch.autograd.Function):
    """Every h_t [R, T, D], and h after each row's last real step, from u and n [R, T, 2 D] and h_0 [R, D]."""

    @staticmethod
    def forward(ctx: Any, packed: Tensor, first: Tensor, lengths: Tensor | None) -> tuple[Tensor, Tensor]:
        from regard.fast.kernels.gated_scan import scan_forward

        packed, first = packed.contiguous(), first.contiguous()
        rows, steps, width = packed.shape
        hidden, end = packed.new_empty(rows, steps, width // 2), torch.empty_like(first)
        _launch(scan_forward, packed, first, lengths, hidden, end)
        ctx.save_for_backward(packed, first, hidden)
        ctx.lengths = lengths
        return hidden, end

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        from regard.fast.kernels.gated_scan import scan_backward

        packed, first, hidden = ctx.saved_tensors
        found = torch.empty_like(packed), torch.empty_like(first)
        given = (part.contiguous() for part in gradients)
        _launch(scan_backward, packed, first, ctx.lengths, hidden, *given, *found)
        return *found, None


def _launch(kernel: Any, packed: Tensor, first: Tensor, lengths: Tensor | None, *more: Tensor) -> None:
    rows, steps, width = packed.size(0), packed.size(1), first.size(1)
    ragged, grid = lengths is not None, (rows, -(-width // BLOCK))
    given = packed, first, lengths if ragged else first, *more, steps, width
    kernel[grid](*given, RAGGED=ragged, CHUNK=CHUNK, BLOCK=BLOCK, num_warps=WARPS)


def run(packed: Tensor, state: State, span: Span) -> tuple[Tensor, State]:
    """The layer after its product: hidden vectors, in the product's precision, and the state."""
    exact = torch.promote_types(packed.dtype, torch.float32)
    hidden, end = GatedScan.apply(packed, state["hidden"].to(exact), span.lengths)
    return hidden, {"hidden": end}


def _forward(layer: MinGRU, x: Tensor, state: State, span: Span) -> tuple[Tensor, State]:
    hidden, state = run(layer.project(x), state, span)
    return hidden.to(x.dtype), state


def _fits(layer: MinGRU, x: Tensor, state: State, span: Span) -> bool:
    return x.size(1) > 1 and x.numel() > 0


ROWS = (Row("minimal GRU in one kernel", "regard.layers.scan:MinGRU.forward", _forward, _fits, needs=needs_triton),)
