"""Attention to a source, which is all there at once: no mask but its padding.

full     every word of the source asks every other           Attention(X, X, X)             Vaswani et al. 2017
cross    each word of the target asks the source             Attention(Y, M, M)             Vaswani et al. 2017
scored   c_t = Σ_s α(q_t, h_s) h_s with any score α          scores.py                      Bahdanau et al. 2015

A memory has one row per source, [N, S, D], and is shared by the hypotheses of a beam: of R rows, row r asks source
r // (R / N). The hypotheses are more queries to the same keys; keys and values are never copied.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from regard.layers.attention import attend, written
from regard.layers.coins import Dropout
from regard.layers.position import rotate
from regard.layers.scores import named_score
from regard.layers.state import State


class FullSelfAttention(nn.Module):
    """x [N, S, D] → [N, S, D], in several heads; `valid` [N, S] says which columns are real, None = all."""

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        dropout: float = 0.0,
        dropout_output: float = 0.0,
        rotary: bool = False,
    ) -> None:
        super().__init__()
        self.width = width
        self.heads = heads
        self.dropout = dropout
        self.rotary = rotary
        self.project = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)
        self.drop_output = Dropout(dropout_output)

    def forward(self, x: Tensor, valid: Tensor | None) -> Tensor:
        context = attend(*self._look_up(x), padding(valid), dropout=self.dropout if self.training else 0.0)
        return self.drop_output(self.output(context))

    def explain(self, x: Tensor, valid: Tensor | None) -> tuple[Tensor, State]:
        context, parts = written(*self._look_up(x), padding(valid), dropout=self.dropout if self.training else 0.0)
        return self.drop_output(self.output(context)), parts

    def _look_up(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        query, key, value = self.project(x).unflatten(-1, (3 * self.heads, -1)).chunk(3, dim=2)  # [N, S, H, d]
        if self.rotary:
            positions = torch.arange(x.size(1), device=x.device)[None]
            query, key = rotate(query, positions), rotate(key, positions)
        return query, key, value


class CrossAttention(nn.Module):
    """x [R, T, D] asks a memory of N sources, whose keys and values `remember` computes once."""

    def __init__(self, width: int, heads: int, *, dropout: float = 0.0, dropout_output: float = 0.0) -> None:
        super().__init__()
        self.heads = heads
        self.dropout = dropout
        self.query = nn.Linear(width, width)
        self.project = nn.Linear(width, 2 * width)  # W_k, W_v
        self.output = nn.Linear(width, width)
        self.drop_output = Dropout(dropout_output)

    def remember(self, memory: Tensor) -> State:
        keys, values = self.project(memory).unflatten(-1, (2 * self.heads, -1)).chunk(2, dim=2)  # [N, S, H, d]
        return {"keys": keys, "values": values}

    def forward(self, x: Tensor, source: State, valid: Tensor) -> Tensor:
        query, keys, values = self._look_up(x, source)
        context = attend(query, keys, values, padding(valid), dropout=self.dropout if self.training else 0.0)
        return self.drop_output(self.output(context.view_as(x)))

    def explain(self, x: Tensor, source: State, valid: Tensor) -> tuple[Tensor, State]:
        query, keys, values = self._look_up(x, source)
        context, parts = written(query, keys, values, padding(valid), dropout=self.dropout if self.training else 0.0)
        parts = {name: unfold(part, x.size(0), x.size(1)) for name, part in parts.items()}  # [R, H, T, S]
        return self.drop_output(self.output(context.view_as(x))), parts

    def _look_up(self, x: Tensor, source: State) -> tuple[Tensor, Tensor, Tensor]:
        """Queries [N, width·T, H, d]: the hypotheses of a source, one after the other."""
        keys, values = source["keys"], source["values"]
        query = self.query(x).view(keys.size(0), -1, self.heads, keys.size(-1))
        return query, keys.to(query.dtype), values.to(query.dtype)


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
        """Of the score, what depends on the memory alone: [N, S, …]."""
        return self.score.prepare(self.key(memory))

    def forward(self, query: Tensor, keys: Tensor, visible: Tensor) -> Tensor:
        """Weights [N, Q, S] of queries [N, Q, D], from remembered keys and visible [N, 1, S]."""
        return self.score.weigh(self.score.compare(query, keys.to(query.dtype)), visible)["weights"].to(query.dtype)

    def explain(self, query: Tensor, memory: Tensor, visible: Tensor) -> State:
        return self.score.explain(query, self.key(memory), visible)


def padding(valid: Tensor | None) -> Tensor | None:
    """The mask of keys [N, 1, 1, S] for all heads and queries."""
    return None if valid is None else valid[:, None, None, :]


def unfold(part: Tensor, rows: int, columns: int) -> Tensor:
    """Queries back to their hypotheses: [N, H, width·T, S] → [R, H, T, S]."""
    sources, heads, _, slots = part.shape
    return part.view(sources, heads, -1, columns, slots).transpose(1, 2).reshape(rows, heads, columns, slots)
