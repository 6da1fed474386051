"""report.html: the finding, the table, paired differences, curves and samples; folded: how it was measured, and a
paragraph for a paper."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from regard.comparison import tuning_report
from regard.comparison.comparison import Comparison
from regard.comparison.curves import Curve, averaged
from regard.comparison.findings import caveats, finding, measured, methods, tied_with_best
from regard.evaluation.perplexity import finite_perplexity
from regard.report.figures import Line
from regard.report.page import beside, command, folded, heading, listing, page, paragraph, table
from regard.report.svg import line_chart
from regard.report.table import significant

EARLY = 5  # the first 1/5 of a curve may be cut off above the figure, since the later values are much lower,
HIGHER = 1.2  # if it is this many times higher than the rest
LONGER = 4  # the x axis is logarithmic if a curve is this many times longer than the shortest


def comparison_page(comparison: Comparison) -> str:
    facts, rows, task, columns = comparison.plan.facts, comparison.rows, comparison.task, comparison.columns
    told = task.report
    title = f"{task.title} compared on {facts['corpus']['name']}"
    leading = [comparison.order[0]["label"], *tied_with_best(comparison)] if comparison.order else []
    best = [number for number, row in enumerate(rows) if row["label"] in leading]
    return page(
        title,
        heading(title, 1),
        paragraph(finding(comparison), "finding") if comparison.order else "",
        paragraph(told.lead(comparison), "lead"),
        *(paragraph(sentence, "quiet-text") for sentence in caveats(comparison)),
        table(comparison.shown, _first(columns, task.columns.first), best, "best" if len(best) == 1 else "tied best"),
        *_differences(comparison),
        *tuning_report.section(comparison),
        *_curves(comparison),
        *told.samples(comparison),
        folded("How it was measured", listing(measured(comparison))),
        folded("Methods, for a paper", paragraph(methods(comparison))),
        folded("The command, to run it again", command(facts["command"])),
        folded(
            "Every run",
            table(_runs(comparison), {"run": "run", **task.columns.runs, "tokens": "tokens seen", "steps": "steps",
                                      "seconds": "seconds", "parameters": "parameters"}),
        ),
    )  # fmt: skip


def _differences(comparison: Comparison) -> list[str]:
    told = comparison.task.report
    if not comparison.differences:
        return [told.intervals(comparison)]
    return [
        heading("Which differences are significant" if comparison.enough_seeds else "Paired differences"),
        paragraph(f"{comparison.ranking} {told.paired()}"),
        beside(told.intervals(comparison), told.differences(comparison)),
    ]


def _first(columns: Mapping[str, str], keys: Sequence[str]) -> dict[str, str]:
    """The columns with these first, where a narrow screen shows them."""
    return {key: columns[key] for key in keys if key in columns} | dict(columns)


def _curves(comparison: Comparison) -> list[str]:
    """The validation curves; none if no run has one (n-grams)."""
    if all(curve.counted for curve in comparison.curves):
        return []
    charts = [_chart(comparison, place, axis) for place, axis in ((0, "tokens seen"), (1, "seconds of training"))]
    if not any(charts):
        return []
    return [heading("Training curves"), paragraph(comparison.task.report.curves(), "lead"), beside(*charts)]


def _chart(comparison: Comparison, place: int, axis: str) -> str:
    seeds = [curve for curve in comparison.curves if not curve.counted]
    strong = [curve for curve in comparison.curves if curve.counted] + averaged(seeds)
    several = len(strong) < len(comparison.curves)

    def line(curve: Curve, faint: bool = False) -> Line:
        return Line(curve.label, [(p[place], finite_perplexity(p[2])) for p in curve.points], curve.counted, faint)

    lines = [line(curve) for curve in strong] + [line(curve, faint=True) for curve in seeds if several]
    settled = [
        finite_perplexity(p[2]) for curve in comparison.curves for p in curve.points[len(curve.points) // EARLY :]
    ]
    cut = max(finite_perplexity(p[2]) for curve in seeds for p in curve.points) > HIGHER * max(settled)
    ends = [curve.points[-1][place] for curve in seeds]
    described = ", ".join(f"{curve.label} {significant(finite_perplexity(curve.points[-1][2]))}" for curve in strong)
    return line_chart(
        lines,
        title=f"Validation perplexity against {axis}"
        + (", mean over seeds (pale: each seed)" if several else "")
        + ("; values above the axis are cut off" if cut else ""),
        x=axis,
        y="validation perplexity",
        description=f"Last values: {described}.",
        log_x=max(ends) > LONGER * min(ends) and min(p[place] for curve in seeds for p in curve.points) > 0,
        top=max(settled) if cut else math.inf,
        best=comparison.order[0]["label"] if comparison.order else "",
    )


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
    """A score with its digits, without its signature."""
    score = value["score"] if isinstance(value, dict) else value
    return digits(score) if score is not None and math.isfinite(score) else score
