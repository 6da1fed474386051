"""GPT-2's block with a hand-written forward and backward, for training on a GPU.

    a = x + W_o Attention(W_qkv LN(x)),     y = a + W_2 GELU(W_1 LN(a))

It computes what `PreNormBlock` computes, with few passes over memory: one kernel runs between two matrix products
(kernels/block_norm.py). Norms, sums and the GELU's derivative are fused with the gradients of biases and gains, which
sum over the same rows. Activations between blocks have the precision of the products; weight gradients are fp32.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from regard.fast.attention.causal_attention import attend_causal, takes_cudnn
from regard.fast.table import Row, Use, Why, needs_triton
from regard.fast.training.products import Products
from regard.layers.attention import CausalSelfAttention
from regard.layers.blocks import FeedForward, PreNormBlock
from regard.layers.position import Position
from regard.layers.state import Span, State
from regard.systems.gpt import GPT

LEAST_WIDTH = 512  # below it the blocks of language_blocks.py are faster
NORMS = ("gain", "shift", "second_gain", "second_shift")  # kept in fp32


class BlockWeights(NamedTuple):
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


def fused_block(x: Tensor, weights: BlockWeights, heads: int, eps: float, *, cudnn: bool) -> Tensor:
    """The block applied to x [R, T, D], in the precision of the products."""
    y: Tensor = FusedBlock.apply(x, heads, eps, cudnn, *weights)
    return y


class FusedBlock(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, heads: int, eps: float, cudnn: bool, *given: Tensor | None) -> Tensor:
        from regard.fast.kernels.block_norm import norm

        w = BlockWeights(*given)  # type: ignore[arg-type]  # some are never None
        rows, columns, width = x.shape
        low, products = lowered(w, x.dtype), Products(x.device)

        def maps(name: str) -> tuple[Tensor, Tensor | None]:
            return low[name], low.get(f"{name}_bias")

        flat = x.reshape(-1, width)
        normed, _, *first = norm(flat, None, w.gain, w.shift, eps)
        packed = products.add(None, normed, *maps("project")).view(rows, columns, 3 * heads, -1)
        query, key, value = (part.detach().requires_grad_() for part in packed.chunk(3, dim=2))
        with torch.enable_grad():
            heads_first = (part.transpose(1, 2) for part in (query, key, value))
            context = attend_causal(*heads_first, cudnn=cudnn).transpose(1, 2).flatten(2)
        ctx.attention = context, query, key, value
        context = context.detach().view(-1, width)
        attended = products.add(None, context, *maps("output"))
        normed_again, total, *second = norm(flat, attended, w.second_gain, w.second_shift, eps)
        active, expanded = products.gelu(normed_again, *maps("expand"))
        y = products.add(total, active, *maps("contract"))  # the residual sum is fused into the product
        ctx.save_for_backward(flat, normed, context, total, normed_again, expanded, active, *first, *second, *given)
        ctx.low = {name: low[name] for name in ("project", "output", "expand", "contract")}
        return y.view_as(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, above: Tensor) -> tuple[Tensor | None, ...]:
        from regard.fast.kernels.block_norm import norm_backward, pack

        x, normed, context, total, normed_again, expanded, active, *rest = ctx.saved_tensors
        first, second, w, low = rest[:2], rest[2:4], BlockWeights(*rest[4:]), ctx.low
        made: dict[str, Tensor] = {}
        above = above.reshape(x.shape).contiguous()
        products = Products(x.device)
        made["contract"] = products.gradient(above, active)
        d_inner, made["expand_bias"] = products.back_through_gelu(above, low["contract"], expanded)
        made["expand"] = products.gradient(d_inner, normed_again)
        d_again = products.back(d_inner, low["expand"])
        del d_inner  # the largest tensor
        middle, sums = norm_backward(d_again, above, total, w.second_gain, *second, sums=4)
        made["second_gain"], made["second_shift"], made["output_bias"], made["contract_bias"] = sums
        made["output"] = products.gradient(middle, context)
        found, *asked = ctx.attention
        ctx.attention = None
        d_asked = torch.autograd.grad(found, asked, products.back(middle, low["output"]).view_as(found))
        d_packed, made["project_bias"] = pack(*(part.reshape(x.shape) for part in d_asked))
        made["project"] = products.gradient(d_packed, normed)
        d_normed = products.back(d_packed, low["project"])
        below, sums = norm_backward(d_normed, middle, x, w.gain, *first, sums=2)
        made["gain"], made["shift"] = sums
        gradients = (None if weight is None else made[name].to(weight.dtype) for name, weight in w._asdict().items())
        return below.view_as(found), None, None, None, *gradients


def lowered(weights: BlockWeights, dtype: torch.dtype) -> dict[str, Tensor]:
    """The weights of the products cast to `dtype`, in one pass."""
    parts = {name: part for name, part in weights._asdict().items() if part is not None and name not in NORMS}
    low = {name: torch.empty_like(part, dtype=dtype) for name, part in parts.items()}
    torch._foreach_copy_(list(low.values()), list(parts.values()))
    return low


class FusedNorm(torch.autograd.Function):
    """The layer norm of x [..., D], in the precision of x."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, gain: Tensor, shift: Tensor | None, eps: float) -> Tensor:
        from regard.fast.kernels.block_norm import norm

        flat = x.reshape(-1, x.size(-1))
        normed, _, *statistics = norm(flat, None, gain, shift, eps)
        ctx.save_for_backward(flat, gain, shift, *statistics)
        return normed.view_as(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, above: Tensor) -> tuple[Tensor | None, ...]:
        from regard.fast.kernels.block_norm import norm_backward

        x, gain, shift, *statistics = ctx.saved_tensors
        below, (of_gain, of_shift) = norm_backward(above.reshape(x.shape), None, x, gain, *statistics, sums=2)
        return below.view_as(above), of_gain.to(gain.dtype), None if shift is None else of_shift.to(shift.dtype), None


# -- rows ------------------------------------------------------------------------------------------------------------


def is_gpt2s(block: nn.Module) -> bool:
    """A pre-norm block without dropout, with a GELU and with no position inside attention."""
    if type(block) is not PreNormBlock:
        return False
    attention, feedforward = block.attention, block.feedforward
    if type(attention) is not CausalSelfAttention or type(feedforward) is not FeedForward:
        return False
    rates = (attention.dropout, attention.drop_output.p, feedforward.drop_activation.p, feedforward.drop_output.p)
    return not any(rates) and type(attention.position) is Position and isinstance(feedforward.activation, nn.GELU)


def block_by_hand(block: PreNormBlock, x: Tensor) -> Tensor:
    attention, feedforward = block.attention, block.feedforward
    looks = (block.attention_norm, attention.project, attention.output)
    works = (block.feedforward_norm, feedforward.expand, feedforward.output)
    weights = BlockWeights(*(tensor for part in (*looks, *works) for tensor in (part.weight, part.bias)))
    cudnn = takes_cudnn(attention, x.device)
    return fused_block(x, weights, attention.heads, block.attention_norm.eps, cudnn=cudnn)


def _trains_by_hand(model: GPT, use: Use) -> Why:
    if not (use.training and use.bf16 and use.compile == "auto"):
        return "it supports only training in bf16 with training.compile auto"
    if not all(is_gpt2s(block) for block in model.layers) or type(model.finish) is not nn.LayerNorm:
        return "its blocks are not GPT-2's without dropout"
    if model.settings.width < LEAST_WIDTH:
        return "its blocks are too narrow"
    return None


def _reads_once(model: GPT, tokens: Tensor, state: State, span: Span) -> bool:
    return model.training and torch.is_autocast_enabled("cuda") and not any(state["past"].values())


def _read_by_hand(model: GPT, tokens: Tensor, state: State, span: Span) -> tuple[Tensor, State]:
    x = model.entry(model.embedding(tokens, span)).to(torch.get_autocast_dtype("cuda"))
    for block in model.layers:
        x = block_by_hand(block, x)  # type: ignore[arg-type]  # ModuleList forgets what it holds
    norm: Any = model.finish
    return FusedNorm.apply(x, norm.weight, norm.bias, norm.eps), state["past"]


BY_HAND = Row(
    "GPT-2's blocks by hand",
    "regard.systems.gpt:GPT.hidden_states",
    _read_by_hand,
    _reads_once,
    _trains_by_hand,
    needs_triton,
)
ROWS = (BY_HAND,)
