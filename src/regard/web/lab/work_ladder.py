"""In the worker process: a comparison's table, chart and samples, by the functions of `regard compare`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from regard.base.errors import RegardError
from regard.comparison.comparison import MIN_SEEDS, Comparison
from regard.comparison.curves import Curve, averaged
from regard.comparison.findings import caveats, finding, measured, methods, tied_with_best
from regard.comparison.plan import Plan
from regard.comparison.processes import read_result
from regard.comparison.question import Question, match_for
from regard.comparison.task import Results
from regard.comparison.translation_task import read_test
from regard.comparison.tuning import best_of_k
from regard.evaluation.intervals import student_interval
from regard.evaluation.perplexity import finite_perplexity
from regard.web.lab.new_comparison import NewComparison
from regard.web.lab.requests import ComparisonForm, OneName
from regard.web.lab.runs_folder import RunsFolder

UNFINISHED = "it is still running."
LARGE = ("sample", "by_length", "perplexities", "bleus", "failed", "tuning")  # of a row: sent by themselves


def open_comparison(folder: RunsFolder, asked: OneName) -> dict[str, Any]:
    """Everything that the page shows; unfinished runs are missing from the table."""
    plan = Plan.read(folder.comparison(asked.name))
    results: Results = {
        (entrant.label, seed): read_result(plan.run_folder(entrant, seed)) or {"failed": UNFINISHED}
        for entrant, seed in plan.runs
    }
    return {"name": asked.name, "report": folder.has_report(plan.folder), **shown(Comparison(plan, results))}


def shown(comparison: Comparison) -> dict[str, Any]:
    """The page's view of a comparison."""
    plan, task, order = comparison.plan, comparison.task, comparison.order
    columns = {key: comparison.columns[key] for key in task.columns.first if key in comparison.columns}
    columns |= {key: text for key, text in comparison.columns.items() if key not in columns}
    return {
        "title": f"{task.title} compared on {plan.facts['corpus']['name']}",
        "equal": comparison.title,
        "finding": finding(comparison) if order else "",
        "ranking": comparison.ranking,
        "best": [order[0]["label"], *tied_with_best(comparison)] if order else [],
        "caveats": [one for one in caveats(comparison) if UNFINISHED not in one],
        "measured": measured(comparison) if order else [],
        "methods": methods(comparison) if order else "",
        "command": plan.facts["command"],
        "score": task.score,
        "score_name": task.score_name,
        "more_is_better": task.more_is_better,
        "columns": columns,
        "rows": [_row(row, shown, task.score) for row, shown in zip(comparison.rows, comparison.shown)],
        "curves": _curves(comparison),
        "tuning": _tuning(comparison),
        "samples": _samples(comparison),
        "waiting": [
            entrant.name(seed)
            for entrant, seed in plan.runs
            if comparison.results[entrant.label, seed].get("failed") == UNFINISHED
        ],
    }


def _row(row: Mapping[str, Any], shown: Mapping[str, Any], score: str) -> dict[str, Any]:
    return {
        "label": row["label"],
        "values": {key: value for key, value in row.items() if key not in LARGE},
        "shown": {key: value for key, value in shown.items() if key not in LARGE},
        "low": row.get(f"{score}_low"),
        "high": row.get(f"{score}_high"),
        "each": row.get("perplexities") or row.get("bleus") or [],
        "signature": row.get("bleu_signature", ""),
        "failed": row.get("failed", "") if row.get("failed") != UNFINISHED else "",
    }


def _curves(comparison: Comparison) -> list[dict[str, Any]]:
    """Validation perplexity of each system, the mean over its seeds: tokens, seconds, perplexity; of three seeds or
    more also the 95 % interval of the mean."""
    seeds = [curve for curve in comparison.curves if not curve.counted]
    bands = {curve.label: _band([one for one in seeds if one.label == curve.label]) for curve in seeds}
    lines = averaged(seeds)
    lines += [curve for curve in comparison.curves if curve.counted]
    return [
        {
            "label": curve.label,
            "counted": curve.counted,
            "tokens": [point[0] for point in curve.points],
            "seconds": [point[1] for point in curve.points],
            "perplexity": [finite_perplexity(point[2]) for point in curve.points],
            **bands.get(curve.label, {}),
        }
        for curve in lines
    ]


def _band(curves: list[Curve]) -> dict[str, list[float]]:
    if len(curves) < MIN_SEEDS:
        return {}
    inside = [student_interval([point[2] for point in points]) for points in zip(*(curve.points for curve in curves))]
    return {
        "low": [finite_perplexity(low) for low, _ in inside],
        "high": [finite_perplexity(high) for _, high in inside],
    }


def _tuning(comparison: Comparison) -> list[dict[str, Any]]:
    """The expected best validation perplexity of k trials, for each tuned system."""
    curve = best_of_k(comparison.trials) if comparison.trials else []
    return [
        {
            "label": label,
            "k": [best.k for best in curve],
            "perplexity": [finite_perplexity(best.losses[label]) for best in curve],
            "low": [finite_perplexity(best.intervals[label][0]) for best in curve],
            "high": [finite_perplexity(best.intervals[label][1]) for best in curve],
        }
        for label in comparison.trials
        if label in curve[0].losses
    ]


def _samples(comparison: Comparison) -> list[dict[str, Any]]:
    """Each system's continuation of the same prompt, or translations of the same sentences."""
    if not comparison.order:
        return []
    if comparison.task.name == "language model":
        prompt = comparison.plan.facts["prompt"]
        return [{"given": {"begins": prompt}, "written": {row["label"]: row["sample"] for row in comparison.order}}]
    sources, references = read_test(comparison.plan)
    first = {}
    for row in comparison.order:
        results = (result for (label, _), result in comparison.results.items() if label == row["label"])
        first[row["label"]] = next(result for result in results if "evaluation" in result)
    return [
        {
            "given": {"source": sources[number], "reference": references[number]},
            "written": {label: result["evaluation"]["translations"][number] for label, result in first.items()},
        }
        for number in comparison.plan.facts["examples"]
    ]


def check(folder: RunsFolder, form: ComparisonForm) -> dict[str, Any]:
    """Check that this comparison is possible. The rows it will have, or what is wrong, and with which option."""
    asked = NewComparison.read(folder, form)
    try:
        match = asked.match or match_for(asked.budget)
        question = Question(asked.systems, asked.data, match, asked.budget, asked.seeds, asked.size)
        return {"rows": [rung.label for rung in question.rungs()], "problem": None}
    except RegardError as error:
        sentence = " ".join(str(error).split())
        named = re.search(r"--(data|match|budget|seeds|size)\b", sentence)
        return {"rows": [], "problem": {"key": named.group(1) if named else "systems", "sentence": sentence}}


WORK = {"open": open_comparison, "check": check}
