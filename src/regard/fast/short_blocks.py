"""The Transformer's stacks between short sentences, in as few passes over memory as their products leave to do.

    post-norm   x = LN(x + drop(part(x)))                 pre-norm   x = x + drop(part(LN(x)))

The products are the library's (half_products.py); between them stand two kernels: attention (short_attention.py), and
what follows every part (residual.py). Gradients of biases and gains are added up at the end of a stack (tally.py), and
all decoder blocks look up the source by one product. It says what the blocks say one after the other, which stay the
reference; it is how a Transformer trains on a GPU in half precision. What post-norm blocks hand on is then in half
precision too.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from regard.fast.bias_gradients import Tally, deal
from regard.fast.gradient_buffer import Piece, pieces
from regard.fast.half_products import Charged, Halves, JoinedProduct
from regard.fast.residual import add_norm, vectors_of
from regard.fast.short_attention import attend_packed, is_short
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
from regard.layers.source_attention import CrossAttention, FullSelfAttention
from regard.layers.state import State

KNOWN = (PostNormEncoderBlock, PreNormEncoderBlock, PostNormDecoderBlock, PreNormDecoderBlock)
Look = CausalSelfAttention | FullSelfAttention | CrossAttention
Part = Look | FeedForward


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
    parts = (part for block in blocks for part in block.modules() if isinstance(part, nn.Linear | nn.LayerNorm))
    if any(part.bias is None for part in parts):
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
        running.look(block.attention, valid=valid)
        running.work(block.feedforward)
    return running.read


def decode(
    blocks: Sequence[DecoderBlock], finish: nn.Module, x: Tensor, memory: Tensor, valid: Tensor | None
) -> tuple[Tensor, list[State]]:
    """`finish` of x [N, T, D] after all blocks, to which `remember` gave their keys and values of the source; and the
    keys and values of each block's words."""
    norms = [norm for block in blocks for norm in (block.attention_norm, block.cross_norm, block.feedforward_norm)]
    running, past = _Running(x, blocks, [*norms, finish], memory.requires_grad), []
    for block, looked_up in zip(blocks, pieces(memory, len(blocks)), strict=True):
        past.append(_words_of(running.look(block.attention, causal=True), block.attention))
        running.look(block.cross, looked_up, valid=valid)
        running.work(block.feedforward)
    return running.read, past


def remember(blocks: Sequence[DecoderBlock], memory: Tensor) -> Tensor:
    """What all blocks keep of the source: their keys and values [N, S, blocks · 2D], side by side, by one product. Its
    biases get their gradients where it is looked up."""
    maps = [block.cross.project for block in blocks]
    weights, biases = [each.weight for each in maps], [each.bias for each in maps]
    return JoinedProduct.apply(memory.to(_precision(memory)), biases, *weights)


def remembered(blocks: Sequence[DecoderBlock], memory: Tensor) -> list[Tensor]:
    """The same for blocks that are called one after the other, [N, S, 2D] each."""
    parts = zip(blocks, memory.chunk(len(blocks), dim=-1), strict=True)
    return [Charged.apply(part, block.cross.project.bias) for block, part in parts]


class _Running:
    """The sum x that runs through the blocks, and what the next part reads of it."""

    def __init__(self, x: Tensor, blocks: Sequence[nn.Module], norms: list[nn.Module], remembers: bool = False) -> None:
        """`remembers`: does it learn what to keep of a source?"""
        half = _precision(x)
        crossing = {id(block.cross.project) for block in blocks if isinstance(block, DecoderBlock)}  # `remember` has it
        maps = [module for block in blocks for module in block.modules() if isinstance(module, nn.Linear)]
        self.halves = Halves([each for each in maps if id(each) not in crossing], half)
        self.pre, self.norms = isinstance(blocks[0], PreNorm), iter(norms)
        self.seeds = iter(torch.randint(2**62, (len(norms), 2), device=x.device))  # two: on sixteen bytes each
        parts = [part for block in blocks for part in parts_of(block)]
        looks = [biases_of(part, remembers) for part in parts if not isinstance(part, FeedForward)]
        self.remembers = remembers
        works = [(part.expand.bias,) for part in parts if isinstance(part, FeedForward)]
        ends = [
            vectors_of(norm, part.output.bias)  # type: ignore[arg-type]
            for norm, part in zip(norms[self.pre :], parts)
        ]
        self.by_sentence = Tally(looks, len(x))
        self.by_row = Tally([*works, *ends], deal(x.numel() // x.size(-1))[1])
        self.x = x.to(running_precision(blocks, x))
        self.read: Tensor = next(self.norms)(x) if self.pre else self.x

    def look(
        self, part: Look, memory: Piece | None = None, *, valid: Tensor | None = None, causal: bool = False
    ) -> Tensor:
        """Attention, and the projection that it asks with."""
        project = part.query if isinstance(part, CrossAttention) else part.project
        asked = self.halves(project, self.read, charged=False)
        context = attend_packed(
            asked,
            memory,
            part.heads,
            valid=valid,
            causal=causal,
            dropout=part.dropout if part.training else 0.0,
            biases=biases_of(part, self.remembers),
            tally=self.by_sentence,
        )
        self.end(context, part)
        return asked

    def work(self, feedforward: FeedForward) -> None:
        drops = feedforward.training and feedforward.drop_activation.p
        if isinstance(feedforward.activation, nn.ReLU) and not drops:
            maps = (feedforward.expand, feedforward.output)
            self.add(self.halves.rectified(*maps, self.read, self.by_row), feedforward)
            return
        inner = feedforward.activation(self.halves(feedforward.expand, self.read, tally=self.by_row))
        self.end(feedforward.drop_activation(inner), feedforward)

    def end(self, context: Tensor, part: Part) -> None:
        """The part's last product."""
        self.add(self.halves(part.output, context, bias=False), part)

    def add(self, added: Tensor, part: Part) -> None:
        """What that product made, with its bias and dropout."""
        dropout = part.drop_output.p if part.training else 0.0
        norm, seed = next(self.norms), next(self.seeds)
        told = (part.output.bias, norm, dropout, seed, self.by_row)
        total, self.read, carried = add_norm(self.x, added, *told)  # type: ignore[arg-type]
        self.x = total if self.pre else carried


def parts_of(block: nn.Module) -> list[Part]:
    """In the order of use."""
    cross = [block.cross] if isinstance(block, DecoderBlock) else []
    return [block.attention, *cross, block.feedforward]  # type: ignore[list-item]


def biases_of(part: Look, remembers: bool) -> tuple[Tensor, ...]:
    """Of queries, keys and values, side by side; of queries alone if the memory is not learnt."""
    if not isinstance(part, CrossAttention):
        return (part.project.bias,)
    return (part.query.bias, part.project.bias) if remembers else (part.query.bias,)


def _words_of(asked: Tensor, own: CausalSelfAttention) -> State:
    """The keys and values [N, H, T, d] of words that were just read, views."""
    asked = Charged.apply(asked, own.project.bias)
    _, keys, values = asked.unflatten(-1, (3 * own.heads, -1)).transpose(1, 2).chunk(3, dim=1)
    return {"keys": keys, "values": values}


def _precision(x: Tensor) -> torch.dtype:
    """What products are computed in."""
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype
