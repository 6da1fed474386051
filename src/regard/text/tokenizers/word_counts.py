"""Statistics of a corpus: words per line, word frequencies, and the coverage of a vocabulary.

    Zipf's curve      the count of the r-th commonest word against r
    coverage          the share of running words that are among the V commonest of the training text

Words are cut as in `regard data check`, at Unicode's word boundaries; <unk> is one. For a large split only
the beginning is counted, which `whole` records.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from regard.base.word_spans import find_words
from regard.text.tokenizers.engine import UNK

MAX_CHARACTERS = 40_000_000  # characters of a split that are counted
POINTS = 120  # of a curve: the first ranks, then evenly spaced in their logarithm
BINS = 40  # of the lengths


@dataclass(frozen=True)
class SplitCounts:
    lines: int
    characters: int
    words: int
    vocabulary: int  # distinct words
    once: int  # words that occur once
    lengths: list[tuple[int, int, int]]  # words per line: from, to (included), lines
    whole: bool  # False: only its beginning was counted


@dataclass(frozen=True)
class WordCounts:
    """One side of a corpus. Ranks are of the training split; coverage by split, at each of `sizes`."""

    splits: Mapping[str, SplitCounts]
    ranks: list[int]
    counts: list[int]  # of the word at each rank
    words: list[str]
    sizes: list[int]
    coverage: Mapping[str, list[float]]


def count_words(splits: Mapping[str, Iterable[str]]) -> WordCounts:
    """`splits` has a "train"; blank lines do not count."""
    seen = {name: _Counted(lines) for name, lines in splits.items()}
    train = seen["train"].words
    ranked = sorted(train, key=lambda word: (-train[word], word))
    places = _places(len(ranked))
    coverage = {}
    for name, one in seen.items():
        running = list(accumulate((one.words[word] for word in ranked), initial=0))
        coverage[name] = [running[place] / max(1, one.words.total()) for place in places]
    return WordCounts(
        splits={name: one.summary() for name, one in seen.items()},
        ranks=places,
        counts=[train[ranked[place - 1]] for place in places],
        words=[ranked[place - 1] for place in places],
        sizes=places,
        coverage=coverage,
    )


class _Counted:
    def __init__(self, lines: Iterable[str]) -> None:
        self.words: Counter[str] = Counter()
        self.lengths: list[int] = []
        self.characters, self.whole = 0, True
        pieces: dict[str, list[str]] = {}  # words of each piece between spaces
        for line in lines:
            if not line.strip():
                continue
            words = [word for piece in line.split() for word in _words(piece, pieces)]
            self.words.update(words)
            self.lengths.append(len(words))
            self.characters += len(line)
            if self.characters > MAX_CHARACTERS:
                self.whole = False
                break

    def summary(self) -> SplitCounts:
        once = sum(count == 1 for count in self.words.values())
        return SplitCounts(
            len(self.lengths),
            self.characters,
            self.words.total(),
            len(self.words),
            once,
            _bins(self.lengths),
            self.whole,
        )


def _words(piece: str, known: dict[str, list[str]]) -> list[str]:
    words = known.get(piece)
    if words is None:
        words = [piece] if piece == UNK else [piece[start:end] for start, end in find_words(piece)]
        if len(piece) < 40:  # long pieces are rare and would fill the memory
            known[piece] = words
    return words


def _bins(lengths: list[int]) -> list[tuple[int, int, int]]:
    """Lines by their number of words; the last bin holds the longest hundredth."""
    if not lengths:
        return []
    values = np.asarray(lengths)
    most, last = int(values.max()), int(np.quantile(values, 0.99, method="higher"))
    step = max(1, -(-(last + 1) // BINS))
    bins = []
    for start in range(0, last + 1, step):
        end = start + step - 1
        if end >= last:
            end = most
        bins.append((start, end, int(((values >= start) & (values <= end)).sum())))
    return bins


def _places(size: int) -> list[int]:
    """Ranks 1 … size: each of the first, then evenly spaced in their logarithm."""
    if size == 0:
        return []
    return sorted({1, size, *np.round(np.geomspace(1, size, POINTS)).astype(int).tolist()})
