"""A finished comparison: its rows, their ranking, and its output for terminal, file and paper."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import cached_property, partial
from itertools import combinations
from pathlib import Path
from typing import Any

from regard.base.arguments import checked
from regard.base.errors import RegardError
from regard.base.numbers import group_digits
from regard.base.settings import check_range
from regard.base.writing import write_text
from regard.comparison.curves import read_curves
from regard.comparison.differences import Difference, alike, named
from regard.comparison.elsewhere import elsewhere, read_place
from regard.comparison.language_task import COLUMNS
from regard.comparison.plan import Plan, open_plan
from regard.comparison.plan import check_free as check_folder
from regard.comparison.power import plan_power
from regard.comparison.processes import run_all
from regard.comparison.question import Question, Rung, match_for
from regard.comparison.task import Results
from regard.comparison.tuning import best_of_k, chosen, run_trials, stated_cost, tuned_rungs
from regard.evaluation.intervals import LEVEL, holm, paired_difference
from regard.report.progress import say
from regard.report.table import csv_text, latex_text, plain_table
from regard.runs.lists import GivenData, as_file
from regard.runs.store.lock import claimed, free_folder
from regard.systems.own.code import is_own, trust_code

MIN_SEEDS = 3  # seeds of each trained system, before a difference is called significant
ALL = 1000  # jobs at a time on other machines, which have their own queue
__all__ = ["COLUMNS", "Comparison", "Difference", "check_free", "compare"]


@checked
def compare(
    systems: Sequence[str] | str = (),
    *,
    data: GivenData = "",
    match: str = "",
    budget: str = "",
    seeds: int = MIN_SEEDS,
    size: str = "small",
    run: str | Path | None = None,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    prompt: str = "",
    jobs: int | None = None,
    on: str = "",
    placebo: bool = False,
    tune: int = 0,
) -> Comparison:
    """Train systems of one task under the same conditions, test them on the same data, and compare them.

    Example:
        print(regard.compare(["lstm", "gpt"], data="my.txt", budget="5M", seeds=3).table())

    Args:
        systems: Names of systems of one task. Default: all language models or all translators, depending on the data.
        data: The name of a corpus, a path, a list of lines, or a list of pairs of source and target.
        match: The quantity that is equal for all systems: "tokens", "seconds" or "parameters". Default: seconds if the
            budget is a time, otherwise tokens.
        budget: How long each system trains: a number of tokens ("5M") or a time ("60s").
        seeds: The number of runs of each system, with seeds 1, 2, …. Fewer than 3 cannot show differences between
            systems, only between runs.
        size: The size of every system.
        run: The folder of the comparison; an interrupted comparison continues there. Default: a new folder in runs/.
        settings: Settings for all systems, by section, as in `train`.
        prompt: The prompt for samples from language models.
        jobs: The number of runs to train at the same time, each in its own process. It affects only their speed.
            Default: 1, or all of them on other machines.
        on: "slurm" or "ray", to run on other machines; options are given as in "slurm:partition=gpu,time=600".
        placebo: Compare each system with itself, trained with other seeds, to measure how often the table shows a
            difference that does not exist.
        tune: The number of tuning trials for each system. Each trial has this budget, and the trial with the best
            validation loss determines the settings. The trials are saved in a folder next to `run`. 0 means no tuning.

    Returns:
        The comparison, with a row for each system.

    Raises:
        RegardError: If an argument, a setting or the data is wrong, or if every run failed.
    """
    names, data = (systems,) if isinstance(systems, str) else tuple(systems), as_file(data)
    match = match or match_for(budget)
    for name in names:
        if is_own(name):
            trust_code(name)
    question = Question(names, data, match, budget, seeds, size, settings or {}, prompt, placebo, tune)
    if on:
        read_place(on)
    if jobs is None:
        jobs = 1 if not on or match == "seconds" else ALL
    check_range("--jobs", jobs, 1)
    if jobs > 1 and match == "seconds":
        raise RegardError("--match seconds measures time, and concurrent runs slow each other down: use --jobs 1.")
    default = Path("runs") / f"compare-{Path(data).stem}"
    if run is not None:
        check_folder(Path(run))
    with nullcontext(Path(run)) if run is not None else free_folder(default) as folder, claimed(folder):
        tuned = partial(_tuned, question, folder, jobs, on) if tune else None
        plan = open_plan(question, folder, 1 if on else jobs, chosen=tuned)
        if not (folder / "report.html").exists():
            say(plan_power(plan))
        results, made = run_all(plan, jobs, elsewhere(on, folder.resolve()) if on else None)
    comparison = Comparison(plan, results)
    if not comparison.order:
        raise RegardError(f"Every run failed: {next(iter(comparison.failed.values()))}")
    if made or not comparison.report.exists():
        from regard.comparison.comparison_page import comparison_page

        write_text(comparison.report, comparison_page(comparison))
    return comparison


def _tuned(question: Question, folder: Path, jobs: int, on: str) -> tuple[list[Rung], dict[str, Any]]:
    """The rows with their chosen settings, and the trials as a fact of the plan."""
    say(stated_cost(question))
    trials = run_trials(question, folder, jobs, on)
    return tuned_rungs(question, trials), {"tuning": trials}


class Comparison:
    """A finished comparison: its rows, their ranking, and its output for terminal, file and paper.

    Returned by `regard.compare`.

    Args:
        plan: The systems, the data and the budget.
        results: The results of each run, by system and seed.
    """

    def __init__(self, plan: Plan, results: Results):
        self.plan, self.results, self.folder, self.task = plan, results, plan.folder, plan.task
        self.report = plan.folder / "report.html"
        self.curves = read_curves(plan, results)
        self.scores = self.task.scores(plan, results)

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """One row for each system, best first; numbers over several seeds are means."""
        return sorted(map(self._row, range(len(self.plan.entrants))), key=self._rank)

    @property
    def columns(self) -> Mapping[str, str]:
        """Key of a row → heading, without columns that are empty in all rows, such as alignment errors without gold
        links.
        """
        headings = self.task.columns.headings
        return {key: heading for key, heading in headings.items() if any(row.get(key) is not None for row in self.rows)}

    @property
    def seeds(self) -> int:
        """The number of runs of each system."""
        return max(len(entrant.seeds) for entrant in self.plan.entrants)

    @property
    def fewest_seeds(self) -> int:
        """The fewest tested seeds of a ranked system that was trained; 0 if none was (n-grams need no seed)."""
        trained = {entrant.label for entrant in self.plan.entrants if not entrant.counted}
        return min((row["seeds"] for row in self.order if row["label"] in trained), default=0)

    @property
    def enough_seeds(self) -> bool:
        """Whether there are enough seeds to call a difference significant: with fewer, two runs of one system often
        differ.
        """
        return self.fewest_seeds >= MIN_SEEDS

    @cached_property
    def order(self) -> list[dict[str, Any]]:
        """The rows that have a score, best first."""
        return sorted((row for row in self.rows if row[self.task.score] is not None), key=self._rank)

    @cached_property
    def differences(self) -> list[Difference]:
        """Paired differences between every two rows, on the same test data; p-values are corrected for their number."""
        found, scores = [], self.scores
        for better, worse in combinations([row["label"] for row in self.order], 2):
            pair = [scores.by_document[label] for label in (better, worse)]
            estimate = replace(paired_difference(*pair), value=scores.estimate(better) - scores.estimate(worse))
            if (inside := estimate.interval()) is not None:
                between = sum(max(0.0, v) * len(x) for v, x in zip(estimate.seeds, [x for x in pair if len(x) > 1]))
                found.append(
                    Difference(better, worse, estimate.value, *inside, estimate.p_value, estimate.documents, between)
                )
        corrected = holm([difference.p_value for difference in found])
        return [replace(difference, p_value=p) for difference, p in zip(found, corrected)]

    @cached_property
    def trials(self) -> dict[str, list[dict[str, Any]]]:
        """The trials of each system, if they were tuned: the settings and the best validation loss of each trial."""
        return dict(self.plan.facts.get("tuning") or {})

    @property
    def telling(self) -> list[Difference]:
        """The differences to report: between neighbors, and all that may be zero."""
        place = {row["label"]: number for number, row in enumerate(self.order)}
        return [d for d in self.differences if place[d.worse] - place[d.better] == 1 or not d.beyond]

    @property
    def failed(self) -> dict[str, str]:
        """The error of each failed run, by its name."""
        return {
            entrant.name(seed): self.results[entrant.label, seed]["failed"]
            for entrant, seed in self.plan.runs
            if "failed" in self.results[entrant.label, seed]
        }

    @property
    def shown(self) -> list[dict[str, Any]]:
        """The rows for display, with the same digits in every row of a column."""
        digits = self.task.columns.digits
        return [
            row | {key: form(row[key]) for key, form in digits.items() if _finite(row.get(key))} for row in self.rows
        ]

    # -- output ------------------------------------------------------------------------------------------------------

    def table(self) -> str:
        """The rows as a table for a terminal.

        Returns:
            Lines of text.
        """
        return plain_table(self.shown, self.columns, self.title)

    def csv(self) -> str:
        """The rows as CSV, with all their digits.

        Returns:
            The content of a file.
        """
        return csv_text(self.rows, self.task.columns.csv)

    def latex(self) -> str:
        """The rows as a LaTeX table.

        Returns:
            The source of the table, with its caption.
        """
        columns = {key: heading for key, heading in self.columns.items() if key != "training_seconds"}
        return latex_text(self.shown, columns, f"{self.title}. {self.ranking}")

    @property
    def title(self) -> str:
        """The corpus, the split, and the quantity that was equal for all systems."""
        facts, task, budget = self.plan.facts, self.task, group_digits(self.plan.budget)
        equal = {
            "tokens": f"{task.neural} read {budget} {task.tokens}",
            "seconds": f"{task.neural} trained for {self.plan.budget:g} s",
            "parameters": f"{task.neural} has about {group_digits(facts['target_parameters'] or 0)} parameters "
            f"and read {budget} {task.tokens}",
        }[self.plan.match]
        return f"{facts['corpus']['name']}, {facts['split']} split: {equal}"

    @property
    def ranking(self) -> str:
        """The systems, best first, and the groups that do not differ."""
        labels = [row["label"] for row in self.order]
        words = "These runs by" if self.fewest_seeds == 1 else "By"
        words += f" {self.task.score_name}: {', '.join(labels)}" + (" (best first)" if len(labels) > 1 else "")
        groups = alike(labels, self.differences)
        if groups and self.enough_seeds:
            return f"{words}. Not significantly different (p > {self.alpha}): {named(groups)}."
        if groups:
            within = "Tied as runs, within" if self.fewest_seeds == 1 else "Within"
            return f"{words}. {within} {self.noise}: {named(groups)}."
        if len(labels) > 1 and len(self.differences) == math.comb(len(labels), 2):
            if self.enough_seeds:
                return f"{words}. All differences are significant (p < {self.alpha})."
            return f"{words}. {'As runs, all' if self.fewest_seeds == 1 else 'All'} differ by more than {self.noise}."
        return f"{words}." if labels else ""

    @property
    def alpha(self) -> str:
        """The significance level, and the number of pairs for which p-values are corrected."""
        pairs = len(self.differences)
        return f"{1 - LEVEL:.2f}" + (f", corrected for {pairs} pairs" if pairs > 1 else "")

    @property
    def noise(self) -> str:
        """The sources of noise that the intervals cover if there are too few seeds for a significance test."""
        return f"the noise of {self.task.documents}" + (" and of two seeds" if self.fewest_seeds == 2 else "")

    # ----------------------------------------------------------------------------------------------------------------

    def _rank(self, row: Mapping[str, Any]) -> tuple[bool, float]:
        """Sort key: lower is better; rows without a score come last, even after an infinite one."""
        score = row[self.task.score]
        return score is None, (score or 0.0) * (-1 if self.task.more_is_better else 1)

    def _row(self, number: int) -> dict[str, Any]:
        entrant = self.plan.entrants[number]
        results = [self.results[entrant.label, seed] for seed in entrant.seeds]
        done = [result for result in results if "evaluation" in result]
        row: dict[str, Any] = {
            "label": entrant.label,
            "system": entrant.recipe.system,
            "year": entrant.year,
            "seeds": len(done),
            "width": getattr(entrant.recipe.model, "width", None),
            self.task.score: None,
        }
        if failures := [result["failed"] for result in results if "failed" in result]:
            row["failed"] = failures[0]
        if not done:
            return row
        tokens, seconds = _mean(done, "tokens_seen"), _mean(done, "training_seconds")
        memory = max(result["peak_memory_bytes"] for result in done)
        return row | {
            "parameters": done[0]["parameters"],
            "tokens_seen": round(tokens),
            **self.scores.row(entrant.label, done),
            "training_tokens_per_second": round(tokens / max(seconds, 1e-9)),
            "peak_memory_bytes": memory,
            "memory": f"{group_digits(memory / 2**20)} MiB",
            "memory_of": done[0]["memory_of"],
            "training_seconds": round(seconds, 2),
            **self._tuning(entrant.label),
        }

    def _tuning(self, label: str) -> dict[str, Any]:
        """The settings that tuning chose and the improvement, for a tuned row."""
        if not (trials := self.trials.get(label)):
            return {}
        curve = [
            {"k": best.k, "loss": best.losses[label], "interval": best.intervals[label], "verdict": best.verdict}
            for best in best_of_k(self.trials)
            if label in best.losses
        ]
        losses = {"default_loss": trials[0]["loss"], "chosen_loss": chosen(trials)["loss"]}
        return {"tuning": {"trials": trials, "chosen": chosen(trials)["shown"], **losses, "best_of": curve}}


def _mean(results: Sequence[Mapping[str, Any]], key: str) -> float:
    return sum(result[key] for result in results) / len(results)


def _finite(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def check_free(path: Path | None, option: str) -> None:
    """Refuses an existing output file before training, not after it."""
    if path is not None and path.exists():
        raise RegardError(f"{path} already exists: choose another file for {option}.")
