"""From a text to an n-gram model: counting, and interpolated modified Kneser-Ney smoothing.

    P(w | h) = (a(hw) − D(a(hw))) / a(h·) + γ(h) P(w | h′)      h′ is h without its first word; below unigrams: 1/V
    γ(h)     = Σ_w D(a(hw)) / a(h·)                             the mass that the discounts free
    a(g)     = how often g was seen, at the highest order and for g at the start of a line;
               elsewhere how many different words were seen before g
    D_j      = j − (j + 1) Y n_{j+1} / n_j,  j = 1, 2, 3+        Y = n_1 / (n_1 + 2 n_2), n_j: how many g have a(g) = j

Kneser & Ney 1995; three discounts, interpolated: Chen & Goodman 1999; in sorted passes: Heafield et al. 2013.

An n-gram's name is its index in the sorted keys of its order, key = (name of its first n − 1 words)·V + word, so one
sort of integers per order counts everything. Id 0, `<eos>`, ends a line where it is predicted and starts
one where it is a context; no context reaches back over it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from regard.base.errors import RegardError

FALLBACK = (0.5, 1.0, 1.5)  # discounts if a text is too small or too regular to estimate them


@dataclass(frozen=True)
class Counts:
    """All different k-grams of a text, sorted by key."""

    keys: np.ndarray  # [N] int64: context·V + word
    count: np.ndarray  # [N] times seen
    suffix: np.ndarray  # [N] the name, one order below, of the gram without its first word
    starts: np.ndarray  # [N] bool: its first word is the start of a line


@dataclass(frozen=True)
class Estimate:
    """The estimates of the k-grams: natural logarithms, one entry per key."""

    keys: np.ndarray  # [N] int64
    log_probability: np.ndarray  # [N] of the last word after the others
    log_backoff: np.ndarray  # [N] the weight of shorter contexts after this gram; 0 where it is no context


def count_grams(
    ids: np.ndarray, vocabulary: int, order: int, progress: Callable[[], object] | None = None
) -> list[Counts]:
    """The grams of orders 1 to `order` of a text in which every line ends in id 0."""
    if len(ids) == 0:
        raise RegardError("There is no text to count; give a training text of at least one line.")
    if int(ids.max()) >= vocabulary:
        raise RegardError(
            f"The text contains token {ids.max()}, but the vocabulary ends at {vocabulary - 1}: tokenize it again."
        )
    name = np.int32 if len(ids) < 2**31 and vocabulary < 2**31 else np.int64
    words = np.asarray(ids).astype(name)
    if len(ids) * vocabulary >= 2**63:
        raise RegardError("The text and the vocabulary are too large to count; use a smaller data.vocabulary.")
    names = words  # [T] name of the gram that ends at each place
    level = Counts(
        keys=np.arange(vocabulary),
        count=np.bincount(words, minlength=vocabulary),
        suffix=np.zeros(vocabulary, dtype=name),
        starts=np.arange(vocabulary) == 0,
    )
    levels = [level]
    ends_line = words == 0
    if progress:
        progress()
    for k in range(2, order + 1):
        context = np.empty_like(names)  # [T] name of the k − 1 words before each place, −1 if the line is shorter
        context[0] = 0 if k == 2 else -1  # the text begins where a line ended
        context[1:] = names[:-1]
        if k > 2:
            context[1:][ends_line[:-1]] = -1
        level, names = _next_level(level, context, words, names, vocabulary)
        levels.append(level)
        if progress:
            progress()
    return levels


def _next_level(
    below: Counts, context: np.ndarray, words: np.ndarray, names: np.ndarray, vocabulary: int
) -> tuple[Counts, np.ndarray]:
    """The k-grams, from the names of the contexts and of the (k − 1)-grams at each place; and their own names there."""
    places = np.flatnonzero(context >= 0)
    keys = context[places].astype(np.int64) * vocabulary + words[places]
    order = np.argsort(keys)
    keys = keys[order]
    new = np.concatenate([[True], keys[1:] != keys[:-1]])[: len(keys)]
    own = np.full(len(words), -1, dtype=names.dtype)
    own[places[order]] = np.cumsum(new) - 1
    first = np.flatnonzero(new)
    keys = keys[first]
    level = Counts(
        keys=keys,
        count=np.diff(first, append=len(order)),
        suffix=names[places[order[first]]],
        starts=below.starts[keys // vocabulary],
    )
    return level, own


def adjusted_counts(levels: Sequence[Counts]) -> list[np.ndarray]:
    """a(g) of every order: counts at the top and at the start of lines, else the number of different words before g."""
    adjusted = []
    for k, (level, above) in enumerate(pairwise(levels), start=1):
        before = np.bincount(above.suffix, minlength=len(level.keys))
        adjusted.append(before if k == 1 else np.where(level.starts, level.count, before))
    return [*adjusted, levels[-1].count]


def discounts(adjusted: np.ndarray) -> tuple[float, float, float] | None:
    """D_1, D_2, D_3+ of one order by Chen & Goodman's equation 26; None where the counts do not allow it."""
    n = np.bincount(np.minimum(adjusted, 5), minlength=6).astype(float)
    if not n[1:4].all():
        return None
    y = n[1] / (n[1] + 2 * n[2])
    d = [j - (j + 1) * y * n[j + 1] / n[j] for j in (1, 2, 3)]
    return (d[0], d[1], d[2]) if all(0 < d[j - 1] <= j for j in (1, 2, 3)) else None


def kneser_ney(levels: Sequence[Counts], vocabulary: int) -> tuple[list[Estimate], list[int]]:
    """Interpolated modified Kneser-Ney, lowest order first; and the orders whose discounts are the fallback's."""
    probability, backoff, fell_back = [], [], []
    lower = np.full(1, 1 / vocabulary)
    for k, (level, adjusted) in enumerate(zip(levels, adjusted_counts(levels)), start=1):
        estimated = discounts(adjusted)
        if estimated is None:
            fell_back.append(k)
        discount = np.array([0.0, *(estimated or FALLBACK)])[np.minimum(adjusted, 3)]  # [N] D(a(g))
        context = level.keys // vocabulary
        contexts = 1 if k == 1 else len(levels[k - 2].keys)
        total = np.bincount(context, adjusted, minlength=contexts)  # a(h·)
        seen = np.maximum(total, 1)
        gamma = np.bincount(context, discount, minlength=contexts) / seen
        backoff.append(np.where(total > 0, gamma, 1.0))
        lower = (adjusted - discount) / seen[context] + gamma[context] * lower[level.suffix]
        probability.append(lower)
    backoff = [*backoff[1:], np.ones(len(levels[-1].keys))]  # γ(h) belongs to h, a gram of the order below
    return _estimates(levels, probability, backoff), fell_back


def relative_frequencies(levels: Sequence[Counts], vocabulary: int) -> list[Estimate]:
    """Count and normalize: a seen context gives a word it was never seen with probability 0."""
    probability, backoff = [], []
    for k, level in enumerate(levels, start=1):
        context = level.keys // vocabulary
        total = np.bincount(context, level.count, minlength=1 if k == 1 else len(levels[k - 2].keys))
        probability.append(level.count / total[context])
        backoff.append(np.where(total > 0, 0.0, 1.0))
    return _estimates(levels, probability, [*backoff[1:], np.ones(len(levels[-1].keys))])


def _estimates(levels: Sequence[Counts], probability: list[np.ndarray], backoff: list[np.ndarray]) -> list[Estimate]:
    with np.errstate(divide="ignore"):  # log 0 = −inf is intended
        return [
            Estimate(level.keys, np.log(p), np.log(weight)) for level, p, weight in zip(levels, probability, backoff)
        ]
