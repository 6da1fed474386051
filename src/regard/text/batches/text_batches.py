"""Batches of a token array. Each is a function of the step number alone, so training can resume at any step.

targets   w_p     w_p+1 …         every token is a target exactly once per epoch
tokens    w_p-1   w_p   …         its input is the token before it; <eos> before the first
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

RESIDENT = 256 << 20  # bytes of a memory-mapped file that may stay in memory after reading
AROUND = 1 << 16  # bytes that the system maps around each read


@dataclass(frozen=True)
class Batch:
    tokens: np.ndarray  # [R, T] int64, padded with 0 on the right
    targets: np.ndarray  # [R, T] int64, likewise
    lengths: np.ndarray | None  # [R] int64; None: every row is full
    fresh: bool  # this batch starts with an initial state
    counted: np.ndarray | None = None  # [R, T]: the targets that are learned; None: all

    @property
    def count(self) -> int:
        """The number of targets that are learned; at least 1, since the loss is divided by it."""
        if self.counted is not None:
            return max(int(self.counted.sum()), 1)
        return self.targets.size if self.lengths is None else int(self.lengths.sum())


class Streams:
    """Contiguous text in R parallel rows, read in successive windows with the state carried along (truncated BPTT)."""

    def __init__(
        self,
        ids: np.ndarray,
        rows: int,
        window: int,
        eos: int,
        begin: int | None = None,
        counted: np.ndarray | None = None,
    ):
        """`counted` [N]: the tokens that are learned; None: all."""
        self._ids, self._window, self._pages = np.asarray(ids), window, _Pages(ids)
        self._eos, self._begin, self._counted = eos, begin, counted
        bounds = len(ids) * np.arange(rows + 1) // rows
        self._starts, self._lengths = bounds[:-1], np.diff(bounds)  # [R]; the lengths differ by one at most
        self.steps_per_epoch: int = -(-int(self._lengths.max()) // window)

    def batch(self, step: int) -> Batch:
        place = step % self.steps_per_epoch
        lengths = np.clip(self._lengths - place * self._window, 0, self._window)
        self._pages.read(len(lengths))
        starts = self._starts + place * self._window
        tokens, targets, ragged = _read(self._ids, starts, lengths, self._eos, self._begin)
        return Batch(tokens, targets, ragged, fresh=place == 0, counted=_taken(self._counted, starts, lengths))


class Windows:
    """Non-overlapping windows in random order, with a new random offset in each epoch; each starts a fresh state."""

    def __init__(
        self,
        ids: np.ndarray,
        rows: int,
        window: int,
        eos: int,
        seed: int,
        begin: int | None = None,
        counted: np.ndarray | None = None,
    ):
        """`counted` [N]: the tokens that are learned; None: all."""
        self._ids, self._rows, self._window, self._seed = np.asarray(ids), rows, window, seed
        self._eos, self._begin, self._counted = eos, begin, counted
        self._pages = _Pages(ids)
        # The offset may change the number of windows, and so of batches. Only offsets that give the most common number
        # are drawn: all epochs then have the same length, and the epoch follows from the step.
        offsets = np.arange(window)
        windows = 1 + np.maximum(0, -(-(len(ids) - offsets) // window)) - (offsets == 0)
        steps = -(-windows // rows)
        self.steps_per_epoch: int = int(np.bincount(steps).argmax())
        self._offsets = np.flatnonzero(steps == self.steps_per_epoch)
        self._epoch: tuple[int, int, np.ndarray] | None = None  # the last one computed, cached for the following steps

    def batch(self, step: int) -> Batch:
        epoch, place = divmod(step, self.steps_per_epoch)
        if self._epoch is None or self._epoch[0] != epoch:
            self._epoch = (epoch, *self._cut(epoch))
        _, first, order = self._epoch
        self._pages.read(self._rows)
        stops = first + order[place * self._rows : (place + 1) * self._rows].astype(np.int64) * self._window
        starts, stops = np.maximum(stops - self._window, 0), np.minimum(stops, len(self._ids))
        read = _read(self._ids, starts, stops - starts, self._eos, self._begin)
        return Batch(*read, fresh=True, counted=_taken(self._counted, starts, stops - starts))

    def _cut(self, epoch: int) -> tuple[int, np.ndarray]:
        """The end of the first window, and the order of all windows (uint32, since a text may be very long)."""
        random = np.random.Generator(np.random.Philox(key=np.array([self._seed, epoch], np.uint64)))
        first = int(random.choice(self._offsets)) or self._window
        windows = 1 + max(0, -(-(len(self._ids) - first) // self._window))
        return first, random.permutation(np.arange(windows, dtype=np.uint32 if windows < 1 << 32 else np.int64))


class _Pages:
    """Releases the pages of a memory-mapped file after reading, so that a text of any size needs little memory. A
    second read comes from the system's cache."""

    def __init__(self, ids: np.ndarray) -> None:
        self._map = getattr(ids, "_mmap", None) if hasattr(mmap, "MADV_DONTNEED") else None
        self._places = 0

    def read(self, places: int) -> None:
        """Call before reading `places` places."""
        self._places += places
        if self._map is not None and self._places * AROUND > RESIDENT:
            self._map.madvise(mmap.MADV_DONTNEED)
            self._places = places


def segments(
    ids: np.ndarray, length: int, overlap: int, eos: int
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Fixed segments of the text for evaluation: (tokens, targets, counted), each [T] with T at most `length`.

    Each token is counted in exactly one segment, with at least `overlap` tokens (or all there are) before it.
    """
    for start, first, stop in zip(*_segment_bounds(len(ids), length, overlap)):
        targets = np.asarray(ids[start:stop], np.int64)
        before = eos if start == 0 else ids[start - 1]
        yield np.concatenate([[before], targets[:-1]]).astype(np.int64), targets, np.arange(start, stop) >= first


def segment_batches(
    ids: np.ndarray, length: int, overlap: int, rows: int, eos: int, begin: int | None = None
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None]]:
    """The same segments, `rows` at a time: (tokens, targets, counted) [R, T], and lengths [R] or None, as in Batch."""
    starts, firsts, stops = _segment_bounds(len(ids), length, overlap)
    array = np.asarray(ids)
    for number in range(0, len(starts), rows):
        chosen = slice(number, number + rows)
        start, first, sizes = starts[chosen], firsts[chosen], (stops - starts)[chosen]
        tokens, targets, lengths = _read(array, start, sizes, eos, begin)
        column = np.arange(tokens.shape[1])
        counted = (column >= (first - start)[:, None]) & (column < sizes[:, None])  # [R, T]
        yield tokens, targets, counted, lengths


def _segment_bounds(count: int, length: int, overlap: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For each segment its start, the first scored position, and its end."""
    if not 0 <= overlap < length:
        raise ValueError(f"overlap {overlap} must be at least 0 and less than length {length}")
    firsts = np.concatenate([[0], np.arange(length, count, length - overlap)])
    starts = np.concatenate([[0], firsts[1:] - overlap])
    return starts, firsts, np.minimum(starts + length, count)


def _taken(counted: np.ndarray | None, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray | None:
    """Which targets [R, T] of the given ranges are learned; None: all."""
    if counted is None:
        return None
    column = np.arange(lengths.max())
    return counted[np.minimum(starts[:, None] + column, len(counted) - 1)] & (column < lengths[:, None])


def _read(
    ids: np.ndarray, starts: np.ndarray, lengths: np.ndarray, eos: int, begin: int | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Tokens and targets [R, T] of the given ranges, and their lengths, None if all are equal.

    The boundary between two lines is predicted as `eos` and read as `begin`; None = `eos`.
    """
    column = np.arange(lengths.max())
    real = column < lengths[:, None]  # [R, T]
    position = np.where(real, starts[:, None] + column, 0)
    targets = ids[position].astype(np.int64)
    tokens = np.where(position == 0, eos, ids[position - 1]).astype(np.int64)
    if begin is not None:
        tokens[tokens == eos] = begin
    if real.all():
        return tokens, targets, None
    return np.where(real, tokens, 0), np.where(real, targets, 0), lengths.astype(np.int64)
