"""The question of a comparison: its systems, its data and the controlled quantity. Conflicts are found before training.

The systems determine the task. If no system is named, the data does: sentence pairs mean translation, other text means
language models. Data that is both counts as text, except the phrasebook, which is made for translation.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from regard.base.errors import RegardError
from regard.base.settings import check_choice, check_range, did_you_mean
from regard.comparison.task import task_named
from regard.corpora.downloads import CATALOGUE
from regard.runs.compose import compose_recipe
from regard.runs.recipe import Recipe
from regard.systems.catalogue import SYSTEMS, System, find
from regard.systems.own.code import is_own, locate
from regard.systems.sizes import SIZES
from regard.text.corpus import is_named
from regard.text.pairs import is_pairs
from regard.training.hyperparameters import Budget

MATCHES = ("tokens", "seconds", "parameters")
BUDGETS = {"tokens": "2M", "seconds": "60s", "parameters": "2M"}
UNITS = {"tokens": "tokens", "seconds": "seconds", "parameters": "tokens"}  # units of a budget
MAX_TRIALS = 1000
ORDERS = (2, 5)  # of the Kneser-Ney n-grams in every table

OWNED = {  # settings that a comparison sets for all systems
    "data.corpus": "choose the text with --data",
    "training.seed": "--seeds N trains with the seeds 1 to N",
    "training.steps": "set one budget for all systems with --budget",
    "training.budget": "set one budget for all systems with --budget",
}


@dataclass(frozen=True)
class Rung:
    """One row of the table: a system, its fixed settings, and its label."""

    label: str
    entry: System
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    again: bool = False  # a placebo: the row before it with other seeds
    seed: int = 0  # of a trial; 0: the seeds of the question

    @property
    def counted(self) -> bool:
        return self.entry.trained == "counting"


@dataclass(frozen=True)
class Question:
    systems: tuple[str, ...]  # empty: all systems
    data: str
    match: str = "tokens"
    budget: str = ""
    seeds: int = 1
    size: str = "small"
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    prompt: str = ""  # the prompt of samples; empty: the first words of the held-out text
    placebo: bool = False  # compare each system with itself
    tune: int = 0  # trials of each system (`tuning.py`); 0: default settings

    def __post_init__(self) -> None:
        check_choice("--match", self.match, MATCHES)
        check_choice("--size", self.size, SIZES)
        check_range("--seeds", self.seeds, 1)
        check_range("--tune", self.tune, 0, MAX_TRIALS)
        if not self.data:
            raise RegardError("Choose the text to compare the systems on with --data (`regard data` lists some).")
        if self.limit.unit != UNITS[self.match]:
            example = BUDGETS[self.match]
            raise RegardError(
                f"--match {self.match} needs a budget in {UNITS[self.match]}, such as {example}, not {self.budget!r}."
            )
        for part, values in self.settings.items():
            for name in values:
                if advice := OWNED.get(f"{part}.{name}"):
                    raise RegardError(f"{part}.{name} cannot be set for a single system here: {advice}.")
        if self.match == "parameters" and "width" in self.settings.get("model", {}):
            raise RegardError(
                "--match parameters chooses every system's model.width: leave model.width out, or use --match tokens."
            )

    @property
    def limit(self) -> Budget:
        try:
            return Budget.parse(self.budget or BUDGETS[self.match], 0)
        except RegardError:
            raise RegardError(
                f"--budget {self.budget!r} is neither a time (60s, 10m, 2h, 60s of steps) nor tokens (500k, 5M)."
            ) from None

    @property
    def task(self) -> str:
        """The common task of the named systems; if none is named, that of the data."""
        tasks: dict[str, str] = {}
        for name in self.systems:
            tasks.setdefault(find(name).task, name)
        if not tasks:
            return "translation" if asks_for_translation(self.data) else "language model"
        if len(tasks) > 1:
            (task, name), (other_task, other) = list(tasks.items())[:2]
            raise RegardError(
                f"{name} is a {task} system and {other} is a {other_task} system: compare systems for the same task."
            )
        return next(iter(tasks))

    def rungs(self) -> list[Rung]:
        """The rows, oldest first, the user's own last; language models always include two n-grams."""
        if twice := next((name for name in self.systems if self.systems.count(name) > 1), None):
            raise RegardError(f"{twice} is listed twice; list each system once.")
        task = task_named(self.task)
        named = list(self.systems) or [system.name for system in SYSTEMS if system.task == task.name]
        always = [] if self.placebo else list(task.always)
        entries = [find(name) for name in dict.fromkeys([*always, *named])]
        order = [system.name for system in SYSTEMS]
        entries.sort(key=lambda entry: order.index(entry.name) if entry.name in order else len(order))
        rungs: list[Rung] = []
        for entry in entries:
            if self.placebo and entry.trained != "counting":
                label = _label(entry.name, [rung.label for rung in rungs])
                rungs += [Rung(label, entry), Rung(f"{label}-again", entry, again=True)]
            elif self.placebo:
                continue  # counts have no seed
            elif entry.trained == "counting":
                rungs += [Rung(f"{n}-gram", entry, {"model": {"order": n, "smoothing": "kneser-ney"}}) for n in ORDERS]
            else:
                rungs.append(Rung(_label(entry.name, [rung.label for rung in rungs]), entry))
        if not rungs:
            raise RegardError(
                "--placebo trains each system again with different seeds, but n-grams have no seeds: name another "
                "system."
            )
        return rungs

    def recipe(self, rung: Rung, more: Mapping[str, Mapping[str, Any]] | None = None) -> Recipe:
        """The recipe of a row, with the settings that apply to its system, and `more`."""
        own = _keys(compose_recipe(rung.entry.name, size=self.size))
        tree: dict[str, dict[str, Any]] = {"data": {"corpus": self.data}}
        if not rung.counted:
            unit = "s of steps" if self.limit.unit == "seconds" else ""  # without validations
            tree["training"] = {"budget": f"{self.limit.amount:.12g}{unit}"}
        for settings in (self.settings, rung.settings, more or {}):  # the row's fixed settings win
            for part, values in settings.items():
                tree.setdefault(part, {}).update({k: v for k, v in values.items() if f"{part}.{k}" in own})
        try:
            return compose_recipe(rung.entry.name, size=self.size, settings=tree)
        except RegardError as error:
            raise RegardError(f"{rung.label}: {error}") from None

    def check_settings(self, rungs: Sequence[Rung]) -> list[str]:
        """Checks that every setting applies to some row; returns sentences about those that a neural system lacks."""
        free = {rung.label: _keys(compose_recipe(rung.entry.name, size=self.size)) for rung in rungs}
        counted = [rung for rung in rungs if rung.counted]
        fixed = {f"{part}.{name}" for rung in counted for part in rung.settings for name in rung.settings[part]}
        for rung in counted:
            free[rung.label] -= fixed
        known, notes = sorted(set().union(*free.values())), []
        for part, values in self.settings.items():
            for key in (f"{part}.{name}" for name in values):
                having = [label for label, keys in free.items() if key in keys]
                if not having:
                    if key in fixed:
                        orders = " and ".join(map(str, ORDERS))
                        raise RegardError(
                            f"The n-grams in a table are Kneser-Ney models of {orders} words: leave {key} out."
                        )
                    raise RegardError(f"No system in this comparison has a setting {key}{did_you_mean(key, known)}")
                if any(not rung.counted and rung.label not in having for rung in rungs):
                    notes.append(f"{key} {values[key.partition('.')[2]]} applies to {', '.join(having)}.")
        return notes

    def tree(self) -> dict[str, Any]:
        """The identity of a comparison as JSON, including the code of the user's own systems."""
        path = Path(self.data)
        own = asdict(self)
        for name in ("placebo", "tune"):
            if not own[name]:
                del own[name]  # for compatibility with comparisons that were made before it existed
        return {
            **own,
            "systems": [locate(name).name if is_own(name) else name for name in self.systems],
            "data": str(path.resolve()) if path.exists() else self.data,
            "settings": {p: {k: str(v) for k, v in values.items()} for p, values in self.settings.items()},
            "code": {locate(name).name: locate(name).digest for name in self.systems if is_own(name)},
        }

    def command(self, jobs: int = 1) -> str:
        """The command line of this question, without the folder."""
        words = ["regard", "compare", *self.systems, "--data", self.data, "--match", self.match]
        words += ["--budget", self.budget or BUDGETS[self.match], "--seeds", str(self.seeds), "--size", self.size]
        words += ["--prompt", self.prompt] if self.prompt else []
        words += ["--placebo"] if self.placebo else []
        words += ["--tune", str(self.tune)] if self.tune else []
        for part, values in self.settings.items():
            for name, value in values.items():
                words += [f"--{part}.{name.replace('_', '-')}", str(value)]
        return shlex.join([*words, "--jobs", str(jobs)] if jobs > 1 else words)


def match_for(budget: str) -> str:
    """The default of `match`: the unit of the budget."""
    try:
        unit = Budget.parse(budget, 0).unit
    except RegardError:  # `Question` raises the error
        return "tokens"
    return "seconds" if unit == "seconds" else "tokens"


def asks_for_translation(data: str) -> bool:
    """True if this data, with no system named, implies translation: pairs that are not also a text."""
    if is_named(data):
        return data == "phrasebook" or (data in CATALOGUE and is_pairs(data))
    path = Path(data)
    text = any(path.glob("train.txt*")) if path.is_dir() else ".txt" in path.suffixes
    return is_pairs(data) and not text


def _keys(recipe: Recipe) -> set[str]:
    return {f"{part}.{f.name}" for part in ("data", "model", "training") for f in fields(getattr(recipe, part))}


def _label(name: str, taken: list[str]) -> str:
    """A system's name; for a user's own, its class, numbered if another has the same name."""
    label = wanted = name.rpartition(":")[2]
    number = 1
    while label in taken:
        number += 1
        label = f"{wanted}-{number}"
    return label
