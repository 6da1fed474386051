"""The plan of a comparison: the exact recipes for a question, stored in the comparison's folder.

comparison.json    the question, the recipe of every row, how all are tested
tokenizer.json     the common tokenizer (tokenizer.source.json if the source has its own)
test.json          translators: the test sentences and their references
2-gram/ lstm/ …    the runs (lstm-seed2/ … with more seeds)
report.html        the report

The trials of `--tune` are a separate plan, trials.json in a folder next to it.
"""

from __future__ import annotations

import datetime
import json
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import regard
from regard.base.device import pick_device
from regard.base.digests import check_digests, file_digest, with_digest, without_digest
from regard.base.errors import RegardError
from regard.base.numbers import group_digits
from regard.base.reading import MAX_JSON_BYTES, read_whole
from regard.base.writing import write_text
from regard.comparison.question import MATCHES, Question, Rung
from regard.comparison.task import ComparedTask, Ground, task_named
from regard.comparison.width import match_parameters, size_of
from regard.report.progress import say
from regard.runs.recipe import Recipe, compose
from regard.runs.store.folder import TOKENIZER_FILES, Tokenizers
from regard.runs.store.lock import begin, others_files, tidy
from regard.runs.tasks.task import find_task
from regard.systems.catalogue import find
from regard.systems.own.code import is_own, locate, require_trusted
from regard.training.hyperparameters import GradientTraining

FORMAT = 1
FILE, TRIALS = "comparison.json", "trials.json"  # the plan of a comparison, and of the trials that tune its systems
SHARED = (*TOKENIZER_FILES, "test.json")  # files that all runs share
VALIDATIONS = 20  # validations per system, the same for all, since each keeps its best weights


@dataclass(frozen=True)
class Entrant:
    """One row: its recipe for the first seed, and the seeds it is trained with (a counted system has one)."""

    label: str
    year: int | None
    counted: bool
    recipe: Recipe
    seeds: tuple[int, ...]

    def name(self, seed: int) -> str:
        """The name of a run's folder."""
        return self.label if len(self.seeds) == 1 else f"{self.label}-seed{seed}"


@dataclass(frozen=True)
class Plan:
    folder: Path
    question: dict[str, Any]
    match: str
    budget: float
    unit: str
    entrants: tuple[Entrant, ...]
    facts: dict[str, Any]  # corpus, tokenizer, split and conditions of the test, command

    @property
    def task(self) -> ComparedTask:
        return task_named(find(self.entrants[0].recipe.system).task)

    @property
    def tokenizers(self) -> Tokenizers:
        return Tokenizers.load(self.folder, find_task(self.task.name).has_source)

    @property
    def of_trials(self) -> bool:
        """True if its runs are trials, which are validated and never tested."""
        return self.question.get("stage") == TRIALS

    @property
    def runs(self) -> list[tuple[Entrant, int]]:
        return [(entrant, seed) for entrant in self.entrants for seed in entrant.seeds]

    def run_folder(self, entrant: Entrant, seed: int) -> Path:
        return self.folder / entrant.name(seed)

    def write(self) -> None:
        tree = {
            "format": FORMAT,
            "question": self.question,
            "match": self.match,
            "budget": self.budget,
            "unit": self.unit,
            "entrants": [
                {
                    "label": entrant.label,
                    "year": entrant.year,
                    "counted": entrant.counted,
                    "seeds": list(entrant.seeds),
                    "recipe": entrant.recipe.tree(),
                }
                for entrant in self.entrants
            ],
            "facts": self.facts,
            "files": {name: file_digest(self.folder / name) for name in SHARED if (self.folder / name).exists()},
        }
        path = self.folder / (TRIALS if self.of_trials else FILE)
        write_text(path, json.dumps(with_digest(tree), indent=2, ensure_ascii=False) + "\n")

    @classmethod
    def read(cls, folder: Path, question: Mapping[str, Any] | None = None) -> Plan:
        """The plan in a folder, if it answers the question. Its content is not trusted: names are checked before they
        become paths, and code must have been named by the user before it is used."""
        path = plan_file(folder)
        try:
            tree = without_digest(json.loads(read_whole(path, MAX_JSON_BYTES)), path)
            if tree["format"] != FORMAT:
                raise RegardError(f"{folder} was written by a different version of Regard: choose another --run.")
            if question is not None and (difference := _difference(tree["question"], question)):
                raise RegardError(f"{folder} contains a different comparison ({difference}): choose another --run.")
            plan = cls(
                folder,
                tree["question"],
                tree["match"],
                tree["budget"],
                tree["unit"],
                tuple(_read_entrant(entry, path) for entry in tree["entrants"]),
                tree["facts"],
            )
            files = tree.get("files")
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise RegardError(f"{path} is damaged; choose another --run.") from None
        if isinstance(files, dict):  # older comparisons have none
            check_digests(folder, SHARED, files)
        _check_names([entrant.name(seed) for entrant, seed in plan.runs], path)
        if not _is_whole(plan):
            raise RegardError(f"{path} is damaged; choose another --run.")
        return plan


def plan_file(folder: Path) -> Path:
    """The file of the plan in a folder."""
    return folder / (TRIALS if (folder / TRIALS).is_file() else FILE)


def _check_names(names: Sequence[str], where: Path) -> None:
    """Check names read from a file, which become names of folders: letters, digits and hyphens, never a path, and no
    two that a file system could treat as equal.
    """
    for name in names:
        if not re.fullmatch(r"[\w-]+", name) or len(name.encode()) > 200:
            raise RegardError(f"{where} names {name!r}, which cannot be the name of a run: restore the file.")
    if len({unicodedata.normalize("NFKC", name).casefold() for name in names}) < len(names):
        raise RegardError(f"{where} lists two runs with the same name: restore the file.")


def _is_whole(plan: Plan) -> bool:
    """True if all parts are present and valid."""
    facts = plan.facts
    try:
        split = facts["split"]
        told = isinstance(split, str) and split in facts.get("tokens", [split])
        told = told and isinstance(facts["corpus"]["name"], str) and "target_parameters" in facts
    except (KeyError, TypeError, AttributeError):
        return False
    return told and len(plan.runs) > 0 and plan.match in MATCHES and isinstance(plan.budget, int | float)


def _read_entrant(entry: Mapping[str, Any], path: Path) -> Entrant:
    tree, seeds = entry["recipe"], tuple(entry["seeds"])
    if not all(type(seed) is int for seed in seeds) or not isinstance(entry["label"], str):
        raise TypeError
    if is_own(tree["system"]):
        require_trusted(locate(tree["system"]), path)
    return Entrant(entry["label"], entry["year"], entry["counted"], compose(tree["system"], None, tree), seeds)


def open_plan(
    question: Question,
    folder: Path,
    jobs: int = 1,
    *,
    trials: Sequence[Rung] = (),
    chosen: Callable[[], tuple[Sequence[Rung], Mapping[str, Any]]] | None = None,
) -> Plan:
    """The folder's plan, if it answers this question; a new one if the folder is free.

    `trials`: the rows of a plan of trials. `chosen`: called for a new plan; returns the tuned rows and facts about the
    tuning.
    """
    tree = question.tree() | ({"stage": TRIALS} if trials else {})
    if plan_file(folder).is_file():
        plan = Plan.read(folder, tree)
        tidy(folder)
        return plan
    check_free(folder)
    rungs, facts = chosen() if chosen else (trials or question.rungs(), {})
    return make_plan(question, folder, jobs, rungs, tree, facts)


def check_free(folder: Path) -> None:
    """Refuses a folder that contains anything but a comparison."""
    if not folder.exists() or plan_file(folder).is_file():
        return
    if not folder.is_dir() or others_files(folder, SHARED):
        raise RegardError(f"{folder} already exists and is not a comparison: choose another --run.")


def _difference(there: Mapping[str, Any], asked: Mapping[str, Any]) -> str:
    for key, value in json.loads(json.dumps(asked)).items():
        if there.get(key) != value:
            return f"its {key} differ" if key in ("systems", "settings", "seeds") else f"its {key} differs"
    return ""


def make_plan(
    question: Question,
    folder: Path,
    jobs: int = 1,
    rungs: Sequence[Rung] = (),
    tree: Mapping[str, Any] | None = None,
    more: Mapping[str, Any] | None = None,
) -> Plan:
    """A new plan; `jobs` parallel runs share the CPU's threads; `rungs`, `tree`, `more`: other rows than the
    question's, another identity, more facts."""
    rungs, task = list(rungs or question.rungs()), task_named(question.task)
    for note in question.check_settings(question.rungs()):
        say(note)
    recipes = [question.recipe(rung) for rung in rungs]
    ground = task.ground(question.recipe(question.rungs()[0]), question.prompt)
    target = None
    if question.match == "parameters":
        target, widths = match_parameters(question, rungs, ground.tokenizers.target, ground.tokenizers.source)
        recipes = [question.recipe(rung, widths.get(rung.label)) for rung in rungs]
    for recipe in recipes:
        if isinstance(recipe.training, GradientTraining):
            pick_device(recipe.training.device)
    entrants = tuple(_entrant(question, rung, recipe, ground, jobs) for rung, recipe in zip(rungs, recipes))
    facts = {
        **ground.facts,
        **task.conditions(entrants, ground.tokenizers),
        "target_parameters": target,
        "size": question.size,
        "regard": regard.__version__,
        "command": question.command(jobs),
        **(more or {}),
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }
    limit = question.limit
    plan = Plan(folder, dict(tree or question.tree()), question.match, limit.amount, limit.unit, entrants, facts)
    begin(folder)
    ground.tokenizers.save(folder)
    for name, content in ground.files.items():
        write_text(folder / name, content)
    plan.write()
    tidy(folder)
    if target is not None:
        say(
            f"parameters matched to {group_digits(target)}, those of the {question.size} {task.reference}: "
            f"{_sizes(plan)}"
        )
    return plan


def _sizes(plan: Plan) -> str:
    """The matched sizes, row by row."""
    tokenizers = plan.tokenizers
    counts = {
        e.label: size_of(e.recipe, tokenizers.target, tokenizers.source)[0] for e in plan.entrants if not e.counted
    }
    return ", ".join(f"{label} {group_digits(count)}" for label, count in counts.items())


def _entrant(question: Question, rung: Rung, recipe: Recipe, ground: Ground, jobs: int) -> Entrant:
    """The row with the tokenizer and threads filled in, and validations spread over its budget."""
    resolved = ground.resolved
    recipe = recipe.replace(
        data={name: getattr(resolved.data, name) for name in ground.shared},
        training={"threads": recipe.training.threads or max(1, resolved.training.threads // jobs)},
    )
    if rung.counted:
        return Entrant(rung.label, rung.entry.year, True, recipe, (1,))
    first = 1 + question.seeds * rung.again
    seeds = (rung.seed,) if rung.seed else tuple(range(first, first + question.seeds))
    given = question.settings.get("training", {})
    if {"evaluate_every", "validations"}.isdisjoint(given):
        spread = {"validations": VALIDATIONS, "checkpoint_every": 0}
        recipe = recipe.replace(training={name: value for name, value in spread.items() if name not in given})
    return Entrant(rung.label, rung.entry.year, False, recipe, seeds)
