"""What follows every part of a Transformer's block: bias, dropout, the sum and its layer norm, in one kernel each way.

    s = x + drop(a + c),    y = LN(s)                  a: the part's last product, c: that product's bias

As written these are five passes over the batch's vectors, and more on the way back; here it is one (Triton, on a GPU:
fast/kernels/dropout_add_norm.py). `written` is the reference.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.fast.bias_gradients import DeferredSums, Place, deal

SIDES = 2**16  # of a coin: how finely a rate can be chosen
ROWS, WARPS = 2, 2  # of a program
BACK_ROWS, BACK_WARPS = 2, 2  # on the way back


def add_norm(
    x: Tensor,
    part: Tensor,
    bias: Tensor,
    norm: nn.LayerNorm,
    dropout: float,
    seed: Tensor | None = None,
    deferred: DeferredSums | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """s, in the finer precision of both, and y twice, in that of the part [..., D]: for two who read it, so that their
    gradients are added where they are used. What is dropped follows from `seed[0]`; `deferred` has a place for
    `vectors_of`."""
    if dropout and seed is None:
        seed = torch.randint(2**62, (1,), device=x.device)
    vectors = vectors_of(norm, bias)
    deferred = deferred or DeferredSums([vectors], deal(x.numel() // x.size(-1))[1])
    place, vectors = deferred.take(*vectors)
    total, normed, carried = AddNorm.apply(x, part, *vectors, place, norm.eps, dropout, seed)
    return total, normed, carried


def vectors_of(norm: nn.LayerNorm, bias: Tensor) -> tuple[Tensor, ...]:
    """What gets its gradient on the way back, in the kernel's order."""
    return norm.weight, norm.bias, bias


def written(x: Tensor, part: Tensor, bias: Tensor, norm: nn.LayerNorm, dropout: float) -> tuple[Tensor, Tensor]:
    total = x + F.dropout(part + bias, dropout)
    return total, norm(total)


class AddNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        part: Tensor,
        gain: Tensor,
        shift: Tensor,
        bias: Tensor,
        place: Place,
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
        seed = mean if seed is None else seed  # unread where nothing is dropped
        drawn = coin(dropout)
        how = {"DROPS": bool(dropout), "WIDTH": tile(width)}
        tensors = (x, part, bias, gain, shift, seed, total, normed, mean, spread)
        grid = (-(-rows // ROWS),)
        kernels.add_norm_forward[grid](*tensors, rows, width, eps, *drawn, **how, ROWS=ROWS, num_warps=WARPS)
        ctx.save_for_backward(total, gain, seed, mean, spread)
        ctx.coin, ctx.how, ctx.dtypes, ctx.place = drawn, how, (x.dtype, part.dtype), place
        ctx.set_materialize_grads(False)
        return total, normed, normed.view_as(normed)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        from regard.fast.kernels import dropout_add_norm as kernels

        total, gain, seed, mean, spread = ctx.saved_tensors
        d_total, *d_twice = (None if part is None else part.contiguous() for part in gradients)
        d_normed, d_carried = sorted(d_twice, key=lambda part: part is None)  # one of the two at least, if any
        if d_normed is None:
            d_normed = torch.zeros_like(total)
        width = total.size(-1)
        rows = total.numel() // width
        each, programs = deal(rows)
        d_x, d_part = (torch.empty_like(total, dtype=dtype) for dtype in ctx.dtypes)
        sums, views = ctx.place.open(total.device)
        flowing = (d_normed if part is None else part for part in (d_normed, d_carried, d_total))
        tensors = (total, *flowing, gain, seed, mean, spread, d_x, d_part, sums)
        how = ctx.how | {"CARRIED": d_carried is not None, "SUMMED": d_total is not None}
        kernels.add_norm_backward[(programs,)](
            *tensors, rows, width, each, sums.stride(0), *ctx.coin, **how, ROWS=BACK_ROWS, num_warps=BACK_WARPS
        )
        return d_x, d_part, *views, None, None, None, None


def coin(rate: float) -> tuple[int, float]:
    """On how many of its sides a number is dropped, and what the others are multiplied by."""
    dropped = min(round(rate * SIDES), SIDES - 1)
    return dropped, SIDES / (SIDES - dropped)


def tile(width: int) -> int:
    """The next power of two; eight coins come at once."""
    return max(16, 1 << (width - 1).bit_length())
