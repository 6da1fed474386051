"""Axes: map values to coordinates, and choose round ticks."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

FARTHEST = 1e300  # the largest value of an axis; its inverse is the smallest of a logarithmic one
BEYOND = 1e6  # in lengths of the axis: points further out are drawn at this distance
DECADES = 8  # labeled powers of ten, at most


@dataclass(frozen=True)
class Axis:
    low: float
    high: float
    ticks: tuple[float, ...]
    log: bool = False

    @classmethod
    def of(cls, values: Iterable[float], log: bool, zero: bool) -> Axis:
        """An axis around all valid values: finite, and above zero on a logarithmic axis."""
        shown = [value for value in values if abs(value) < FARTHEST]  # excludes NaN
        above = [value for value in shown if value > 1 / FARTHEST]
        if log and above:
            return cls.logarithmic(above)
        return cls.linear(shown or [0.0, 1.0], zero)

    @classmethod
    def linear(cls, values: Sequence[float], zero: bool) -> Axis:
        low, high = min(values), max(values)
        if zero:
            low, high = min(low, 0.0), max(high, 0.0)
        if high - low <= max(1e-9 * max(abs(low), abs(high)), 1 / FARTHEST):
            high = low + max(abs(low), 1 / FARTHEST) if low else 1.0
        step = _round_step((high - low) / 5)
        ticks = tuple(step * n for n in range(math.ceil(low / step), math.floor(high / step) + 1))
        return cls(low, high + 0.02 * (high - low), ticks)

    @classmethod
    def logarithmic(cls, values: Sequence[float]) -> Axis:
        low, high = min(values) / 1.04, max(values) * 1.04
        return cls(low, high, tuple(_log_ticks(low, high)), log=True)

    def holds(self, value: float) -> bool:
        """True if the value is valid on this axis: finite, and above zero if the axis is logarithmic."""
        return abs(value) < FARTHEST and not (self.log and value <= 1 / FARTHEST)

    def nearest(self, value: float) -> float:
        """The value, limited to the axis."""
        return min(self.high, max(self.low, value))

    def onto(self, start: float, stop: float) -> Callable[[float], float]:
        """A function from a value to its coordinate between `start` and `stop`."""
        scale = math.log if self.log else float
        low, high = scale(self.low), scale(self.high)

        def place(value: float) -> float:
            share = (scale(value) - low) / (high - low)
            return start + (stop - start) * min(BEYOND, max(-BEYOND, share))

        return place


def apart(ticks: Sequence[float], place: Callable[[float], float], nearest: float) -> list[float]:
    """The ticks whose labels do not overlap."""
    kept: list[float] = []
    for tick in ticks:
        if not kept or abs(place(tick) - place(kept[-1])) >= nearest:
            kept.append(tick)
    return kept


def number(value: float) -> str:
    """A tick's label: 20k, 3M, 0.05, 1e−5."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) < size * 1e6 and (abs(value) >= size * 10 or (abs(value) >= size and letter != "k")):
            return f"{value / size:g}{letter}".replace("-", "−")
    return re.sub(r"e\+?(-?)0*", r"e\1", f"{value:.6g}").replace("-", "−")


def _round_step(step: float) -> float:
    """1, 2 or 5 times a power of ten, at least `step`."""
    power = 10.0 ** math.floor(math.log10(step))
    return next(power * times for times in (1, 2, 5, 10) if power * times >= step * 0.999)


def _log_ticks(low: float, high: float) -> list[float]:
    """A few round ticks for a logarithmic axis, whatever its range."""
    for digits in ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 4, 5, 6, 8)):
        powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        ticks = [digit * 10.0**power for power in powers for digit in digits]
        ticks = [tick for tick in ticks if low <= tick <= high]
        if len(ticks) >= 4:
            return ticks[:: math.ceil(len(ticks) / DECADES)] if len(digits) == 1 else ticks
    step = _round_step((high - low) / 5)
    first, last = math.ceil(low / step), math.floor(high / step)
    return [step * n for n in range(first, last + 1)]
