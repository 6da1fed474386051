"""Training a language model's blocks on a GPU in half precision, with few passes over memory, dropout included.

    pre-norm   x = x + drop(part(N(x)))                post-norm   x = N(x + drop(part(x)))            N: LN or RMSNorm

Matrix products are cuBLAS's (half_products.py). One kernel runs at the end of each part: bias, dropout, residual sum
and norm (residual.py). Attention is PyTorch's fused kernel, or that of short sentences; rotary positions and the gate
of SwiGLU are one kernel each (kernels/language_block.py). An attention of another kind, such as linear attention, runs
as written. The result equals the blocks called one by one. GPT-2's blocks without dropout have a row of their own
(fused_block.py), which also keeps the GELU within its products.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from regard.fast.attention.bias_gradients import DeferredSums, split_rows
from regard.fast.attention.causal_attention import attend_causal, precision, takes_cudnn
from regard.fast.attention.residual import add_norm, vectors_of
from regard.fast.attention.short_attention import attend_packed, is_short
from regard.fast.table import Row, Use, Why, needs_triton
from regard.fast.training.half_products import Halves, JoinedProduct
from regard.layers.attention import CausalSelfAttention, GroupedQueryAttention
from regard.layers.blocks import Block, FeedForward, GatedFeedForward, PostNormBlock, PreNormBlock, RMSNormBlock
from regard.layers.position import Position, Rotary, angles
from regard.layers.state import Span, State
from regard.systems.model import Stack

BLOCKS = (PreNormBlock, PostNormBlock, RMSNormBlock)
LOOKS = (CausalSelfAttention, GroupedQueryAttention)  # by kernels, with no position or a rotary one
Table = tuple[Tensor, Tensor] | None  # cosines and sines [T, d/2]


def hidden_states(model: Stack, tokens: Tensor, state: State, span: Span) -> tuple[Tensor, State]:
    """`Stack.hidden_states` of a text that is read in one call, without a cache."""
    blocks: list[Block] = list(model.layers)  # type: ignore[arg-type]  # ModuleList forgets what it holds
    x = model.entry(model.embedding(tokens, span))
    stream = _Stream(x, blocks, [] if isinstance(model.finish, nn.Identity) else [model.finish], span)
    past: State = {}
    for (name, given), block in zip(state["past"].items(), blocks, strict=True):
        past[name] = stream.look(block.attention, given)
        stream.work(block.feedforward)
    return stream.read, past


class _Stream:
    """The residual stream x through the blocks, and `read`, the input of the next part."""

    def __init__(self, x: Tensor, blocks: list[Block], finish: list[Any], span: Span) -> None:
        half, self.span = precision(x), span
        norms = [norm for block in blocks for norm in (block.attention_norm, block.feedforward_norm)] + finish
        parts = [part for block in blocks for part in (block.attention, block.feedforward)]
        maps = [getattr(part, name, None) for part in parts for name in ("project", "expand", "output")]
        own = {id(each) for part in parts if not _by_kernels(part) for each in part.modules()}
        gated = {id(part.expand) for part in parts if isinstance(part, GatedFeedForward)}
        joined = own | gated  # run as written, or by `JoinedProduct`
        self.halves = Halves([each for each in maps if each is not None and id(each) not in joined], half)
        self.pre, self.norms = bool(blocks[0].norm_first), iter(norms)
        self.seeds = iter(torch.randint(2**62, (len(norms), 2), device=x.device))  # two each: aligned to 16 bytes
        ends = (vectors_of(norm, _end_bias(part)) for norm, part in zip(norms[self.pre :], parts))
        begins = (each.bias for each in maps if each is not None and id(each) not in joined)
        outputs = {id(part.output.bias) for part in parts}
        inner = [(bias,) for bias in begins if bias is not None and id(bias) not in outputs]
        self.deferred = DeferredSums([*inner, *ends], split_rows(x.numel() // x.size(-1))[1])
        self.x = x.to(half)
        self.read: Tensor = next(self.norms)(x).to(half) if self.pre else self.x
        self.tables: dict[Any, Table] = {}

    def look(self, part: CausalSelfAttention, state: State) -> State:
        """The attention; returns its state."""
        if not _by_kernels(part):
            attended, state = part(self.read, state, self.span)
            self.add(attended.to(self.read.dtype), None, 0.0)
            return state
        packed = self.halves(part.project, self.read, deferred=self.deferred)
        options = {"causal": True, "dropout": part.weight_dropout}
        plain = type(part) is CausalSelfAttention and type(part.position) is Position
        if plain and is_short(packed, packed.size(1), packed.size(1), part.head_width):
            context = attend_packed(packed, None, part.heads, **options)  # type: ignore[arg-type]
        else:
            context = Attention.apply(packed, part, self.table(part))
        self.add(self.halves(part.output, context, bias=False), part.output.bias, part.drop_output.p)
        return state

    def work(self, part: FeedForward) -> None:
        if isinstance(part, GatedFeedForward):
            inner = SwiGLU.apply(JoinedProduct.apply(self.read, [], part.gate.weight, part.expand.weight))
        else:
            inner = part.drop_activation(part.activation(self.halves(part.expand, self.read, deferred=self.deferred)))
        self.add(self.halves(part.output, inner, bias=False), part.output.bias, part.drop_output.p)

    def add(self, added: Tensor, bias: Tensor | None, dropout: float) -> None:
        """Bias, dropout, residual sum and norm; `read` is what the next part reads."""
        norm, seed = next(self.norms), next(self.seeds)
        total, self.read, carried = add_norm(self.x, added, bias, norm, dropout, seed, self.deferred)
        self.x = total if self.pre else carried

    def table(self, part: CausalSelfAttention) -> Table:
        """The angles' cosines and sines; None for attention without positions. Blocks share them."""
        if type(part.position) is not Rotary:
            return None
        key = (part.head_width, part.position.theta, part.position.stretch)
        if key not in self.tables:
            places = self.span.positions(self.x.size(1))
            turns = angles(places, part.head_width // 2, torch.float32, *key[1:])[0]
            self.tables[key] = turns.cos(), turns.sin()
        return self.tables[key]


class Attention(torch.autograd.Function):
    """Causal attention of packed queries, keys and values [R, T, (H + 2G) d]: the context [R, T, H d]."""

    @staticmethod
    def forward(ctx: Any, packed: Tensor, part: CausalSelfAttention, table: Table) -> Tensor:
        ctx.sizes, ctx.table = [part.heads, part.key_heads, part.key_heads], table
        if table is not None:
            from regard.fast.kernels.language_block import rotate

            packed = rotate(*_heads(packed, ctx.sizes), table)
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

        return rotate(*(_unit_stride(part) for part in gradients), ctx.table, back=True), None, None


def _heads(packed: Tensor, sizes: list[int]) -> tuple[Tensor, ...]:
    """Queries [R, H, T, d], keys and values [R, G, T, d] as views."""
    return packed.unflatten(-1, (sum(sizes), -1)).transpose(1, 2).split(sizes, dim=1)


def _unit_stride(part: Tensor) -> Tensor:
    return part if part.stride(-1) == 1 else part.contiguous()


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

        return swiglu_backward(*ctx.saved_tensors, above.contiguous())


# -- the rows --------------------------------------------------------------------------------------------------------


def _by_kernels(part: nn.Module) -> bool:
    """True for a part whose products are computed here; an attention of another kind runs as written."""
    return type(part) in LOOKS or isinstance(part, FeedForward)


def _end_bias(part: Any) -> Tensor | None:
    """The bias that is added at the end of a part, if it is added here."""
    return part.output.bias if _by_kernels(part) else None


def _parts(model: Stack) -> Iterator[Any]:
    return (part for block in model.layers for part in (block.attention, block.feedforward))


def knows(model: Stack, use: Use) -> Why:
    if not (use.training and use.bf16 and use.compile == "auto"):
        return "it is for training in bf16, with training.compile at auto"
    if not len(model.layers) or any(type(block) not in BLOCKS for block in model.layers):
        return "it has blocks of another kind"
    if any(type(part) not in (*LOOKS, FeedForward, GatedFeedForward) and not _other(part) for part in _parts(model)):
        return "its blocks have parts of another kind"
    if any(type(part.position) not in (Position, Rotary) for part in _parts(model) if type(part) in LOOKS):
        return "this position biases scores"
    if any(type(norm) is nn.LayerNorm and norm.bias is None for norm in model.modules()):
        return "its norms have no shift"
    if any(type(part) is GatedFeedForward and part.expand.bias is not None for part in _parts(model)):
        return "its gated feed-forward has biases"
    if any(hasattr(weight, "full_tensor") for weight in model.parameters()):
        return "its weights are sharded"
    return None


def _other(part: nn.Module) -> bool:
    """True for an attention that runs as written within the stream."""
    return isinstance(part, CausalSelfAttention) and not part.caches


def fits(model: Stack, tokens: Tensor, state: State, span: Span) -> bool:
    """True if texts are read from their beginning, in one call, in training."""
    if len(span.start) > 1 and any(type(block.attention.position) is Rotary for block in model.layers):
        return False  # rows at different positions
    caches = (given for given, block in zip(state["past"].values(), model.layers) if block.attention.caches)
    return model.training and torch.is_autocast_enabled("cuda") and not any(caches)


ROWS = tuple(
    Row(
        f"{system}'s blocks in few passes",
        f"regard.systems.{place}.hidden_states",
        hidden_states,
        fits,
        knows,
        needs_triton,
    )
    for system, place in (
        ("gpt", "gpt:GPT"),
        ("llama", "llama:Llama"),
        ("linear-attention", "linear_attention:LinearTransformer"),
    )
)
