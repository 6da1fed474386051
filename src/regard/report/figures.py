"""Figures as plain data: `svg.py` draws them for a page, `terminal.py` for a terminal; they are also exported as JSON.
Each has a description in words; without a given one, it is made from the data.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from html import escape
from typing import Any
from unicodedata import bidirectional, category


@dataclass(frozen=True)
class Line:
    """Points (x, y) joined by a line; lines of one name share a color and one entry in the legend."""

    name: str
    points: Sequence[tuple[float, float]]
    level: bool = False  # a horizontal line: only its y counts
    faint: bool = False  # one of several of its name, summed up by a stronger one
    band: Sequence[tuple[float, float]] = ()  # (low, high) around each point, or none
    joined: bool = True  # False: dots alone

    def __post_init__(self) -> None:
        _set(self, points=_pairs(self.points), band=_pairs(self.band))


@dataclass(frozen=True)
class Mark:
    """A value and the interval around it."""

    name: str
    value: float
    low: float
    high: float

    def __post_init__(self) -> None:
        _set(self, value=float(self.value), low=float(self.low), high=float(self.high))


@dataclass(frozen=True)
class Lines:
    """Lines over two axes; nothing above `top` is drawn."""

    title: str
    x: str
    y: str
    lines: Sequence[Line]
    log_x: bool = False
    log_y: bool = False
    zero_y: bool = False  # a linear axis that begins at zero
    top: float = math.inf
    description: str = ""
    best: str = ""  # the highlighted line

    def __post_init__(self) -> None:
        _set(self, lines=tuple(self.lines), description=self.description or _described_lines(self.lines))

    def as_json(self) -> dict[str, Any]:
        return _plain(self)


@dataclass(frozen=True)
class Heat:
    """A matrix as shades: `values[row][column]`, NaN for an empty cell. `x`, `y` and `z` are the titles of columns,
    rows and values; `low` and `high` are the ends of the scale, by default those of the values."""

    title: str
    rows: Sequence[str]
    columns: Sequence[str]
    values: Sequence[Sequence[float]]
    x: str = ""
    y: str = ""
    z: str = ""
    low: float | None = None
    high: float | None = None
    diverging: bool = False  # zero is the middle of the scale
    root: bool = False  # shades use the square root, so that small values are visible
    description: str = ""

    def __post_init__(self) -> None:
        values = tuple(tuple(float(value) for value in row) for row in self.values)
        if len(values) != len(self.rows) or any(len(row) != len(self.columns) for row in values):
            shape = f"{len(values)}×{max(map(len, values), default=0)}"
            raise ValueError(f"{shape} values for {len(self.rows)} rows and {len(self.columns)} columns")
        _set(self, rows=tuple(map(str, self.rows)), columns=tuple(map(str, self.columns)), values=values)
        _set(self, description=self.description or _described_heat(self))

    @cached_property
    def scale(self) -> tuple[float, float]:
        """The values of the lightest and the darkest shade; around zero if the scale is diverging."""
        finite = [value for row in self.values for value in row if math.isfinite(value)] or [0.0]
        low = min(finite) if self.low is None else float(self.low)
        high = max(finite) if self.high is None else float(self.high)
        if self.diverging:
            high = max(abs(low), abs(high))
            low = -high
        return (
            (low, high) if high > low else (low, low + max(1.0, abs(low)))
        )  # adding 1 to a large number could change nothing

    @cached_property
    def leftward(self) -> bool:
        """True if columns run from right to left, as their script does."""
        return right_to_left("".join(self.columns))

    def share(self, value: float) -> float:
        """The position of a value on the scale: 0 at its low end, 1 at its high end."""
        low, high = self.scale
        share = min(1.0, max(0.0, (value - low) / (high - low)))
        return math.sqrt(share) if self.root else share

    def at(self, share: float) -> float:
        """The value there."""
        low, high = self.scale
        return low + (share**2 if self.root else share) * (high - low)

    def as_json(self) -> dict[str, Any]:
        return _plain(self)


@dataclass(frozen=True)
class Intervals:
    """One row for each mark: its value and its interval; `threshold` is the value they are compared with."""

    title: str
    x: str
    marks: Sequence[Mark]
    log_x: bool = False
    threshold: float | None = None
    threshold_name: str = "threshold"
    description: str = ""
    best: str = ""  # the highlighted mark

    def __post_init__(self) -> None:
        _set(self, marks=tuple(self.marks))
        _set(self, description=self.description or _described_intervals(self))

    def as_json(self) -> dict[str, Any]:
        return _plain(self)


Figure = Lines | Heat | Intervals
KINDS: dict[str, type[Lines] | type[Heat] | type[Intervals]] = {"lines": Lines, "heat": Heat, "intervals": Intervals}


def as_attribute(figure: Figure) -> str:
    """The figure's data within markup, for the script of a page; words as a label shows them."""

    def shown(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: shown(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [shown(inner) for inner in value]
        return legible(value) if isinstance(value, str) else value

    return escape(json.dumps(shown(figure.as_json()), separators=(",", ":")))


def from_json(facts: Mapping[str, Any]) -> Figure:
    """The figure that `as_json` wrote."""
    given = {key: value for key, value in facts.items() if key != "kind"}
    match facts["kind"]:
        case "lines":
            lines = [Line(**line | {key: _numbers(line[key]) for key in ("points", "band")}) for line in given["lines"]]
            return Lines(**given | {"lines": lines, "top": _numbers(given["top"])})
        case "heat":
            return Heat(**given | {"values": _numbers(given["values"])})
        case "intervals":
            marks = [
                Mark(mark["name"], _numbers(mark["value"]), _numbers(mark["low"]), _numbers(mark["high"]))
                for mark in given["marks"]
            ]
            return Intervals(**given | {"marks": marks})
    raise ValueError(f"no figure is called {facts['kind']!r}: there are {', '.join(KINDS)}")


def _plain(figure: Figure) -> dict[str, Any]:
    """A figure as JSON: lists; null for NaN, and words for infinities."""
    kind = next(name for name, of in KINDS.items() if isinstance(figure, of))
    return {"kind": kind, **_listed(asdict(figure))}


def _listed(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _listed(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_listed(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return value


def _numbers(value: Any) -> Any:
    """The inverse of `_listed`."""
    if isinstance(value, list):
        return [_numbers(inner) for inner in value]
    return math.nan if value is None else float(value) if value in ("inf", "-inf") else value


def _pairs(points: Sequence[Sequence[float]]) -> tuple[tuple[float, float], ...]:
    return tuple((float(a), float(b)) for a, b in points)


def _set(frozen: Any, **fields: Any) -> None:
    """Sets fields of a frozen dataclass during construction, converted to tuples of floats."""
    for name, value in fields.items():
        object.__setattr__(frozen, name, value)


def right_to_left(words: str) -> bool:
    """True if most letters belong to a right-to-left script, such as Arabic or Hebrew."""
    ways = [bidirectional(sign) for sign in words]
    return sum(way in ("R", "AL") for way in ways) > ways.count("L")


def isolated(words: str) -> str:
    """Words in Unicode direction isolates, so that they do not reorder the text around them."""
    leftward = any(bidirectional(sign) in ("R", "AL") for sign in words)
    return f"\N{RIGHT-TO-LEFT ISOLATE}{words}\N{POP DIRECTIONAL ISOLATE}" if leftward else words


SIGNS = {"\n": "⏎", "\t": "⇥", "\r": "␍"}
ILLEGIBLE = {"Cc", "Cs", "Cn", "Zl", "Zp"}  # Unicode categories that a label cannot show
TURNING = {
    "LRE",
    "RLE",
    "LRO",
    "RLO",
    "PDF",
    "LRI",
    "RLI",
    "FSI",
    "PDI",
}  # characters that change the direction of the text around them


def legible(words: str) -> str:
    """Words as a label can show them: line ends and tabs as signs, others that a page may not hold as ?."""
    signs = (SIGNS.get(sign, sign) for sign in words)
    return "".join(
        "\N{REPLACEMENT CHARACTER}" if category(sign) in ILLEGIBLE or bidirectional(sign) in TURNING else sign
        for sign in signs
    )


# -- in words --------------------------------------------------------------------------------------------------------


def _described_lines(lines: Sequence[Line]) -> str:
    said = []
    for line in lines:
        points = [point for point in line.points if all(map(math.isfinite, point))]
        if line.faint or not points:
            continue
        (first_x, first_y), (last_x, last_y) = points[0], points[-1]
        if line.level or len(points) == 1:
            said.append(f"{line.name}: {last_y:.3g}")
        elif not line.joined:
            heights = [y for _, y in points]
            said.append(f"{line.name}: {len(points)} points between {min(heights):.3g} and {max(heights):.3g}")
        else:
            said.append(f"{line.name}: from {first_y:.3g} at {first_x:.3g} to {last_y:.3g} at {last_x:.3g}")
    return "; ".join(said) + "." if said else "There is nothing to show."


def _described_heat(heat: Heat) -> str:
    cells = [
        (value, row, column)
        for row, values in zip(heat.rows, heat.values)
        for column, value in zip(heat.columns, values)
        if math.isfinite(value)
    ]
    if not cells:
        return "There is nothing to show."
    lowest, (highest, row, column) = min(cells)[0], max(cells, key=lambda cell: cell[0])
    size = f"{len(heat.rows)} × {len(heat.columns)} cells"
    return f"{size}, from {lowest:.3g} to {highest:.3g}; the largest is at row {row}, column {column}."


def _described_intervals(figure: Intervals) -> str:
    if not figure.marks:
        return "There is nothing to show."
    said = "; ".join(f"{mark.name}: {mark.value:.3g} ({mark.low:.3g} to {mark.high:.3g})" for mark in figure.marks)
    held = "" if figure.threshold is None else f" {figure.threshold_name}: {figure.threshold:.3g}."
    return f"{said}.{held}"
