"""GPT-2's block by hand, for training on a GPU: products by the library, and between two of them one kernel.

    a = x + W_o Attention(W_qkv LN(x)),     y = a + W_2 GELU(W_1 LN(a))

Nothing here is new: it is `PreNormBlock`, forward and backward, with every pass over memory that can be saved saved
(kernels/block.py). Norms, sums and the GELU's slope are joined with the gradients of biases and gains, which are sums
over the same rows. What flows between blocks has the precision of the products; weights' gradients are fp32.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.kernels.epilogue import epilogues
from regard.layers.attention import attend

NORMS = ("gain", "shift", "second_gain", "second_shift")  # what is computed with in fp32


class Weights(NamedTuple):
    """The weights of a block in the order of use; biases and shifts may be None."""

    gain: Tensor
    shift: Tensor | None
    project: Tensor
    project_bias: Tensor | None
    output: Tensor
    output_bias: Tensor | None
    second_gain: Tensor
    second_shift: Tensor | None
    expand: Tensor
    expand_bias: Tensor | None
    contract: Tensor
    contract_bias: Tensor | None


def fused_block(x: Tensor, weights: Weights, heads: int, eps: float, *, cudnn: bool) -> Tensor:
    """The block of x [R, T, D], in the precision of the products."""
    y: Tensor = FusedBlock.apply(x, heads, eps, cudnn, *weights)
    return y


class FusedBlock(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, heads: int, eps: float, cudnn: bool, *given: Tensor | None) -> Tensor:
        from regard.kernels.block import gelu, norm

        w = Weights(*given)  # type: ignore[arg-type]  # some are never None
        rows, columns, width = x.shape
        low = {name: part.to(x.dtype) for name, part in w._asdict().items() if part is not None and name not in NORMS}

        def linear(h: Tensor, name: str) -> Tensor:
            weight, bias = low[name].t(), low.get(f"{name}_bias")
            return h @ weight if bias is None else torch.addmm(bias, h, weight)

        flat = x.reshape(-1, width)
        normed, _, *first, _ = norm(flat, None, w.gain, w.shift, eps)
        packed = linear(normed, "project").view(rows, columns, 3 * heads, -1)
        query, key, value = (part.detach().requires_grad_() for part in packed.chunk(3, dim=2))
        with torch.enable_grad():
            context = attend(query, key, value, None, causal=True, cudnn=cudnn)
        ctx.attention = context, query, key, value
        context = context.detach().view(-1, width)
        attended, bias = linear(context, "output"), low.get("contract_bias")
        normed_again, total, *second, raised = norm(flat, attended, w.second_gain, w.second_shift, eps, bias=bias)
        library = epilogues(x.device) if x.is_cuda else None
        joined = library and library.gelu(normed_again, low["expand"], low.get("expand_bias"))
        expanded = joined[1] if joined else linear(normed_again, "expand")
        active = joined[0] if joined else gelu(expanded)
        y = torch.addmm(raised, active, low["contract"].t())  # the sum is made where the product ends
        ctx.save_for_backward(flat, normed, context, total, normed_again, expanded, active, *first, *second, *given)
        ctx.low = {name: low[name] for name in ("project", "output", "expand", "contract")}
        return y.view_as(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, above: Tensor) -> tuple[Tensor | None, ...]:
        from regard.kernels.block import gelu_backward_, norm_backward, pack, sum_rows

        x, normed, context, total, normed_again, expanded, active, *rest = ctx.saved_tensors
        first, second, w, low = rest[:2], rest[2:4], Weights(*rest[4:]), ctx.low
        made: dict[str, Tensor] = {}
        above = above.reshape(x.shape).contiguous()
        made["contract"] = product(above, active)
        library = epilogues(x.device) if x.is_cuda else None
        d_inner = None if library is None else library.slope(above, low["contract"], expanded)
        if d_inner is None:
            d_inner = above @ low["contract"]
            made["expand_bias"] = gelu_backward_(expanded, d_inner)
        else:
            made["expand_bias"] = sum_rows(d_inner)
        made["expand"] = product(d_inner, normed_again)
        middle, sums = norm_backward(d_inner @ low["expand"], above, total, w.second_gain, *second, sums=4)
        made["second_gain"], made["second_shift"], made["output_bias"], made["contract_bias"] = sums
        made["output"] = product(middle, context)
        found, *asked = ctx.attention
        ctx.attention = None
        d_asked = torch.autograd.grad(found, asked, (middle @ low["output"]).view_as(found))
        d_packed, made["project_bias"] = pack(*(part.reshape(x.shape) for part in d_asked))
        made["project"] = product(d_packed, normed)
        below, sums = norm_backward(d_packed @ low["project"], middle, x, w.gain, *first, sums=2)
        made["gain"], made["shift"] = sums
        gradients = (None if weight is None else made[name].to(weight.dtype) for name, weight in w._asdict().items())
        return below.view_as(found), None, None, None, *gradients


class FusedNorm(torch.autograd.Function):
    """The layer norm of x [..., D], in the precision of x."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, gain: Tensor, shift: Tensor | None, eps: float) -> Tensor:
        from regard.kernels.block import norm

        flat = x.reshape(-1, x.size(-1))
        normed, _, *statistics, _ = norm(flat, None, gain, shift, eps)
        ctx.save_for_backward(flat, gain, shift, *statistics)
        return normed.view_as(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, above: Tensor) -> tuple[Tensor | None, ...]:
        from regard.kernels.block import norm_backward

        x, gain, shift, *statistics = ctx.saved_tensors
        below, (of_gain, of_shift) = norm_backward(above.reshape(x.shape), None, x, gain, *statistics, sums=2)
        return below.view_as(above), of_gain.to(gain.dtype), None if shift is None else of_shift.to(shift.dtype), None


def product(d_out: Tensor, given: Tensor) -> Tensor:
    """The gradient of a matrix, d_outᵀ given: a sum over all rows of the batch, so it leaves the product in fp32."""
    if d_out.is_cuda and d_out.dtype != torch.float32:
        return torch.mm(d_out.t(), given, out_dtype=torch.float32)
    return d_out.t() @ given
