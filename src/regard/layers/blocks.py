"""The Transformer's block: attention mixes positions, the feed-forward acts on each; both are added to x.

post-norm    x = LN(x + Attention(x));    x = LN(x + FF(x))          Vaswani et al. 2017; GPT: Radford et al. 2018
pre-norm     x = x + Attention(LN(x));    x = x + FF(LN(x))          GPT-2: Radford et al. 2019

FF(x) = W_2 f(W_1 x + b_1) + b_2,    f = GELU (tanh form; Hendrycks & Gimpel 2016) or ReLU
gated     W_2 (swish(W_g x) * W_1 x),    swish(u) = u σ(u)                                      SwiGLU: Shazeer 2020

LN(x) = a (x − mean) / deviation + b;   RMSNorm(x) = a x / √(mean of x² + ε)                    Zhang & Sennrich 2019

An encoder's block has attention in both directions; a decoder's has a third sublayer between the two, cross-attention
to the source.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from regard.layers.attention import CausalSelfAttention, CrossAttention, FullSelfAttention
from regard.layers.dropout import Dropout
from regard.layers.layer import Layer
from regard.layers.state import Span, State

ACTIVATIONS = ("gelu", "relu")
RMS_EPSILON = 1e-5  # Llama's


def rms_norm(width: int) -> Any:
    return nn.RMSNorm(width, eps=RMS_EPSILON)


class FeedForward(nn.Module):
    """Two linear layers with a nonlinearity between them, at each position separately."""

    def __init__(
        self,
        width: int,
        inner: int,
        *,
        activation: str = "gelu",
        bias: bool = True,
        dropout: float = 0.0,
        dropout_activation: float = 0.0,
    ) -> None:
        super().__init__()
        self.expand = nn.Linear(width, inner, bias=bias)
        self.activation: nn.Module = nn.GELU(approximate="tanh") if activation == "gelu" else nn.ReLU()
        self.drop_activation = Dropout(dropout_activation)
        self.output = nn.Linear(inner, width, bias=bias)
        self.drop_output = Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        return self.drop_output(self.output(self.drop_activation(self.activation(self.expand(x)))))


class GatedFeedForward(FeedForward):
    """SwiGLU: one linear map, through a sigmoid-like curve, decides how much of another passes. No biases."""

    def __init__(self, width: int, inner: int, *, dropout: float = 0.0) -> None:
        super().__init__(width, inner, bias=False, dropout=dropout)
        self.gate = nn.Linear(width, inner, bias=False)
        self.activation = nn.SiLU()  # swish

    def forward(self, x: Tensor) -> Tensor:
        return self.drop_output(self.output(self.activation(self.gate(x)) * self.expand(x)))


class Order:
    """Where the layer norm is applied when a sublayer is added to x."""

    feedforward: FeedForward
    feedforward_norm: nn.LayerNorm

    def add(self, norm: nn.Module, x: Tensor, part: Callable[[Tensor], tuple[Any, ...]]) -> tuple[Any, ...]:
        """The new x, and what the sublayer returned: its term of the sum, and anything else."""
        raise NotImplementedError

    def work(self, x: Tensor) -> tuple[Any, ...]:
        """The feed-forward sublayer, with which every block ends."""
        return self.add(self.feedforward_norm, x, lambda read: (self.feedforward(read),))


class PreNorm(Order):
    """x + part(LN(x)): the sum itself is never normalised, so gradients pass straight down."""

    def add(self, norm: nn.Module, x: Tensor, part: Callable[[Tensor], tuple[Any, ...]]) -> tuple[Any, ...]:
        added, *rest = part(norm(x))
        return x + added, added, *rest


class PostNorm(Order):
    """LN(x + part(x)), as in the first Transformer."""

    def add(self, norm: nn.Module, x: Tensor, part: Callable[[Tensor], tuple[Any, ...]]) -> tuple[Any, ...]:
        added, *rest = part(x)
        return norm(x + added), added, *rest


class Block(Order, Layer):
    """A language model's block; its state is the attention's."""

    def __init__(self, attention: CausalSelfAttention, feedforward: FeedForward, *, bias: bool = True) -> None:
        super().__init__()
        self.caches = attention.caches
        self.attention = attention
        self.feedforward = feedforward
        self.attention_norm = self.norm(attention.width, bias)
        self.feedforward_norm = self.norm(attention.width, bias)

    @staticmethod
    def norm(width: int, bias: bool) -> Any:
        return nn.LayerNorm(width, bias=bias)

    def begin(self, rows: int, *, capacity: int | None = None, device: torch.device | str, dtype: torch.dtype) -> State:
        return self.attention.begin(rows, capacity=capacity, device=device, dtype=dtype)

    def forward(self, x: Tensor, state: State, span: Span) -> tuple[Tensor, State]:
        x, _, new = self.add(self.attention_norm, x, lambda read: self.attention(read, state, span))
        x, _ = self.work(x)
        return x, new

    def explain(self, x: Tensor, state: State, span: Span) -> tuple[Tensor, State, State]:
        x, attended, new, own = self.add(self.attention_norm, x, lambda read: self.attention.explain(read, state, span))
        x, changed = self.work(x)
        return x, new, {"attention": {**own, "output": attended}, "feedforward": changed}


class PreNormBlock(PreNorm, Block):
    pass


class PostNormBlock(PostNorm, Block):
    pass


class RMSNormBlock(PreNorm, Block):
    """Pre-norm without means and biases, as in Llama."""

    @staticmethod
    def norm(width: int, bias: bool) -> Any:
        return rms_norm(width)


class EncoderBlock(Order, nn.Module):
    """No state: every position sees the whole source; `valid` [N, S] masks padding (None = no padding)."""

    def __init__(self, attention: FullSelfAttention, feedforward: FeedForward) -> None:
        super().__init__()
        self.attention = attention
        self.feedforward = feedforward
        self.attention_norm = nn.LayerNorm(attention.width)
        self.feedforward_norm = nn.LayerNorm(attention.width)

    def forward(self, x: Tensor, valid: Tensor | None) -> Tensor:
        x, _ = self.add(self.attention_norm, x, lambda read: (self.attention(read, valid),))
        x, _ = self.work(x)
        return x

    def explain(self, x: Tensor, valid: Tensor | None) -> tuple[Tensor, State]:
        x, attended, own = self.add(self.attention_norm, x, lambda read: self.attention.explain(read, valid))
        x, changed = self.work(x)
        return x, {"attention": {**own, "output": attended}, "feedforward": changed}


class PreNormEncoderBlock(PreNorm, EncoderBlock):
    pass


class PostNormEncoderBlock(PostNorm, EncoderBlock):
    pass


class DecoderBlock(Order, nn.Module):
    """The state is the self-attention's; `source` holds the cross-attention's keys and values, one row per source."""

    def __init__(self, attention: CausalSelfAttention, cross: CrossAttention, feedforward: FeedForward) -> None:
        super().__init__()
        self.attention = attention
        self.cross = cross
        self.feedforward = feedforward
        self.attention_norm = nn.LayerNorm(attention.width)
        self.cross_norm = nn.LayerNorm(attention.width)
        self.feedforward_norm = nn.LayerNorm(attention.width)

    def begin(self, rows: int, *, capacity: int | None = None, device: torch.device | str, dtype: torch.dtype) -> State:
        return self.attention.begin(rows, capacity=capacity, device=device, dtype=dtype)

    def forward(self, x: Tensor, state: State, span: Span, source: State, valid: Tensor) -> tuple[Tensor, State]:
        x, _, new = self.add(self.attention_norm, x, lambda read: self.attention(read, state, span))
        x, _ = self.add(self.cross_norm, x, lambda read: (self.cross(read, source, valid),))
        x, _ = self.work(x)
        return x, new

    def explain(self, x: Tensor, state: State, span: Span, source: State, valid: Tensor) -> tuple[Tensor, State, State]:
        x, attended, new, own = self.add(self.attention_norm, x, lambda read: self.attention.explain(read, state, span))
        x, found, across = self.add(self.cross_norm, x, lambda read: self.cross.explain(read, source, valid))
        x, changed = self.work(x)
        parts = {"attention": {**own, "output": attended}, "cross": {**across, "output": found}, "feedforward": changed}
        return x, new, parts


class PreNormDecoderBlock(PreNorm, DecoderBlock):
    pass


class PostNormDecoderBlock(PostNorm, DecoderBlock):
    pass
