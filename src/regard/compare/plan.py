"""The plan of a comparison: the question made exact, and kept in the comparison's folder.

    comparison.json    the question, the recipe of every row, how the test text is read
    tokenizer.json     the one tokenizer, trained once
    2-gram/ lstm/ …    the runs (lstm-seed2/ … where there are more seeds)
    report.html        the page

Everybody reads the same tokens and is tested on the same segments, which are no longer than the shortest context among
them: nobody gets to look further back than another.
"""

from __future__ import annotations

import datetime
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import regard
from regard.compare.question import Question, Rung
from regard.compare.width import match_parameters, size_of
from regard.errors import RegardError
from regard.evaluation.perplexity import SEGMENT
from regard.files import write_text
from regard.fit import check_tokens, origin_of, read_data
from regard.recipe import Recipe, compose
from regard.report.progress import grouped, say
from regard.run import choose_split, pick_device, tokens_of
from regard.text.tokenizer import Tokenizer
from regard.training.settings import Training

FORMAT = 1
VALIDATIONS = 20  # looks at the validation text, as many for every system: each may keep its best weights
SAMPLE = {"char": 300, "byte": 300, "bpe": 80, "word": 80}  # tokens of a sample


@dataclass(frozen=True)
class Entrant:
    """One row: its recipe for the first seed, and the seeds it is trained with (a counted system has one)."""

    label: str
    year: int | None
    counted: bool
    recipe: Recipe
    seeds: tuple[int, ...]

    def name(self, seed: int) -> str:
        """Of its run's folder."""
        return self.label if len(self.seeds) == 1 else f"{self.label}-seed{seed}"


@dataclass(frozen=True)
class Plan:
    folder: Path
    question: dict[str, Any]
    match: str
    budget: float
    unit: str
    entrants: tuple[Entrant, ...]
    facts: dict[str, Any]  # corpus, tokens of each split, tokenizer, split and segment of the test, prompt, command

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
        }
        write_text(self.folder / "comparison.json", json.dumps(tree, indent=2, ensure_ascii=False) + "\n")

    @classmethod
    def read(cls, folder: Path) -> Plan:
        try:
            tree = json.loads((folder / "comparison.json").read_text(encoding="utf-8"))
            if tree["format"] != FORMAT:
                raise RegardError(f"{folder} was written by another version of Regard: choose another --run.")
            entrants = tuple(
                Entrant(
                    entry["label"],
                    entry["year"],
                    entry["counted"],
                    compose(entry["recipe"]["system"], None, entry["recipe"]),
                    tuple(entry["seeds"]),
                )
                for entry in tree["entrants"]
            )
            return cls(folder, tree["question"], tree["match"], tree["budget"], tree["unit"], entrants, tree["facts"])
        except (OSError, ValueError, KeyError, TypeError):
            raise RegardError(f"{folder / 'comparison.json'} is damaged; choose another --run.") from None


def open_plan(question: Question, folder: Path) -> Plan:
    """The plan that stands in the folder, if it answers this question; a new one if the folder is free."""
    if (folder / "comparison.json").is_file():
        plan = Plan.read(folder)
        if difference := _difference(plan.question, question.tree()):
            raise RegardError(f"{folder} holds another comparison ({difference}): choose another --run.")
        return plan
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise RegardError(f"{folder} exists already and is not a comparison: choose another --run.")
    return make_plan(question, folder)


def _difference(there: dict[str, Any], asked: dict[str, Any]) -> str:
    for key, value in json.loads(json.dumps(asked)).items():
        if there.get(key) != value:
            return f"its {key} differ" if key in ("systems", "settings", "seeds") else f"its {key} differs"
    return ""


def make_plan(question: Question, folder: Path) -> Plan:
    rungs = question.rungs()
    for note in question.check_settings(rungs):
        say(note)
    recipes = [question.recipe(rung) for rung in rungs]
    corpus, tokenizer, resolved = read_data(recipes[0])
    tokens = {split: tokens_of(corpus, tokenizer, split) for split in corpus.splits}
    check_tokens(corpus, {split: tokens[split] for split in ("train", "valid")})
    target = None
    if question.match == "parameters":
        target, widths = match_parameters(question, rungs, tokenizer)
        recipes = [question.recipe(rung, widths.get(rung.label)) for rung in rungs]
    for recipe in recipes:
        if isinstance(recipe.training, Training):
            pick_device(recipe.training.device)
    training = len(tokens["train"].ids)
    entrants = tuple(_entrant(question, rung, recipe, resolved, training) for rung, recipe in zip(rungs, recipes))
    sizes = {e.label: size_of(e.recipe, tokenizer) for e in entrants if not e.counted}
    contexts = [context for _, context in sizes.values() if context is not None]
    split = choose_split(corpus, None)
    facts = {
        "corpus": origin_of(corpus),
        "tokens": {name: len(array.ids) for name, array in tokens.items()},
        "characters": tokens[split].characters,
        "unknown": tokens[split].unknown,
        "tokenizer": {"kind": tokenizer.kind, "vocabulary": tokenizer.vocabulary, "digest": tokenizer.digest},
        "split": split,
        "segment": min([SEGMENT, *contexts]),
        "target_parameters": target,
        "prompt": question.prompt or _prompt(corpus.splits[split]),
        "sample_tokens": SAMPLE[tokenizer.kind],
        "size": question.size,
        "regard": regard.__version__,
        "command": question.command(folder),
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }
    limit = question.limit
    plan = Plan(folder, question.tree(), question.match, limit.amount, limit.unit, entrants, facts)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RegardError(f"Cannot make the folder {folder} ({error.strerror}); choose another --run.") from None
    tokenizer.save(folder / "tokenizer.json")
    plan.write()
    if target is not None:
        found = ", ".join(f"{label} {grouped(count)}" for label, (count, _) in sizes.items())
        say(f"parameters matched to {grouped(target)}, those of the {question.size} lstm: {found}")
    return plan


def _entrant(question: Question, rung: Rung, recipe: Recipe, resolved: Recipe, training_tokens: int) -> Entrant:
    """The row with the tokenizer and threads filled in, and validations spread over its budget."""
    recipe = recipe.replace(
        data={name: getattr(resolved.data, name) for name in ("corpus", "tokenizer", "vocabulary", "normalise")},
        training={"threads": recipe.training.threads or resolved.training.threads},
    )
    if rung.counted:
        return Entrant(rung.label, rung.entry.year, True, recipe, (1,))
    limit, window = question.limit, recipe.training.window
    if limit.unit == "tokens" and "evaluate_every" not in question.settings.get("training", {}):
        rows = min(recipe.training.rows, max(1, training_tokens // window))  # as many as the trainer will fill
        recipe = paced(recipe, math.ceil(limit.amount / (rows * window)))
    return Entrant(rung.label, rung.entry.year, False, recipe, tuple(range(1, question.seeds + 1)))


def paced(recipe: Recipe, steps: int) -> Recipe:
    """The recipe with its validations (and checkpoints) spread evenly over so many steps."""
    every = max(1, math.ceil(steps / VALIDATIONS))
    return recipe.replace(training={"evaluate_every": every, "checkpoint_every": every})


def _prompt(lines: Any) -> str:
    """The first words of the first line that has at least four."""
    for line in lines:
        words = line.split()
        if len(words) >= 4:
            return " ".join(words[:2]) + " "
    return ""


def load_tokenizer(plan: Plan) -> Tokenizer:
    return Tokenizer.load(plan.folder / "tokenizer.json")
