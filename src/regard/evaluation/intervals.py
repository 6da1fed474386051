"""Confidence intervals over seeds and over test text: of a mean score, and of the paired difference of two systems.

A system's score on document d with seed s is μ + g_d + u_s + e_sd: documents differ, seeds differ, and seeds differ
from document to document. The difference of two systems on the same D documents, of S_a and S_b seeds, has the variance

    V = V_documents + max(0, Σ_a (V_seeds,a − V_both,a))

    V_documents = s²(differences of the systems' means, by document) / D       contains e_sd / S_a
    V_seeds,a   = s²(means of the seeds of a) / S_a                            contains e_sd / D, again
    V_both,a    = Σ (residuals of seed and document)² / ((S_a − 1)(D − 1)) / (S_a D)          so it is subtracted once

and ± t(ν) √V is its interval, with ν = V² / (V_documents²/(D − 1) + Σ V_seeds,a²/(S_a − 1)) (Satterthwaite 1946, Welch
1947), even if V is V_documents: a few seeds that happen to agree do not show that seeds agree. One seed shows no
spread: the interval is then for these two runs only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist

import numpy as np

DRAWS = 10_000  # of a bootstrap
LEVEL = 0.95
POWER = 0.8
MAX_SEEDS = 1000


@dataclass(frozen=True)
class ScoreEstimate:
    """A number, the parts of its variance, and its degrees of freedom."""

    value: float
    documents: float  # V_documents
    seeds: tuple[float, ...]  # V_seeds − V_both of each system that has several seeds
    variance: float
    freedom: float

    def interval(self, level: float = LEVEL) -> tuple[float, float] | None:
        """None if the number is not finite."""
        if not (math.isfinite(self.value) and math.isfinite(self.variance)):
            return None
        reach = student_quantile((1 + level) / 2, self.freedom) * math.sqrt(self.variance)
        return self.value - reach, self.value + reach

    @property
    def p_value(self) -> float:
        """Two-sided, for a true value of 0."""
        if self.variance == 0:
            return float(self.value == 0)
        return 2 * student_tail(abs(self.value) / math.sqrt(self.variance), self.freedom)


def mean_score(values: np.ndarray) -> ScoreEstimate:
    """The mean of one system's scores [S, D]."""
    return _estimate(values.mean(axis=0), [values])


def paired_difference(first: np.ndarray, second: np.ndarray) -> ScoreEstimate:
    """The first system's mean minus the second's, from scores [S, D] on the same documents."""
    return _estimate(first.mean(axis=0) - second.mean(axis=0), [first, second])


def _estimate(by_document: np.ndarray, systems: Sequence[np.ndarray]) -> ScoreEstimate:
    count, value = len(by_document), float(by_document.mean())
    if count < 2 or not np.isfinite(by_document).all():
        return ScoreEstimate(value, math.nan, (), math.nan, 1.0)
    documents = float(by_document.var(ddof=1)) / count
    several = [values for values in systems if len(values) > 1]
    seeds = [float(values.mean(axis=1).var(ddof=1)) / len(values) for values in several]
    parts = tuple(all_ - _interaction(values) for all_, values in zip(seeds, several))
    variance = documents + max(0.0, sum(parts))
    noise = documents**2 / (count - 1) + sum(v**2 / (len(values) - 1) for v, values in zip(seeds, several))
    freedom = max(1.0, variance**2 / noise) if noise > 0 else float(count - 1)
    return ScoreEstimate(value, documents, parts, variance, freedom)


def _interaction(values: np.ndarray) -> float:
    """V_both: the part of a mean's variance that comes from seeds which differ from document to document."""
    seeds, documents = values.shape
    residuals = values - values.mean(axis=0) - values.mean(axis=1, keepdims=True) + values.mean()
    return float((residuals**2).sum()) / ((seeds - 1) * (documents - 1)) / (seeds * documents)


def mean_loss(nats: np.ndarray, tokens: np.ndarray) -> float:
    """Nats per token over every seed [S, D] and every document [D]."""
    return float(np.asarray(nats).sum() / (len(nats) * np.asarray(tokens).sum()))


def document_losses(nats: np.ndarray, tokens: np.ndarray) -> np.ndarray:
    """Losses per token as scores [S, D] whose mean over documents is the loss over all tokens (a ratio, linearized)."""
    nats, tokens = np.asarray(nats, dtype=np.float64), np.asarray(tokens, dtype=np.float64)
    loss = nats.sum(axis=1, keepdims=True) / tokens.sum()
    with np.errstate(invalid="ignore"):  # an infinite loss has no interval
        return loss + (nats - loss * tokens) / tokens.mean()


def holm(p_values: Sequence[float]) -> list[float]:
    """The p-values corrected for their number (Holm 1979): the chance of any false one ≤ p stays below p."""
    corrected, most = [*p_values], 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=lambda place: p_values[place])):
        most = max(most, min(1.0, (len(p_values) - rank) * p_values[place]))
        corrected[place] = most
    return corrected


def detectable(documents: float, seeds: float, count: int) -> float:
    """The true difference that `count` seeds of each of two systems find significant with a probability of POWER;
    `documents`: V_documents, `seeds`: the sum of both systems' variances between seeds."""
    variance, freedom = documents + seeds / count, math.inf
    if seeds > 0:
        freedom = max(1.0, variance**2 / (2 * (seeds / 2 / count) ** 2) * (count - 1)) if count > 1 else 1.0
    at = min(freedom, 1e4)
    return (student_quantile((1 + LEVEL) / 2, at) + student_quantile(POWER, at)) * math.sqrt(variance)


def seeds_needed(by: float, documents: float, seeds: float) -> int | None:
    """The fewest seeds of each system with which a true difference `by` is found with POWER; None if no number does."""
    return next((n for n in range(3, MAX_SEEDS + 1) if detectable(documents, seeds, n) <= abs(by)), None)


def interval(draws: np.ndarray, level: float = LEVEL) -> tuple[float, float] | None:
    """The middle `level` of the draws; None where they are not finite."""
    if not np.isfinite(draws).all():
        return None
    low, high = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


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


@lru_cache(4096)
def student_quantile(probability: float, freedom: float) -> float:
    """The quantile of Student's t with `freedom` degrees of freedom (also between whole numbers)."""
    angles, below = _student(freedom)
    return float(math.sqrt(freedom) * math.tan(np.interp(probability, below, angles)))


def student_tail(value: float, freedom: float) -> float:
    """The probability that Student's t is above `value`."""
    angles, below = _student(freedom)
    return float(1 - np.interp(math.atan(value / math.sqrt(freedom)), angles, below))


def _student(freedom: float) -> tuple[np.ndarray, np.ndarray]:
    """Student's distribution by numerical integration: angles, and the probability to be below √ν tan θ."""
    end = math.pi / 2 if freedom < 100 else math.atan(40 / math.sqrt(freedom))  # no t of so many is ever above 40
    angles = np.linspace(0.0, end, 20_001)  # t = √ν tan θ turns the tail into a finite range
    density = np.maximum(np.cos(angles), 0.0) ** (freedom - 1)
    below = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2)])
    return angles, 0.5 + 0.5 * below / below[-1]
