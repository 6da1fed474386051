"""Batches of sentence pairs of similar length, up to a number of tokens; functions of the step number alone.

    rows · (longest source + longest target) ≤ batch_tokens          padding counts, <eos> counts

In each epoch the pairs are shuffled, sorted approximately by length, split into batches, and the batches shuffled:
every pair once, little padding, and different batches in each epoch. All epochs have the same number of steps, so the
epoch follows from the step, and training can resume at any step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from regard.base.errors import RegardError
from regard.base.numbers import group_digits
from regard.text.tokenizers.pair_tokens import TokenPairs

JITTER = 0.1  # random change of lengths before sorting
STRIP = 2  # range of target lengths within which pairs are sorted by source length
ATTEMPTS = 8  # random orders tried before the pairs are sorted exactly


@dataclass(frozen=True)
class PairBatch:
    """Pairs side by side, padded on the right: the decoder reads <eos> + target and predicts target + <eos>."""

    source: np.ndarray  # [N, S] int64, each row ends in <eos>
    source_lengths: np.ndarray  # [N]
    tokens: np.ndarray  # [N, T]
    targets: np.ndarray  # [N, T]
    lengths: np.ndarray  # [N]
    fresh: bool = True


@dataclass(frozen=True)
class _Epoch:
    number: int
    pairs: TokenPairs
    order: np.ndarray  # indices of the pairs, batch by batch
    bounds: np.ndarray  # [steps + 1] where each batch starts in them
    steps: np.ndarray  # [steps] the batch of each step


class PairBatches:
    """`batch(step)` for training. `epochs` returns an epoch's pairs (BPE-dropout); by default they stay the same."""

    def __init__(
        self, pairs: TokenPairs, batch_tokens: int, seed: int, *, epochs: Callable[[int], TokenPairs] | None = None
    ):
        if not len(pairs):
            raise RegardError(
                "No pairs are left to train on, because all were dropped; check the data, and data.longest."
            )
        largest = int((pairs.source_lengths + pairs.target_lengths).max())
        if largest > batch_tokens:
            raise RegardError(
                f"A pair has {group_digits(largest)} tokens, more than a batch of "
                f"{group_digits(batch_tokens)} holds; raise training.batch_tokens, or lower data.longest."
            )
        self._plain, self._budget, self._seed, self._epochs = pairs, batch_tokens, seed, epochs
        orders = [(pairs, self._order(pairs, None))]
        for number in range(1 if epochs else 4):
            now = epochs(number) if epochs else pairs
            orders.append((now, self._order(now, self._random(number, 0))))
        counts = [len(self._cut(now, order)) - 1 for now, order in orders]
        self.steps_per_epoch: int = min(len(pairs), max(counts) + (max(counts) // 100 if epochs else 0))
        self._epoch: _Epoch | None = None  # the last one computed, cached for the following steps

    def batch(self, step: int) -> PairBatch:
        number, place = divmod(step, self.steps_per_epoch)
        if self._epoch is None or self._epoch.number != number:
            self._epoch = self._arrange(number)
        epoch = self._epoch
        start, stop = epoch.bounds[epoch.steps[place] :][:2]
        return self._beside(epoch.pairs, epoch.order[start:stop])

    def _order(self, pairs: TokenPairs, random: np.random.Generator | None) -> np.ndarray:
        return _sorted(pairs, random)

    def _cut(self, pairs: TokenPairs, order: np.ndarray) -> np.ndarray:
        return _cut(pairs, order, self._budget)

    def _beside(self, pairs: TokenPairs, rows: np.ndarray) -> PairBatch:
        return side_by_side(pairs, rows)

    def _arrange(self, number: int) -> _Epoch:
        """The batches of an epoch: the first of some random orders that needs at most the given number of steps."""
        pairs = self._epochs(number) if self._epochs else self._plain
        for attempt in range(ATTEMPTS):
            order = self._order(pairs, self._random(number, attempt))
            bounds = self._cut(pairs, order)
            if len(bounds) - 1 <= self.steps_per_epoch:
                break
        else:  # the exact order is known to fit
            pairs, order = self._plain, self._order(self._plain, None)
            bounds = self._cut(pairs, order)
        bounds = _halved(bounds, self.steps_per_epoch)
        return _Epoch(number, pairs, order, bounds, self._random(number, ATTEMPTS).permutation(self.steps_per_epoch))

    def _random(self, epoch: int, attempt: int) -> np.random.Generator:
        key = np.array([self._seed, epoch], np.uint64)  # a list of large numbers would be rounded
        return np.random.Generator(np.random.Philox(key=key, counter=[0, 0, 0, attempt]))


def _sorted(pairs: TokenPairs, random: np.random.Generator | None) -> np.ndarray:
    """The order by target length, then source length, alternately up and down, so that a batch may span two strips.

    With `random`, lengths are changed a little and ties are broken at random.
    """
    source, target, tie = pairs.source_lengths, pairs.target_lengths, np.arange(len(pairs))
    if random is not None:
        source, target = (np.floor(side * (1 + JITTER * random.random(len(pairs)))) for side in (source, target))
        tie = random.permutation(len(pairs))
    strip = target // STRIP
    return np.lexsort([tie, np.where(strip % 2, -source, source), strip])


def _cut(pairs: TokenPairs, order: np.ndarray, budget: int) -> np.ndarray:
    """The start of each batch in the order, and the end of the order; each batch has as many rows as fit.

    Only BPE-dropout can make a single pair larger than the budget; it is then a separate batch.
    """
    bounds, start = [0], 0
    longest_source = longest_target = 1  # <eos>
    sides = zip(pairs.source_lengths[order].tolist(), pairs.target_lengths[order].tolist())
    for place, (source, target) in enumerate(sides):
        longest_source = source if source > longest_source else longest_source  # max() takes three times as long
        longest_target = target if target > longest_target else longest_target
        if (place + 1 - start) * (longest_source + longest_target) > budget and place > start:
            bounds.append(place)
            longest_source, longest_target, start = source, target, place
    return np.array([*bounds, len(order)] if len(order) else [0])


def _halved(bounds: np.ndarray, steps: int) -> np.ndarray:
    """Splits the largest batches in two until there are `steps` of them."""
    while missing := steps - (len(bounds) - 1):
        rows = np.diff(bounds)
        largest = np.argsort(-rows, kind="stable")[:missing]
        largest = largest[rows[largest] > 1]
        bounds = np.sort(np.concatenate([bounds, bounds[largest] + rows[largest] // 2]))
    return bounds


def pair_batches_in_order(pairs: TokenPairs, batch_tokens: int) -> Iterator[tuple[PairBatch, np.ndarray]]:
    """All pairs for evaluation, in batches of similar lengths: each batch, and the indices [N] of its pairs.

    A pair that is larger than `batch_tokens` is a separate batch.
    """
    order = _sorted(pairs, None)
    for start, stop in pairwise(_cut(pairs, order, batch_tokens)):
        yield side_by_side(pairs, order[start:stop]), order[start:stop]


def side_by_side(pairs: TokenPairs, rows: np.ndarray, shape: tuple[int, int, int] | None = None) -> PairBatch:
    """The given pairs as one batch; with a shape (N, S, T), padded to it, the last rows empty: nothing to predict."""
    count, longest_source, longest_target = shape or (len(rows), 0, 0)
    source, source_lengths = _padded(pairs.source, pairs.source_offsets, rows, count, longest_source)
    targets, lengths = _padded(pairs.target, pairs.target_offsets, rows, count, longest_target)
    source_lengths[len(rows) :] = 1  # every source ends in <eos>, also an empty one
    tokens = np.zeros_like(targets)  # <eos> is 0, and so is padding
    tokens[:, 1:] = targets[:, :-1]
    return PairBatch(source, source_lengths, tokens, targets, lengths)


def _padded(
    ids: np.ndarray, offsets: np.ndarray, rows: np.ndarray, count: int, columns: int
) -> tuple[np.ndarray, np.ndarray]:
    """[count, columns or longest] ids, 0 where a row has ended, and the lengths."""
    starts, lengths = np.zeros(count, np.int64), np.zeros(count, np.int64)
    starts[: len(rows)] = offsets[rows]
    lengths[: len(rows)] = offsets[rows + 1] - offsets[rows]
    column = np.arange(max(columns, lengths.max()))
    real = column < lengths[:, None]
    padded = np.zeros(real.shape, np.int64)
    padded[real] = ids[(starts[:, None] + column)[real]]
    return padded, lengths
