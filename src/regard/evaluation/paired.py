"""Whether one system is significantly better than another, by the paired bootstrap (Koehn 2004).

    d* = score of A − score of B on n sentences drawn with replacement, the same for both;   many times

The 95 % interval is the middle of the d*. The p-value is two-sided: how often d* is as far from its own mean as the
difference d is from 0, (1 + #{|d* − mean| ≥ |d|}) / (1 + draws). Each sentence is scored only once: a
corpus's BLEU or chrF is a function of sums over its sentences, so a draw only adds them up again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from regard.base.errors import RegardError
from regard.evaluation.bleu import Statistics
from regard.evaluation.intervals import DRAWS, interval

NUMBERS_AT_ONCE = 2**22  # a block of draws holds at most this many counts


@dataclass(frozen=True)
class PairedDifference:
    """How much more the first system scores than the second."""

    metric: str
    first: float
    second: float
    difference: float
    low: float  # the 95 % interval of the difference
    high: float
    p_value: float


def paired_bootstrap(first: Statistics, second: Statistics, draws: int = DRAWS) -> PairedDifference:
    """Two systems on the same sentences, in the same order; always the same draws."""
    ways = {(one.metric, one.tokenizer, one.counts.shape) for one in (first, second)}
    if len(ways) > 1:
        raise RegardError("Only translations of the same sentences, scored in the same way, can be compared.")
    one, other = (float(system.score(system.counts.sum(0))) for system in (first, second))
    pairs = [resampled(first, times) - resampled(second, times) for times in resamplings(len(first.counts), draws)]
    drawn = np.concatenate(pairs)
    bounds = interval(drawn)
    assert bounds is not None  # BLEU and chrF are always numbers
    as_far = int((np.abs(drawn - drawn.mean()) >= abs(one - other)).sum())
    return PairedDifference(first.metric, one, other, one - other, bounds[0], bounds[1], (1 + as_far) / (1 + draws))


def resampled(system: Statistics, times: np.ndarray) -> np.ndarray:
    """The score [draws] of resampled corpora; `times` [draws, sentences] counts each sentence."""
    return system.score(times @ system.counts)


def resamplings(sentences: int, draws: int) -> Iterator[np.ndarray]:
    """How often each sentence is drawn, in blocks of draws: [block, sentences]."""
    random = np.random.Generator(np.random.Philox(key=[sentences, draws]))
    block = max(1, NUMBERS_AT_ONCE // sentences)
    for start in range(0, draws, block):
        rows = min(block, draws - start)
        drawn = random.integers(sentences, size=(rows, sentences)) + sentences * np.arange(rows)[:, None]
        times = np.bincount(drawn.ravel(), minlength=rows * sentences)
        yield times.reshape(rows, sentences).astype(np.float64)
