"""The Transformer's block: attention mixes positions, the feed-forward acts on each; both are added to x.

post-norm    x = LN(x + Attention(x));    x = LN(x + FF(x))          Vaswani et al. 2017; GPT: Radford et al. 2018
pre-norm     x = x + Attention(LN(x));    x = x + FF(LN(x))          GPT-2: Radford et al. 2019

FF(x) = W_2 f(W_1 x + b_1) + b_2,    f = GELU (tanh form; Hendrycks & Gimpel 2016), ReLU or swish
gated     W_2 (swish(W_g x) * W_1 x),    swish(u) = u σ(u); biases as above, or none             SwiGLU: Shazeer 2020

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
from regard.layers.parts import inside, note
from regard.layers.state import Span, State

ACTIVATIONS = ("gelu", "relu")
RMS_EPSILON = 1e-5  # Llama's


def rms_norm(width: int, epsilon: float = RMS_EPSILON) -> Any:
    return nn.RMSNorm(width, eps=epsilon)


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
        functions = {"gelu": nn.GELU(approximate="tanh"), "relu": nn.ReLU(), "swish": nn.SiLU()}
        self.activation: nn.Module = functions[activation]
        self.drop_activation = Dropout(dropout_activation)
        self.output = nn.Linear(inner, width, bias=bias)
        self.drop_output = Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        return self.drop_output(self.output(self.drop_activation(self.activation(self.expand(x)))))


class GatedFeedForward(FeedForward):
    """SwiGLU: one linear map, through a sigmoid-like curve, decides how much of another passes."""

    def __init__(self, width: int, inner: int, *, bias: bool = False, dropout: float = 0.0) -> None:
        super().__init__(width, inner, bias=bias, dropout=dropout)
        self.gate = nn.Linear(width, inner, bias=bias)
        self.activation = nn.SiLU()  # swish

    def forward(self, x: Tensor) -> Tensor:
        return self.drop_output(self.output(self.activation(self.gate(x)) * self.expand(x)))


class Block(Layer):
    """A language model's block; its state is the attention's."""

    norm_first: bool  # pre-norm, or post-norm

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


class PreNormBlock(Block):
    """The residual sum is never normalized, so gradients pass through it unchanged."""

    norm_first = True

    def forward(self, x: Tensor, state: State, span: Span) -> tuple[Tensor, State]:
        attended, state = self.attention(self.attention_norm(x), state, span)
        x = x + attended
        x = x + self.feedforward(self.feedforward_norm(x))
        return x, state

    def explain(self, x: Tensor, state: State, span: Span) -> tuple[Tensor, State, State]:
        attended, state, parts = self.attention.explain(self.attention_norm(x), state, span)
        attended = note("attention", attended)
        x = x + attended
        changed = note("feedforward", self.feedforward(self.feedforward_norm(x)))
        return x + changed, state, {"attention": {**parts, "output": attended}, "feedforward": changed}


class PostNormBlock(Block):
    """As in the original Transformer."""

    norm_first = False

    def forward(self, x: Tensor, state: State, span: Span) -> tuple[Tensor, State]:
        attended, state = self.attention(x, state, span)
        x = self.attention_norm(x + attended)
        x = self.feedforward_norm(x + self.feedforward(x))
        return x, state

    def explain(self, x: Tensor, state: State, span: Span) -> tuple[Tensor, State, State]:
        attended, state, parts = self.attention.explain(x, state, span)
        attended = note("attention", attended)
        x = self.attention_norm(x + attended)
        changed = note("feedforward", self.feedforward(x))
        x = self.feedforward_norm(x + changed)
        return x, state, {"attention": {**parts, "output": attended}, "feedforward": changed}


class RMSNormBlock(PreNormBlock):
    """Pre-norm without means and biases, as in Llama."""

    def __init__(
        self, attention: CausalSelfAttention, feedforward: FeedForward, *, epsilon: float = RMS_EPSILON
    ) -> None:
        super().__init__(attention, feedforward)
        self.attention_norm = rms_norm(attention.width, epsilon)
        self.feedforward_norm = rms_norm(attention.width, epsilon)


class EncoderBlock(nn.Module):
    """No state: every position sees the whole source; `valid` [N, S] masks padding (None = no padding)."""

    norm_first: bool

    def __init__(self, attention: FullSelfAttention, feedforward: FeedForward) -> None:
        super().__init__()
        self.attention = attention
        self.feedforward = feedforward
        self.attention_norm = nn.LayerNorm(attention.width)
        self.feedforward_norm = nn.LayerNorm(attention.width)


class PreNormEncoderBlock(EncoderBlock):
    norm_first = True

    def forward(self, x: Tensor, valid: Tensor | None) -> Tensor:
        x = x + self.attention(self.attention_norm(x), valid)
        x = x + self.feedforward(self.feedforward_norm(x))
        return x

    def explain(self, x: Tensor, valid: Tensor | None) -> tuple[Tensor, State]:
        attended, parts = self.attention.explain(self.attention_norm(x), valid)
        attended = note("attention", attended)
        x = x + attended
        changed = note("feedforward", self.feedforward(self.feedforward_norm(x)))
        return x + changed, {"attention": {**parts, "output": attended}, "feedforward": changed}


class PostNormEncoderBlock(EncoderBlock):
    norm_first = False

    def forward(self, x: Tensor, valid: Tensor | None) -> Tensor:
        x = self.attention_norm(x + self.attention(x, valid))
        x = self.feedforward_norm(x + self.feedforward(x))
        return x

    def explain(self, x: Tensor, valid: Tensor | None) -> tuple[Tensor, State]:
        attended, parts = self.attention.explain(x, valid)
        attended = note("attention", attended)
        x = self.attention_norm(x + attended)
        changed = note("feedforward", self.feedforward(x))
        x = self.feedforward_norm(x + changed)
        return x, {"attention": {**parts, "output": attended}, "feedforward": changed}


class DecoderBlock(nn.Module):
    """The state is the self-attention's; `source` holds the cross-attention's keys and values, one row per source."""

    norm_first: bool
    explain: Callable[..., tuple[Tensor, State, State]]

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


class PreNormDecoderBlock(DecoderBlock):
    norm_first = True

    def forward(self, x: Tensor, state: State, span: Span, source: State, valid: Tensor) -> tuple[Tensor, State]:
        attended, state = self.attention(self.attention_norm(x), state, span)
        x = x + attended
        x = x + self.cross(self.cross_norm(x), source, valid)
        x = x + self.feedforward(self.feedforward_norm(x))
        return x, state

    def explain(self, x: Tensor, state: State, span: Span, source: State, valid: Tensor) -> tuple[Tensor, State, State]:
        attended, state, own = self.attention.explain(self.attention_norm(x), state, span)
        attended = note("attention", attended)
        x = x + attended
        with inside("cross"):
            read, across = self.cross.explain(self.cross_norm(x), source, valid)
        read = note("cross", read)
        x = x + read
        changed = note("feedforward", self.feedforward(self.feedforward_norm(x)))
        parts = {
            "attention": {**own, "output": attended},
            "cross": {**across, "output": read},
            "feedforward": changed,
        }
        return x + changed, state, parts


class PostNormDecoderBlock(DecoderBlock):
    norm_first = False

    def forward(self, x: Tensor, state: State, span: Span, source: State, valid: Tensor) -> tuple[Tensor, State]:
        attended, state = self.attention(x, state, span)
        x = self.attention_norm(x + attended)
        x = self.cross_norm(x + self.cross(x, source, valid))
        x = self.feedforward_norm(x + self.feedforward(x))
        return x, state

    def explain(self, x: Tensor, state: State, span: Span, source: State, valid: Tensor) -> tuple[Tensor, State, State]:
        attended, state, own = self.attention.explain(x, state, span)
        attended = note("attention", attended)
        x = self.attention_norm(x + attended)
        with inside("cross"):
            read, across = self.cross.explain(x, source, valid)
        read = note("cross", read)
        x = self.cross_norm(x + read)
        changed = note("feedforward", self.feedforward(x))
        x = self.feedforward_norm(x + changed)
        parts = {
            "attention": {**own, "output": attended},
            "cross": {**across, "output": read},
            "feedforward": changed,
        }
        return x, state, parts
