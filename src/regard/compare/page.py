"""report.html: the table, who differs from whom, the curves, a sample from each, and a paragraph for a paper."""

from __future__ import annotations

import math

from regard.compare.comparison import COLUMNS, Comparison
from regard.compare.words import methods, notes
from regard.report.figures import Line, Mark, interval_chart, line_chart
from regard.report.page import heading, listing, page, paragraph, sample, table

RESULTS_FIRST = ("label", "perplexity", "interval", "bits_per_character")  # what a narrow screen shows


def comparison_page(comparison: Comparison) -> str:
    facts, rows = comparison.plan.facts, comparison.rows
    title = f"Language models compared on {facts['corpus']['name']}"
    best = rows.index(comparison.order[0]) if comparison.order else None
    return page(
        title,
        heading(title, 1),
        paragraph(f"{comparison.title}. Lower perplexity is better; the best row is tinted.", "lead"),
        table(comparison.shown, {key: COLUMNS[key] for key in RESULTS_FIRST} | COLUMNS, best),
        listing(notes(comparison)),
        heading("Who differs from whom"),
        paragraph(
            f"{comparison.ranking} Systems are tested on the same documents, and what is hard for one is hard for the "
            "others: so two can differ clearly although their own intervals overlap."
        ),
        _differences(comparison),
        _intervals(comparison),
        heading("While they learned"),
        *_curves(comparison),
        heading("What they write"),
        paragraph(
            "From the same prompt (in grey), with the same seed, at temperature 0.8; the first seed's weights.", "lead"
        ),
        *(
            heading(row["label"], 3) + sample(facts["prompt"], row["sample"])
            for row in rows
            if row["perplexity"] is not None
        ),
        heading("Methods"),
        paragraph(methods(comparison)),
        heading("To run it again", 3),
        sample("", facts["command"]),
        heading("Every run"),
        table(_runs(comparison), {"run": "run", "perplexity": "perplexity", "tokens": "tokens seen", "steps": "steps",
                                  "seconds": "seconds", "parameters": "parameters"}),
    )  # fmt: skip


def _differences(comparison: Comparison) -> str:
    rows = [
        {
            "pair": f"{d.better} – {d.worse}",
            "ratio": f"{math.exp(d.nats):.4f}",
            "interval": f"{math.exp(d.low):.4f} – {math.exp(d.high):.4f}",
            "verdict": "differ" if d.beyond else "not told apart",
        }
        for d in comparison.differences
    ]
    columns = {"pair": "neighbours", "ratio": "perplexity ratio", "interval": "95 % interval", "verdict": "verdict"}
    return table(rows, columns) if rows else ""


def _intervals(comparison: Comparison) -> str:
    marks = [
        Mark(row["label"], row["perplexity"], row["perplexity_low"], row["perplexity_high"])
        for row in comparison.order
        if row["perplexity_low"] is not None
    ]
    described = "; ".join(f"{m.name} {m.value:.4g} ({m.low:.4g} to {m.high:.4g})" for m in marks)
    return interval_chart(
        marks,
        title="Test perplexity with 95 % intervals, best first (logarithmic)",
        x="perplexity",
        description=f"Best first: {described}.",
    )


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
    return [
        paragraph(
            "Validation reads each system's own context; n-grams, which do not learn step by step, are level lines.",
            "lead",
        ),
        *charts,
    ]


def _runs(comparison: Comparison) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for entrant, seed in comparison.plan.runs:
        result = comparison.results[entrant.label, seed]
        row: dict[str, object] = {"run": entrant.name(seed)}
        if "evaluation" in result:
            row |= {
                "perplexity": result["evaluation"]["perplexity"],
                "tokens": result["tokens_seen"],
                "steps": result["steps"],
                "seconds": round(result["training_seconds"], 2),
                "parameters": result["parameters"],
            }
        rows.append(row)
    return rows
