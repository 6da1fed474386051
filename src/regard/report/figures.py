"""Figures as SVG text, to stand inside a page: nothing is loaded, and each says in words what it shows.

Colours are Okabe & Ito's (2008), which people who see colours differently can tell apart; lines also differ in dashes
and marks. Text and axes take the page's own colours, so that a figure is at home on a dark page and on a light one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape

OKABE_ITO = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#8C8C8C", "#B8A800")
DASHES = ("", "7 3", "2 3", "9 3 2 3")
DOT, BAR = OKABE_ITO[0], OKABE_ITO[5]  # a value and its interval
INK = "currentColor"  # of level lines: they are what the others are held against
WIDTH, HEIGHT = 720, 460
LEFT, RIGHT, TOP, BOTTOM = 72, 18, 40, 64  # margins of the plot within the figure: they hold a phone's larger letters
MARKS = 7  # on a line, about: every one of twenty points would hide the lines
NEAREST = 52  # numbers at an axis


Path = list[tuple[float, float]]
Style = tuple[str, str, int]  # colour, dashes, mark


@dataclass(frozen=True)
class Line:
    """Points (x, y) joined by a line; lines of one name share a colour and one entry in the legend."""

    name: str
    points: Sequence[tuple[float, float]]
    level: bool = False  # a horizontal line for something that does not depend on x; only its y counts
    faint: bool = False  # one of several of its name, which a stronger one sums up


@dataclass(frozen=True)
class Mark:
    """A value and the interval around it."""

    name: str
    value: float
    low: float
    high: float


def line_chart(
    lines: Sequence[Line],
    *,
    title: str,
    x: str,
    y: str,
    description: str,
    log_x: bool = False,
    log_y: bool = True,
    zero_y: bool = False,
    top: float = math.inf,
) -> str:
    """Lines over two axes and a legend below; linear axes begin at zero (y: if told so), and nothing above `top` is
    drawn."""
    widths = [p[0] for line in lines if not line.level for p in line.points] or [0.0, 1.0]
    heights = [p[1] for line in lines for p in line.points if p[1] <= top]
    if not heights:
        return ""
    across = _Axis.logarithmic(widths) if log_x else _Axis.linear(widths, zero=True)
    up = _Axis.logarithmic(heights) if log_y else _Axis.linear(heights, zero=zero_y)
    place_x, place_y = across.onto(LEFT, WIDTH - RIGHT), up.onto(HEIGHT - BOTTOM, TOP)
    styles = _styles(lines)
    parts = [*_grid(across, up, x, y)]
    for line in sorted(lines, key=lambda line: not line.faint):  # the strong ones over the faint ones
        if line.level:
            height = place_y(line.points[0][1])
            path = [(float(LEFT), height), (float(WIDTH - RIGHT), height)]
        else:
            path = _entering([(place_x(a), place_y(b)) for a, b in line.points])
        parts += _drawn(line, path, styles[line.name])
    legend = _legend(styles, {line.name for line in lines if line.level})
    return _figure(title, description, parts, HEIGHT, legend)


def _entering(path: Path) -> Path:
    """A path from where it comes in at the upper edge for good."""
    above = [number for number, (_, height) in enumerate(path) if height < TOP]
    if not above:
        return path
    outside, *inside = path[above[-1] :]
    if not inside:
        return []
    (x0, y0), (x1, y1) = outside, inside[0]
    return [(x0 + (x1 - x0) * (TOP - y0) / (y1 - y0), float(TOP)), *inside]


def _drawn(line: Line, path: Path, style: Style) -> Iterable[str]:
    colour, dash, mark = style
    points = " ".join(f"{a:.1f},{b:.1f}" for a, b in path)
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    strength = 'stroke-width="1" stroke-opacity="0.4"' if line.faint else f'stroke-width="2"{dashes}'
    yield f'<polyline points="{points}" fill="none" stroke="{colour}" {strength}/>'
    if not (line.level or line.faint):
        measured = [(a, b) for a, b in path if b > TOP]  # not where it came in
        yield from (_mark(mark, a, b, colour) for a, b in measured[:: -max(1, round(len(measured) / MARKS))])


def interval_chart(marks: Sequence[Mark], *, title: str, x: str, description: str, log_x: bool = True) -> str:
    """One row for each name: a dot at its value and a bar over its interval; x logarithmic unless told otherwise."""
    if not marks:
        return ""
    height = BOTTOM + 30 * len(marks)
    left = min(320, 18 + 14 * max(len(mark.name) for mark in marks))
    values = [value for mark in marks for value in (mark.low, mark.value, mark.high)]
    axis = _Axis.logarithmic(values) if log_x else _Axis.linear(values, zero=min(values) < 0.5 * max(values))
    place = axis.onto(left, WIDTH - RIGHT)
    parts = []
    for value in _apart(axis.ticks, place):
        at = f"{place(value):.1f}"
        parts.append(f'<line class="grid" x1="{at}" x2="{at}" y1="0" y2="{height - BOTTOM}"/>')
        parts.append(f'<text x="{at}" y="{height - BOTTOM + 24}" text-anchor="middle">{_number(value)}</text>')
    parts.append(f'<text x="{(left + WIDTH - RIGHT) / 2}" y="{height - 10}" text-anchor="middle">{escape(x)}</text>')
    for row, mark in enumerate(marks):
        middle = 15 + 30 * row
        parts.append(f'<text x="{left - 12}" y="{middle + 6}" text-anchor="end">{escape(mark.name)}</text>')
        low, high = place(mark.low), place(mark.high)
        parts.append(
            f'<line x1="{low:.1f}" x2="{high:.1f}" y1="{middle}" y2="{middle}" stroke="{BAR}" stroke-width="6" '
            'stroke-linecap="round"/>'
        )
        parts.append(f'<circle cx="{place(mark.value):.1f}" cy="{middle}" r="4.5" fill="{DOT}"/>')
    return _figure(title, description, parts, height, "")


# -- axes ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Axis:
    low: float
    high: float
    ticks: tuple[float, ...]
    log: bool = False

    @classmethod
    def linear(cls, values: Sequence[float], zero: bool = False) -> _Axis:
        low, high = (0.0 if zero else min(values)), max(values)
        high = high if high > low else low + 1.0
        step = _round_step((high - low) / 5)
        ticks = tuple(step * n for n in range(math.ceil(low / step), math.floor(high / step) + 1))
        return cls(low, high + 0.02 * (high - low), ticks)

    @classmethod
    def logarithmic(cls, values: Sequence[float]) -> _Axis:
        low, high = min(values), max(values)
        low, high = low / 1.04, high * 1.04
        return cls(low, high, tuple(_log_ticks(low, high)), log=True)

    def onto(self, start: float, stop: float) -> Callable[[float], float]:
        """A function from a value to its place between two coordinates."""
        scale = math.log if self.log else float
        low, high = scale(self.low), scale(self.high)
        return lambda value: start + (stop - start) * (scale(value) - low) / (high - low)


def _round_step(step: float) -> float:
    """1, 2 or 5 times a power of ten, at least `step`."""
    power = 10.0 ** math.floor(math.log10(step))
    return next(power * times for times in (1, 2, 5, 10) if power * times >= step * 0.999)


def _log_ticks(low: float, high: float) -> list[float]:
    """A handful of round numbers between two others that are far apart by ratio, or near."""
    for digits in ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 4, 5, 6, 8)):
        powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        ticks = [digit * 10.0**power for power in powers for digit in digits]
        ticks = [tick for tick in ticks if low <= tick <= high]
        if len(ticks) >= 4:
            return ticks
    step = _round_step((high - low) / 5)
    first, last = math.ceil(low / step), math.floor(high / step)
    return [step * n for n in range(first, last + 1)]


def _grid(across: _Axis, up: _Axis, x: str, y: str) -> Iterable[str]:
    place_x, place_y = across.onto(LEFT, WIDTH - RIGHT), up.onto(HEIGHT - BOTTOM, TOP)
    for value in up.ticks:
        at = f"{place_y(value):.1f}"
        yield f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at}" y2="{at}"/>'
        yield f'<text x="{LEFT - 8}" y="{float(at) + 6:.1f}" text-anchor="end">{_number(value)}</text>'
    for value in _apart(across.ticks, place_x):
        at = f"{place_x(value):.1f}"
        yield f'<line class="grid" x1="{at}" x2="{at}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>'
        yield f'<text x="{at}" y="{HEIGHT - BOTTOM + 24}" text-anchor="middle">{_number(value)}</text>'
    yield f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 8}" text-anchor="middle">{escape(x)}</text>'
    yield f'<text x="2" y="22">{escape(y)}</text>'  # upright, above the numbers: it never stands in their way


def _apart(ticks: Sequence[float], place: Callable[[float], float]) -> list[float]:
    """Those whose numbers have room beside each other."""
    kept: list[float] = []
    for tick in ticks:
        if not kept or abs(place(tick) - place(kept[-1])) >= NEAREST:
            kept.append(tick)
    return kept


def _number(value: float) -> str:
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size * 10 or (abs(value) >= size and letter != "k"):
            return f"{value / size:g}{letter}"
    return f"{value:.6g}"


# -- styles ----------------------------------------------------------------------------------------------------------


def _styles(lines: Sequence[Line]) -> dict[str, Style]:
    """Colour, dashes and mark of each name, in the order of first appearance; level lines are drawn in ink."""
    levels = list(dict.fromkeys(line.name for line in lines if line.level))
    others = list(dict.fromkeys(line.name for line in lines if not line.level))
    styles = {name: (INK, DASHES[1 + number % 3], 0) for number, name in enumerate(levels)}
    for number, name in enumerate(others):
        again = number // len(OKABE_ITO)  # a colour that comes again comes with other dashes
        styles[name] = (OKABE_ITO[number % len(OKABE_ITO)], DASHES[(number + again) % len(DASHES)], number % 4)
    return styles


def _mark(kind: int, x: float, y: float, colour: str) -> str:
    match kind:
        case 0:
            return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>'
        case 1:
            return f'<rect x="{x - 2.8:.1f}" y="{y - 2.8:.1f}" width="5.6" height="5.6" fill="{colour}"/>'
        case 2:
            return f'<path d="M{x:.1f} {y - 4:.1f}l3.6 6.4h-7.2z" fill="{colour}"/>'
        case _:
            return f'<path d="M{x:.1f} {y - 4:.1f}l4 4l-4 4l-4 -4z" fill="{colour}"/>'


def _legend(styles: dict[str, Style], levels: set[str]) -> str:
    entries = []
    for name, (colour, dash, mark) in styles.items():
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        key = f'<line x1="0" x2="34" y1="7" y2="7" stroke="{colour}" stroke-width="2"{dashes}/>'
        key += "" if name in levels else _mark(mark, 17, 7, colour)
        svg = f'<svg width="34" height="14" viewBox="0 0 34 14" aria-hidden="true">{key}</svg>'
        entries.append(f"<li>{svg} {escape(name)}</li>")
    return f'<ul class="legend">{"".join(entries)}</ul>'


def _figure(title: str, description: str, parts: Iterable[str], height: float, legend: str) -> str:
    """`description` is the text alternative: for who cannot see the figure, and for who searches the page."""
    return (
        f'<figure><svg role="img" viewBox="0 0 {WIDTH} {height:.0f}" preserveAspectRatio="xMidYMid meet">'
        f"<title>{escape(title)}</title><desc>{escape(description)}</desc>{''.join(parts)}</svg>"
        f"{legend}<figcaption>{escape(title)}</figcaption></figure>"
    )
