"""Ablation: remove a part of a model and measure how much less probable the words become.

    effect(part) = mean over words of  log P(w | part removed) − log P(w)        below 0: the part helped

A removed part becomes zero, the mean of its values over the texts, or the value of a random word of another text. The
control removes the same number of random components of the same kind; a part matters only if its effect differs from
the control's. With several texts (lines), each effect has a 95 % interval over them (Student's t).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.base.errors import RegardError
from regard.base.settings import check_choice
from regard.evaluation.intervals import student_interval
from regard.insight.interventions.changing import BY_HEAD, Place, names_of
from regard.insight.interventions.reading import Reading
from regard.insight.words import GATES

KINDS = ("heads", "attention", "feedforward", "layers", "gates", "words", "orders")
WAYS = ("zero", "mean", "resampled")
DRAWS = 8  # draws of the control, for each size
VALUES = ("update", "candidate", "cell", "hidden", "context", "memory")


@dataclass(frozen=True)
class PartEffect:
    name: str
    effect: float
    interval: tuple[float, float] | None  # over texts
    control: float | None  # the mean effect of random components of the same size
    control_interval: tuple[float, float] | None
    by_word: tuple[float, ...]  # of the first text


@dataclass(frozen=True)
class Ablation:
    kind: str
    way: str
    texts: int
    words: tuple[str, ...]  # the predicted ones of the first text
    effects: tuple[PartEffect, ...]  # the most harmful first

    def as_json(self) -> dict[str, Any]:
        return {**vars(self), "effects": [vars(one) for one in self.effects]}


@dataclass(frozen=True, eq=False)
class AblatedPart:
    """Components of a part by its name, as a mask over one row of it: [H, 1, d] of heads, [T, D] or [D] of others."""

    label: str
    name: str
    mask: Tensor

    @property
    def size(self) -> int:
        return int(self.mask.sum())


def ablate(readings: Sequence[Reading], kind: str | None = "heads", way: str = "zero", seed: int = 0) -> Ablation:
    """The effect of removing each part of a kind, with random components of the same size as a control. Kind None: the
    first kind that the system has.
    """
    check_choice("--with", way, WAYS)
    recorded = [reading.parts() for reading in readings]
    kind = kind or next(one for one in ("heads", "gates", "orders", "words") if _found(recorded[0], one, readings[0]))
    check_choice("--ablate", kind, KINDS)
    if way != "zero" and len(readings) < 2 and kind != "words":
        raise RegardError(f"{way} takes its values from other texts: give at least two lines.")
    generator = torch.Generator().manual_seed(seed)
    effects, controls, by_word = [], [], []
    for number, reading in enumerate(readings):
        if not reading.known:
            raise RegardError("The text has no word to predict: give at least one word.")
        parts = parts_of_kind(recorded[number], kind, reading)
        others = [one for place, one in enumerate(recorded) if place != number] or recorded
        random = [_random(parts, part.size, generator) for part in _sizes(parts) for _ in range(DRAWS)]
        sets = [[part] for part in parts] + random
        changed = _removed(reading, sets, way, others, generator) - reading.scores()
        means = changed.mean(-1).cpu().double().numpy()
        effects.append(means[: len(parts)])
        drawn = means[len(parts) :].reshape(-1, DRAWS).mean(-1) if random else np.zeros(0)
        by_size = dict(zip((part.size for part in _sizes(parts)), drawn))
        controls.append([by_size.get(part.size, np.nan) for part in parts])
        if not number:
            labels, by_word = [part.label for part in parts], changed[: len(parts)].tolist()
    if kind == "words" and len(readings) > 1:
        raise RegardError("--ablate words removes the words of a single text: give one line.")
    rows = zip(labels, np.stack(effects, 1), np.stack(controls, 1), by_word)
    found = [
        PartEffect(label, float(own.mean()), _interval(own), _mean(control), _interval(control), tuple(words))
        for label, own, control, words in rows
    ]
    found.sort(key=lambda one: one.effect)
    first = readings[0]
    then = first.tokenizer.token
    words = tuple(then(first.targets[step]) for step in first.known)  # type: ignore[arg-type]
    return Ablation(kind, way, len(readings), words, tuple(found))


def parts_of_kind(recorded: dict[str, Tensor], kind: str, reading: Reading) -> list[AblatedPart]:
    """All parts of a kind, each with its components."""
    if not (found := _found(recorded, kind, reading)):
        has = [one for one in KINDS if _found(recorded, one, reading)]
        raise RegardError(f"This system has no {kind} to remove: choose {' or '.join(has)}.")
    return found


def _found(recorded: dict[str, Tensor], kind: str, reading: Reading) -> list[AblatedPart]:
    found: list[AblatedPart] = []
    for name, value in recorded.items():
        last = name.rpartition("/")[2]
        (label,) = names_of([name])
        if kind == "heads" and last == "heads":
            for head in range(value.size(1)):
                mask = torch.zeros(value.size(1), 1, value.size(3))
                mask[head] = 1
                found.append(AblatedPart(f"{label}[{head}]", name, mask))
        elif kind == "words" and last == "embedding":
            spoken = reading.source_words if name.startswith("encoder") else reading.words
            for column in range(value.size(1)):
                mask = torch.zeros(value.shape[1:])
                mask[column] = 1
                found.append(AblatedPart(f"{name}@{column} {spoken[column]}", name, mask))
        elif kind == "orders" and name.startswith("order/"):
            found.append(AblatedPart(name, name, torch.ones(1)))
        elif (
            (kind == last and kind in ("attention", "feedforward"))
            or (kind == "layers" and last.isdecimal() and not name.startswith("order/"))
            or (kind == "gates" and last in (*GATES, "update") and last not in BY_HEAD)
        ):
            found.append(AblatedPart(label, name, torch.ones(value.size(-1))))
    return found


def _sizes(parts: Sequence[AblatedPart]) -> list[AblatedPart]:
    """One part of each size for which a random choice is neither everything nor a single number."""
    total = sum(part.size for part in parts)
    by_size = {part.size: part for part in parts if 1 < part.size < total}
    return list(by_size.values())


def _random(parts: Sequence[AblatedPart], size: int, generator: torch.Generator) -> list[AblatedPart]:
    """The same number of components, drawn from all parts."""
    owners = torch.cat([torch.full((part.size,), number) for number, part in enumerate(parts)])
    places = torch.cat([part.mask.flatten().nonzero()[:, 0] for part in parts])
    chosen = torch.randperm(len(owners), generator=generator)[:size]
    drawn: dict[str, AblatedPart] = {}
    for number in owners[chosen].unique().tolist():
        part = parts[number]
        mask = torch.zeros_like(part.mask).flatten()
        mask[places[chosen][owners[chosen] == number]] = 1
        before = drawn[part.name].mask if part.name in drawn else 0.0
        drawn[part.name] = AblatedPart("random", part.name, mask.view_as(part.mask) + before)
    return list(drawn.values())


def _removed(
    reading: Reading,
    sets: Sequence[Sequence[AblatedPart]],
    way: str,
    others: Sequence[dict[str, Tensor]],
    generator: torch.Generator,
) -> Tensor:
    """log P of every known word after each removal: [sets, K]."""
    scores = []
    for first in range(0, len(sets), reading.batch):
        some = sets[first : first + reading.batch]
        changes = [
            (Place(part.name, row=row), _without(part.mask, _fill(part.name, way, others, generator)))
            for row, parts in enumerate(some)
            for part in parts
        ]
        scores.append(reading.scores(changes, len(some)))
    return torch.cat(scores)


def _without(mask: Tensor, fill: Tensor | float) -> Any:
    def change(value: Tensor) -> Tensor:
        if value.dtype == torch.bool:
            return torch.zeros_like(value)
        here = mask.to(value)
        return value * (1 - here) + here * (fill.to(value) if isinstance(fill, Tensor) else fill)

    return change


def _fill(name: str, way: str, others: Sequence[dict[str, Tensor]], generator: torch.Generator) -> Tensor | float:
    """The replacement for a removed component: one vector for all columns, [H, 1, d] or [D]."""
    if way == "zero":
        return 0.0
    axis = 1 if name.rpartition("/")[2] in BY_HEAD else 0
    values = torch.cat([one[name][0] for one in others if name in one], dim=axis)
    if way == "mean":
        return values.mean(axis, keepdim=axis == 1)
    column = int(torch.randint(values.size(axis), (), generator=generator))
    return values.narrow(axis, column, 1) if axis else values[column]


def _mean(values: np.ndarray) -> float | None:
    return None if np.isnan(values).any() else float(values.mean())


def _interval(values: np.ndarray) -> tuple[float, float] | None:
    if len(values) < 2 or np.isnan(values).any():
        return None
    low, high = student_interval(values.tolist())
    return float(low), float(high)
