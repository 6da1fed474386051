"""The results of tuning in sentences, tables and a figure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from regard.base.numbers import pluralize
from regard.comparison.comparison import Comparison
from regard.comparison.tuning import best_of_k, chosen, in_words
from regard.evaluation.perplexity import finite_perplexity
from regard.report.figures import Line
from regard.report.page import heading, paragraph, table
from regard.report.svg import line_chart
from regard.report.table import significant

UNTUNED = (
    "Untuned on this text: every system uses its default settings. Those of sizes tiny and small come from 6 trials of "
    "each system on three texts; others were not tuned with equal effort. --tune 8 gives each system 8 trials on this "
    "text."
)


def sentences(comparison: Comparison) -> list[str]:
    """How much each row was tuned; for tuned rows, the chosen settings, the improvement and changes of the order."""
    if not comparison.trials:
        return [UNTUNED] if any(not entrant.counted for entrant in comparison.plan.entrants) else []
    count = len(next(iter(comparison.trials.values())))
    curve = best_of_k(comparison.trials)
    found = [
        f"Tuned: {pluralize(count, 'trial')} of each system with the same budget and search space, chosen by "
        "validation; the trials used other seeds than the table. n-grams have no trials.",
        *(f"{row['system']}: {row['chosen']} ({row['bought']})." for row in _rows(comparison)),
    ]
    untuned, tuned = (_order(comparison, place) for place in ("default", "chosen"))
    if len(tuned) > 1:
        order = f"by validation loss, it is {', '.join(untuned)}"
        found.append(
            f"Tuning changed the order: {order} with default settings and {', '.join(tuned)} after tuning."
            if untuned != tuned
            else f"Tuning did not change the order: {order} with default settings and after tuning."
        )
        found.append(f"Verdicts by the number of trials: {_verdicts(curve)}.")
    return found


def _verdicts(curve: list[Any]) -> str:
    """1–3: open: lstm or gpt; 4–8: gpt leads."""
    parts: list[tuple[int, int, str]] = []
    for best in curve:
        if parts and parts[-1][2] == best.verdict:
            parts[-1] = (parts[-1][0], best.k, best.verdict)
        else:
            parts.append((best.k, best.k, best.verdict))
    return "; ".join(f"{first if first == last else f'{first}–{last}'} {verdict}" for first, last, verdict in parts)


def _order(comparison: Comparison, which: str) -> list[str]:
    """Labels by validation loss, with the defaults or with the chosen settings."""
    trials = {label: each[0] if which == "default" else chosen(each) for label, each in comparison.trials.items()}
    known = {label: trial["loss"] for label, trial in trials.items() if trial["loss"] is not None}
    return sorted(known, key=lambda label: known[label])


def _rows(comparison: Comparison) -> list[dict[str, Any]]:
    rows = []
    for label, trials in comparison.trials.items():
        default, best = trials[0]["loss"], chosen(trials)
        bought = "every trial failed" if best["loss"] is None else "the default failed"
        if default is not None:
            bought = f"{100 * (1 - math.exp(best['loss'] - default)):.2g} % lower perplexity than the default's"
            bought = "the default is the best" if best is trials[0] else bought
        rows.append(
            {
                "system": label,
                "chosen": in_words(best["shown"]),
                "default": _perplexity(default),
                "best": _perplexity(best["loss"]),
                "bought": bought,
                "failed": sum(trial["loss"] is None for trial in trials),
            }
        )
    return rows


def _perplexity(loss: float | None) -> str:
    return "–" if loss is None else significant(finite_perplexity(loss))


def section(comparison: Comparison) -> list[str]:
    """The part of the page; none if nothing was tuned."""
    if not comparison.trials:
        return []
    curve = best_of_k(comparison.trials)
    columns = {
        "system": "system",
        "chosen": "chosen",
        "default": "default",
        "best": "tuned",
        "bought": "gain from tuning",
    }
    columns |= {"failed": "failed trials"}
    by_k = {"k": "trials", **{label: label for label in comparison.trials}, "v": "verdict"}
    return [
        heading("Gain from tuning"),
        paragraph(" ".join(s for s in sentences(comparison) if s.startswith(("Tuned", "Tuning"))), "lead"),
        table(_rows(comparison), columns),
        *([_chart(comparison, curve)] if len(curve) > 1 else []),
        table(_by_k(comparison, curve), by_k),
    ]


def _by_k(comparison: Comparison, curve: list[Any]) -> list[Mapping[str, Any]]:
    def cell(best: Any, label: str) -> str:
        if label not in best.losses:
            return "–"
        low, high = (_perplexity(loss) for loss in best.intervals[label])
        return f"{_perplexity(best.losses[label])} ({low} – {high})"

    return [
        {"k": best.k, **{label: cell(best, label) for label in comparison.trials}, "v": best.verdict} for best in curve
    ]


def _chart(comparison: Comparison, curve: list[Any]) -> str:
    lines = [
        Line(
            label,
            [(best.k, math.exp(best.losses[label])) for best in curve],
            band=[(math.exp(best.intervals[label][0]), math.exp(best.intervals[label][1])) for best in curve],
        )
        for label in comparison.trials
        if label in curve[0].losses
    ]
    ends = ", ".join(f"{line.name} {significant(line.points[-1][1])}" for line in lines)
    return line_chart(
        lines,
        title="Expected best validation perplexity of k trials, with 95 % intervals",
        x="trials",
        y="validation perplexity",
        description=f"After all trials: {ends}.",
    )
