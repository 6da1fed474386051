"""Training a language model's blocks on a GPU in half precision, with few passes over memory, dropout included.

    pre-norm   x = x + drop(part(N(x)))                post-norm   x = N(x + drop(part(x)))            N: LN or RMSNorm

Matrix products are cuBLAS's (half_products.py). One kernel runs at the end of each part: bias, dropout, residual sum
and norm (residual.py). Attention is PyTorch's fused kernel, or that of short sentences; rotary positions and the gate
of SwiGLU are one kernel each (kernels/language_block.py), and so are the minimal GRU (recurrence/minimal_gru.py) and
linear attention in its usual form (kernels/linear_attention.py). In its other forms it runs as elsewhere. The result
equals the blocks called one by one. GPT-2's blocks without dropout have a row of their own (fused_block.py), which also
keeps the GELU within its products.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from regard.fast.attention.bias_gradients import DeferredSums, split_rows
from regard.fast.attention.causal_attention import attend_causal, precision, takes_cudnn
from regard.fast.attention.residual import add_norm, vectors_of
from regard.fast.attention.short_attention import DEPTHS, attend_packed, is_short
from regard.fast.recurrence import minimal_gru
from regard.fast.table import Row, Use, Why, needs_triton
from regard.fast.training.half_products import Halves, JoinedProduct
from regard.layers.attention import CausalSelfAttention, GroupedQueryAttention
from regard.layers.blocks import FeedForward, GatedFeedForward, PostNormBlock, PreNormBlock, RMSNormBlock
from regard.layers.matrix_state import MIN_NORMALIZER, LinearAttention
from regard.layers.position import Position, Rotary, angles
from regard.layers.scan import MinGRU, MinGRUBlock
from regard.layers.state import Span, State
from regard.systems.model import Stack

BLOCKS = (PreNormBlock, PostNormBlock, RMSNormBlock, MinGRUBlock)
Table = tuple[Tensor, Tensor] | None  # cosines and sines [T, d/2]


class SubLayer(NamedTuple):
    """A part of a block: what runs between a norm and a residual sum."""

    norm: Any  # before it (pre-norm), or after the sum
    does: Any  # the attention, recurrence or feed-forward
    output: nn.Linear | None  # its last product, whose bias is added with the sum; None: it returns its result
    dropout: nn.Dropout | None

    @property
    def bias(self) -> Tensor | None:
        return None if self.output is None else self.output.bias

    @property
    def products(self) -> list[nn.Linear]:
        """The products whose weights are cast here; others are cast where they run."""
        first = self.does.project if mixes_by_kernels(self.does) else None
        if type(self.does) is FeedForward:
            first = self.does.expand
        return [each for each in (first, self.output) if each is not None]


def parts_of(block: Any) -> tuple[SubLayer, SubLayer]:
    work = block.feedforward
    works = SubLayer(block.feedforward_norm, work, work.output, work.drop_output)
    if isinstance(block, MinGRUBlock):
        return SubLayer(block.recurrence_norm, block.recurrence, block.output, block.drop_output), works
    look = block.attention
    if looks_by_kernels(look):
        return SubLayer(block.attention_norm, look, look.output, look.drop_output), works
    return SubLayer(block.attention_norm, look, None, None), works


def hidden_states(model: Stack, tokens: Tensor, state: State, span: Span) -> tuple[Tensor, State]:
    """`Stack.hidden_states` of a text that is read in one call, without a cache."""
    x = model.entry(model.embedding(tokens, span))
    stream = _Stream(x, model, span)
    past: State = {}
    for (name, given), (look, work) in zip(state["past"].items(), map(parts_of, model.layers), strict=True):
        past[name] = stream.look(look, given)
        stream.work(work)
    return stream.read, past


class _Stream:
    """The residual stream x through the blocks, and `read`, the input of the next part."""

    def __init__(self, x: Tensor, model: Stack, span: Span) -> None:
        half, self.span = precision(x), span
        self.pre = bool(getattr(model.layers[0], "norm_first", True))
        parts = [part for block in model.layers for part in parts_of(block)]
        norms = [part.norm for part in parts] + [model.finish] * self.pre
        self.halves = Halves([each for part in parts for each in part.products], half)
        self.norms = iter(norms)
        self.seeds = iter(torch.randint(2**62, (len(norms), 2), device=x.device))  # two each: aligned to 16 bytes
        begins = [each.bias for part in parts for each in part.products if each is not part.output]
        ends = (vectors_of(norm, part.bias) for norm, part in zip(norms[self.pre :], parts))
        inner = [(bias,) for bias in begins if bias is not None]
        self.deferred = DeferredSums([*inner, *ends], split_rows(x.numel() // x.size(-1))[1])
        self.x = x.to(half)
        self.read: Tensor = next(self.norms)(x).to(half) if self.pre else self.x
        self.tables: dict[Any, Table] = {}

    def look(self, part: SubLayer, state: State) -> State:
        """The attention or recurrence; returns its state."""
        does = part.does
        if not mixes_by_kernels(does):
            found, state = does(self.read, state, self.span)
            self.add(part, found.to(self.read.dtype))
            return state
        packed = self.halves(does.project, self.read, deferred=self.deferred)
        plain = type(does) is CausalSelfAttention and type(does.position) is Position
        if type(does) is MinGRU:
            context, state = minimal_gru.run(packed, state, self.span)
        elif type(does) is LinearAttention:
            context, state = LinearRead.apply(packed, does.heads), {}  # the matrix at the end is nobody's beginning
        elif plain and is_short(packed, packed.size(1), packed.size(1), does.head_width):
            context = attend_packed(packed, None, does.heads, causal=True, dropout=does.weight_dropout)
        else:
            context = PackedAttention.apply(packed, does, self.table(does))
        self.add(part, context)
        return state

    def work(self, part: SubLayer) -> None:
        does = part.does
        if type(does) is GatedFeedForward:
            inner = SwiGLU.apply(JoinedProduct.apply(self.read, [], does.gate.weight, does.expand.weight))
        else:
            inner = does.drop_activation(does.activation(self.halves(does.expand, self.read, deferred=self.deferred)))
        self.add(part, inner)

    def add(self, part: SubLayer, found: Tensor) -> None:
        """The part's last product, bias, dropout, residual sum and norm; `read` is what the next part reads."""
        added = found if part.output is None else self.halves(part.output, found, bias=False)
        dropout = part.dropout.p if part.dropout is not None and part.dropout.training else 0.0
        norm, seed = next(self.norms), next(self.seeds)
        total, self.read, carried = add_norm(self.x, added, part.bias, norm, dropout, seed, self.deferred)
        self.x = total if self.pre else carried

    def table(self, look: CausalSelfAttention) -> Table:
        """The angles' cosines and sines; None for attention without positions. Blocks share them."""
        if type(look.position) is not Rotary:
            return None
        key = (look.head_width, look.position.theta, look.position.stretch)
        if key not in self.tables:
            places = self.span.positions(self.x.size(1))
            turns = angles(places, look.head_width // 2, torch.float32, *key[1:])[0]
            self.tables[key] = turns.cos(), turns.sin()
        return self.tables[key]


class LinearRead(torch.autograd.Function):
    """Linear attention of packed queries, keys and values [R, T, 3 H d], from the beginning of the text."""

    @staticmethod
    def forward(ctx: Any, packed: Tensor, heads: int) -> Tensor:
        from regard.fast.kernels.linear_attention import linear_attention

        packed, ctx.heads = packed.contiguous(), heads
        out, norms = linear_attention(packed, heads, MIN_NORMALIZER)
        ctx.save_for_backward(packed, out, norms)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, above: Tensor) -> tuple[Tensor, None]:
        from regard.fast.kernels.linear_attention import linear_attention_backward

        packed, out, norms = ctx.saved_tensors
        return linear_attention_backward(packed, out, above.contiguous(), norms, ctx.heads, MIN_NORMALIZER), None


class PackedAttention(torch.autograd.Function):
    """Causal attention of packed queries, keys and values [R, T, (H + 2G) d]: the context [R, T, H d]."""

    @staticmethod
    def forward(ctx: Any, packed: Tensor, part: CausalSelfAttention, table: Table) -> Tensor:
        ctx.sizes, ctx.table = [part.heads, part.key_heads, part.key_heads], table
        if table is not None:
            from regard.fast.kernels.language_block import rotate

            query, key, value = _heads(packed, ctx.sizes)
            packed = rotate(query, key, value, table)
        query, key, value = (piece.detach().requires_grad_() for piece in _heads(packed, ctx.sizes))
        dropout, cudnn = part.weight_dropout, takes_cudnn(part, packed.device)
        with torch.enable_grad():
            shared = part.expand_kv_heads(key), part.expand_kv_heads(value)
            context = attend_causal(query, *shared, dropout=dropout, cudnn=cudnn).transpose(1, 2).flatten(2)
        ctx.attention = context, query, key, value
        return context.detach()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, above: Tensor) -> tuple[Tensor, None, None]:
        found, *asked = ctx.attention
        ctx.attention = None
        gradients = torch.autograd.grad(found, asked, above)
        if ctx.table is None:
            return torch.cat([part.transpose(1, 2).flatten(2) for part in gradients], dim=-1), None, None
        from regard.fast.kernels.language_block import rotate

        query, key, value = (part if part.stride(-1) == 1 else part.contiguous() for part in gradients)
        return rotate(query, key, value, ctx.table, back=True), None, None


def _heads(packed: Tensor, sizes: list[int]) -> tuple[Tensor, ...]:
    """Queries [R, H, T, d], keys and values [R, G, T, d] as views."""
    return packed.unflatten(-1, (sum(sizes), -1)).transpose(1, 2).split(sizes, dim=1)


class SwiGLU(torch.autograd.Function):
    """u σ(u) v of [u ; v] [..., 2F]."""

    @staticmethod
    def forward(ctx: Any, both: Tensor) -> Tensor:
        from regard.fast.kernels.language_block import swiglu

        ctx.save_for_backward(both)
        return swiglu(both)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, above: Tensor) -> Tensor:
        from regard.fast.kernels.language_block import swiglu_backward

        (both,) = ctx.saved_tensors
        return swiglu_backward(both, above.contiguous())


# -- the rows --------------------------------------------------------------------------------------------------------


def looks_by_kernels(look: Any) -> bool:
    """True for attention that is computed here."""
    if type(look) is LinearAttention:
        usual = (look.feature, look.decay, look.rule) == ("elu", "none", "sum")
        return usual and look.head_width in DEPTHS
    return type(look) in (CausalSelfAttention, GroupedQueryAttention)


def mixes_by_kernels(does: Any) -> bool:
    """True for attention and recurrences that are computed here; others run as written."""
    return looks_by_kernels(does) or type(does) is MinGRU


def knows(model: Stack, use: Use) -> Why:
    if not (use.training and use.bf16 and use.compile == "auto"):
        return "it supports only training in bf16 with training.compile auto"
    if not len(model.layers) or any(type(block) not in BLOCKS for block in model.layers):
        return "its blocks are of a different kind"
    parts = [part.does for block in model.layers for part in parts_of(block)]
    if any(isinstance(does, FeedForward) and type(does) not in (FeedForward, GatedFeedForward) for does in parts):
        return "its feed-forward is of a different kind"
    if any(looks_by_kernels(does) and type(does.position) not in (Position, Rotary) for does in parts):
        return "its positions add a bias to the scores"
    if any(isinstance(does, CausalSelfAttention) and does.caches and not looks_by_kernels(does) for does in parts):
        return "its attention is of a different kind"
    if any(type(norm) is nn.LayerNorm and norm.bias is None for norm in model.modules()):
        return "its norms have no bias"
    if any(type(does) is GatedFeedForward and does.expand.bias is not None for does in parts):
        return "its gated feed-forward has biases"
    if any(hasattr(weight, "full_tensor") for weight in model.parameters()):
        return "its weights are sharded"
    return None


def fits(model: Stack, tokens: Tensor, state: State, span: Span) -> bool:
    """True if texts are read from their beginning, in one call, in training."""
    if not (model.training and torch.is_autocast_enabled("cuda")):
        return False
    looks = [part.does for part, _ in map(parts_of, model.layers)]
    if len(span.start) > 1 and any(isinstance(getattr(look, "position", None), Rotary) for look in looks):
        return False  # rows at different positions
    if (len(span.start) > 1 or len(tokens) == 1) and any(type(look) is LinearAttention for look in looks):
        return False  # a state that other calls may continue
    return not any(given for given, block in zip(state["past"].values(), model.layers) if block.caches)


PLACES = {
    "gpt": "gpt:GPT",
    "llama": "llama:Llama",
    "linear-attention": "linear_attention:LinearTransformer",
    "mingru": "mingru:MinGRUModel",
}
ROWS = tuple(
    Row(
        f"{name}'s blocks in few passes",
        f"regard.systems.{place}.hidden_states",
        hidden_states,
        fits,
        knows,
        needs_triton,
    )
    for name, place in PLACES.items()
)
