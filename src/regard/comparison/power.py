"""Power: which difference a plan can show, and how many seeds an observed difference would need.

Both follow from two variances (`evaluation/intervals.py`): that of the test text and that between seeds. Before a
comparison, they come from an earlier one on the same text and tokenizer with several seeds; if there is none, `compare
--placebo` is the pilot. After the comparison, they are its own.
"""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Any

from regard.base.errors import RegardError
from regard.comparison.plan import Plan
from regard.comparison.processes import read_result
from regard.evaluation.intervals import POWER, detectable, paired_difference, seeds_needed

if TYPE_CHECKING:
    from regard.comparison.comparison import Comparison

MAX_EARLIER = 50  # comparisons that are opened, newest first


def plan_power(plan: Plan) -> str:
    """A sentence before the runs: the difference that this plan would detect, and the basis of this estimate."""
    seeds = max(len(entrant.seeds) for entrant in plan.entrants)
    if all(entrant.counted for entrant in plan.entrants):
        return "n-grams have no seeds: only the test text limits which differences can be shown."
    source = _earlier(plan)
    if seeds == 1:
        return "One seed shows how these runs differ, not how the systems do; for that, use --seeds 3 or more."
    if source is None:
        return (
            "It is unknown which differences these seeds can show, because no earlier comparison in this "
            "folder has several "
            "seeds on "
            "this text; `regard compare --placebo` can serve as a pilot."
        )
    name, documents, between = source
    least = plan.task.report.size_of(detectable(documents, between, seeds))
    return (
        f"With {seeds} seeds, a true difference of {least} between two systems would be detected with a probability of "
        f"{100 * POWER:.0f} % (one pair, p < 0.05; spread of seeds and documents from {name})."
    )


def needed_seeds(comparison: Comparison) -> list[str]:
    """A sentence after the runs: the number of seeds that the largest non-significant difference would need."""
    unclear = [difference for difference in comparison.differences if not difference.beyond]
    if comparison.fewest_seeds < 2 or not unclear:
        return []
    largest = max(unclear, key=lambda difference: abs(difference.by))
    count = seeds_needed(largest.by, largest.documents, largest.seeds)
    size = comparison.task.report.size_of(largest.by)
    true = f"A true difference as large as that between {largest.better} and {largest.worse} ({size})"
    if count is None:
        return [f"{true} cannot be detected on this test text with any number of seeds: more text is needed."]
    return [f"{true} would be detected with a probability of {100 * POWER:.0f} % with about {count} seeds."]


def _earlier(plan: Plan) -> tuple[str, float, float] | None:
    """The newest comparable comparison in the same parent folder: its name, and the medians of its pairs' variances."""
    beside = [path.parent for path in plan.folder.resolve().parent.glob("*/comparison.json")]
    for folder in sorted(beside, key=lambda path: -path.stat().st_mtime)[:MAX_EARLIER]:
        if folder == plan.folder.resolve():
            continue
        try:
            other = Plan.read(folder)
            if _text(other) == _text(plan) and (found := _variances(other)) is not None:
                return folder.name, *found
        except RegardError:  # damaged, of another version, or with code that was not named
            continue
    return None


def _text(plan: Plan) -> tuple[Any, ...]:
    facts = plan.facts
    return plan.task.name, facts["corpus"].get("checksum"), facts["tokenizer"].get("digest"), facts["split"]


def _variances(plan: Plan) -> tuple[float, float] | None:
    """Medians over pairs of trained systems: the variance by documents, and the sum of both variances between seeds."""
    results = {
        (entrant.label, seed): read_result(plan.run_folder(entrant, seed)) or {"failed": ""}
        for entrant, seed in plan.runs
    }
    by_document = plan.task.scores(plan, results).by_document
    trained = {entrant.label for entrant in plan.entrants if not entrant.counted}
    several = [values for label, values in by_document.items() if label in trained and len(values) > 1]
    if not several:
        return None
    pairs = [(one, other) for place, one in enumerate(several) for other in several[place + 1 :]]
    found = [paired_difference(one, other) for one, other in pairs or [(several[0][:1], several[0][1:])]]
    spread = [sum(max(0.0, v) * len(x) for v, x in zip(e.seeds, pair)) for e, pair in zip(found, pairs)]
    return median(e.documents for e in found), median(spread or [2 * _between(several[0])])


def _between(values: Any) -> float:
    return float(values.mean(axis=1).var(ddof=1))
