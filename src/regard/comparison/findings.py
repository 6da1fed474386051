"""A comparison in sentences: the finding, the notes under its table, and the methods paragraph for a paper.

Sentences for one task only are in `language_report.py` and `translation_report.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from regard.base.numbers import group_digits
from regard.comparison import tuning_report
from regard.comparison.comparison import Comparison
from regard.comparison.curves import in_order, other_order
from regard.comparison.differences import Difference, named
from regard.comparison.power import needed_seeds
from regard.report.page import table
from regard.training.hyperparameters import GradientTraining

Pair = tuple[str, str]


def finding(comparison: Comparison) -> str:
    """The result in a few sentences: which system is best, by how much, and whether the difference excludes zero."""
    told, (first, *others) = comparison.task.report, comparison.order
    best = (
        f"{first['label']} {'has the best' if others else 'has a'} {comparison.task.score_name}: {told.score(first)}."
    )
    if not others:
        return best
    tied = tied_with_best(comparison)
    if comparison.fewest_seeds == 1:
        best = f"Among these runs, {best}"
    if tied and not comparison.enough_seeds:
        return f"{best} {_few_seeds(comparison, [first['label'], *tied], 'within')}"
    if tied:
        names = named([(first["label"], *tied)])
        return (
            f"{best} The differences between {names} are not significant."
            if len(tied) > 1
            else (f"{best} The difference between {names} is not significant.")
        )
    ahead = next((d for d in comparison.differences if d.worse == others[0]["label"]), None)
    if ahead is None:
        return best
    if not comparison.enough_seeds:
        return f"{best} {told.ahead(ahead)}. {_few_seeds(comparison, [ahead.better, ahead.worse], 'beyond')}"
    return f"{best} {told.ahead(ahead)}; the difference is significant."


def _few_seeds(comparison: Comparison, labels: list[str], where: str) -> str:
    """Whether the best run and the others differ by more than noise, with the caveat that other seeds may differ."""
    interval = f"the difference is {where} the noise of {comparison.task.documents}"
    counted = {entrant.label for entrant in comparison.plan.entrants if entrant.counted}
    if counted.issuperset(labels):
        return f"For {named([labels])}, {interval}."
    of = "these two runs" if len(labels) == 2 else "each of these runs and the best"
    if comparison.fewest_seeds > 1:
        of = f"the runs of these {comparison.fewest_seeds} seeds"
    return f"For {of} ({named([labels])}), {interval}: training again with other seeds can reverse the order."


def tied_with_best(comparison: Comparison) -> list[str]:
    """Systems whose difference from the best may be zero."""
    first = comparison.order[0]["label"]
    return [d.worse for d in comparison.differences if d.better == first and not d.beyond]


def table_of_differences(comparison: Comparison, key: str, heading: str, written: Callable[[Difference], Pair]) -> str:
    """The differences worth a row. `written`: a difference, in the column `key`, and its interval."""
    rows = []
    for d in comparison.telling:
        by, inside = written(d)
        rows.append(
            {
                "pair": f"{d.better} – {d.worse}",
                key: by,
                "interval": inside,
                "verdict": verdict(comparison, d),
                "p": f"{d.p_value:.2g}",
            }
        )
    columns = {
        "pair": "better – worse",
        "verdict": "difference" if comparison.enough_seeds else "between these runs",
        key: heading,
        "interval": "95 % interval",
        "p": "p (Holm)",
    }
    return table(rows, columns) if rows else ""


def verdict(comparison: Comparison, difference: Difference) -> str:
    """The verdict on a difference in the table; with few seeds, about these runs only."""
    if comparison.enough_seeds:
        return "significant" if difference.beyond else "not significant"
    return "beyond noise" if difference.beyond else "within noise"


def caveats(comparison: Comparison) -> list[str]:
    """Caveats to the finding, one sentence each."""
    found = []
    if comparison.plan.question.get("placebo"):
        found.append(
            "Placebo: X and X-again are the same system, trained with other seeds. A significant difference between "
            "them is a false alarm."
        )
    if comparison.fewest_seeds == 1:
        found.append(
            "One seed: the intervals describe these runs and cover other test text, but not other seeds, which "
            "can reverse "
            "the order; --seeds 3 covers both."
        )
    elif comparison.fewest_seeds == 2:
        found.append("Two seeds are too few to know how much seeds differ; use --seeds 3 or more.")
    if comparison.plan.facts["split"] == "valid":
        found.append(
            "There is no test split: the numbers are from the validation split, which was also used to choose "
            "the weights."
        )
    found += needed_seeds(comparison)
    return found + [f"{name} failed: {why}" for name, why in comparison.failed.items()]


def notes(comparison: Comparison) -> list[str]:
    """Notes under the table, one sentence each."""
    return [*caveats(comparison), *measured(comparison)]


def measured(comparison: Comparison) -> list[str]:
    """How the numbers were measured, one sentence each."""
    told = comparison.task.report
    found = told.conditions(comparison)
    if any(not entrant.counted for entrant in comparison.plan.entrants):
        found.append(told.effort(comparison))
    found += tuning_report.sentences(comparison)
    if len(_optimisers(comparison)) > 1:
        found.append(f"The systems were trained differently: {'; '.join(_optimisers(comparison))}.")
    before = [r["memory_before_bytes"] for r in comparison.results.values() if r.get("memory_of") == "process"]
    if before:
        found.append(
            "Memory is the peak of each training process; Python and PyTorch alone account for "
            f"{max(before) / 2**20:.0f} MiB of it."
        )
    if any(r.get("memory_of") == "GPU" for r in comparison.results.values()):
        found.append("For systems on the GPU, memory is the peak use by tensors during training.")
    if (jobs := side_by_side(comparison)) > 1:
        found.append(f"At times, at least {jobs} runs shared the machine, so each was slower than it would be alone.")
    if sentence := _other_order(comparison):
        found.append(sentence)
    for label, seed in comparison.results:
        for note in comparison.results[label, seed].get("notes", []):
            found.append(f"{label}: {note}.")
    return found


def side_by_side(comparison: Comparison) -> int:
    """The maximum number of runs trained at the same time, if known: a resumed run records only its last part."""
    return max((result.get("side_by_side", 1) for result in comparison.results.values()), default=1)


def largest_step(comparison: Comparison) -> str:
    """The maximum number of tokens in one optimizer step."""
    settings = [entrant.recipe.training for entrant in comparison.plan.entrants]
    return group_digits(max(each.batch_tokens for each in settings if isinstance(each, GradientTraining)))


def _other_order(comparison: Comparison) -> str:
    """A sentence if equal tokens and equal seconds give different rankings."""
    found = other_order(comparison.curves, comparison.plan.match)
    if found is None:
        return ""
    end = "seconds" if comparison.plan.match == "seconds" else "tokens"
    at = f"{found.at:.3g} s" if found.axis == "seconds" else f"{group_digits(found.at)} tokens"
    who = "when the fastest had finished" if found.axis == "seconds" else "all that the slowest had read"
    if found.waited:
        who = "when each had been validated once; for a run that had already ended, at its last validation"
    there = f"at equal {found.axis} ({at}, {who})"
    if found.swapped:
        return (
            f"On the validation text, the order at equal {end} is {in_order(found.final)}; {there} the curves were "
            f"ordered {in_order(found.there)}. The two differ because systems read at different speeds; schedules "
            "that end there could change the second order."
        )
    if found.level and end == "seconds" and not found.waited:  # equal seconds would hide this
        pairs = "; ".join(f"{one} and {other}" for one, other in found.level)
        return f"On the validation text, {there}, perplexities were within 1 % of each other: {pairs}."
    return ""


def methods(comparison: Comparison) -> str:
    """The methods paragraph for a paper."""
    facts = comparison.plan.facts
    done = [result for result in comparison.results.values() if "evaluation" in result]
    devices = sorted({result["device"] for result in done})
    threads = sorted({result["threads"] for result in done})
    sentences = [
        *comparison.task.report.methods(comparison),
        f"Regard {facts['regard']}, {_versions(done)}, on "
        f"{' and '.join(devices)} (CPU threads: {', '.join(map(str, threads))}); {facts['created'][:10]}.",
    ]
    return " ".join(sentences)


def intervals_of(comparison: Comparison) -> str:
    """The rest of the sentence on intervals: how seeds and pairs are treated."""
    words = " and over seeds" if comparison.seeds > 1 else ""
    words += ": 95 % intervals of Student's t"
    words += " from the variances of both, with Satterthwaite's degrees of freedom" if comparison.seeds > 1 else ""
    return words + "; differences are paired, and their p-values corrected for the number of pairs (Holm 1979)."


def training(comparison: Comparison, each: str) -> list[str]:
    """How the neural systems were trained, in a sentence that begins with `each`; none if there are none."""
    plan, facts = comparison.plan, comparison.plan.facts
    neural = [entrant for entrant in plan.entrants if not entrant.counted]
    if not neural:
        return []
    seeds = sorted({seed for entrant in neural for seed in entrant.seeds})
    looks = neural[0].recipe.training.validations
    budget = f"{plan.budget:g} s" if plan.unit == "seconds" else f"{group_digits(plan.budget)} {comparison.task.tokens}"
    equal = f"{each} was trained for {budget}"
    if plan.match == "parameters":
        equal += f" with its width chosen to have about {group_digits(facts['target_parameters'])} parameters"
    own = "its default settings"
    if comparison.trials:
        own = (
            f"settings chosen by validation in {len(next(iter(comparison.trials.values())))} trials of the same budget"
        )
    return [
        f"{equal}, at size {facts['size']} with {own} ({'; '.join(_optimisers(comparison))}), "
        f"with {'seed 1' if len(seeds) == 1 else f'seeds 1 to {seeds[-1]}'}; the weights with the {_best(comparison)} "
        f"among {f'about {looks} equally spaced' if looks else 'its'} validations were tested."
    ]


def _best(comparison: Comparison) -> str:
    by = {getattr(entrant.recipe.training, "select", "loss") for entrant in comparison.plan.entrants}
    return "highest validation BLEU" if by == {"bleu"} else "lowest validation loss"


def _versions(done: list[dict[str, Any]]) -> str:
    return " and ".join(sorted({f"PyTorch {result['torch']}, Python {result['python']}" for result in done}))


def _optimisers(comparison: Comparison) -> list[str]:
    """How each was trained; systems with the same settings share a sentence."""
    groups: dict[str, list[str]] = {}
    for entrant in comparison.plan.entrants:
        settings = entrant.recipe.training
        if isinstance(settings, GradientTraining):
            words = f"{settings.optimizer}, learning rate {settings.learning_rate:g}, {settings.schedule}"
            groups.setdefault(f"{words}, {group_digits(settings.batch_tokens)} tokens per step", []).append(
                entrant.label
            )
    return [f"{', '.join(labels)}: {words}" for words, labels in groups.items()]
