"""Tuning with equal effort: every system gets K trials of the same cost from one declared space.

The space is `recipes/tuning/space.toml`, plus the [tune] section of a system's own file. Trial 1 has the default
settings. Trial j > 1 has the point j − 1 of a Halton sequence (1960), which is spread more evenly than random points;
all systems get the same points. Trials are runs of a plan in a separate folder, with seeds that no final run has.
They are validated and never tested. The final runs get the settings of the trial with the best validation.

The expected result of k trials is the mean of the best of k over all choices of k of the K trials:

    E[best of k] = Σ_i v_(i) C(K − i, k − 1) / C(K, k)      v_(1) … v_(K): best first (Tang et al. 2020)
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from regard.base.errors import RegardError
from regard.base.numbers import group_digits, pluralize
from regard.comparison.elsewhere import elsewhere
from regard.comparison.plan import Plan, open_plan
from regard.comparison.processes import run_all
from regard.comparison.question import OWNED, Question, Rung, match_for
from regard.comparison.task import Results
from regard.evaluation.intervals import DRAWS, interval
from regard.report.progress import say
from regard.runs.recipe import Recipe
from regard.runs.store.lock import claimed
from regard.systems.own.code import is_own
from regard.systems.sizes import FOLDER as SIZES_FOLDER

SPACE = SIZES_FOLDER.parent / "tuning" / "space.toml"
FIRST_SEED = 100_000  # seeds of the trials: trial j has FIRST_SEED + j
BASES = (2, 3, 5, 7, 11, 13, 17, 19)  # bases of the Halton sequence, one for each setting
Settings = dict[str, dict[str, Any]]


@cache
def _tables() -> dict[str, dict[str, dict[str, Any]]]:
    return tomllib.loads(SPACE.read_text(encoding="utf-8"))


def space_of(recipe: Recipe, given: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """The settings that are tuned, section.key → {low, high} or {values}, without those that the command gives."""
    own = {}
    if not is_own(recipe.system):
        own = tomllib.loads((SIZES_FOLDER / f"{recipe.system}.toml").read_text(encoding="utf-8")).get("tune", {})
    space = {**_tables().get(recipe.size, {}), **own}
    space |= {key: choice for key, choice in _tables()["all"].items() if key not in space}
    has = {f"{part}.{f.name}" for part in ("model", "training") for f in fields(getattr(recipe, part))}
    fixed = {f"{part}.{name}" for part, values in given.items() for name in values}
    return {key: choice for key, choice in space.items() if key in has and key not in fixed}


def point(number: int, base: int) -> float:
    """The radical inverse of a number: its digits in this base, mirrored at the radix point."""
    value, share = 0.0, 1.0
    while number:
        share /= base
        value += share * (number % base)
        number //= base
    return value


def draw(space: Mapping[str, Mapping[str, Any]], trial: int, steps: float = math.inf) -> Settings:
    """The settings of a trial; trial 1 has the defaults. A warm-up takes at most a third of `steps` at the smallest
    batch size (for a budget in tokens).
    """
    found: Settings = {}
    for (key, choice), base in zip(space.items() if trial > 1 else (), BASES):
        at, (part, name) = point(trial - 1, base), key.split(".")
        if "values" in choice:
            value = choice["values"][int(at * len(choice["values"]))]
        else:
            value = choice["low"] * (choice["high"] / choice["low"]) ** at
            value = round(value) if isinstance(choice["low"], int) else float(f"{value:.2g}")
        found.setdefault(part, {})[name] = value
    training = found.get("training", {})
    if "warmup" in training and "batch_tokens" in training and math.isfinite(steps):
        training["warmup"] = max(1, min(training["warmup"], int(steps / training["batch_tokens"] / 3)))
    return found


def trials_folder(folder: Path) -> Path:
    """Where the trials of a comparison or a run are."""
    return folder.with_name(f"{folder.name}-trials")


def trial_rungs(question: Question) -> list[Rung]:
    """K rows for each trained system."""
    rows, tokens = [], question.limit.amount if question.limit.unit == "tokens" else math.inf
    for rung in question.rungs():
        if not rung.counted:
            space = space_of(question.recipe(rung), question.settings)
            rows += [
                replace(rung, label=f"{rung.label}-trial{n}", settings=draw(space, n, tokens), seed=FIRST_SEED + n)
                for n in range(1, question.tune + 1)
            ]
    return rows


def stated_cost(question: Question) -> str:
    """A sentence before anything is trained."""
    trained = [rung for rung in question.rungs() if not rung.counted]
    trials, final, limit = question.tune * len(trained), question.seeds * len(trained), question.limit
    whole = limit.amount * (trials + final)
    price = f"{whole / 60:.3g} minutes" if limit.unit == "seconds" else f"{group_digits(whole)} tokens"
    each = f"{limit.amount:g} s" if limit.unit == "seconds" else f"{group_digits(limit.amount)} tokens"
    return (
        f"Tuning: {pluralize(question.tune, 'trial')} of each system, {trials} training runs, then {final} more with "
        f"the chosen settings; {each} each, {price} in total."
    )


def run_trials(question: Question, folder: Path, jobs: int = 1, on: str = "") -> dict[str, list[dict[str, Any]]]:
    """Runs the trials that are missing and returns the trials of each system, in their order.

    Args:
        question: The question of the comparison; its `tune` is the number of trials.
        folder: The folder of the comparison or the run; the trials are saved next to it.
        jobs: The number of trials at a time.
        on: Other machines, as in `compare`.

    Returns:
        Label → a list of {settings, loss, seconds} (`loss` None if the trial failed or diverged).
    """
    place, rows = trials_folder(folder), trial_rungs(question)
    with claimed(place):
        plan = open_plan(question, place, 1 if on else jobs, trials=rows)
        results, _ = run_all(plan, jobs, elsewhere(on, place.resolve()) if on else None)
    return _by_system(question, plan, results)


def _by_system(question: Question, plan: Plan, results: Results) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for rung in trial_rungs(question):
        result = results[rung.label, rung.seed]
        recipe = next(entrant.recipe for entrant in plan.entrants if entrant.label == rung.label)
        loss = result.get("evaluation", {}).get("validation")
        found.setdefault(rung.label.rpartition("-trial")[0], []).append(
            {
                "settings": rung.settings,
                "shown": _shown(recipe, space_of(recipe, question.settings)),
                "loss": loss if loss is not None and math.isfinite(loss) else None,
                "seconds": result.get("training_seconds"),
            }
        )
    return found


def _shown(recipe: Recipe, space: Mapping[str, Any]) -> dict[str, Any]:
    """The values of the tuned settings, including the defaults."""
    return {key: getattr(getattr(recipe, key.split(".")[0]), key.split(".")[1]) for key in space}


def tuned_rungs(question: Question, trials: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[Rung]:
    """The rows of the question with their chosen settings."""
    rows = []
    for rung in question.rungs():
        each = trials.get(rung.label)
        rows.append(replace(rung, settings=chosen(each)["settings"]) if each else rung)
    return rows


def chosen(trials: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The trial with the best validation; the default if every trial failed."""
    return min(trials, key=lambda trial: math.inf if trial["loss"] is None else trial["loss"])


def tune_recipe(recipe: Recipe, trials: int, settings: Mapping[str, Mapping[str, Any]], folder: Path) -> Recipe:
    """The recipe of one system with the settings that its trials chose.

    Args:
        recipe: The recipe to train; its budget is the cost of a trial.
        trials: The number of trials; finished trials are not repeated.
        settings: The settings that were given, which are not tuned.
        folder: The folder of the run; the trials are saved next to it.

    Returns:
        The recipe with the chosen settings.

    Raises:
        RegardError: If the recipe has no budget, or its task cannot be compared.
    """
    budget = getattr(recipe.training, "budget", "")
    if not budget or recipe.start is not None:
        raise RegardError(
            "--tune needs --budget, the budget of one trial, and always trains from scratch: leave out --from."
        )
    fixed = {part: {k: v for k, v in values.items() if f"{part}.{k}" not in OWNED} for part, values in settings.items()}
    question = Question(
        (recipe.system,), recipe.data.corpus, match_for(budget), budget, size=recipe.size, settings=fixed, tune=trials
    )
    say(stated_cost(question))
    (found,) = run_trials(question, folder).values()
    taken = chosen(found)
    if taken["loss"] is None:
        raise RegardError(f"Every trial failed or diverged; their logs are in {trials_folder(folder)}.")
    number = next(place for place, trial in enumerate(found, start=1) if trial is taken)
    say(f"Trial {number} is the best, with validation loss {taken['loss']:.4f}: {in_words(taken['shown'])}.")
    for best in best_of_k({"": found}):
        low, high = best.intervals[""]
        say(f"best of {best.k}: expected validation loss {best.losses['']:.4f} ({low:.4f} to {high:.4f})")
    return recipe.replace(**taken["settings"])


# -- what k trials would have given ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class BestOf:
    """The expected best validation loss of each system after k trials, and the certainty of the order."""

    k: int
    losses: dict[str, float]  # best first
    intervals: dict[str, tuple[float, float]]
    ahead: float  # share of the draws in which the first is better than the second

    @property
    def verdict(self) -> str:
        """The system that leads with k trials, if these trials show it."""
        labels = list(self.losses)
        if len(labels) < 2:
            return ""
        return f"{labels[0]} leads" if self.ahead >= 0.975 else f"undecided: {labels[0]} or {labels[1]}"


def expected_best(losses: np.ndarray, k: int) -> np.ndarray:
    """The mean, over all choices of k of the K losses [..., K], of the smallest."""
    count = losses.shape[-1]
    weights = [math.comb(count - rank, k - 1) / math.comb(count, k) for rank in range(1, count + 1)]
    ordered = np.sort(losses, axis=-1)
    return np.where(np.array(weights) > 0, ordered, 0.0) @ np.array(weights)


def best_of_k(trials: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[BestOf]:
    """For k = 1 … K; intervals by resampling the trials. A failed trial counts as the worst one that did not fail."""
    random, count = np.random.default_rng(1), len(next(iter(trials.values()), ()))
    picks = random.integers(0, max(count, 1), (DRAWS // 10, count))  # the same for each system: they share the points
    losses = {label: _filled(each) for label, each in trials.items() if any(t["loss"] is not None for t in each)}
    found = []
    for k in range(1, count + 1):
        means = {label: float(expected_best(values, k)) for label, values in losses.items()}
        order = sorted(means, key=lambda label: means[label])
        draws = {label: expected_best(values[picks], k) for label, values in losses.items()}
        inside = {label: interval(draws[label]) or (math.nan, math.nan) for label in order}
        ahead = float(np.mean(draws[order[0]] < draws[order[1]])) if len(order) > 1 else 1.0
        found.append(BestOf(k, {label: means[label] for label in order}, inside, ahead))
    return found


def _filled(trials: Sequence[Mapping[str, Any]]) -> np.ndarray:
    known = [trial["loss"] for trial in trials if trial["loss"] is not None]
    return np.array([max(known) if trial["loss"] is None else trial["loss"] for trial in trials])


def in_words(settings: Mapping[str, Any]) -> str:
    """learning rate 0.01, batch tokens 512."""
    named = {key.partition(".")[2].replace("_", " "): value for key, value in settings.items()}
    return ", ".join(f"{name} {group_digits(v) if isinstance(v, int) else f'{v:g}'}" for name, v in named.items())


def validated(run: Any) -> dict[str, Any]:
    """The part of result.json for a trial: its best validation, in the run's own process."""
    from regard.runs.store.history import read_metrics

    losses = [row["loss"] for row in read_metrics(run.folder / "metrics.jsonl") if row.get("split") == "valid"]
    return {"evaluation": {"validation": min(filter(math.isfinite, losses), default=None)}}
