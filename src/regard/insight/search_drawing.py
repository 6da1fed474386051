"""Beam search as a drawing: a column per step with its candidates, the most probable first, each with its conditional
probability. Lines connect a candidate to its parent; a thick line is the best hypothesis."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from html import escape

from regard.insight.trace import Branch
from regard.insight.words import visible
from regard.report.colours import EDGE, OKABE_ITO

ACROSS, DOWN, MARGIN = 156, 24, 10
LONGEST = 11  # letters of a word; the tooltip has all of it
LETTER = 7.0  # width of a letter, about
PRUNED = 3  # pruned candidates drawn per step
BEST = OKABE_ITO[3]


def search_drawing(branches: Sequence[Branch]) -> str:
    """The tree, with the best pruned candidates of each step."""
    every, branches = branches, _drawn(branches)
    places = _places(branches)
    winners = _path(branches, next((n for n, branch in enumerate(branches) if branch.rank == 1), -1))
    width = ACROSS * max(branch.step for branch in branches) + 2 * MARGIN
    height = max(y for _, y in places) + DOWN
    ended = sorted((branch for branch in branches if branch.rank), key=lambda branch: branch.rank)
    log = f"{ended[0].log_probability:.2f}".replace("-", "−") if ended else ""
    best = f"; the best has log-probability {log}" if ended else ""
    steps, left = max(branch.step for branch in every), len(every) - len(branches)
    described = f"{len(every)} beginnings in {steps} steps, {len(ended)} hypotheses{best}."
    caption = described + (f" {left} beginnings that were pruned are not drawn." if left else "")
    parts = [*_edges(branches, places, winners), *_nodes(branches, places, winners)]
    return (
        '<figure style="max-width:none"><div class="scroll" tabindex="0" role="region" aria-label="tree of the search">'
        f'<svg class="search" role="img" fill="currentColor" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}"><title>Beam search</title><desc>{described}</desc>{"".join(parts)}</svg>'
        f"</div><figcaption>{caption}</figcaption></figure>"
    )


def _drawn(branches: Sequence[Branch]) -> list[Branch]:
    """Kept branches, and the most probable pruned ones of each step; a pruned branch has no children."""
    pruned: dict[int, list[Branch]] = {}
    for branch in branches:
        if not branch.kept:
            pruned.setdefault(branch.step, []).append(branch)
    best = {
        id(branch)
        for some in pruned.values()
        for branch in sorted(some, key=lambda branch: -branch.log_probability)[:PRUNED]
    }
    chosen = [number for number, branch in enumerate(branches) if branch.kept or id(branch) in best]
    place = {number: at for at, number in enumerate(chosen)} | {-1: -1}
    return [replace(branches[number], parent=place[branches[number].parent]) for number in chosen]


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
        start, stop = min(x0 + LETTER * len(" ".join(_words(branches, branch.parent))) + 6, x1 - 24), x1 - 4
        stroke = f'stroke="{BEST}" stroke-width="3"' if number in winners else f'stroke="{EDGE}" stroke-width="1"'
        faint = "" if branch.kept else ' stroke-dasharray="3 3" class="pruned"'
        bend = (start + stop) / 2
        yield (f'<path d="M{start:.0f} {y0}C{bend:.0f} {y0} {bend:.0f} {y1} {stop} {y1}" fill="none" {stroke}{faint}/>')


def _words(branches: Sequence[Branch], number: int) -> tuple[str, str]:
    """A branch's word with its rank, and its conditional probability."""
    branch = branches[number]
    before = branches[branch.parent].log_probability if branch.parent >= 0 else 0.0
    word = visible(branch.token)
    share = 100 * math.exp(min(0.0, branch.log_probability - before))
    chance = f"{share:.0f} %" if share >= 9.95 else f"{share:.1g} %" if share >= 0.01 else "<0.01 %"
    rank = f"#{branch.rank} " if branch.rank else ""
    return rank + (word if len(word) <= LONGEST else word[: LONGEST - 1] + "…"), chance


def _nodes(branches: Sequence[Branch], places: Sequence[tuple[int, int]], winners: set[int]) -> Iterable[str]:
    for number, branch in enumerate(branches):
        x, y = places[number]
        word, chance = _words(branches, number)
        told = f"{visible(branch.token)}: log-probability of the beginning {branch.log_probability:.3f}, "
        told += "kept" if branch.kept else "pruned"
        told += f", hypothesis {branch.rank}" if branch.rank else ""
        told += f", score {branch.score:.3f}" if branch.score is not None else ""
        weight = ' font-weight="700"' if number in winners or branch.rank else ""
        faint = "" if branch.kept else ' class="pruned"'
        yield (
            f'<text x="{x}" y="{y + 4}"{weight}{faint}>{escape(word)} <tspan>{escape(chance)}</tspan>'
            f"<title>{escape(told)}</title></text>"
        )
