"""Choosing the next token from a distribution: the most probable one, or a draw.

    P'(w) ∝ P(w)^(1/temperature), over the `top_k` most probable words and the smallest set that holds `top_p`

Each row draws from its own generator, keyed by (seed, row number), so a row's text does not depend on its batch-mates.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from regard.errors import RegardError


@dataclass(frozen=True)
class Sampling:
    temperature: float = 1.0  # 0 = always the most probable token (greedy)
    top_k: int = 0  # 0 = no limit
    top_p: float = 1.0  # 1 = no limit

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < math.inf:
            raise RegardError(f"--temperature must be at least 0 (0 = greedy), not {self.temperature}.")
        if self.top_k < 0:
            raise RegardError(f"--top-k must be at least 0 (0 = no limit), not {self.top_k}.")
        if not 0 < self.top_p <= 1:
            raise RegardError(f"--top-p must be above 0 and at most 1, not {self.top_p}.")


GREEDY = Sampling(temperature=0.0)


def uniforms(seed: int, rows: int) -> Iterator[Tensor]:
    """[rows] numbers in [0, 1) for each step; row r of seed s is always the same stream, whatever the other rows."""
    if not 0 <= seed < 2**63:
        raise RegardError(f"--seed must be at least 0 and below 2^63, not {seed}.")
    streams = [np.random.Generator(np.random.Philox(key=[seed, row])) for row in range(rows)]
    while True:
        yield torch.tensor([stream.random() for stream in streams], dtype=torch.float64)


def choose(logits: Tensor, sampling: Sampling, uniform: Tensor) -> Tensor:
    """logits [R, V], uniform [R] → the chosen tokens [R], by inverting the cumulative distribution."""
    if not bool((logits < math.inf).all()):
        raise RegardError("The model's predictions are not numbers: its weights are damaged; train it again.")
    if sampling.temperature == 0:
        return logits.argmax(-1)
    ordered, tokens = logits.double().sort(dim=-1, descending=True, stable=True)  # [R, V]
    weights = torch.softmax((ordered - ordered[:, :1]) / sampling.temperature, dim=-1)  # no temperature overflows
    if sampling.top_k:
        weights[:, sampling.top_k :] = 0
    before = weights.cumsum(-1) - weights
    weights = weights.masked_fill(before >= sampling.top_p * weights.sum(-1, keepdim=True), 0)
    cumulative = weights.cumsum(-1)
    drawn = uniform.to(cumulative)[:, None] * cumulative[:, -1:]
    rank = (cumulative <= drawn).sum(-1, keepdim=True)  # the first word whose cumulative weight passes the draw
    last = (weights > 0).sum(-1, keepdim=True) - 1
    return tokens.gather(-1, torch.minimum(rank, last))[:, 0]


def mask_tokens(logits: Tensor, forbidden: Sequence[int]) -> Tensor:
    """Tokens that may be read but never written, such as <unk>, get probability 0."""
    if not forbidden:
        return logits
    return logits.index_fill(-1, torch.tensor(forbidden, device=logits.device), -torch.inf)
