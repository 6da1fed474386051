"""Products in half precision of weights that are kept in fp32, where many small ones follow one another.

    y = f(x Wᵀ + b),    f = identity or max(0, ·);        dx = dz W,    dW = dzᵀ x  in fp32,    db = Σ dz  in fp32

Autocast casts each weight by a kernel of its own, and its gradient back by another: for a matrix of 512 × 512 that is
as long as the product. Here all weights of a stack are cast at once, and the gradients are made in fp32.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.layers.short_attention import has_triton

ROWS, BLOCK, WARPS, PROGRAMS = 8, 256, 4, 792  # of the sums over rows: a tile, its warps, and how many share them all


class Halves:
    """The weights of some linear maps in half precision, made in one pass; they are of now, not of the next step."""

    def __init__(self, maps: Iterable[nn.Linear], dtype: torch.dtype) -> None:
        weights = [weight for each in maps for weight in (each.weight, each.bias) if weight is not None]
        with torch.no_grad():
            halves = [torch.empty_like(weight, dtype=dtype) for weight in weights]
            torch._foreach_copy_(halves, weights)
        self.of = {id(weight): half for weight, half in zip(weights, halves, strict=True)}

    def __call__(
        self, each: nn.Linear, x: Tensor, *, bias: bool = True, charged: bool = True, rectified: bool = False
    ) -> Tensor:
        """x through the map; without its bias if another will add it, or with one that gets its gradient elsewhere."""
        half, half_bias = self.of[id(each.weight)], self.of[id(each.bias)] if bias and each.bias is not None else None
        learnt = each.bias if half_bias is not None and charged else None
        return HalfProduct.apply(x.to(half.dtype), each.weight, learnt, half, half_bias, rectified)


class HalfProduct(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        half: Tensor,
        half_bias: Tensor | None,
        rectified: bool,
    ) -> Tensor:
        with torch.autocast(x.device.type, enabled=False):
            if rectified:  # the product's library cuts off at 0 as it writes
                assert half_bias is not None
                found = torch._addmm_activation(half_bias, x.flatten(0, -2), half.t()).view(*x.shape[:-1], -1)
            else:
                found = F.linear(x, half, half_bias)
        ctx.save_for_backward(x, half, found if rectified else None)
        ctx.dtype, ctx.biased = weight.dtype, bias is not None
        return found

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, half, found = ctx.saved_tensors
        flat, gradient = x.flatten(0, -2), gradients[0].flatten(0, -2)
        d_bias = None
        if ctx.biased:
            gradient, d_bias = rectified_sums(gradient, None if found is None else found.flatten(0, -2), ctx.dtype)
        d_weight = product(gradient.t(), flat, ctx.dtype)
        return (gradient @ half).view_as(x), d_weight, d_bias, None, None, None


class Charged(torch.autograd.Function):
    """x that a bias was added to, handed on: the bias gets the gradient of what is done with it from here."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, bias: Tensor) -> Tensor:
        ctx.dtype = bias.dtype
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        return gradients[0], gradients[0].flatten(0, -2).sum(0, dtype=ctx.dtype)


def rectified_sums(gradient: Tensor, found: Tensor | None, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The gradient [N, D] where what was found is above 0 (None: everywhere), and its sum over rows in `dtype`."""
    if not gradient.is_cuda or not has_triton():
        if found is not None:
            gradient = torch.ops.aten.threshold_backward(gradient, found, 0)
        return gradient, gradient.sum(0, dtype=dtype)
    from regard.kernels import sums as kernels

    gradient = gradient.contiguous()
    rows, width = gradient.shape
    passed = gradient if found is None else torch.empty_like(gradient)
    blocks = -(-width // BLOCK)
    each = ROWS * -(-rows // (ROWS * max(1, PROGRAMS // blocks)))  # rows of a program
    sums = torch.empty(-(-rows // each), width, device=gradient.device, dtype=torch.float32)
    given = (gradient, gradient if found is None else found, passed, sums, rows, width, each)
    how = {"RECTIFIED": found is not None, "ROWS": ROWS, "BLOCK": BLOCK, "num_warps": WARPS}
    kernels.column_sums[(len(sums), blocks)](*given, **how)
    return passed, sums.sum(0).to(dtype)


def product(a: Tensor, b: Tensor, dtype: torch.dtype) -> Tensor:
    """a b, summed and written in the wider dtype where the library knows how."""
    if a.is_cuda and a.dtype != dtype:
        return torch.mm(a, b, out_dtype=dtype)
    return (a @ b).to(dtype)
