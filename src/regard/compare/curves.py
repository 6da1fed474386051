"""The validation curves of a comparison, and what its order would be with something else held equal.

Equal tokens and equal seconds are two questions. From the curves of the one, the other can be read off: at the moment
when the fastest had read all its tokens (or the slowest had used all its time), who was ahead?
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from itertools import combinations, pairwise
from pathlib import Path

from regard.compare.plan import Plan
from regard.compare.task import Results


@dataclass(frozen=True)
class Curve:
    """Validation losses of one run: (tokens, seconds, nats per token). A counted system has one, without a course."""

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
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    entries = [json.loads(line) for line in lines]
    return [(e["tokens"], e["seconds"], e["loss"]) for e in entries if e.get("split") == "valid"]


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


NEAR = math.log(1.01)  # nats: perplexities within 1 % of each other are in no order worth telling


@dataclass(frozen=True)
class OtherOrder:
    """Validation losses of neural systems at the end, and when `axis` stood at `at` for all of them; best first."""

    axis: str  # "seconds" or "tokens"
    at: float
    final: dict[str, float]
    there: dict[str, float]
    waited: bool = False  # for a first validation: by then someone had ended, and stands with its last one

    @property
    def swapped(self) -> bool:
        """Whether of some two the one was clearly ahead there, and the other is at the end."""
        return any(
            self.final[worse] - self.final[better] > NEAR and self.there[better] - self.there[worse] > NEAR
            for better, worse in combinations(self.final, 2)
        )

    @property
    def level(self) -> list[tuple[str, str]]:
        """Every two that differ at the end and did not there."""
        return [
            (better, worse)
            for better, worse in combinations(self.final, 2)
            if self.final[worse] - self.final[better] > NEAR >= abs(self.there[better] - self.there[worse])
        ]


def in_order(losses: dict[str, float]) -> str:
    """Best first: "lstm, gru ≈ elman", where ≈ is too near to tell."""
    labels = list(losses)
    marks = (" ≈ " if losses[after] - losses[before] <= NEAR else ", " for before, after in pairwise(labels))
    return labels[0] + "".join(mark + label for mark, label in zip(marks, labels[1:]))


def other_order(curves: list[Curve], match: str) -> OtherOrder | None:
    """Equal tokens seen again as equal seconds, and the other way round; None where it tells nothing."""
    trained = [curve for curve in curves if not curve.counted]
    if len({curve.label for curve in trained}) < 2:
        return None
    place = 0 if match == "seconds" else 1
    ended = min(curve.points[-1][place] for curve in trained)
    known = max(curve.points[0][place] for curve in trained)  # from here on there is something to say of everyone
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
    """Between the two points around x, on a straight line; after the last, the last."""
    for (x0, y0), (x1, y1) in pairwise(points):
        if x <= x1:
            return y0 + (y1 - y0) * (x - x0) / max(x1 - x0, 1e-12)
    return points[-1][1]
