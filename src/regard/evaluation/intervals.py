"""Confidence intervals of a perplexity, over seeds and over test text.

A hierarchical bootstrap (Efron & Tibshirani 1993, ch. 8) of the mean loss over S seeds and D documents: in each draw

    loss* = loss + √(D/(D−1)) · (loss of D documents drawn with replacement − loss) · √((D−1)/χ²_{D−1})
                 + s/√S · z · √((S−1)/χ²_{S−1})          s: standard deviation over seeds; z: normal

The documents are resampled; their spread is widened by Student's t for a sample of D (Hesterberg 2015). The seeds
are drawn from Student's t with the spread they have: resampling two or three numbers would pretend that there are no
others (its 95 % interval covers 61 % with two seeds and 81 % with three). Every system is resampled with the same
documents, so the difference of two systems' draws is a paired one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from statistics import NormalDist

import numpy as np

DRAWS = 10_000
LEVEL = 0.95


class Resampling:
    """Bootstrap samples of the test documents; the same draws for every system, and at every call."""

    def __init__(self, tokens: np.ndarray, draws: int = DRAWS):
        self.tokens = np.asarray(tokens, dtype=np.float64)  # [D]
        documents = len(tokens)
        random = np.random.Generator(np.random.Philox(key=[documents, draws]))
        self.times = random.multinomial(documents, np.full(documents, 1 / documents), size=draws)  # [draws, D]
        self.width = _student(random, documents, draws) * math.sqrt(documents / max(documents - 1, 1))  # [draws]

    def losses(self, nats: np.ndarray, stream: int = 0) -> np.ndarray:
        """Draws of a system's mean loss from its summed losses [S, D]; `stream` is the system's number: the
        noise of its seeds is its own."""
        nats = np.asarray(nats, dtype=np.float64)
        estimate = mean_loss(nats, self.tokens)
        if not math.isfinite(estimate):
            return np.full(len(self.times), estimate)
        resampled = (self.times @ nats.mean(axis=0)) / (self.times @ self.tokens)  # [draws]
        return estimate + (resampled - estimate) * self.width + self._seeds(nats.sum(axis=1), stream)

    def _seeds(self, nats: np.ndarray, stream: int) -> np.ndarray | float:
        seeds = len(nats)
        if seeds < 2:
            return 0.0  # one seed says nothing about the spread
        spread = (nats / self.tokens.sum()).std(ddof=1) / math.sqrt(seeds)
        random = np.random.Generator(np.random.Philox(key=[seeds, stream]))
        draws = len(self.times)
        return spread * random.standard_normal(draws) * _student(random, seeds, draws)


def mean_loss(nats: np.ndarray, tokens: np.ndarray) -> float:
    """Nats per token over every seed [S, D] and every document [D]."""
    return float(np.asarray(nats).sum() / (len(nats) * np.asarray(tokens).sum()))


def interval(draws: np.ndarray, level: float = LEVEL) -> tuple[float, float] | None:
    """The middle `level` of the draws; None where they are not finite."""
    if not np.isfinite(draws).all():
        return None
    low, high = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def _student(random: np.random.Generator, sample: int, draws: int) -> np.ndarray:
    """√(ν/χ²_ν) with ν = sample − 1: the factor between a normal number and Student's t."""
    freedom = max(sample - 1, 1)
    return np.sqrt(freedom / random.chisquare(freedom, draws))


def student_interval(values: Sequence[float], level: float = LEVEL) -> tuple[float, float]:
    """Interval of a mean: mean ± t · s/√n (Student 1908); infinite for a single number."""
    count = len(values)
    mean = sum(values) / count
    if count < 2:
        return -math.inf, math.inf
    spread = math.sqrt(sum((value - mean) ** 2 for value in values) / (count - 1) / count)
    reach = student_quantile((1 + level) / 2, count - 1) * spread
    return mean - reach, mean + reach


def share_interval(successes: int, trials: int, level: float = LEVEL) -> tuple[float, float]:
    """Interval of a share of successes (Wilson 1927): it stays within 0 … 1 and is valid at none and at all."""
    z = NormalDist().inv_cdf((1 + level) / 2)
    share, square = successes / trials, z * z
    middle = (share + square / (2 * trials)) / (1 + square / trials)
    reach = z / (1 + square / trials) * math.sqrt(share * (1 - share) / trials + square / (4 * trials * trials))
    return max(0.0, middle - reach), min(1.0, middle + reach)


@cache
def student_quantile(probability: float, freedom: int) -> float:
    """The quantile of Student's t with `freedom` degrees of freedom, by numerical integration."""
    angles = np.linspace(0.0, np.pi / 2, 200_001)  # t = √ν tan θ turns the tail into a finite range
    density = np.cos(angles) ** (freedom - 1)
    below = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2)])
    below = 0.5 + 0.5 * below / below[-1]
    return float(math.sqrt(freedom) * math.tan(np.interp(probability, below, angles)))
