"""Attention: each position is a query to all positions that it may see.

    Attention(Q, K, V) = softmax(Q Kᵀ / √d + M) V            Vaswani et al. 2017, in H heads of width d side by side

causal   Q, K, V = W_q x, W_k x, W_v x      M = −∞ where a key lies after its query (no position sees a later one)
full     Q, K, V = W_q x, W_k x, W_v x      M = −∞ where a key is padding
grouped  as causal, and the H queries of a position share G ≤ H keys and values: head h reads those of group h // (H/G)
cross    Q = W_q y;  K, V = W_k m, W_v m    M = −∞ where the source m is padding

Grouped queries: Ainslie et al. 2023; the cache is G/H of the size.

With any score α of scores.py instead of the softmax, one head and nothing projected afterwards:

bare     h_i = Σ_{j ≤ i} α(q_i, k_j) v_j,   q = f(W_q x), k = f(W_k x), v = f(W_v x)        the notes
scored   c_t = Σ_s α(q_t, h_s) h_s                                                          Bahdanau et al. 2015

A source has one row, [N, S, D], which the hypotheses of a beam share: of R rows, row r attends to source r // (R / N).
Hypotheses are more queries to the same keys; keys and values are never copied.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.layers import cache
from regard.layers.cache import visible
from regard.layers.dropout import Dropout
from regard.layers.layer import Layer
from regard.layers.parts import note
from regard.layers.position import Position
from regard.layers.scores import named_score
from regard.layers.state import Span, State


def attend(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, *, dropout: float = 0.0) -> Tensor:
    """The equation by PyTorch's fused function: queries [R, H, T, d], keys and values [R, H, S, d] → [R, H, T, d]."""
    return F.scaled_dot_product_attention(query, keys, values, attn_mask=mask, dropout_p=dropout)


def attention_reference(
    query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, *, dropout: float = 0.0
) -> tuple[Tensor, State]:
    """The same step by step, with its scores and weights [R, H, T, S] and their intermediate values."""
    scores = query @ keys.transpose(-2, -1) / query.size(-1) ** 0.5
    scores = scores if mask is None else scores + mask
    weights = note("weights", scores.softmax(dim=-1))  # each row of it sums to 1
    parts: State = {"query": query, "keys": keys, "values": values, "scores": scores, "weights": weights}
    return note("heads", F.dropout(weights, dropout) @ values), parts


def additive_mask(seen: Tensor, bias: Tensor | None, dtype: torch.dtype) -> Tensor:
    """M: 0 where a key may be seen, or what a position adds to its score, and −∞ where not."""
    mask = torch.zeros_like(seen, dtype=dtype).masked_fill(~seen, -torch.inf)
    return mask if bias is None else (mask + bias).to(dtype)


class MultiHeadSelfAttention(nn.Module):
    """Queries, keys and values of the same x in several heads, which are concatenated and projected.

    `dropout` is the rate on the weights, `dropout_output` on the result; `position` acts on queries, keys or scores.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        bias: bool = True,
        dropout: float = 0.0,
        dropout_output: float = 0.0,
        position: Position | None = None,
    ) -> None:
        super().__init__()
        self.width = width
        self.heads = heads
        self.head_width = width // heads
        self.dropout = dropout
        self.position = position or Position()
        self.project = nn.Linear(width, 3 * width, bias=bias)  # W_q, W_k, W_v of all heads at once
        self.output = nn.Linear(width, width, bias=bias)
        self.drop_output = Dropout(dropout_output)

    def queries_keys_values(self, x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values [R, H, T, d] of x [R, T, D] at positions [R, T]."""
        query, key, value = self.project(x).unflatten(-1, (3 * self.heads, -1)).chunk(3, dim=2)  # [R, T, H, d]
        query, key = self.position.rotate(query, positions), self.position.rotate(key, positions)
        return query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2)

    def join_heads(self, context: Tensor) -> Tensor:
        """The heads [R, H, T, d] concatenated and projected: [R, T, D]."""
        return self.drop_output(self.output(context.transpose(1, 2).flatten(2)))

    @property
    def weight_dropout(self) -> float:
        """The current dropout rate on the weights; 0 in eval()."""
        return self.dropout if self.training else 0.0


class CausalSelfAttention(MultiHeadSelfAttention, Layer):
    """Every position attends to itself and all earlier ones. The state is the keys and values of what was read."""

    caches = True

    @property
    def key_heads(self) -> int:
        """The number of heads of keys and values, which the state contains."""
        return self.heads

    def begin(self, rows: int, *, capacity: int | None = None, device: torch.device | str, dtype: torch.dtype) -> State:
        return cache.begin(rows, self.key_heads, self.head_width, capacity=capacity, device=device, dtype=dtype)

    def forward(self, x: Tensor, state: State, span: Span) -> tuple[Tensor, State]:
        *asked, new = self.qkv_and_mask(x, state, span)
        return self.join_heads(attend(*asked, dropout=self.weight_dropout)), new

    def explain(self, x: Tensor, state: State, span: Span) -> tuple[Tensor, State, State]:
        *asked, new = self.qkv_and_mask(x, state, span)
        context, parts = attention_reference(*asked, dropout=self.weight_dropout)
        return self.join_heads(context), new, parts

    def qkv_and_mask(self, x: Tensor, state: State, span: Span) -> tuple[Tensor, Tensor, Tensor, Tensor, State]:
        """Q, K, V, M and the new state."""
        positions = span.positions(x.size(1))
        query, key, value = self.queries_keys_values(x, positions)
        keys, values, new = cache.remember(state, key, value, span)
        slots = keys.size(2)
        mask = additive_mask(visible(positions, slots), self.position.bias(positions, slots, self.heads), query.dtype)
        return query, self.expand_kv_heads(keys), self.expand_kv_heads(values), mask, new

    def expand_kv_heads(self, keys: Tensor) -> Tensor:
        """Keys or values [R, G, S, d] as each head of queries reads them: [R, H, S, d]."""
        return keys


class GroupedQueryAttention(CausalSelfAttention):
    """Groups of neighboring heads share one head of keys and values. A head may be wider than its share of the width.

    `bias` is that of queries, keys and values, `bias_output` that of W_o; None = as `bias`.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        groups: int,
        *,
        head_width: int = 0,
        bias: bool = True,
        bias_output: bool | None = None,
        dropout: float = 0.0,
        dropout_output: float = 0.0,
        position: Position | None = None,
    ) -> None:
        super().__init__(width, heads, bias=bias, dropout=dropout, dropout_output=dropout_output, position=position)
        self.groups = groups
        self.head_width = head_width or width // heads
        self.project = nn.Linear(width, (heads + 2 * groups) * self.head_width, bias=bias)  # W_q, W_k, W_v
        if head_width or bias_output not in (None, bias):
            self.output = nn.Linear(heads * self.head_width, width, bias=bias if bias_output is None else bias_output)

    @property
    def key_heads(self) -> int:
        return self.groups

    def queries_keys_values(self, x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries [R, H, T, d], keys and values [R, G, T, d]."""
        heads = self.project(x).unflatten(-1, (self.heads + 2 * self.groups, -1))  # [R, T, H + 2·G, d]
        query, key, value = heads.split([self.heads, self.groups, self.groups], dim=2)
        query, key = self.position.rotate(query, positions), self.position.rotate(key, positions)
        return query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2)

    def expand_kv_heads(self, keys: Tensor) -> Tensor:
        return keys.repeat_interleave(self.heads // self.groups, dim=1)


class FullSelfAttention(MultiHeadSelfAttention):
    """Every position attends to all; `valid` [N, S] masks padding, None = no padding."""

    def forward(self, x: Tensor, valid: Tensor | None) -> Tensor:
        return self.join_heads(attend(*self.qkv_and_mask(x, valid), dropout=self.weight_dropout))

    def explain(self, x: Tensor, valid: Tensor | None) -> tuple[Tensor, State]:
        context, parts = attention_reference(*self.qkv_and_mask(x, valid), dropout=self.weight_dropout)
        return self.join_heads(context), parts

    def qkv_and_mask(self, x: Tensor, valid: Tensor | None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Q, K, V and M."""
        positions = torch.arange(x.size(1), device=x.device)[None]
        query, key, value = self.queries_keys_values(x, positions)
        seen = torch.ones_like(positions, dtype=torch.bool) if valid is None else valid
        bias = self.position.bias(positions, x.size(1), self.heads)
        return query, key, value, additive_mask(seen[:, None, None], bias, query.dtype)


class CrossAttention(nn.Module):
    """x [R, T, D] attends to N sources, whose keys and values `remember` computes once."""

    def __init__(self, width: int, heads: int, *, dropout: float = 0.0, dropout_output: float = 0.0) -> None:
        super().__init__()
        self.heads = heads
        self.dropout = dropout
        self.query = nn.Linear(width, width)
        self.project = nn.Linear(width, 2 * width)  # W_k, W_v
        self.output = nn.Linear(width, width)
        self.drop_output = Dropout(dropout_output)

    def remember(self, memory: Tensor) -> State:
        return {"keys_values": self.project(memory)}  # [N, S, 2·D]: keys, then values

    def forward(self, x: Tensor, source: State, valid: Tensor | None) -> Tensor:
        return self.join_heads(attend(*self.qkv_and_mask(x, source, valid), dropout=self.weight_dropout), x)

    def explain(self, x: Tensor, source: State, valid: Tensor | None) -> tuple[Tensor, State]:
        context, parts = attention_reference(*self.qkv_and_mask(x, source, valid), dropout=self.weight_dropout)
        asked = {name: _by_hypothesis(parts[name], x) for name in ("query", "scores", "weights")}
        return self.join_heads(context, x), {**parts, **asked}  # keys and values have one row per source

    def join_heads(self, context: Tensor, x: Tensor) -> Tensor:
        """The heads [N, H, width·T, d] joined, one row per hypothesis: [R, T, D]."""
        return self.drop_output(self.output(context.transpose(1, 2).reshape(x.shape)))

    @property
    def weight_dropout(self) -> float:
        return self.dropout if self.training else 0.0

    def qkv_and_mask(
        self, x: Tensor, source: State, valid: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Queries [N, H, width·T, d], the hypotheses of a source one after the other; K, V [N, H, S, d] and M."""
        memory = source["keys_values"]
        query = self.query(x).view(memory.size(0), -1, self.heads, x.size(-1) // self.heads)
        keys, values = memory.to(query.dtype).unflatten(-1, (2 * self.heads, -1)).chunk(2, dim=2)
        mask = None if valid is None else additive_mask(valid[:, None, None], None, query.dtype)
        return query.transpose(1, 2), keys.transpose(1, 2), values.transpose(1, 2), mask


def _by_hypothesis(part: Tensor, x: Tensor) -> Tensor:
    """The queries or contexts of all hypotheses of a source, [N, H, width·T, …] → [R, H, T, …]."""
    rows, columns, _ = x.shape
    return part.unflatten(2, (-1, columns)).transpose(1, 2).reshape(rows, part.size(1), columns, -1)


class SelfAttention(Layer):
    """The notes' attention: one head, any score of the family, and only the weighted average of the values.

    Without projections, query, key and value are x itself: y_i = Σ_j α(x_i, x_j) x_j.
    """

    caches = True

    def __init__(
        self,
        width: int,
        *,
        score: str = "scaled-dot",
        bandwidth: float = 1.0,
        projections: bool = True,
        activation: str = "identity",
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.width = width
        self.score = named_score(score, width, bandwidth=bandwidth)
        self.query, self.key, self.value = (
            nn.Linear(width, width, bias=False) if projections else nn.Identity() for _ in range(3)
        )
        self.activation = {"identity": nn.Identity, "tanh": nn.Tanh, "relu": nn.ReLU}[activation]()
        self.dropout = dropout

    def begin(self, rows: int, *, capacity: int | None = None, device: torch.device | str, dtype: torch.dtype) -> State:
        return cache.begin(rows, 1, self.width, capacity=capacity, device=device, dtype=dtype)

    def forward(self, x: Tensor, state: State, span: Span) -> tuple[Tensor, State]:
        hidden, new, _ = self.explain(x, state, span)
        return hidden, new

    def explain(self, x: Tensor, state: State, span: Span) -> tuple[Tensor, State, State]:
        query, key, value = self.queries_keys_values(x)
        keys, values, new = cache.remember(state, key, value, span)
        seen = visible(span.positions(x.size(1)), keys.size(2))
        parts = self.score.explain(query, keys, seen)  # weights [R, 1, T, S], each row of which sums to 1
        parts["weights"] = note("weights", parts["weights"])
        context = note("heads", F.dropout(parts["weights"], self.dropout, self.training) @ values)
        return context[:, 0], new, {"query": query, "keys": keys, "values": values, **parts}

    def queries_keys_values(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Query, key and value of each column, as one head: [R, 1, T, D]."""
        query, key, value = (self.activation(part(x))[:, None] for part in (self.query, self.key, self.value))
        return query, key, value


class ScoredAttention(nn.Module):
    """One head, any score of the family, and the memory itself as values: c = Σ_s α(q, h_s) h_s.

    Bilinear and additive scores compare vectors of different widths. A dot product and a distance cannot: for them
    the memory is first mapped to the query's width, k_s = W_k h_s.
    """

    def __init__(self, query_width: int, memory_width: int, *, score: str, bandwidth: float = 1.0) -> None:
        super().__init__()
        different = score in ("bilinear", "additive")
        self.key = nn.Identity() if different else nn.Linear(memory_width, query_width, bias=False)
        self.score = named_score(
            score, query_width, memory_width if different else query_width, bandwidth=bandwidth, width=query_width
        )

    def remember(self, memory: Tensor) -> Tensor:
        """The part of the score that depends on the memory alone: [N, S, …]."""
        return self.score.prepare(self.key(memory))

    def forward(self, query: Tensor, keys: Tensor, visible: Tensor) -> State:
        """Scores and weights [N, Q, S] of queries [N, Q, D], from remembered keys and visible [N, 1, S]."""
        return self.score.weigh(self.score.compare(query, keys.to(query.dtype)), visible)
