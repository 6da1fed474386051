"""The Transformer's stacks between short sentences, in as few passes over memory as their products leave to do.

    post-norm   x = LN(x + drop(part(x)))                 pre-norm   x = x + drop(part(LN(x)))

The products are the library's (half_products.py); between them stand two kernels: attention (short_attention.py), and
what follows every part (residual.py). It says what the blocks say one after the other, which stay the reference; it is
how a Transformer trains on a GPU in half precision. What post-norm blocks hand on is then in half precision too.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from regard.layers.attention import CausalSelfAttention
from regard.layers.blocks import (
    DecoderBlock,
    EncoderBlock,
    FeedForward,
    PostNormDecoderBlock,
    PostNormEncoderBlock,
    PreNorm,
    PreNormDecoderBlock,
    PreNormEncoderBlock,
)
from regard.layers.half_products import Charged, Halves
from regard.layers.memory import CrossAttention, FullSelfAttention
from regard.layers.residual import add_norm
from regard.layers.short_attention import attend_packed, is_short
from regard.layers.state import State

KNOWN = (PostNormEncoderBlock, PreNormEncoderBlock, PostNormDecoderBlock, PreNormDecoderBlock)
Part = CausalSelfAttention | FullSelfAttention | CrossAttention | FeedForward


def are_short(blocks: Sequence[nn.Module], like: Tensor, columns: int, keys: int) -> bool:
    """Can the blocks go this way, with vectors like that? While they train, on a GPU, in half precision, with so few
    words on either side."""
    if not blocks or any(type(block) not in KNOWN for block in blocks):  # somebody's own may do something else
        return False
    attention: CausalSelfAttention | FullSelfAttention = blocks[0].attention  # type: ignore[assignment]
    if not attention.training or attention.rotary:
        return False
    if hasattr(attention.project.weight, "full_tensor"):  # a share of it: each block gathers its own as it is called
        return False
    depth = attention.width // attention.heads
    half = torch.empty(0, dtype=_precision(like), device=like.device)
    return is_short(half, columns, columns, depth) and is_short(half, columns, keys, depth)


def running_precision(blocks: Sequence[nn.Module], like: Tensor) -> torch.dtype:
    """Of the sum that runs through the blocks: a sum that is normalised each time can be in half precision."""
    return like.dtype if isinstance(blocks[0], PreNorm) else _precision(like)


def encode(blocks: Sequence[EncoderBlock], finish: nn.Module, x: Tensor, valid: Tensor | None) -> Tensor:
    """`finish` of x [N, S, D] after all blocks."""
    norms = [norm for block in blocks for norm in (block.attention_norm, block.feedforward_norm)]
    running = _Running(x, blocks, [*norms, finish])
    for block in blocks:
        own = block.attention
        asked, bias = running.ask(own.project)
        dropout = own.dropout if own.training else 0.0
        running.add(attend_packed(asked, None, own.heads, valid=valid, dropout=dropout, bias=bias), own)
        running.work(block.feedforward)
    return running.read


def decode(
    blocks: Sequence[DecoderBlock], finish: nn.Module, x: Tensor, memories: Sequence[Tensor], valid: Tensor | None
) -> tuple[Tensor, list[State]]:
    """`finish` of x [N, T, D] after all blocks, each with its own packed keys and values [N, S, 2D] of the source; and
    the keys and values of each block's words."""
    norms = [norm for block in blocks for norm in (block.attention_norm, block.cross_norm, block.feedforward_norm)]
    running, past = _Running(x, blocks, [*norms, finish]), []
    for block, memory in zip(blocks, memories, strict=True):
        own, cross = block.attention, block.cross
        asked, bias = running.ask(own.project)
        dropout = own.dropout if own.training else 0.0
        running.add(attend_packed(asked, None, own.heads, causal=True, dropout=dropout, bias=bias), own)
        past.append(_words_of(asked, bias, own.heads))
        query, bias = running.ask(cross.query)
        dropout = cross.dropout if cross.training else 0.0
        running.add(attend_packed(query, memory, cross.heads, valid=valid, dropout=dropout, bias=bias), cross)
        running.work(block.feedforward)
    return running.read, past


def remember(blocks: Sequence[DecoderBlock], memory: Tensor) -> list[Tensor]:
    """What each block keeps of the source: its keys and values [N, S, 2D], side by side."""
    maps = [block.cross.project for block in blocks]
    halves = Halves(maps, _precision(memory))
    return [halves(each, memory) for each in maps]


class _Running:
    """The sum x that runs through the blocks, and what the next part reads of it."""

    def __init__(self, x: Tensor, blocks: Sequence[nn.Module], norms: list[nn.Module]) -> None:
        half = _precision(x)
        crossing = {id(block.cross.project) for block in blocks if isinstance(block, DecoderBlock)}  # `remember` has it
        maps = [module for block in blocks for module in block.modules() if isinstance(module, nn.Linear)]
        self.halves = Halves([each for each in maps if id(each) not in crossing], half)
        self.pre, self.norms = isinstance(blocks[0], PreNorm), iter(norms)
        self.seeds = iter(torch.randint(2**62, (len(norms), 2), device=x.device))  # two: on sixteen bytes each
        self.x = x.to(running_precision(blocks, x))
        self.read: Tensor = next(self.norms)(x) if self.pre else self.x

    def ask(self, each: nn.Linear) -> tuple[Tensor, Tensor | None]:
        """A projection for attention, and its bias, which is in it already and gets its gradient there."""
        return self.halves(each, self.read, charged=False), each.bias

    def work(self, feedforward: FeedForward) -> None:
        rectified = isinstance(feedforward.activation, nn.ReLU) and feedforward.expand.bias is not None
        inner = self.halves(feedforward.expand, self.read, rectified=rectified)
        inner = inner if rectified else feedforward.activation(inner)
        self.add(feedforward.drop_activation(inner), feedforward)

    def add(self, context: Tensor, part: Part) -> None:
        """What the part's last product makes of the context, with its bias and dropout."""
        added = self.halves(part.output, context, bias=False)
        dropout = part.drop_output.p if part.training else 0.0
        norm, seed = next(self.norms), next(self.seeds)
        total, self.read, carried = add_norm(self.x, added, part.output.bias, norm, dropout, seed)  # type: ignore[arg-type]
        self.x = total if self.pre else carried


def _words_of(asked: Tensor, bias: Tensor | None, heads: int) -> State:
    """The keys and values [N, H, T, d] of words that were just read, views."""
    asked = asked if bias is None else Charged.apply(asked, bias)
    _, keys, values = asked.unflatten(-1, (3 * heads, -1)).transpose(1, 2).chunk(3, dim=1)
    return {"keys": keys, "values": values}


def _precision(x: Tensor) -> torch.dtype:
    """What products are computed in."""
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype
