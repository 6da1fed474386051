"""Half-precision products with fp32 weights, for stacks of many small products.

    y = x Wᵀ + b;        dx = dy W,    dW = dyᵀ x  in fp32,    db = Σ dy  in fp32

Autocast casts each weight with one kernel, and its gradient back with another; for a 512 × 512 matrix that takes as
long as the product. Here all weights of a stack are cast at once, and weight gradients are computed in fp32.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from regard.fast.attention.bias_gradients import BufferPlace, DeferredSums, split_rows
from regard.fast.attention.residual import tile
from regard.fast.table import has_triton
from regard.fast.training.products import Products

TILE, BLOCK, WARPS = 2, 1024, 4  # rows and columns at a time in sums over rows, and warps


class Halves:
    """The weights of linear layers cast to half precision in one pass; valid until the next optimizer step."""

    def __init__(self, maps: Iterable[nn.Linear], dtype: torch.dtype) -> None:
        weights = [weight for each in maps for weight in (each.weight, each.bias) if weight is not None]
        with torch.no_grad():
            halves = [torch.empty_like(weight, dtype=dtype) for weight in weights]
            torch._foreach_copy_(halves, weights)
        self.of = {id(weight): half for weight, half in zip(weights, halves, strict=True)}

    def __call__(
        self,
        each: nn.Linear,
        x: Tensor,
        *,
        bias: bool = True,
        bias_gradient: bool = True,
        deferred: DeferredSums | None = None,
    ) -> Tensor:
        """x through the layer; `bias`: add it here, `bias_gradient`: compute its gradient here."""
        half, half_bias = self.of[id(each.weight)], self.of[id(each.bias)] if bias and each.bias is not None else None
        place, learnt = deferred_bias(each.bias if half_bias is not None and bias_gradient else None, deferred)
        return HalfProduct.apply(x.to(half.dtype), each.weight, learnt, half, half_bias, place)

    def rectified(
        self, expand: nn.Linear, contract: nn.Linear, x: Tensor, deferred: DeferredSums | None = None
    ) -> Tensor:
        """x through both layers with a ReLU in between; the second layer's bias is added elsewhere."""
        halves = [self.of[id(part)] for part in (expand.weight, expand.bias, contract.weight)]
        place, learnt = deferred_bias(expand.bias, deferred)
        return RectifiedProducts.apply(x.to(halves[0].dtype), expand.weight, learnt, contract.weight, *halves, place)


def deferred_bias(bias: Tensor | None, deferred: DeferredSums | None) -> tuple[BufferPlace | None, Tensor | None]:
    """The bias, and the place of its partial sums if its gradient is deferred."""
    if deferred is None or bias is None:
        return None, bias
    place, (output,) = deferred.take(bias)
    return place, output


class HalfProduct(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        half: Tensor,
        half_bias: Tensor | None,
        place: BufferPlace | None,
    ) -> Tensor:
        ctx.save_for_backward(x, half)
        ctx.dtype, ctx.biased, ctx.place = weight.dtype, bias is not None, place
        with torch.autocast(x.device.type, enabled=False):
            found = Products(x.device).add(None, x.flatten(0, -2), half, half_bias)
        return found.view(*x.shape[:-1], -1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, half = ctx.saved_tensors
        flat, gradient = x.flatten(0, -2), gradients[0].flatten(0, -2)
        d_bias = rectified_sums(gradient, None, ctx.dtype, ctx.place)[1] if ctx.biased else None
        products = Products(x.device)
        d_weight = products.gradient(gradient, flat).to(ctx.dtype)
        return products.back(gradient, half).view_as(x), d_weight, d_bias, None, None, None


class RectifiedProducts(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        expand: Tensor,
        bias: Tensor,
        contract: Tensor,
        half: Tensor,
        half_bias: Tensor,
        half_contract: Tensor,
        place: BufferPlace | None,
    ) -> Tensor:
        flat = x.flatten(0, -2)
        with torch.autocast(x.device.type, enabled=False):
            inner = torch._addmm_activation(half_bias, flat, half.t())
            ctx.save_for_backward(flat, inner, half, half_contract)
            ctx.dtype, ctx.place, ctx.shape = expand.dtype, place, x.shape
            return Products(x.device).add(None, inner, half_contract, None).view(*x.shape[:-1], -1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, inner, half, half_contract = ctx.saved_tensors
        gradient = gradients[0].flatten(0, -2)
        products = Products(x.device)
        d_inner, d_bias = rectified_sums(products.back(gradient, half_contract), inner, ctx.dtype, ctx.place)
        d_expand, d_contract = (products.gradient(*pair).to(ctx.dtype) for pair in ((d_inner, x), (gradient, inner)))
        return products.back(d_inner, half).view(ctx.shape), d_expand, d_bias, d_contract, None, None, None, None


class JoinedProduct(torch.autograd.Function):
    """Several linear layers of the same x [..., D] by one product, side by side. Biases get no gradient here."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, biases: Sequence[Tensor], *weights: Tensor) -> Tensor:
        with torch.autocast(x.device.type, enabled=False):
            half, half_bias = joined(weights, x.dtype), joined(biases, x.dtype) if biases else None
            ctx.save_for_backward(x, half)
            ctx.dtype, ctx.sizes = weights[0].dtype, [len(weight) for weight in weights]
            found = Products(x.device).add(None, x.flatten(0, -2), half, half_bias)
        return found.view(*x.shape[:-1], -1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, half = ctx.saved_tensors
        gradient = gradients[0].flatten(0, -2)
        products = Products(x.device)
        d_weights = products.gradient(gradient, x.flatten(0, -2)).to(ctx.dtype).split(ctx.sizes)
        return products.back(gradient, half).view_as(x), None, *d_weights


def joined(parts: Sequence[Tensor], dtype: torch.dtype) -> Tensor:
    """The tensors concatenated and cast in one pass."""
    first = parts[0]
    whole = torch.empty(sum(map(len, parts)), *first.shape[1:], device=first.device, dtype=dtype)
    torch._foreach_copy_(list(whole.split([len(part) for part in parts])), list(parts))
    return whole


class BiasGradient(torch.autograd.Function):
    """The identity; computes the gradient of a bias that was added elsewhere."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, bias: Tensor) -> Tensor:
        ctx.dtype = bias.dtype
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        return gradients[0], gradients[0].flatten(0, -2).sum(0, dtype=ctx.dtype)


def rectified_sums(
    gradient: Tensor, found: Tensor | None, dtype: torch.dtype, place: BufferPlace | None = None
) -> tuple[Tensor, Tensor]:
    """The backward pass of ReLU, where `found` [N, D] is its output (None: no ReLU), and the gradient's sum over rows
    in `dtype`; with a `place` the sum is a view that is filled later."""
    if not gradient.is_cuda or not has_triton():
        if found is not None:
            gradient = torch.ops.aten.threshold_backward(gradient, found, 0)
        return gradient, gradient.sum(0, dtype=dtype)
    from regard.fast.kernels import column_sums as kernels

    gradient = gradient.contiguous()
    rows, width = gradient.shape
    passed = gradient if found is None else torch.empty_like(gradient)
    each, programs = split_rows(rows)
    if place is None:
        sums, views = torch.empty(programs, width, device=gradient.device, dtype=torch.float32), None
    else:
        sums, (views,) = place.open(gradient.device)
    given = (gradient, gradient if found is None else found, passed, sums, rows, width, each, sums.stride(0))
    block = min(BLOCK, tile(width))
    how = {"RECTIFIED": found is not None, "ROWS": TILE, "BLOCK": block, "num_warps": WARPS}
    kernels.column_sums[(programs, -(-width // block))](*given, **how)
    return passed, sums.sum(0).to(dtype) if views is None else views
