"""A trace in the terminal: for each step the tokens read, predicted and observed; then shaded attention, gates and
gradients, and beam search as a tree."""

from __future__ import annotations

import math
import shutil
import sys
from collections.abc import Iterable, Sequence
from textwrap import fill

import numpy as np
from rich.cells import cell_len, set_cell_size

from regard.base.numbers import pluralize
from regard.insight.trace import Branch, Trace
from regard.insight.views import figures
from regard.insight.views.steps import steps_of
from regard.insight.words import branch_labels
from regard.report.figures import Figure, isolated, legible
from regard.report.terminal import UNLIMITED, WIDEST, terminal

EXPECTED = 8  # minimum width of the predictions' column
LAYERS = 2  # last layers whose attention is shown, unless one is named


def show(
    trace: Trace,
    *,
    width: int | None = None,
    colour: bool | None = None,
    attention: str | None = None,
    head: int | None = None,
) -> str:
    """The whole trace as text, no wider than `width`; `attention` names one layer ("self/0"), `head` one of its heads.

    Without a width, the text fits the terminal; in a pipe or a file nothing is cut.
    """
    width = width or (min(WIDEST, shutil.get_terminal_size().columns) if sys.stdout.isatty() else UNLIMITED)
    parts = [
        fill(_summary(trace), width),
        "\n".join(_steps(trace, width)),
        *(terminal(figure, width, colour) for figure in _pictures(trace, attention, head)),
        "\n".join(_search(trace.beam, width)),
        *(fill(sentence, width) for sentence in (*trace.notes, _left_out(trace, attention))),
    ]
    return "\n\n".join(part for part in parts if part)


def _summary(trace: Trace) -> str:
    known = trace.probability[np.isfinite(trace.probability)]
    said = f"{trace.system}, {trace.task}: {pluralize(trace.steps, 'step')}"
    if trace.label:
        said += f"; predicted label {legible(trace.label)}"
    if len(known) > 1 and known.min() > 0:
        said += (
            f"; perplexity {math.exp(-np.log(known).mean()):.4g} of the {pluralize(len(known), 'word')} that followed"
        )
    return said


# -- steps -----------------------------------------------------------------------------------------------------------


def _steps(trace: Trace, width: int) -> Iterable[str]:
    """A table whose last column, the predictions, takes the remaining width."""
    rows = [["read", "next word", "prob.", "rank", "entropy", "predictions"]]
    if trace.order is not None:
        rows[0][4:4] = ["order", "back-off"]
    for step in steps_of(trace):
        row = [
            isolated(step.read),
            isolated(step.came),
            "–" if step.probability is None else f"{step.probability:.4f}",
            "–" if step.rank is None else str(step.rank),
        ]
        if step.order is not None:
            row += [str(step.order), f"{step.backoff:.3g}"]
        expected = (f"{isolated(one.label)} {one.probability:.2f}" for one in step.expected)
        rows.append([*row, f"{step.entropy:.2f}", ", ".join(expected)])
    *widths, _ = (max(cell_len(row[column]) for row in rows) for column in range(len(rows[0])))
    widths[:2] = (min(size, width // 6) for size in widths[:2])
    left = width - sum(widths) - 2 * len(widths)
    for row in rows:
        cells = [_cut(cell, size) for cell, size in zip(row, widths)]
        padded = [_left(cell, size) for cell, size in zip(cells[:2], widths)]
        padded += [cell.rjust(size) for cell, size in zip(cells[2:], widths[2:])]
        yield "  ".join([*padded, *([_cut(row[-1], left)] if left >= EXPECTED else [])]).rstrip()


# -- pictures --------------------------------------------------------------------------------------------------------


def _pictures(trace: Trace, attention: str | None, head: int | None) -> Iterable[Figure]:
    if attention is not None:
        yield figures.attention(trace, attention, head)
        return
    aligned = figures.alignment(trace)
    if aligned is not None:
        yield aligned
    for name in _chosen(trace):
        yield figures.attention(trace, name, head)
    for encoder in (True, False):
        yield from figures.gates(trace, encoder)
    yield from figures.matrices(trace)[-1:]  # the page shows all of them
    found = figures.gradients(trace)
    yield from (found[name] for name in ("gradients", "source_gradients") if name in found)


def _chosen(trace: Trace) -> list[str]:
    """The last layers with self-attention; cross-attention is shown as the alignment."""
    return [name for name in trace.attention if name.startswith(("self", "average"))][-LAYERS:]


def _left_out(trace: Trace, attention: str | None) -> str:
    shown = {attention} if attention is not None else set(_chosen(trace))
    others = [name for name in trace.attention if name not in shown]
    said = f"Not shown here: the attention of {', '.join(others)} (--layer shows one of them)." if others else ""
    if trace.state_gradients:
        said += f" The gradients of {', '.join(trace.state_gradients)} are shown only with --json and --html."
    return said.strip()


# -- the tree of a search --------------------------------------------------------------------------------------------


def _search(branches: Sequence[Branch], width: int) -> Iterable[str]:
    """The paths to the hypotheses, one step per line, with the other candidates of the step."""
    if not branches:
        return
    yield "Beam search"
    said = "Log-probabilities of prefixes. ①, ②: hypotheses, best first; †: kept, (+2): for 2 more steps; ✂: pruned."
    ended = sorted((branch for branch in branches if branch.rank), key=lambda branch: branch.rank)
    if not all(branch.finished for branch in ended):
        said += " …: unfinished when the search ended, so listed below the finished ones."
    yield fill(said, width)
    for line in _Tree(branches).lines(-1, ""):
        yield _cut(line, width)
    for branch in ended:
        text = (isolated(legible(branch.text)) or "(empty)") + ("" if branch.finished else " …")
        yield _cut(f"{_crown(branch)} {_signed(branch.log_probability)}  {text}", width)


def _crown(branch: Branch) -> str:
    return chr(0x245F + branch.rank) if branch.rank <= 20 else str(branch.rank)


class _Tree:
    def __init__(self, branches: Sequence[Branch]):
        self.branches, self.words = branches, branch_labels(branches)
        self.below: dict[int, list[int]] = {}
        self.fruitful = {-1}  # branches that lead to a hypothesis
        self.lasts = [branch.step for branch in branches]  # the last step below each branch
        for place in reversed(range(len(branches))):
            branch = branches[place]
            self.below.setdefault(branch.parent, []).insert(0, place)
            if branch.rank or place in self.fruitful:
                self.fruitful |= {place, branch.parent}
            if branch.parent >= 0:
                self.lasts[branch.parent] = max(self.lasts[branch.parent], self.lasts[place])

    def lines(self, parent: int, before: str) -> Iterable[str]:
        here = self.below.get(parent, [])
        paths = [place for place in here if place in self.fruitful]
        besides = ", ".join(self._beside(place) for place in here if place not in self.fruitful)
        for place in paths:
            branch, forked = self.branches[place], len(paths) > 1
            last = place == paths[-1]
            fork = ("└ " if last else "├ ") if forked else ""
            crown = f" {_crown(branch)}" if branch.rank else ""
            words = f"{branch.step:>3} {before}{fork}{_named(branch, self.words[place])}{crown}"
            yield f"{words:<28}  {besides}".rstrip() if besides and place == paths[0] else words
            yield from self.lines(place, before + (("  " if last else "│ ") if forked else ""))

    def _beside(self, place: int) -> str:
        branch = self.branches[place]
        further = self.lasts[place] - branch.step
        return f"{'†' if branch.kept else '✂'}{_named(branch, self.words[place])}" + (
            f" (+{further})" if further else ""
        )


def _named(branch: Branch, word: str) -> str:
    return f"{isolated(word)} {_signed(branch.log_probability)}"


def _signed(value: float) -> str:
    return f"{value:.2f}".replace("-", "−")


def _cut(words: str, width: int) -> str:
    return words if cell_len(words) <= width else set_cell_size(words, width - 1) + "…"


def _left(words: str, width: int) -> str:
    return words + " " * (width - cell_len(words))
