"""A heat map as SVG: separate cells with their values if there are few, one small PNG if there are many.

It is drawn at its own size and scrolls on a narrow page, so that its labels stay legible.
"""

from __future__ import annotations

import math
import re
import struct
import zlib
from base64 import b64encode
from collections.abc import Iterable, Sequence
from html import escape

from regard.report.axes import number
from regard.report.colours import GRID, STEPS, Colour, hexadecimal, ink_on, shade, shades
from regard.report.figures import Heat, as_attribute, legible

LETTER, LINE = 7.6, 15.0  # width of a letter and height of a line, in the small letters of a heat map
MAX_CELL, MIN_CELL = 46.0, 4.0  # sides of a cell
WIDEST = 720.0  # of the figure, if cells can be small enough
MAX_LABEL_LETTERS = 18  # letters of a label; the rest is in the cell's tooltip
SEPARATE = 1024  # cells that are drawn one by one, each with a tooltip
WRITTEN = 34.0  # a cell this wide has its value written in it
NARROWEST = 220.0  # so that title, scale and axis have room
EDGE = 8.0


def heat_map(heat: Heat) -> str:
    """The matrix, its labels, a scale below, and the caption."""
    left = _room(heat.rows) + (LINE + 6 if heat.y else 0)
    slant = 0.6 * _room(heat.columns[-1:])  # how far a rotated label extends beyond its column
    width, height = _sides(heat, WIDEST - left - slant - EDGE)
    turned = max(map(len, heat.columns), default=0) * LETTER > width - 4
    top = (_room(heat.columns) if turned else LINE + 4) + (LINE + 6 if heat.x else 0)
    across, down = width * len(heat.columns), height * len(heat.rows)
    whole = left + max(across + (slant if turned else 0), NARROWEST) + EDGE
    few = len(heat.rows) * len(heat.columns) <= SEPARATE
    cells = _separate if few else _picture
    parts = [
        *_labels(heat, left, top, width, height, turned),
        f'<g transform="translate({left:.1f} {top:.1f})">{"".join(cells(heat, width, height))}</g>',
        f'<rect x="{left:.1f}" y="{top:.1f}" width="{across:.1f}" height="{down:.1f}" fill="none" class="grid" '
        f'stroke="{GRID}"/>',
        *_scale(heat, left, top + down + 16, min(280.0, max(NARROWEST, across) - 10)),
    ]
    data = f' data-figure="{as_attribute(heat)}"' if few else ""  # a large one stays a picture
    title, tall = escape(legible(heat.title)), top + down + 16 + 2.8 * LINE + (LINE if heat.z else 0)
    return (
        f"<figure{data}>"
        '<div class="scroll" tabindex="0" role="region" aria-label="heat map">'
        f'<svg class="heat" role="img" fill="currentColor" font-size="13" width="{whole:.0f}" height="{tall:.0f}" '
        f'viewBox="0 0 {whole:.0f} {tall:.0f}"><title>{title}</title><desc>{escape(legible(heat.description))}</desc>'
        f"{''.join(parts)}</svg>"
        f"</div><figcaption>{title}</figcaption></figure>"
    )


def _sides(heat: Heat, room: float) -> tuple[float, float]:
    """Width and height of a cell: a square, but rows of a long strip get a minimum height."""
    most = max(len(heat.rows), len(heat.columns), 1)
    square = min(MAX_CELL, max(MIN_CELL, room / most))
    return square, square if 4 * len(heat.rows) > most else min(MAX_CELL, max(square, 18.0))


def _room(labels: Sequence[str]) -> float:
    return LETTER * min(MAX_LABEL_LETTERS, max(map(len, labels), default=0)) + 8


def _short(label: str) -> str:
    label = legible(label)
    return escape(label if len(label) <= MAX_LABEL_LETTERS else label[: MAX_LABEL_LETTERS - 1] + "…")


# -- cells -----------------------------------------------------------------------------------------------------------


def _separate(heat: Heat, width: float, height: float) -> Iterable[str]:
    written, largest = width >= WRITTEN, max(map(abs, heat.scale))
    for row, values in enumerate(heat.values):
        for column, value in enumerate(values):
            if not math.isfinite(value):
                continue
            colour = shade(heat.share(value), heat.diverging)
            x, y = width * _at(heat, column), height * row
            told = escape(f"{legible(heat.rows[row])} · {legible(heat.columns[column])}: {value:.4g}")
            yield (
                f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" '
                f'fill="{hexadecimal(colour)}"><title>{told}</title></rect>'
            )
            if written:
                yield (
                    f'<text x="{x + width / 2:.1f}" y="{y + height / 2 + 4:.1f}" text-anchor="middle" '
                    f'pointer-events="none" fill="{ink_on(colour)}">'
                    f"{_brief(value, largest)}</text>"
                )


def _at(heat: Heat, column: int) -> int:
    """The place of a column: right to left for such scripts."""
    return len(heat.columns) - 1 - column if heat.leftward else column


def _brief(value: float, largest: float) -> str:
    """As many digits as a cell has room for, the same in all cells: 0.07, 12, 3e5."""
    if value and not 0.1 <= largest < 9999.5:
        words = re.sub(r"e\+?(-?)0*", r"e\1", f"{value:.0e}")
    else:
        words = f"{value:.2f}" if largest < 9.995 else f"{value:.3g}"
    return "0" if not words.strip("-0.") else words.replace("-", "−")


def _picture(heat: Heat, width: float, height: float) -> Iterable[str]:
    """One pixel for each cell; an empty cell is transparent."""
    last = STEPS - 1
    rows = [bytes(1 + round(heat.share(v) * last) if math.isfinite(v) else 0 for v in row) for row in heat.values]
    rows = [row[::-1] for row in rows] if heat.leftward else rows
    yield _image(rows, heat.diverging, width * len(heat.columns), height * len(heat.rows))


def _image(rows: Sequence[bytes], diverging: bool, width: float, height: float) -> str:
    """One image for light and one for dark pages; CSS shows one of them."""
    size = f'width="{width:.1f}" height="{height:.1f}" preserveAspectRatio="none" image-rendering="pixelated"'
    return "".join(
        f'<image class="{screen}" {size} href="data:image/png;base64,{b64encode(png(rows, palette)).decode()}"/>'
        for screen, palette in (
            (screen, [(0, 0, 0), *shades(diverging, screen == "dark")]) for screen in ("light", "dark")
        )
    )


def png(rows: Sequence[bytes], palette: Sequence[Colour]) -> bytes:
    """A picture of one byte for each pixel, the number of a color of the palette; the first of them is transparent."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    size = struct.pack(">IIBBBBB", len(rows[0]), len(rows), 8, 3, 0, 0, 0)  # eight bits, by palette
    return b"".join(
        [
            b"\x89PNG\r\n\x1a\n",
            chunk(b"IHDR", size),
            chunk(b"PLTE", b"".join(map(bytes, palette))),
            chunk(b"tRNS", b"\0"),
            chunk(b"IDAT", zlib.compress(b"".join(b"\0" + row for row in rows), 9)),
            chunk(b"IEND", b""),
        ]
    )


# -- around them -----------------------------------------------------------------------------------------------------


def _labels(heat: Heat, left: float, top: float, width: float, height: float, turned: bool) -> Iterable[str]:
    """Labels of rows and columns (only every second, third, … if they would touch), and the titles of both."""
    for index in range(0, len(heat.rows), math.ceil(LINE / height)):
        y = top + height * (index + 0.5) + 4.5
        yield f'<text x="{left - 6:.1f}" y="{y:.1f}" text-anchor="end">{_short(heat.rows[index])}</text>'
    for index in range(0, len(heat.columns), math.ceil(LINE / width) if turned else 1):
        x, y = left + width * (_at(heat, index) + 0.5), top - 6
        place = (
            f'transform="translate({x + 4:.1f} {y:.1f}) rotate(-60)"'
            if turned
            else f'x="{x:.1f}" y="{y:.1f}" text-anchor="middle"'
        )
        yield f"<text {place}>{_short(heat.columns[index])}</text>"
    if heat.x:
        way = "←" if heat.leftward else "→"
        yield f'<text class="quiet" x="{left:.1f}" y="{LINE:.1f}">{escape(legible(heat.x))} {way}</text>'
    if heat.y:
        middle = top + height * len(heat.rows) / 2
        yield (
            f'<text class="quiet" text-anchor="middle" transform="translate({LINE - 2:.1f} {middle:.1f}) rotate(-90)">'
            f"← {escape(legible(heat.y))}</text>"
        )


def _scale(heat: Heat, left: float, top: float, width: float) -> Iterable[str]:
    """The colors from the low end to the high end, with their values."""
    bar = _image([bytes(range(1, STEPS + 1))], heat.diverging, width, 10)
    yield f'<g transform="translate({left:.1f} {top:.1f})">{bar}</g>'
    for share, anchor in ((0.0, "start"), (0.5, "middle"), (1.0, "end")):
        value = heat.at(share)
        yield (
            f'<text x="{left + share * width:.1f}" y="{top + 10 + LINE:.1f}" text-anchor="{anchor}">'
            f"{number(float(f'{value:.3g}'))}</text>"
        )
    if heat.z:
        yield f'<text class="quiet" x="{left:.1f}" y="{top + 10 + 2 * LINE:.1f}">{escape(legible(heat.z))}</text>'
