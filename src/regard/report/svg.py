"""Figures as inline SVG, with descriptions; nothing is loaded. With JavaScript, a page replaces them by the lab's
charts (`web/lab/static/report.js`), drawn from the same data.

Lines differ in dashes and marks as well as in color. Text and axes use the page's colors, so figures suit dark
and light pages.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from textwrap import wrap

from regard.report.axes import Axis, apart, number
from regard.report.colours import GRID, OKABE_ITO
from regard.report.figures import Figure, Heat, Intervals, Line, Lines, Mark, as_attribute, legible
from regard.report.svg_heat import heat_map

DASHES = ("", "7 3", "2 3", "9 3 2 3")
DOT, BAR = OKABE_ITO[0], OKABE_ITO[5]  # a value and its interval
AGAINST = OKABE_ITO[3]  # the threshold
INK = "currentColor"  # of level lines, which the others are compared with
WIDTH, HEIGHT = 720, 460
LEFT, RIGHT, TOP, BOTTOM = 72, 18, 40, 64  # margins of the plot within the figure: they hold a phone's larger letters
ROW = 30  # height of an interval's row
MARKS = 7  # per line, about: a mark on each of twenty points would hide the lines
NEAREST = 52  # least distance of ticks
LETTER = 14  # width of a letter, at most
NAMES, NAME, APART = 8, 16, 28  # labels at curves: the most names, letters of a name, and least distance
MAX_LINE_LETTERS, NEXT = 54, 26  # letters of a line below an axis, and the distance between lines


Path = list[tuple[float, float]]
Style = tuple[str, str, int]  # color, dashes, mark


def svg(figure: Figure) -> str:
    """A figure as HTML: its drawing, its legend and its caption."""
    match figure:
        case Lines():
            return _lines(figure)
        case Intervals():
            return _intervals(figure)
        case Heat():
            return heat_map(figure)


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
    best: str = "",
) -> str:
    """Lines over two axes, or nothing if no line has two points that can be joined."""
    courses = ([point for point in line.points if point[1] <= top] for line in lines if not line.level)
    if not any(len(course) > 1 for course in courses):
        return ""
    return svg(Lines(title, x, y, lines, log_x, log_y, zero_y, top, description, best))


def interval_chart(
    marks: Sequence[Mark], *, title: str, x: str, description: str, log_x: bool = True, best: str = ""
) -> str:
    """One row for each name, or nothing if there are none; x is logarithmic by default."""
    return svg(Intervals(title, x, marks, log_x, description=description, best=best)) if marks else ""


# -- lines -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Plot:
    """Two axes and their place; labels on the left have enough room, also in a phone's larger letters."""

    across: Axis
    up: Axis
    right: float

    @cached_property
    def left(self) -> float:
        return max(LEFT, 14 + LETTER * max(len(number(tick)) for tick in self.up.ticks))

    @cached_property
    def x(self) -> Callable[[float], float]:
        return self.across.onto(self.left, self.right)

    @cached_property
    def y(self) -> Callable[[float], float]:
        return self.up.onto(HEIGHT - BOTTOM, TOP)


def _lines(figure: Lines) -> str:
    """Lines over two axes, each with its name at its end, or a legend below if names are many or long; linear x axes
    begin at zero, y axes if `zero_y`."""
    widths = (x for line in figure.lines if not line.level for x, _ in line.points)
    heights = [y for line in figure.lines for _, y in line.points]
    edges = [edge for line in figure.lines for low_high in line.band for edge in low_high]
    up = Axis.of((y for y in heights + edges if y <= figure.top), figure.log_y, figure.zero_y)
    styles = _styles(figure.lines)
    longest = max(map(len, styles), default=0)
    named = longest <= NAME and len(styles) <= NAMES
    plot = _Plot(Axis.of(widths, figure.log_x, zero=True), up, WIDTH - (24 + LETTER * longest if named else RIGHT))
    parts = [*_grid(plot, figure.x, figure.y)]
    ends: dict[str, tuple[float, float]] = {}  # where the strong line of each name ends
    for line in sorted(figure.lines, key=lambda line: (not line.faint, line.name == figure.best)):  # the best on top
        path = _path(line, plot)
        parts += _drawn(line, path, plot, styles[line.name], line.name == figure.best)
        if path and line.name and not line.faint:
            ends[line.name] = path[-1]
    if named:
        parts += _names(ends, plot, styles, figure.best)
    legend = (
        ""
        if named and ends.keys() == styles.keys() - {""}
        else _legend(styles, {n.name for n in figure.lines if n.level})
    )
    return _figure(figure, parts, HEIGHT + _more(figure.x), legend)


def _path(line: Line, plot: _Plot) -> Path:
    if line.level:
        heights = [plot.y(y) for _, y in line.points[:1] if plot.up.holds(y)]
        return [(float(x), height) for height in heights for x in (plot.left, plot.right)]
    held = [(x, y) for x, y in line.points if plot.across.holds(x) and plot.up.holds(y)]
    return _entering([(plot.x(x), plot.y(y)) for x, y in held])


def _drawn(line: Line, path: Path, plot: _Plot, style: Style, best: bool) -> Iterable[str]:
    colour, dash, mark = style
    yield from _band(line, plot, colour)
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    width = 3.5 if best else 2
    strength = 'stroke-width="1" stroke-opacity="0.4"' if line.faint else f'stroke-width="{width}"{dashes}'
    if line.joined:
        points = " ".join(f"{a:.1f},{b:.1f}" for a, b in path)
        yield f'<polyline points="{points}" fill="none" stroke="{colour}" {strength}/>'
    if not (line.level or line.faint):
        measured = [(a, b) for a, b in path if b > TOP]  # without the point where it enters
        every = max(1, round(len(measured) / MARKS)) if line.joined else 1
        yield from (_mark(mark, a, b, colour, 1 if line.joined else 1.5) for a, b in measured[::-every])


def _names(ends: dict[str, tuple[float, float]], plot: _Plot, styles: dict[str, Style], best: str) -> Iterable[str]:
    """Each name to the right of the end of its line, in this order from top to bottom, without overlaps."""
    order = sorted(ends, key=lambda name: ends[name][1])
    at, free = {}, -math.inf
    for name in order:
        at[name] = max(ends[name][1], free)
        free = at[name] + APART
    free = float(HEIGHT - BOTTOM)
    for name in reversed(order):  # if too many end low, move them up again
        at[name] = min(at[name], free)
        free = at[name] - APART
    for name, y in at.items():
        x, height = ends[name]
        bold = ' font-weight="700"' if name == best else ""
        yield (
            f'<path d="M{x + 4:.1f} {height:.1f}L{plot.right + 6:.1f} {y:.1f}h8" fill="none" '
            f'stroke="{styles[name][0]}" stroke-width="1.5" stroke-opacity="0.7"/>'
            f'<text x="{plot.right + 18:.1f}" y="{y + 6:.1f}"{bold}>{_words(name)}</text>'
        )


def _entering(path: Path) -> Path:
    """The path from its last entry at the upper edge."""
    above = [index for index, (_, height) in enumerate(path) if height < TOP]
    if not above:
        return path
    outside, *inside = path[above[-1] :]
    if not inside:
        return []
    (x0, y0), (x1, y1) = outside, inside[0]
    return [(x0 + (x1 - x0) * (TOP - y0) / (y1 - y0), float(TOP)), *inside]


def _band(line: Line, plot: _Plot, colour: str) -> Iterable[str]:
    """The area between lower and upper edge, cut at the upper edge of the plot; the lower one holds all."""

    def height(y: float, missing: float) -> float:
        return max(float(TOP), plot.y(y)) if plot.up.holds(y) else missing

    held = [(x, edges) for (x, _), edges in zip(line.points, line.band) if plot.across.holds(x)]
    if held:
        upper = [(plot.x(x), height(high, float(TOP))) for x, (_, high) in held]
        lower = [(plot.x(x), height(low, float(HEIGHT - BOTTOM))) for x, (low, _) in reversed(held)]
        points = " ".join(f"{a:.1f},{b:.1f}" for a, b in upper + lower)
        yield f'<polygon points="{points}" fill="{colour}" fill-opacity="0.18" stroke="none"/>'


def _grid(plot: _Plot, x: str, y: str) -> Iterable[str]:
    for value in plot.up.ticks:
        at = plot.y(value)
        yield f'<line class="grid" stroke="{GRID}" x1="{plot.left}" x2="{plot.right}" y1="{at:.1f}" y2="{at:.1f}"/>'
        yield f'<text x="{plot.left - 8}" y="{at + 6:.1f}" text-anchor="end">{number(value)}</text>'
    for value in apart(plot.across.ticks, plot.x, NEAREST):
        at = plot.x(value)
        yield f'<line class="grid" stroke="{GRID}" x1="{at:.1f}" x2="{at:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>'
        yield f'<text x="{at:.1f}" y="{HEIGHT - BOTTOM + 24}" text-anchor="middle">{number(value)}</text>'
    yield _below(x, plot.left, HEIGHT - 8)
    yield f'<text x="2" y="22">{_words(y)}</text>'  # horizontal, above the tick labels


# -- intervals -------------------------------------------------------------------------------------------------------


def _intervals(figure: Intervals) -> str:
    """One row for each name: a dot at its value and a bar over its interval; the threshold is a dashed line."""
    against = [] if figure.threshold is None else [figure.threshold]
    values = [value for mark in figure.marks for value in (mark.low, mark.value, mark.high)] + against
    finite = [value for value in values if math.isfinite(value)] or [0.0]
    axis = Axis.of(values, figure.log_x, zero=min(finite) < 0.5 * max(finite))
    head = ROW if against else 0
    bottom = head + ROW * len(figure.marks)
    left = min(320, 18 + LETTER * max((len(mark.name) for mark in figure.marks), default=4))
    place = axis.onto(left, WIDTH - RIGHT)
    parts = []
    for value in apart(axis.ticks, place, NEAREST):
        at = f"{place(value):.1f}"
        parts.append(f'<line class="grid" stroke="{GRID}" x1="{at}" x2="{at}" y1="{head}" y2="{bottom}"/>')
        parts.append(f'<text x="{at}" y="{bottom + 24}" text-anchor="middle">{number(value)}</text>')
    middle = (left + WIDTH - RIGHT) / 2
    parts.append(_below(figure.x, left, bottom + BOTTOM - 10))
    for value in (value for value in against if axis.holds(value)):
        x = place(value)
        anchor, beside = ("end", x - 6) if x > middle else ("start", x + 6)
        parts.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="4" y2="{bottom}" stroke="{AGAINST}" stroke-width="2" '
            f'stroke-dasharray="6 4"/><text x="{beside:.1f}" y="20" text-anchor="{anchor}">'
            f"{_words(figure.threshold_name)} {number(value)}</text>"
        )
    for row, mark in enumerate(figure.marks):
        parts += _interval(mark, axis, left, head + ROW // 2 + ROW * row, mark.name == figure.best)
    return _figure(figure, parts, bottom + BOTTOM + _more(figure.x), "")


def _interval(mark: Mark, axis: Axis, left: float, middle: float, best: bool) -> Iterable[str]:
    """An interval that extends beyond the axis is drawn to the axis's end."""
    place = axis.onto(left, WIDTH - RIGHT)
    bold = ' font-weight="700"' if best else ""
    yield f'<text x="{left - 12}" y="{middle + 6}" text-anchor="end"{bold}>{_words(mark.name)}</text>'
    if not (math.isnan(mark.low) or math.isnan(mark.high)):
        low, high = place(axis.nearest(mark.low)), place(axis.nearest(mark.high))
        yield (
            f'<line x1="{low:.1f}" x2="{high:.1f}" y1="{middle}" y2="{middle}" stroke="{BAR}" stroke-width="6" '
            'stroke-linecap="round"/>'
        )
    if axis.holds(mark.value):
        yield f'<circle cx="{place(mark.value):.1f}" cy="{middle}" r="4.5" fill="{DOT}"/>'


def _below(words: str, left: float, y: float) -> str:
    """An axis title, centered below the axis, or below the figure if long; wrapped if longer."""
    lines = wrap(legible(words), MAX_LINE_LETTERS) or [""]
    middle = (left + WIDTH - RIGHT) / 2 if len(words) * LETTER < WIDTH - left else WIDTH / 2
    return "".join(
        f'<text x="{middle:.1f}" y="{y + NEXT * row:.1f}" text-anchor="middle">{escape(line)}</text>'
        for row, line in enumerate(lines)
    )


def _more(words: str) -> float:
    """The height of additional lines."""
    return NEXT * (len(wrap(legible(words), MAX_LINE_LETTERS) or [""]) - 1)


# -- styles ----------------------------------------------------------------------------------------------------------


def _styles(lines: Sequence[Line]) -> dict[str, Style]:
    """Color, dashes and mark of each name, in the order of first appearance; level lines are drawn in ink."""
    levels = list(dict.fromkeys(line.name for line in lines if line.level))
    others = list(dict.fromkeys(line.name for line in lines if not line.level))
    styles = {name: (INK, DASHES[1 + index % 3], 0) for index, name in enumerate(levels)}
    for index, name in enumerate(others):
        again = index // len(OKABE_ITO)  # a repeated color has other dashes
        styles[name] = (OKABE_ITO[index % len(OKABE_ITO)], DASHES[(index + again) % len(DASHES)], index % 4)
    return styles


def _mark(kind: int, x: float, y: float, colour: str, size: float = 1.0) -> str:
    side, wide, tall = 5.6 * size, 3.6 * size, 4 * size
    match kind:
        case 0:
            return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{3 * size:g}" fill="{colour}"/>'
        case 1:
            corner = f'x="{x - side / 2:.1f}" y="{y - side / 2:.1f}"'
            return f'<rect {corner} width="{side:g}" height="{side:g}" fill="{colour}"/>'
        case 2:
            return f'<path d="M{x:.1f} {y - tall:.1f}l{wide:g} {1.6 * tall:g}h{-2 * wide:g}z" fill="{colour}"/>'
        case _:
            edge = f"l{tall:g} {tall:g}l{-tall:g} {tall:g}l{-tall:g} {-tall:g}z"
            return f'<path d="M{x:.1f} {y - tall:.1f}{edge}" fill="{colour}"/>'


def _legend(styles: dict[str, Style], levels: set[str]) -> str:
    entries = []
    for name, (colour, dash, mark) in styles.items():
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        key = f'<line x1="0" x2="34" y1="7" y2="7" stroke="{colour}" stroke-width="2"{dashes}/>'
        key += "" if name in levels else _mark(mark, 17, 7, colour)
        drawn = f'<svg width="34" height="14" viewBox="0 0 34 14" aria-hidden="true">{key}</svg>'
        entries.append(f"<li>{drawn} {_words(name)}</li>")
    return f'<ul class="legend">{"".join(entries)}</ul>'


def _words(words: str) -> str:
    return escape(legible(words))


def _figure(figure: Figure, parts: Iterable[str], height: float, legend: str) -> str:
    """The description is the text alternative, for screen readers and for search."""
    title = _words(figure.title)
    return (
        f'<figure data-figure="{as_attribute(figure)}"><svg role="img" fill="currentColor" '
        f'viewBox="0 0 {WIDTH} {height:.0f}" '
        f'preserveAspectRatio="xMidYMid meet"><title>{title}</title><desc>{_words(figure.description)}</desc>'
        f"{''.join(parts)}</svg>"
        f"{legend}<figcaption>{title}</figcaption></figure>"
    )
