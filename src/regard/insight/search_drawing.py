"""Beam search as a drawing: a column for each step, in it the beginnings that were thought of, from the most probable
down; a line leads from each to what it continues, and the thick one to the best hypothesis."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from regard.insight.trace import Branch
from regard.report.colours import OKABE_ITO
from regard.report.figures import legible

ACROSS, DOWN, MARGIN = 118, 22, 10
LONGEST = 8  # letters of a word; all of it is in the tooltip
BEST = OKABE_ITO[3]


def search_drawing(branches: Sequence[Branch]) -> str:
    places = _places(branches)
    winners = _path(branches, next((n for n, branch in enumerate(branches) if branch.rank == 1), -1))
    width = ACROSS * max(branch.step for branch in branches) + 2 * MARGIN
    height = max(y for _, y in places) + DOWN
    ended = sorted((branch for branch in branches if branch.rank), key=lambda branch: branch.rank)
    best = f"; the best has log-probability {ended[0].log_probability:.2f}" if ended else ""
    described = f"{len(branches)} beginnings in {max(b.step for b in branches)} steps, {len(ended)} hypotheses{best}."
    parts = [*_edges(branches, places, winners), *_nodes(branches, places, winners)]
    return (
        '<figure style="max-width:none"><div class="scroll" tabindex="0" role="region" aria-label="tree of the search">'
        f'<svg class="search" role="img" fill="currentColor" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}"><title>Beam search</title><desc>{described}</desc>{"".join(parts)}</svg>'
        "</div></figure>"
    )


def _places(branches: Sequence[Branch]) -> list[tuple[int, int]]:
    """Left end and middle of each: kept ones above pruned ones, each by probability."""
    by_step: dict[int, list[int]] = {}
    for number, branch in enumerate(branches):
        by_step.setdefault(branch.step, []).append(number)
    places = [(0, 0)] * len(branches)
    for step, numbers in by_step.items():
        numbers.sort(key=lambda n: (not branches[n].kept, -branches[n].log_probability))
        for row, number in enumerate(numbers):
            places[number] = MARGIN + ACROSS * (step - 1), MARGIN + DOWN * row + DOWN // 2
    return places


def _path(branches: Sequence[Branch], number: int) -> set[int]:
    found = set()
    while number >= 0:
        found.add(number)
        number = branches[number].parent
    return found


def _edges(branches: Sequence[Branch], places: Sequence[tuple[int, int]], winners: set[int]) -> Iterable[str]:
    for number, branch in enumerate(branches):
        if branch.parent < 0:
            continue
        (x0, y0), (x1, y1) = places[branch.parent], places[number]
        start, stop = x0 + ACROSS - 34, x1 - 4
        stroke = f'stroke="{BEST}" stroke-width="3"' if number in winners else 'stroke="#888" stroke-width="1"'
        faint = "" if branch.kept else ' stroke-dasharray="3 3" class="pruned"'
        yield f'<path d="M{start} {y0}C{start + 18} {y0} {stop - 18} {y1} {stop} {y1}" fill="none" {stroke}{faint}/>'


def _nodes(branches: Sequence[Branch], places: Sequence[tuple[int, int]], winners: set[int]) -> Iterable[str]:
    for number, branch in enumerate(branches):
        x, y = places[number]
        word = legible(branch.token)
        short = word.strip() or word
        short = short if len(short) <= LONGEST else short[: LONGEST - 1] + "…"
        rank = f" #{branch.rank}" if branch.rank else ""
        told = f"{word}: {branch.log_probability:.3f}, {'kept' if branch.kept else 'pruned'}"
        told += f", hypothesis {branch.rank}" if branch.rank else ""
        told += f", score {branch.score:.3f}" if branch.score is not None else ""
        weight = ' font-weight="700"' if number in winners or branch.rank else ""
        faint = "" if branch.kept else ' class="pruned"'
        yield f'<text x="{x}" y="{y + 4}"{weight}{faint}>{escape(short)}{rank}<title>{escape(told)}</title></text>'
