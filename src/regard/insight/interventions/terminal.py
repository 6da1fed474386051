"""Lens, ablation, patching, contrast and head scores in the terminal."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from rich.cells import cell_len

from regard.base.numbers import pluralize
from regard.insight.interventions.ablation import Ablation
from regard.insight.interventions.contrast import Contrast
from regard.insight.interventions.head_scores import AllHeads
from regard.insight.interventions.lens import Lens
from regard.insight.interventions.patching import PatchGrid
from regard.insight.words import visible
from regard.report.figures import Heat, isolated
from regard.report.terminal import terminal

WRITTEN = "Computed by the reference implementation, step by step."


def show_lens(lens: Lens) -> str:
    rows = [["read", *(layer.name for layer in lens.layers)]]
    for step, word in enumerate(lens.words):
        cells = []
        for layer in lens.layers:
            (best, p), rank = layer.top[step][0], layer.rank[step]
            truth = "" if rank is None else f" #{rank}"
            cells.append(f"{isolated(best)} {p:.2f}{truth} ({layer.divergence[step]:.2f})")
        rows.append([isolated(word), *cells])
    said = (
        "Each layer's best word and its probability, the rank of the actual next word (#), and the KL divergence "
        "in nats."
    )
    return "\n".join([*_table(rows), "", *lens.notes, said])


def show_ablation(found: Ablation) -> str:
    rows = [["removed", "Δ log P", "95 %", "random", "95 %"]]
    for one in found.effects:
        control = "–" if one.control is None else _signed(one.control)
        rows.append([one.name, _signed(one.effect), _range(one.interval), control, _range(one.control_interval)])
    said = f"Mean change of log P per word over {pluralize(found.texts, 'text')}; removed values become {found.way}; "
    said += "random: an equal number of random components. " + WRITTEN
    return "\n".join([*_table(rows), "", said])


def show_patch(grid: PatchGrid) -> str:
    a, b = map(visible, grid.answers)
    shares = (grid.returned.round(2) + 0.0).tolist()  # no −0
    heat = Heat(
        f"Share of the difference restored: log P({a}) − log P({b}) at step {grid.step}",
        grid.rows, grid.columns, shares, "at word", "replaced", "share", diverging=True,
    )  # fmt: skip
    place, column = np.unravel_index(np.abs(grid.returned).argmax(), grid.returned.shape)
    most = f"Largest effect: {grid.rows[place]} at {grid.columns[column]}, {grid.returned[place, column]:.2f}. "
    return f"{terminal(heat)}\n\n{most}First text {_signed(grid.first)}, second {_signed(grid.second)}. {WRITTEN}"


def show_contrast(found: Contrast) -> str:
    a, b = map(visible, found.answers)
    rows = [["word", *found.methods]]
    for number, word in enumerate(found.words):
        rows.append([isolated(word), *(_signed(values[number]) for values in found.methods.values())])
    curves = [["words deleted in order of", "mean of the curve"]]
    curves += [[name, _signed(found.area(name))] for name in sorted(found.curves, key=found.area)]
    return "\n".join(
        [
            f"log P({a}) − log P({b}) = {_signed(found.difference)} at step {found.step}",
            "",
            *_table(rows),
            "",
            f"Completeness error of the integrated gradients: {found.completeness_error:.2g}.",
            "",
            *_table(curves),
            "",
            f"Lower is more faithful. {WRITTEN}",
        ]
    )


def show_heads(found: AllHeads) -> str:
    rows = [["head", "previous", "positional", "distance", "duplicate", "induction", "syntactic"]]
    for one in (*found.heads, found.chance):
        syntax = "–" if one.syntactic is None else f"{one.syntactic:.2f}"
        shares = [f"{one.previous:.2f}", f"{one.positional:.2f}", str(one.distance)]
        rows.append([one.name, *shares, f"{one.duplicate:.2f}", f"{one.induction:.2f}", syntax])
    said = "Shares of a head's attention; chance is uniform attention."
    unknown = (
        " Syntactic: this model's vocabulary lacks the phrasebook's English words."
        if found.chance.syntactic is None
        else ""
    )
    return "\n".join([*_table(rows), "", said + unknown])


def _signed(value: float) -> str:
    return f"{value:+.3f}".replace("-", "−")


def _range(interval: tuple[float, float] | None) -> str:
    return "–" if interval is None else f"[{_signed(interval[0])}, {_signed(interval[1])}]"


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(cell_len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell + " " * (size - cell_len(cell)) for cell, size in zip(row, widths)).rstrip() for row in rows]
