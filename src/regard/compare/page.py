"""report.html: the table, who differs from whom, the curves, what each writes, and a paragraph for a paper."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from regard.compare.comparison import Comparison
from regard.compare.curves import Curve, averaged
from regard.compare.words import methods, notes
from regard.report.figures import Line
from regard.report.page import beside, command, heading, listing, page, paragraph, table
from regard.report.svg import line_chart
from regard.report.table import significant

EARLY = 5  # the first fifth of a course may lie above the figure: what matters happens later, and much lower
HIGHER = 1.2  # times what comes after it, and that fifth is cut off
LONGER = 4  # times as long as the shortest course, and the axis is logarithmic: else the short ones stand as a wall


def comparison_page(comparison: Comparison) -> str:
    facts, rows, task, columns = comparison.plan.facts, comparison.rows, comparison.task, comparison.columns
    told = task.report
    title = f"{task.title} compared on {facts['corpus']['name']}"
    best = rows.index(comparison.order[0]) if comparison.order else None
    return page(
        title,
        heading(title, 1),
        paragraph(told.lead(comparison), "lead"),
        table(comparison.shown, _first(columns, task.columns.first), best),
        listing(notes(comparison)),
        heading("Which differences are significant"),
        paragraph(f"{comparison.ranking} {told.paired()}"),
        beside(told.differences(comparison), told.intervals(comparison)),
        heading("While they learned"),
        *_curves(comparison),
        *told.samples(comparison),
        heading("Methods"),
        paragraph(methods(comparison)),
        heading("To run it again", 3),
        command(facts["command"]),
        heading("Every run"),
        table(_runs(comparison), {"run": "run", **task.columns.runs, "tokens": "tokens seen", "steps": "steps",
                                  "seconds": "seconds", "parameters": "parameters"}),
    )  # fmt: skip


def _first(columns: Mapping[str, str], keys: Sequence[str]) -> dict[str, str]:
    """The columns with these at the front, where a narrow screen shows them."""
    return {key: columns[key] for key in keys if key in columns} | dict(columns)


def _curves(comparison: Comparison) -> list[str]:
    if not any(not curve.counted for curve in comparison.curves):
        return [paragraph("Only n-grams were compared: they are counted, and have no course.", "lead")]
    charts = [_chart(comparison, place, axis) for place, axis in ((0, "tokens seen"), (1, "seconds of training"))]
    return [paragraph(comparison.task.report.curves(), "lead"), beside(*charts)]


def _chart(comparison: Comparison, place: int, axis: str) -> str:
    seeds = [curve for curve in comparison.curves if not curve.counted]
    strong = [curve for curve in comparison.curves if curve.counted] + averaged(seeds)
    several = len(strong) < len(comparison.curves)

    def line(curve: Curve, faint: bool = False) -> Line:
        return Line(curve.label, [(p[place], _exp(p[2])) for p in curve.points], curve.counted, faint)

    lines = [line(curve) for curve in strong] + [line(curve, faint=True) for curve in seeds if several]
    settled = [_exp(p[2]) for curve in comparison.curves for p in curve.points[len(curve.points) // EARLY :]]
    cut = max(_exp(p[2]) for curve in seeds for p in curve.points) > HIGHER * max(settled)
    ends = [curve.points[-1][place] for curve in seeds]
    described = ", ".join(f"{curve.label} {significant(_exp(curve.points[-1][2]))}" for curve in strong)
    return line_chart(
        lines,
        title=f"Validation perplexity against {axis}"
        + (", mean over seeds (pale: each seed)" if several else "")
        + ("; higher beginnings are cut off" if cut else ""),
        x=axis,
        y="validation perplexity",
        description=f"The last value of each: {described}.",
        log_x=max(ends) > LONGER * min(ends) and min(p[place] for curve in seeds for p in curve.points) > 0,
        top=max(settled) if cut else math.inf,
    )


def _exp(loss: float) -> float:
    return math.exp(min(loss, 700))


def _runs(comparison: Comparison) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    digits = comparison.task.columns.digits
    for entrant, seed in comparison.plan.runs:
        result = comparison.results[entrant.label, seed]
        row: dict[str, object] = {"run": entrant.name(seed)}
        if "evaluation" in result:
            facts = result["evaluation"]
            row |= {
                **{key: _shown(facts[key], digits[key]) for key in comparison.task.columns.runs},
                "tokens": result["tokens_seen"],
                "steps": result["steps"],
                "seconds": digits["training_seconds"](result["training_seconds"]),
                "parameters": result["parameters"],
            }
        rows.append(row)
    return rows


def _shown(value: Any, digits: Callable[[float], str]) -> object:
    """A score with its digits; one that comes with its signature is shown alone."""
    score = value["score"] if isinstance(value, dict) else value
    return digits(score) if score is not None and math.isfinite(score) else score
