"""In the worker process: the form of a recipe, its check, and what a run writes."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any, get_type_hints

from regard.base.errors import RegardError
from regard.base.settings import documentation
from regard.lab.new_run import SECTIONS, NewRun
from regard.lab.opened_runs import open_run
from regard.lab.runs_folder import RunsFolder
from regard.runs.language_run import LanguageRun
from regard.runs.recipe import SIZES, Recipe
from regard.runs.run import PairRun
from regard.runs.train import compose_recipe
from regard.runs.translation_run import TranslationRun

KEPT = ("tokenizer", "vocabulary", "normalise", "joint")  # by a run that starts from another
LONG, EXAMPLES = 48, 3  # tokens that a language model writes; sentences of the others


def form(folder: RunsFolder, body: Mapping[str, Any]) -> dict[str, Any]:
    """Every setting of a system, with its type, bounds, documentation and value; and what is wrong with those given."""
    asked = NewRun.read(folder, body)
    plain = NewRun(asked.system, asked.size, asked.data, asked.start, {})
    recipe = _composed(plain)
    problem = None
    try:
        changed = _composed(asked)
    except RegardError as error:
        sentence = " ".join(str(error).split())
        named = re.search(r"\b(?:data|model|training)\.[a-z_]+", sentence)
        problem = {"key": named.group() if named else "", "sentence": sentence}
        changed = recipe
    return {
        "system": recipe.system,
        "size": recipe.size,
        "sizes": SIZES,
        "sections": {part: _fields(recipe, changed, part, asked.start is not None) for part in SECTIONS},
        "problem": problem,
    }


def _composed(asked: NewRun) -> Recipe:
    return compose_recipe(asked.system, data=asked.data, size=asked.size, start=asked.start, settings=asked.settings)


def _fields(recipe: Recipe, changed: Recipe, part: str, tuned: bool) -> list[dict[str, Any]]:
    """The settings of a section that can be chosen; a run that starts from another keeps its model and tokenizer."""
    if tuned and part == "model":
        return []
    kept = {"corpus", *(KEPT if tuned and part == "data" else ())}
    section, types = getattr(recipe, part), get_type_hints(type(getattr(recipe, part)))
    return [
        {
            "key": f"{part}.{one.name}",
            "name": one.name.replace("_", " "),
            "type": types[one.name].__name__,
            "value": getattr(section, one.name),
            "now": getattr(getattr(changed, part), one.name),
            "help": documentation(one),
            "choices": list(one.metadata.get("choices", ())),
            "bounds": one.metadata.get("bounds", {}),
            "unset": one.metadata.get("unset"),
        }
        for one in dataclasses.fields(section)
        if one.name not in kept
    ]


def sample(folder: RunsFolder, body: Mapping[str, Any]) -> dict[str, Any]:
    """What the best weights so far write: a text, or answers to the first held-out sentences."""
    run = open_run(folder, str(body.get("run", "")))
    if isinstance(run, LanguageRun):
        return {"text": run.generate(max_tokens=LONG, temperature=0.8, seed=1)}
    pairs = _held_out(run)
    sources = [source for source, _ in pairs]
    if isinstance(run, TranslationRun):
        written = [best.text for best, *_ in run.translations(sources, truncate=True)]
    else:
        written = [one.label for one in run.labellings(sources, truncate=True)]
    return {
        "pairs": [
            {"source": source, "reference": target, "written": answer}
            for (source, target), answer in zip(pairs, written)
        ]
    }


_examples: dict[Path, list[tuple[str, str]]] = {}  # by the run's folder: reading a corpus can take long


def _held_out(run: PairRun) -> list[tuple[str, str]]:
    """The first sentences that it was not trained on."""
    if run.folder not in _examples:
        corpus = run.corpus()
        split = corpus.splits.get("valid") or next(iter(corpus.splits.values()))
        some = islice(zip(split.sources, split.targets), 20)
        _examples[run.folder] = [(source, target) for source, target in some if source.strip()][:EXAMPLES]
    return _examples[run.folder]


WORK = {"form": form, "sample": sample}
