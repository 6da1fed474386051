"""Validation curves, and how the ranking would change with equal seconds instead of equal tokens, or vice versa.

The validation curves of a comparison with equal tokens also show which system was ahead when the fastest had finished;
those with equal seconds, which was ahead when each had read as many tokens as the slowest.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import combinations, pairwise
from pathlib import Path

from regard.comparison.plan import Plan
from regard.comparison.task import Results
from regard.runs.store.history import read_metrics


@dataclass(frozen=True)
class Curve:
    """Validation losses of one run: (tokens, seconds, nats per token). A counted system has a single point."""

    label: str
    seed: int
    points: tuple[tuple[float, float, float], ...]
    counted: bool = False


def read_curves(plan: Plan, results: Results) -> list[Curve]:
    curves = []
    for entrant, seed in plan.runs:
        result = results[entrant.label, seed]
        if "evaluation" not in result:
            continue
        if entrant.counted:
            points = [(result["tokens_seen"], result["training_seconds"], result["validation_loss"])]
        else:
            points = _validations(plan.run_folder(entrant, seed) / "metrics.jsonl")
        finite = tuple(point for point in points if point[2] is not None and math.isfinite(point[2]))
        if finite:
            curves.append(Curve(entrant.label, seed, finite, entrant.counted))
    return curves


def _validations(path: Path) -> list[tuple[float, float, float]]:
    return [(e["tokens"], e["seconds"], e["loss"]) for e in read_metrics(path) if e.get("split") == "valid"]


def averaged(curves: list[Curve]) -> list[Curve]:
    """One curve for each label: the means over its seeds of their first validations, their second ones, …"""
    seeds: dict[str, list[Curve]] = {}
    for curve in curves:
        seeds.setdefault(curve.label, []).append(curve)
    return [
        Curve(label, 0, tuple(_mean(points) for points in zip(*(curve.points for curve in some))))
        for label, some in seeds.items()
    ]


def _mean(points: tuple[tuple[float, float, float], ...]) -> tuple[float, float, float]:
    tokens, seconds, losses = (sum(values) / len(points) for values in zip(*points))
    return tokens, seconds, losses


NEAR = math.log(1.01)  # nats: perplexities within 1 % of each other are not ranked


@dataclass(frozen=True)
class OtherOrder:
    """Validation losses of neural systems at the end, and at the point `at` of `axis`; best first."""

    axis: str  # "seconds" or "tokens"
    at: float
    final: dict[str, float]
    there: dict[str, float]
    waited: bool = False  # `at` had to be a first validation, by which another had already ended

    @property
    def swapped(self) -> bool:
        """True if one system was clearly ahead there and another one at the end."""
        return any(
            self.final[worse] - self.final[better] > NEAR and self.there[better] - self.there[worse] > NEAR
            for better, worse in combinations(self.final, 2)
        )

    @property
    def level(self) -> list[tuple[str, str]]:
        """Pairs that differ at the end but did not there."""
        return [
            (better, worse)
            for better, worse in combinations(self.final, 2)
            if self.final[worse] - self.final[better] > NEAR >= abs(self.there[better] - self.there[worse])
        ]


def in_order(losses: dict[str, float]) -> str:
    """Best first: "lstm, gru ≈ elman", where ≈ means within 1 %."""
    labels = list(losses)
    marks = (" ≈ " if losses[after] - losses[before] <= NEAR else ", " for before, after in pairwise(labels))
    return labels[0] + "".join(mark + label for mark, label in zip(marks, labels[1:]))


def other_order(curves: list[Curve], match: str) -> OtherOrder | None:
    """The ranking at equal seconds if `match` is tokens, and vice versa; None if the curves do not show it."""
    trained = [curve for curve in curves if not curve.counted]
    if len({curve.label for curve in trained}) < 2:
        return None
    place = 0 if match == "seconds" else 1
    ended = min(curve.points[-1][place] for curve in trained)
    known = max(curve.points[0][place] for curve in trained)  # from here on every system has a value
    at = max(ended, known)
    there: dict[str, list[float]] = {}
    final: dict[str, list[float]] = {}
    for curve in trained:
        there.setdefault(curve.label, []).append(_at([(point[place], point[2]) for point in curve.points], at))
        final.setdefault(curve.label, []).append(curve.points[-1][2])
    return OtherOrder("tokens" if place == 0 else "seconds", at, _ordered(final), _ordered(there), known > ended)


def _ordered(losses: dict[str, list[float]]) -> dict[str, float]:
    means = {label: sum(seeds) / len(seeds) for label, seeds in losses.items()}
    return dict(sorted(means.items(), key=lambda item: item[1]))


def _at(points: list[tuple[float, float]], x: float) -> float:
    """Linear interpolation at x; after the last point, its value."""
    for (x0, y0), (x1, y1) in pairwise(points):
        if x <= x1:
            return y0 + (y1 - y0) * (x - x0) / max(x1 - x0, 1e-12)
    return points[-1][1]
