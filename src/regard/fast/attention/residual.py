"""Bias, dropout, residual sum and layer norm of a Transformer's sublayer, in one kernel forward and one backward.

    s = x + drop(a + c),    y = LN(s)                  a: the sublayer's last product, c: that product's bias

As written these are five passes over the batch, and more in the backward pass; here it is one (Triton, on a GPU:
fast/kernels/dropout_add_norm.py). `written` is the reference.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from regard.fast.attention.bias_gradients import BufferPlace, DeferredSums, split_rows

Norm = nn.LayerNorm | nn.RMSNorm
LEVELS = 2**16  # the dropout rate is rounded to a multiple of 1/LEVELS
ROWS, WARPS = 2, 2  # of a program
BACK_ROWS, BACK_WARPS = 2, 2  # of a program in the backward pass


def add_norm(
    x: Tensor,
    part: Tensor,
    bias: Tensor | None,
    norm: Norm,
    dropout: float,
    seed: Tensor | None = None,
    deferred: DeferredSums | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """s, in the wider precision of x and part [..., D], and y twice, in that of the part: with two readers, each gets
    its own output, and the backward kernel adds their gradients. `seed[0]` decides what is dropped; `deferred` holds
    the `vectors_of`. RMSNorm has no shift, and the part may have no bias."""
    if dropout and seed is None:
        seed = torch.randint(2**62, (1,), device=x.device)
    vectors = vectors_of(norm, bias)
    deferred = deferred or DeferredSums([vectors], split_rows(x.numel() // x.size(-1))[1])
    place, vectors = deferred.take(*vectors)
    gain, rest = vectors[0], iter(vectors[1:])
    shift = next(rest) if isinstance(norm, nn.LayerNorm) else None
    given = gain, shift, next(rest, None)
    total, normed, carried = AddNorm.apply(x, part, *given, place, norm.eps, dropout, seed)
    return total, normed, carried


def vectors_of(norm: Norm, bias: Tensor | None) -> tuple[Tensor, ...]:
    """The vectors whose gradients the backward kernel sums, in its order."""
    all_three = norm.weight, getattr(norm, "bias", None), bias
    return tuple(vector for vector in all_three if vector is not None)


class AddNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        part: Tensor,
        gain: Tensor,
        shift: Tensor | None,
        bias: Tensor | None,
        place: BufferPlace,
        eps: float,
        dropout: float,
        seed: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        from regard.fast.kernels import dropout_add_norm as kernels

        x, part = x.contiguous(), part.contiguous()
        total = torch.empty_like(x, dtype=torch.promote_types(x.dtype, part.dtype))
        normed, width = torch.empty_like(part), x.size(-1)
        rows = x.numel() // width
        mean, spread = (torch.empty(rows, device=x.device, dtype=torch.float32) for _ in range(2))
        seed = mean if seed is None else seed  # not read without dropout
        threshold = dropout_threshold(dropout)
        how = {"DROPS": bool(dropout), "RMS": shift is None, "BIASED": bias is not None, "WIDTH": tile(width)}
        given = (gain if vector is None else vector for vector in (bias, gain, shift))  # not read where it is None
        tensors = (x, part, *given, seed, total, normed, mean, spread)
        grid = (-(-rows // ROWS),)
        kernels.add_norm_forward[grid](*tensors, rows, width, eps, *threshold, **how, ROWS=ROWS, num_warps=WARPS)
        ctx.save_for_backward(total, gain, seed, mean, spread)
        ctx.threshold, ctx.how, ctx.dtypes, ctx.place = threshold, how, (x.dtype, part.dtype), place
        ctx.set_materialize_grads(False)
        return total, normed, normed.view_as(normed)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        from regard.fast.kernels import dropout_add_norm as kernels

        total, gain, seed, mean, spread = ctx.saved_tensors
        d_total, *d_twice = (None if part is None else part.contiguous() for part in gradients)
        d_normed, d_carried = sorted(d_twice, key=lambda part: part is None)  # the one that may be None comes second
        if d_normed is None:
            d_normed = torch.zeros_like(total)
        width = total.size(-1)
        rows = total.numel() // width
        each, programs = split_rows(rows)
        d_x, d_part = (torch.empty_like(total, dtype=dtype) for dtype in ctx.dtypes)
        sums, views = ctx.place.open(total.device)
        flowing = (d_normed if part is None else part for part in (d_normed, d_carried, d_total))
        tensors = (total, *flowing, gain, seed, mean, spread, d_x, d_part, sums)
        how = ctx.how | {"CARRIED": d_carried is not None, "SUMMED": d_total is not None}
        kernels.add_norm_backward[(programs,)](
            *tensors, rows, width, each, sums.stride(0), *ctx.threshold, **how, ROWS=BACK_ROWS, num_warps=BACK_WARPS
        )
        d_gain, *rest = views
        d_shift = None if how["RMS"] else rest.pop(0)
        return d_x, d_part, d_gain, d_shift, rest[0] if rest else None, None, None, None, None


def dropout_threshold(rate: float) -> tuple[int, float]:
    """A component is dropped if its 16-bit random number is below the first; others are multiplied by the second."""
    dropped = min(round(rate * LEVELS), LEVELS - 1)
    return dropped, LEVELS / (LEVELS - dropped)


def tile(width: int) -> int:
    """The next power of two, at least 16: a call of Philox makes eight random numbers."""
    return max(16, 1 << (width - 1).bit_length())
