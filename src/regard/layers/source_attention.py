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

from regard.fast.cpu_dropout import Dropout
from regard.fast.short_attention import attend_packed, is_short
from regard.layers.attention import attend, written
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
        projected, dropout = self.project(x), self.dropout if self.training else 0.0
        if not self.rotary and is_short(projected, x.size(1), x.size(1), self.width // self.heads):
            context = attend_packed(projected, None, self.heads, valid=valid, dropout=dropout)
        else:
            context = attend(*self._look_up(projected), padding(valid), dropout=dropout)
        return self.drop_output(self.output(context))

    def explain(self, x: Tensor, valid: Tensor | None) -> tuple[Tensor, State]:
        looked_up, dropout = self._look_up(self.project(x)), self.dropout if self.training else 0.0
        context, parts = written(*looked_up, padding(valid), dropout=dropout)
        return self.drop_output(self.output(context)), parts

    def _look_up(self, projected: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        query, key, value = projected.unflatten(-1, (3 * self.heads, -1)).chunk(3, dim=2)  # [N, S, H, d]
        if self.rotary:
            positions = torch.arange(query.size(1), device=query.device)[None]
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
        return {"packed": self.project(memory)}  # [N, S, 2·D]: keys, then values

    def forward(self, x: Tensor, source: State, valid: Tensor | None) -> Tensor:
        query, memory, dropout = self.query(x), source["packed"], self.dropout if self.training else 0.0
        query = query.view(len(memory), -1, query.size(-1))  # the hypotheses of a source, one after the other
        if is_short(query, query.size(1), memory.size(1), query.size(-1) // self.heads):
            context = attend_packed(query, memory.to(query.dtype), self.heads, valid=valid, dropout=dropout)
        else:
            context = attend(*self._look_up(query, memory), padding(valid), dropout=dropout)
        return self.drop_output(self.output(context.view_as(x)))

    def explain(self, x: Tensor, source: State, valid: Tensor | None) -> tuple[Tensor, State]:
        query, memory, dropout = self.query(x), source["packed"], self.dropout if self.training else 0.0
        looked_up = self._look_up(query.view(len(memory), -1, query.size(-1)), memory)
        context, parts = written(*looked_up, padding(valid), dropout=dropout)
        parts = {name: unfold(part, x.size(0), x.size(1)) for name, part in parts.items()}  # [R, H, T, S]
        return self.drop_output(self.output(context.view_as(x))), parts

    def _look_up(self, query: Tensor, memory: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries [N, width·T, H, d], keys and values [N, S, H, d], all of them views."""
        keys, values = memory.to(query.dtype).unflatten(-1, (2 * self.heads, -1)).chunk(2, dim=2)
        return query.unflatten(-1, (self.heads, -1)), keys, values


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
