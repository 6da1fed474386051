"""report.html: the table, who differs from whom, the curves, what each writes, and a paragraph for a paper."""

from __future__ import annotations

import math

from regard.compare.comparison import Comparison
from regard.compare.words import methods, notes
from regard.report.figures import Line, line_chart
from regard.report.page import heading, listing, page, paragraph, sample, table


def comparison_page(comparison: Comparison) -> str:
    facts, rows, task, columns = comparison.plan.facts, comparison.rows, comparison.task, comparison.columns
    told = task.report
    title = f"{task.title} compared on {facts['corpus']['name']}"
    best = rows.index(comparison.order[0]) if comparison.order else None
    return page(
        title,
        heading(title, 1),
        paragraph(told.lead(comparison), "lead"),
        table(comparison.shown, {key: columns[key] for key in task.columns.first} | dict(columns), best),
        listing(notes(comparison)),
        heading("Who differs from whom"),
        paragraph(f"{comparison.ranking} {told.paired()}"),
        told.differences(comparison),
        told.intervals(comparison),
        heading("While they learned"),
        *_curves(comparison),
        *told.samples(comparison),
        heading("Methods"),
        paragraph(methods(comparison)),
        heading("To run it again", 3),
        sample("", facts["command"]),
        heading("Every run"),
        table(_runs(comparison), {"run": "run", **task.columns.runs, "tokens": "tokens seen", "steps": "steps",
                                  "seconds": "seconds", "parameters": "parameters"}),
    )  # fmt: skip


def _curves(comparison: Comparison) -> list[str]:
    if not any(not curve.counted for curve in comparison.curves):
        return [paragraph("Only n-grams were compared: they are counted, and have no course.", "lead")]
    charts = []
    for place, axis in ((0, "tokens seen"), (1, "seconds of training")):
        lines = [
            Line(curve.label, [(p[place], math.exp(min(p[2], 700))) for p in curve.points], level=curve.counted)
            for curve in comparison.curves
        ]
        ends = {curve.label: math.exp(min(curve.points[-1][2], 700)) for curve in comparison.curves}
        described = ", ".join(f"{label} {value:.4g}" for label, value in ends.items())
        charts.append(
            line_chart(
                lines,
                title=f"Validation perplexity against {axis}"
                + (", one line for each seed" if comparison.seeds > 1 else ""),
                x=axis,
                y="validation perplexity",
                description=f"Curves fall from left to right and end at: {described}.",
            )
        )
    return [paragraph(comparison.task.report.curves(), "lead"), *charts]


def _runs(comparison: Comparison) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for entrant, seed in comparison.plan.runs:
        result = comparison.results[entrant.label, seed]
        row: dict[str, object] = {"run": entrant.name(seed)}
        if "evaluation" in result:
            facts = result["evaluation"]
            row |= {
                **{key: _number(facts[key]) for key in comparison.task.columns.runs},
                "tokens": result["tokens_seen"],
                "steps": result["steps"],
                "seconds": round(result["training_seconds"], 2),
                "parameters": result["parameters"],
            }
        rows.append(row)
    return rows


def _number(value: object) -> object:
    """A score that comes with its signature is shown alone."""
    return value["score"] if isinstance(value, dict) else value
