"""Batches of sentence pairs in a few fixed shapes, for training steps in CUDA graphs (fast/training/captured_step.py).

    a pair of s and t tokens belongs to the cell (S, T) with s ≤ S, t ≤ T;        rows(S, T) = ⌊batch_tokens / (S + T)⌋

The cells are chosen for the corpus: the few target lengths T with the least padding, and for each of them the source
lengths S likewise. Each shape costs a GPU time before its steps are fast, so a short training has fewer of them.

A batch always has all rows of its shape; rows without a pair are empty and predict nothing, so loss, gradient and
number of tokens are those of the pairs alone. Within a cell every epoch has another order.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from regard.text.batches.pair_batches import PairBatch, PairBatches, side_by_side
from regard.text.tokenizers.pair_tokens import TokenPairs

# minimum training seconds: (target lengths, source lengths for each)
GRIDS = {180.0: (8, 4), 40.0: (4, 4), 0.0: (4, 2)}


def grid_for(seconds: float = math.inf) -> tuple[int, int]:
    """The number of target lengths, and of source lengths for each, for a training of this many seconds."""
    return next(grid for least, grid in GRIDS.items() if seconds >= least)


class ShapedPairBatches(PairBatches):
    """`PairBatches` in `shapes`, a list of (S, T); a pair that fits none of them gets its own shape."""

    def __init__(
        self,
        pairs: TokenPairs,
        batch_tokens: int,
        seed: int,
        *,
        epochs: Callable[[int], TokenPairs] | None = None,
        seconds: float = math.inf,
    ):
        targets, sources = grid_for(seconds)
        known = [pairs, epochs(0)] if epochs and len(pairs) else [pairs]
        source = np.concatenate([some.source_lengths for some in known])
        target = np.concatenate([some.target_lengths for some in known])
        self._targets = least_rounding(target, targets)
        strip = np.searchsorted(self._targets, target)
        self._sources = [least_rounding(source[strip == number], sources) for number in range(len(self._targets))]
        self.shapes = [(int(s), int(t)) for t, edges in zip(self._targets, self._sources, strict=True) for s in edges]
        super().__init__(pairs, batch_tokens, seed, epochs=epochs)

    @classmethod
    def of(cls, batches: PairBatches, seconds: float = math.inf) -> ShapedPairBatches:
        """The same pairs in few shapes, for a training of `seconds`."""
        return cls(batches._plain, batches._budget, batches._seed, epochs=batches._epochs, seconds=seconds)

    def _order(self, pairs: TokenPairs, random: np.random.Generator | None) -> np.ndarray:
        """Cell by cell, alternately up and down so that neighbors are similar; random within a cell."""
        strip, source, target = self._cells(pairs)
        tie = np.arange(len(pairs)) if random is None else random.permutation(len(pairs))
        return np.lexsort([tie, target, np.where(strip % 2, -source, source), strip])

    def _cut(self, pairs: TokenPairs, order: np.ndarray) -> np.ndarray:
        """Each batch has as many rows as its shape; the last pairs of a cell join the first of the next."""
        _, source, target = self._cells(pairs)
        cells = np.stack([source[order], target[order]], axis=1)
        runs = np.flatnonzero(np.any(cells[1:] != cells[:-1], axis=1)) + 1
        bounds, shape = [0], (0, 0)
        for start, stop in zip([0, *runs.tolist()], [*runs.tolist(), len(order)], strict=True):
            place, cell = start, cells[start].tolist()
            while place < stop:
                wider = self._around(max(shape[0], cell[0]), max(shape[1], cell[1]))
                room = self._rows(wider) - (place - bounds[-1])
                if room > 0:
                    place, shape = min(stop, place + room), wider
                else:
                    bounds.append(place)
                    shape = (0, 0)
        return np.array([*bounds, len(order)])

    def _beside(self, pairs: TokenPairs, rows: np.ndarray) -> PairBatch:
        _, source, target = self._cells(pairs, rows)
        shape = self._around(int(source.max()), int(target.max()))
        return side_by_side(pairs, rows, (max(len(rows), self._rows(shape)), *shape))

    # ----------------------------------------------------------------------------------------------------------------

    def _rows(self, shape: tuple[int, int]) -> int:
        return max(1, self._budget // sum(shape))

    def _around(self, source: int, target: int) -> tuple[int, int]:
        """The smallest shape that holds a pair of these lengths, or exactly its own."""
        fitting = [(s, t) for s, t in self.shapes if s >= source and t >= target and s + t <= self._budget]
        return min(fitting, key=lambda shape: (sum(shape), shape)) if fitting else (source, target)

    def _cells(
        self, pairs: TokenPairs, rows: np.ndarray | slice = slice(None)
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """For each pair: the index of its target length, and its cell."""
        source, target = pairs.source_lengths[rows], pairs.target_lengths[rows]
        strip, wide = np.searchsorted(self._targets, target), source.copy()
        for number, edges in enumerate(self._sources):
            here = strip == number
            wide[here] = _rounded(source[here], edges)
        high = _rounded(target, self._targets)
        fits = wide + high <= self._budget
        return strip, np.where(fits, wide, source), np.where(fits, high, target)


def least_rounding(lengths: np.ndarray, count: int) -> np.ndarray:
    """The at most `count` lengths to which rounding all up adds the least, by dynamic programming over their ends."""
    values, many = np.unique(lengths, return_counts=True)
    up_to = np.concatenate([[0], np.cumsum(many)])  # how many are among the first n values
    cost = np.where(np.arange(len(values) + 1) == 0, 0.0, np.inf)  # of the first n values with no edge yet
    last: list[np.ndarray] = []
    for _ in range(min(count, len(values))):
        ways = cost[:, None] + (up_to[None, :] - up_to[:, None]) * np.concatenate([[0], values])[None, :]
        ways[np.tril_indices(len(values) + 1)] = np.inf  # an edge rounds at least one value
        last.append(ways.argmin(axis=0))
        cost = ways.min(axis=0)
    edges, end = [], len(values)
    for before in reversed(last):
        edges.append(values[end - 1])
        end = before[end]
    return np.array(edges[::-1], dtype=np.int64)


def _rounded(lengths: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Each rounded up to the next edge; values beyond the last stay."""
    place = np.searchsorted(edges, lengths)
    return np.where(place < len(edges), edges[np.minimum(place, len(edges) - 1)], lengths) if len(edges) else lengths
