"""Training the Transformer's stacks on short sentences, on a GPU in half precision, with few passes over memory.

    post-norm   x = LN(x + drop(part(x)))                 pre-norm   x = x + drop(part(LN(x)))

Matrix products are cuBLAS's (half_products.py). Two kernels run between them: attention (short_attention.py), and
dropout with residual sum and norm (residual.py). Gradients of biases and gains are added up once per stack
(bias_gradients.py), and one product makes the source's keys and values for all decoder blocks. The result equals the
blocks called one by one. The residual stream of post-norm blocks is in half precision, too.

`remember` adds the keys and values of all blocks, side by side, as state["source"]["all_blocks"], beside those that the
written code reads. `hidden_states` is replaced only if that entry exists.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from regard.fast.attention.bias_gradients import DeferredSums, split_rows
from regard.fast.attention.causal_attention import precision
from regard.fast.attention.residual import add_norm, vectors_of
from regard.fast.attention.short_attention import attend_packed, is_short
from regard.fast.table import Row, Use, Why, needs_triton
from regard.fast.training.gradient_buffer import Chunk, chunks
from regard.fast.training.half_products import BiasGradient, Halves, JoinedProduct
from regard.layers.attention import CausalSelfAttention, CrossAttention, FullSelfAttention
from regard.layers.blocks import (
    DecoderBlock,
    EncoderBlock,
    FeedForward,
    PostNormDecoderBlock,
    PostNormEncoderBlock,
    PreNormDecoderBlock,
    PreNormEncoderBlock,
)
from regard.layers.encoder import TransformerEncoder, real_columns
from regard.layers.position import Position
from regard.layers.state import Span, State
from regard.systems.transformer import Transformer

KNOWN = (PostNormEncoderBlock, PreNormEncoderBlock, PostNormDecoderBlock, PreNormDecoderBlock)
Look = CausalSelfAttention | FullSelfAttention | CrossAttention
Part = Look | FeedForward


def are_known(blocks: Sequence[nn.Module]) -> bool:
    """True if all blocks are exactly of known classes: a user's subclass may compute something else."""
    if not blocks or any(type(block) not in KNOWN for block in blocks):
        return False
    looks = [part for block in blocks for part in parts_of(block)]
    if any(type(part) not in (CausalSelfAttention, FullSelfAttention, CrossAttention, FeedForward) for part in looks):
        return False
    if any(type(getattr(part, "position", None)) not in (Position, type(None)) for part in looks):
        return False
    parts = (part for block in blocks for part in block.modules() if isinstance(part, nn.Linear | nn.LayerNorm))
    return all(part.bias is not None for part in parts)


def are_short(blocks: Sequence[nn.Module], like: Tensor, columns: int, keys: int) -> bool:
    """True if this call fits: only in training, on a GPU, in half precision, with few words on both sides; `like` gives
    device and precision."""
    attention: CausalSelfAttention | FullSelfAttention = blocks[0].attention  # type: ignore[assignment]
    if not attention.training:
        return False
    if hasattr(attention.project.weight, "full_tensor"):  # sharded: each block gathers its weights when called
        return False
    depth = attention.width // attention.heads
    return is_short(like, columns, columns, depth) and is_short(like, columns, keys, depth)


def running_precision(blocks: Sequence[nn.Module], like: Tensor) -> torch.dtype:
    """The residual stream's precision: half for post-norm blocks, which normalize it after every sublayer."""
    return like.dtype if blocks[0].norm_first else precision(like)


def encode(blocks: Sequence[EncoderBlock], finish: nn.Module, x: Tensor, valid: Tensor | None) -> Tensor:
    """x [N, S, D] through all blocks and `finish`."""
    norms = [norm for block in blocks for norm in (block.attention_norm, block.feedforward_norm)]
    residual = _Residual(x, blocks, [*norms, finish])
    for block in blocks:
        residual.look(block.attention, valid=valid)
        residual.work(block.feedforward)
    return residual.read


def decode(
    blocks: Sequence[DecoderBlock], finish: nn.Module, x: Tensor, memory: Tensor, valid: Tensor | None
) -> tuple[Tensor, list[State]]:
    """x [N, T, D] through all blocks and `finish`, and each block's keys and values of the target. `memory` is what
    `remember` returned."""
    norms = [norm for block in blocks for norm in (block.attention_norm, block.cross_norm, block.feedforward_norm)]
    residual, past = _Residual(x, blocks, [*norms, finish], memory.requires_grad), []
    for block, looked_up in zip(blocks, chunks(memory, len(blocks)), strict=True):
        past.append(_words_of(residual.look(block.attention, causal=True), block.attention))
        residual.look(block.cross, looked_up, valid=valid)
        residual.work(block.feedforward)
    return residual.read, past


def remember(blocks: Sequence[DecoderBlock], memory: Tensor) -> Tensor:
    """The source's keys and values for all blocks, [N, S, blocks · 2D], by one product. Its biases get their gradients
    in the attention that reads them."""
    maps = [block.cross.project for block in blocks]
    weights, biases = [each.weight for each in maps], [each.bias for each in maps]
    return JoinedProduct.apply(memory.to(precision(memory)), biases, *weights)


def remembered(blocks: Sequence[DecoderBlock], memory: Tensor) -> list[Tensor]:
    """The same as one tensor [N, S, 2D] per block, for the written code."""
    parts = zip(blocks, memory.chunk(len(blocks), dim=-1), strict=True)
    return [BiasGradient.apply(part, block.cross.project.bias) for block, part in parts]


class _Residual:
    """The residual stream x through the blocks, and `read`, the input of the next sublayer."""

    def __init__(self, x: Tensor, blocks: Sequence[nn.Module], norms: list[nn.Module], remembers: bool = False) -> None:
        """`remembers`: the projections of the source's keys and values get gradients."""
        half = precision(x)
        crossing = {id(block.cross.project) for block in blocks if isinstance(block, DecoderBlock)}  # in `remember`
        maps = [module for block in blocks for module in block.modules() if isinstance(module, nn.Linear)]
        self.halves = Halves([each for each in maps if id(each) not in crossing], half)
        self.pre, self.norms = bool(blocks[0].norm_first), iter(norms)
        self.seeds = iter(torch.randint(2**62, (len(norms), 2), device=x.device))  # two each: aligned to 16 bytes
        parts = [part for block in blocks for part in parts_of(block)]
        looks = [biases_of(part, remembers) for part in parts if not isinstance(part, FeedForward)]
        self.remembers = remembers
        works = [(part.expand.bias,) for part in parts if isinstance(part, FeedForward)]
        ends = [
            vectors_of(norm, part.output.bias)  # type: ignore[arg-type]
            for norm, part in zip(norms[self.pre :], parts)
        ]
        self.by_sentence = DeferredSums(looks, len(x))
        self.by_row = DeferredSums([*works, *ends], split_rows(x.numel() // x.size(-1))[1])
        self.x = x.to(running_precision(blocks, x))
        self.read: Tensor = next(self.norms)(x) if self.pre else self.x

    def look(
        self, part: Look, memory: Chunk | None = None, *, valid: Tensor | None = None, causal: bool = False
    ) -> Tensor:
        """An attention sublayer; returns its projected queries (with keys and values, in self-attention)."""
        project = part.query if isinstance(part, CrossAttention) else part.project
        asked = self.halves(project, self.read, bias_gradient=False)
        context = attend_packed(
            asked,
            memory,
            part.heads,
            valid=valid,
            causal=causal,
            dropout=part.dropout if part.training else 0.0,
            biases=biases_of(part, self.remembers),
            deferred=self.by_sentence,
        )
        self.end(context, part)
        return asked

    def work(self, feedforward: FeedForward) -> None:
        drops = feedforward.training and feedforward.drop_activation.p
        if isinstance(feedforward.activation, nn.ReLU) and not drops:
            maps = (feedforward.expand, feedforward.output)
            self.add(self.halves.rectified(*maps, self.read, self.by_row), feedforward)
            return
        inner = feedforward.activation(self.halves(feedforward.expand, self.read, deferred=self.by_row))
        self.end(feedforward.drop_activation(inner), feedforward)

    def end(self, context: Tensor, part: Part) -> None:
        """The sublayer's last product, and `add`."""
        self.add(self.halves(part.output, context, bias=False), part)

    def add(self, added: Tensor, part: Part) -> None:
        """Bias, dropout, residual sum and norm."""
        dropout = part.drop_output.p if part.training else 0.0
        norm, seed = next(self.norms), next(self.seeds)
        options = (part.output.bias, norm, dropout, seed, self.by_row)
        total, self.read, carried = add_norm(self.x, added, *options)  # type: ignore[arg-type]
        self.x = total if self.pre else carried


def parts_of(block: nn.Module) -> list[Part]:
    """A block's sublayers in the order of use."""
    cross = [block.cross] if isinstance(block, DecoderBlock) else []
    return [block.attention, *cross, block.feedforward]  # type: ignore[list-item]


def biases_of(part: Look, remembers: bool) -> tuple[Tensor, ...]:
    """Biases of queries, keys and values; of queries alone if the memory needs no gradient."""
    if not isinstance(part, CrossAttention):
        return (part.project.bias,)
    return (part.query.bias, part.project.bias) if remembers else (part.query.bias,)


def _words_of(asked: Tensor, own: CausalSelfAttention) -> State:
    """The keys and values [N, H, T, d] of the words just read, as views."""
    asked = BiasGradient.apply(asked, own.project.bias)
    _, keys, values = asked.unflatten(-1, (3 * own.heads, -1)).transpose(1, 2).chunk(3, dim=1)
    return {"keys": keys, "values": values}


# -- rows ------------------------------------------------------------------------------------------------------------


def _knows_encoder(encoder: TransformerEncoder, use: Use) -> Why:
    return None if are_known(list(encoder.blocks)) else "its blocks or positions are of a different kind"


def _fits_encoder(encoder: TransformerEncoder, x: Tensor, lengths: Tensor | None = None) -> bool:
    return are_short(list(encoder.blocks), x, x.size(1), x.size(1))


def _encode(encoder: TransformerEncoder, x: Tensor, lengths: Tensor | None = None) -> Tensor:
    return encode(list(encoder.blocks), encoder.finish, x, real_columns(x, lengths))  # type: ignore[arg-type]


def _knows_decoder(model: Transformer, use: Use) -> Why:
    return None if are_known(list(model.layers)) else "its blocks or positions are of a different kind"


def _fits_memory(model: Transformer, encoded: State) -> bool:
    memory = encoded["memory"]
    return are_short(list(model.layers), memory, memory.size(1), memory.size(1))


def _remember(model: Transformer, encoded: State) -> State:
    names, blocks = zip(*model.named_blocks(), strict=True)
    kept = remember(blocks, encoded["memory"])
    each = zip(names, remembered(blocks, kept), strict=True)
    return {"all_blocks": kept} | {name: {"keys_values": own} for name, own in each}


def _fits_target(model: Transformer, tokens: Tensor, state: State, span: Span) -> bool:
    """True if the target is read from its start, with one row per source; decided from shapes alone."""
    source, keys = state["source"], state["past"]["0"].get("keys")
    if "all_blocks" not in source or keys is None or keys.size(2) > 0 or len(source["valid"]) != len(tokens):
        return False
    return are_short(list(model.layers), model.embedding.table.weight, tokens.size(1), source["valid"].size(1))


def _decode(model: Transformer, tokens: Tensor, state: State, span: Span) -> tuple[Tensor, State]:
    source, (names, blocks) = state["source"], zip(*model.named_blocks(), strict=True)
    x = model.dropout(model.embedding(tokens, span))
    hidden, states = decode(blocks, model.finish, x, source["all_blocks"], source["valid"])
    return hidden, dict(zip(names, states, strict=True))


ENCODER, MODEL = "regard.layers.encoder:TransformerEncoder", "regard.systems.transformer:Transformer"
ROWS = (
    Row("an encoder of short sources", f"{ENCODER}.forward", _encode, _fits_encoder, _knows_encoder, needs_triton),
    Row("a short source's keys", f"{MODEL}.remember", _remember, _fits_memory, _knows_decoder, needs_triton),
    Row("a decoder of short targets", f"{MODEL}.hidden_states", _decode, _fits_target, _knows_decoder, needs_triton),
)
