"""Figures as lines of text: a heat map in shades, lines in Braille dots with marks at points, intervals as ├──●──┤.

With color, shades are those of the page; without color, ░▒▓█ replace them, with a sign for the side of a diverging
scale.
"""

from __future__ import annotations

import math
import os
import re
import shutil
import sys
from collections.abc import Iterable, Sequence
from itertools import groupby, pairwise
from unicodedata import category

from rich.cells import cell_len, set_cell_size

from regard.report.axes import Axis, apart, number
from regard.report.colours import OKABE_ITO, Colour, ink_on, shade
from regard.report.figures import Figure, Heat, Intervals, Line, Lines, Mark, isolated, legible

WIDEST, NARROWEST = 100, 40  # default columns of a figure
UNLIMITED = 1 << 20  # columns of output that is not a terminal: nothing is cut or wrapped
TALL = 14  # lines of a line chart
LETTERS = 10  # of a heading from top to bottom
SHADES = " ░▒▓█"
MARKS, LEVEL = "●■▲◆○□△◇", "┄"
MARKED = 12  # points of a line, about
RESET = "\x1b[0m"
LEVELS = (0, 95, 135, 175, 215, 255)  # of red, green and blue in a terminal of 216 colors


def terminal(figure: Figure, width: int | None = None, colour: bool | None = None) -> str:
    """The figure as text of at most `width` columns; by default the terminal's width."""
    width = max(NARROWEST, width or min(WIDEST, shutil.get_terminal_size().columns))
    colour = _is_coloured() if colour is None else colour
    match figure:
        case Lines():
            lines = _lines(figure, width, colour)
        case Intervals():
            lines = _intervals(figure, width, colour)
        case Heat():
            lines = _heat(figure, width, colour)
    return "\n".join([_cut(figure.title, width), *(line.rstrip() for line in lines)])


def _is_coloured() -> bool:
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


# -- heat maps -------------------------------------------------------------------------------------------------------


def _heat(heat: Heat, width: int, colour: bool) -> Iterable[str]:
    """As many columns as fit the width, with the next ones below."""
    names = min(width // 3, max((cell_len(legible(row)) for row in heat.rows), default=0))
    narrow = 2 if heat.diverging and not colour else 1
    room = width - names - 2
    widest = max((cell_len(legible(column)) for column in heat.columns), default=0) + 1 if width >= UNLIMITED else 0
    cell = max(narrow, min(max(7, widest), room // max(1, len(heat.columns))))
    each = room // cell
    longest = max((len(_brief(value)) for row in heat.values for value in row if math.isfinite(value)), default=0)
    written = longest <= cell - 2
    if heat.x or heat.y:
        across = "←" if heat.leftward else "→"
        yield _cut("  ".join(f"{name} {way}" for name, way in ((heat.y, "↓"), (heat.x, across)) if name), width)
    for first in range(0, max(1, len(heat.columns)), each):
        some: Sequence[int] = range(first, min(first + each, len(heat.columns)))
        some = some[::-1] if heat.leftward else some
        yield from _headings([legible(heat.columns[index]) for index in some], cell, names)
        for row, values in zip(heat.rows, heat.values):
            shown = "".join(_cell(heat, values[index], cell, colour, written) for index in some)
            yield f"{_right(row, names)} │{shown}{RESET * colour}"
    yield from _key(heat, width, colour)


def _headings(labels: Sequence[str], cell: int, names: int) -> Iterable[str]:
    """Horizontal labels if all fit above their cells, else vertical ones."""
    before, labels = " " * (names + 2), [label.strip() for label in labels]
    if all(cell_len(label) < cell for label in labels):
        yield before + "".join(_centred(isolated(label), cell) for label in labels)
        return
    letters = [_letters(label) for label in labels]
    tall = min(LETTERS, max(map(len, letters)))
    letters = [some if len(some) <= tall else [*some[: tall - 1], "…"] for some in letters]
    for line in range(tall):
        signs = (([" "] * (tall - len(some)) + some)[line] for some in letters)
        yield before + "".join(_centred(sign if cell_len(sign) <= cell else "?", cell) for sign in signs)


def _letters(words: str) -> list[str]:
    """Letters with the marks that belong to them."""
    letters: list[str] = []
    for sign in words:
        if letters and category(sign) in ("Mn", "Mc", "Me", "Cf"):
            letters[-1] += sign
        else:
            letters.append(sign)
    return letters


def _cell(heat: Heat, value: float, cell: int, colour: bool, written: bool = False) -> str:
    """A shade, and the value if all cells are wide enough."""
    if not math.isfinite(value):
        return (RESET if colour else "") + _centred("·", cell)
    share = heat.share(value)
    words = _brief(value) if written else ""
    if colour:
        return _background(shade(share, heat.diverging)) + _centred(words, cell)
    block = SHADES[min(len(SHADES) - 1, int(_strength(share, heat.diverging) * len(SHADES)))]
    if written:
        return f"{block}{words}".ljust(cell)
    sign = "" if not heat.diverging else "−" if value < 0 else "+" if value > 0 else " "
    return (sign + block * (cell - len(sign) - (cell > 2))).ljust(cell)


def _brief(value: float) -> str:
    """Two digits after the point, and no zero before it."""
    return re.sub(r"^(-?)0\.", r"\1.", f"{value:.2f}").replace("-", "−")


def _strength(share: float, diverging: bool) -> float:
    return abs(2 * share - 1) if diverging else share


def _key(heat: Heat, width: int, colour: bool) -> Iterable[str]:
    """The scale, from its low end to its high end, with its unit."""
    low, high = heat.scale
    steps = [step / 8 for step in range(9)]
    cells = "".join(_cell(heat, heat.at(share), 2, colour) for share in steps) + RESET * colour
    ends = f"{number(float(f'{low:.3g}'))} ", f" {number(float(f'{high:.3g}'))}"
    left = width - 18 - len("".join(ends))
    yield f"{ends[0]}{cells}{ends[1]}{_cut('  ' + heat.z, left) if heat.z and left > 4 else ''}"


# -- lines -----------------------------------------------------------------------------------------------------------


def _lines(figure: Lines, width: int, colour: bool) -> Iterable[str]:
    across = Axis.of((p[0] for line in figure.lines if not line.level for p in line.points), figure.log_x, zero=True)
    up = Axis.of(
        (p[1] for line in figure.lines for p in line.points if p[1] <= figure.top), figure.log_y, figure.zero_y
    )
    margin = max(len(number(tick)) for tick in up.ticks)
    canvas = _Canvas(width - margin - 2, TALL)
    names = list(dict.fromkeys(line.name for line in figure.lines))
    for line in sorted(figure.lines, key=lambda line: not line.faint):
        canvas.draw(line, names.index(line.name), across, up)
    yield _cut(figure.y, width)
    place = up.onto(TALL - 0.5, 0.5)
    ticks = {math.floor(place(tick)): number(tick) for tick in reversed(up.ticks)}
    for row, drawn in enumerate(canvas.rows(colour)):
        yield f"{ticks.get(row, ''):>{margin}} {'┤' if row in ticks else '│'}{drawn}"
    yield from _axis(across, figure.x, margin + 2, width)
    levels = {line.name for line in figure.lines if line.level}
    for index, name in enumerate(names):
        mark = LEVEL if name in levels else MARKS[index % len(MARKS)]
        yield f"{_painted(mark, index) if colour else mark} {_cut(name, width - 2)}"


class _Canvas:
    """Dots of Braille, two across and four down in each character, and marks over them."""

    DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))

    def __init__(self, width: int, height: int):
        self.width, self.height = width, height
        self.dots: dict[tuple[int, int], int] = {}  # (row, column) → dots of that character
        self.marks: dict[tuple[int, int], str] = {}
        self.owner: dict[tuple[int, int], int] = {}  # whose color

    def draw(self, line: Line, index: int, across: Axis, up: Axis) -> None:
        place_x, place_y = across.onto(0.5, 2 * self.width - 1.5), up.onto(4 * self.height - 2, 2)
        if line.level:
            heights = [place_y(y) for _, y in line.points[:1] if up.holds(y)]
            path = [(float(x), height) for height in heights for x in (0, 2 * self.width - 1)]
        else:
            held = [(x, y) for x, y in line.points if across.holds(x) and up.holds(y)]
            path = [(place_x(x), place_y(y)) for x, y in held]
        if line.joined:
            for start, stop in pairwise(path):
                self._join(start, stop, index)
        every = max(1, round(len(path) / MARKED)) if line.joined else 1
        for x, y in () if line.level or line.faint else path[::-every]:
            cell = int(y // 4), int(x // 2)  # above the top, the row is negative, and is not shown
            self.marks[cell], self.owner[cell] = MARKS[index % len(MARKS)], index

    def _join(self, start: tuple[float, float], stop: tuple[float, float], index: int) -> None:
        (x0, y0), (x1, y1) = start, stop
        y0, y1 = (max(y, -4.0 * self.height) for y in (y0, y1))  # clip far values
        steps = max(1, math.ceil(max(abs(x1 - x0), abs(y1 - y0))))
        for step in range(steps + 1):
            x, y = x0 + (x1 - x0) * step / steps, y0 + (y1 - y0) * step / steps
            cell = int(y // 4), int(x // 2)
            self.dots[cell] = self.dots.get(cell, 0) | self.DOTS[int(y) % 4][int(x) % 2]
            if cell not in self.marks:
                self.owner[cell] = index

    def rows(self, colour: bool) -> Iterable[str]:
        for row in range(self.height):
            cells = [(row, column) for column in range(self.width)]
            parts = []
            for owner, some in groupby(cells, lambda cell: self.owner.get(cell)):
                signs = "".join(self.marks.get(cell) or chr(0x2800 + self.dots.get(cell, 0)) for cell in some)
                signs = signs.replace(chr(0x2800), " ")
                parts.append(_painted(signs, owner) if colour and owner is not None else signs)
            yield "".join(parts)


def _axis(axis: Axis, name: str, left: int, width: int) -> Iterable[str]:
    """The line below a plot, its numbers, and its label."""
    place = axis.onto(left, width - 1)
    ruler, numbers = [" "] * (left - 1) + ["└"] + ["─"] * (width - left), ""
    for tick in apart(axis.ticks, place, 9):
        at, words = round(place(tick)), number(tick)
        begin = max(0, min(width - len(words), at - len(words) // 2))
        if begin > len(numbers) or not numbers:  # else it would touch the number before it
            ruler[at], numbers = "┴", numbers.ljust(begin) + words
    yield "".join(ruler)
    yield numbers
    yield " " * left + _cut(f"{name}{' (logarithmic)' * axis.log}", width - left)


# -- intervals -------------------------------------------------------------------------------------------------------


def _intervals(figure: Intervals, width: int, colour: bool) -> Iterable[str]:
    against = [] if figure.threshold is None else [figure.threshold]
    values = [value for mark in figure.marks for value in (mark.low, mark.value, mark.high)] + against
    finite = [value for value in values if math.isfinite(value)] or [0.0]
    axis = Axis.of(values, figure.log_x, zero=min(finite) < 0.5 * max(finite))
    names = min(width // 3, max((cell_len(legible(mark.name)) for mark in figure.marks), default=0))
    left = names + 2
    place = axis.onto(left, width - 1)
    threshold = next((round(place(value)) for value in against if axis.holds(value)), None)
    if threshold is not None:
        words = _cut(f"{figure.threshold_name} {number(against[0])} ┊", width)
        yield " " * (threshold + 1 - cell_len(words)) + words
    for mark in figure.marks:
        row = _interval(mark, axis, left, width)
        if threshold is not None and row[threshold] in " ─":
            row[threshold] = "┊" if row[threshold] == " " else "┼"
        bar = "".join(row[left:])
        yield f"{_right(mark.name, names)}  {_painted(bar, 0) if colour else bar}"
    yield from _axis(axis, figure.x, left, width)


def _interval(mark: Mark, axis: Axis, left: int, width: int) -> list[str]:
    """One line's signs; an interval that extends beyond the axis has no end mark there."""
    place = axis.onto(left, width - 1)
    row = [" "] * width
    if not (math.isnan(mark.low) or math.isnan(mark.high)):
        low, high = (round(place(axis.nearest(end))) for end in (mark.low, mark.high))
        row[low : high + 1] = "─" * (high + 1 - low)
        if axis.holds(mark.low):
            row[low] = "├"
        if axis.holds(mark.high):
            row[high] = "┤"
    if axis.holds(mark.value):
        row[round(place(mark.value))] = "●"
    return row


# -- signs and colors -----------------------------------------------------------------------------------------------


def _cut(words: str, width: int) -> str:
    words = legible(words)
    return words if cell_len(words) <= width else set_cell_size(words, width - 1) + "…"


def _right(words: str, width: int) -> str:
    words = _cut(words, width)
    return " " * (width - cell_len(words)) + isolated(words)


def _centred(words: str, width: int) -> str:
    free = width - cell_len(words)
    return " " * ((free + 1) // 2) + words + " " * (free // 2)


def _painted(words: str, index: int) -> str:
    red, green, blue = bytes.fromhex(OKABE_ITO[index % len(OKABE_ITO)][1:])
    return f"\x1b[38;{_code((red, green, blue))}m{words}{RESET}"


def _background(colour: Colour) -> str:
    ink = 30 if ink_on(colour) == "black" else 97
    return f"\x1b[{ink};48;{_code(colour)}m"


def _code(colour: Colour) -> str:
    """The terminal's code for a color: exact if it supports true color, else the nearest of 216."""
    if os.environ.get("COLORTERM") in ("truecolor", "24bit"):
        return "2;{};{};{}".format(*colour)
    red, green, blue = (min(range(6), key=lambda n: abs(part - LEVELS[n])) for part in colour)
    return f"5;{16 + 36 * red + 6 * green + blue}"
