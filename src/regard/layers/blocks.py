"""The Transformer's block: attention lets positions exchange, the feed-forward works on each; both are added to x.

post-norm    x = LN(x + Attention(x));    x = LN(x + FF(x))          Vaswani et al. 2017; GPT: Radford et al. 2018
pre-norm     x = x + Attention(LN(x));    x = x + FF(LN(x))          GPT-2: Radford et al. 2019

FF(x) = W_2 f(W_1 x + b_1) + b_2,    f = GELU (tanh form; Hendrycks & Gimpel 2016) or ReLU
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from regard.layers.attention import CausalSelfAttention
from regard.layers.layer import Layer
from regard.layers.state import Span, State

ACTIVATIONS = ("gelu", "relu")


class FeedForward(nn.Module):
    """Two linear maps with a nonlinearity between them, at each position alone."""

    def __init__(
        self, width: int, inner: int, *, activation: str = "gelu", bias: bool = True, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.expand = nn.Linear(width, inner, bias=bias)
        self.activation = nn.GELU(approximate="tanh") if activation == "gelu" else nn.ReLU()
        self.output = nn.Linear(inner, width, bias=bias)
        self.drop_output = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        return self.drop_output(self.output(self.activation(self.expand(x))))


class Block(Layer):
    """What both orders share; the state is the attention's."""

    def __init__(self, attention: CausalSelfAttention, feedforward: FeedForward, *, bias: bool = True) -> None:
        super().__init__()
        self.attention = attention
        self.feedforward = feedforward
        self.attention_norm = nn.LayerNorm(attention.width, bias=bias)
        self.feedforward_norm = nn.LayerNorm(attention.width, bias=bias)

    def begin(self, rows: int, *, capacity: int | None = None, device: torch.device | str, dtype: torch.dtype) -> State:
        return self.attention.begin(rows, capacity=capacity, device=device, dtype=dtype)


class PreNormBlock(Block):
    """Each part reads a normalised copy; the sum itself is never normalised, so gradients pass straight down."""

    def forward(self, x: Tensor, state: State, span: Span) -> tuple[Tensor, State]:
        attended, state = self.attention(self.attention_norm(x), state, span)
        x = x + attended
        return x + self.feedforward(self.feedforward_norm(x)), state

    def explain(self, x: Tensor, state: State, span: Span) -> tuple[Tensor, State, State]:
        attended, state, parts = self.attention.explain(self.attention_norm(x), state, span)
        x = x + attended
        changed = self.feedforward(self.feedforward_norm(x))
        return x + changed, state, {"attention": {**parts, "output": attended}, "feedforward": changed}


class PostNormBlock(Block):
    """Each sum is normalised, as in the first Transformer."""

    def forward(self, x: Tensor, state: State, span: Span) -> tuple[Tensor, State]:
        attended, state = self.attention(x, state, span)
        x = self.attention_norm(x + attended)
        return self.feedforward_norm(x + self.feedforward(x)), state

    def explain(self, x: Tensor, state: State, span: Span) -> tuple[Tensor, State, State]:
        attended, state, parts = self.attention.explain(x, state, span)
        x = self.attention_norm(x + attended)
        changed = self.feedforward(x)
        return (
            self.feedforward_norm(x + changed),
            state,
            {
                "attention": {**parts, "output": attended},
                "feedforward": changed,
            },
        )
