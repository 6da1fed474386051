"""In the worker process: the form of a recipe, its check, and what a run writes."""

from __future__ import annotations

import dataclasses
import re
from typing import Any, get_type_hints

from regard.base.errors import RegardError
from regard.base.settings import documentation
from regard.runs.compose import compose_recipe
from regard.runs.data_lookup import choose_split, corpus_of, tokens_of
from regard.runs.recipe import Recipe
from regard.runs.store.folder import has_source, open_recipe, open_tokenizers
from regard.runs.tasks.language.evaluation import no_bits_per_character
from regard.runs.tasks.task import task_of
from regard.systems.sizes import SIZES
from regard.web.lab.held_out import held_out, progress_of
from regard.web.lab.new_run import SECTIONS, NewRun
from regard.web.lab.opened_runs import open_run
from regard.web.lab.requests import OneRun, RunForm
from regard.web.lab.runs_folder import RunsFolder

KEPT = ("tokenizer", "vocabulary", "normalise", "joint")  # by a run that starts from another
EXAMPLES = 3  # sentences that a translator or classifier answers


def form(folder: RunsFolder, given: RunForm) -> dict[str, Any]:
    """Every setting of a system, with its type, bounds, documentation and value; and what is wrong with those given."""
    asked = NewRun.read(folder, given)
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


def sample(folder: RunsFolder, asked: OneRun) -> dict[str, Any]:
    """A sample from the best weights so far: a text, or outputs for the first held-out sentences."""
    run = open_run(folder, asked.run)
    task = task_of(run)
    if texts := task.texts(run, 1):
        return {"text": texts[0]}
    pairs = held_out(run.folder)[:EXAMPLES]
    written = task.answers(run, [source for source, _ in pairs])
    return {
        "pairs": [
            {"source": source, "reference": target, "written": answer}
            for (source, target), answer in zip(pairs, written)
        ]
    }


def characters(folder: RunsFolder, asked: OneRun) -> dict[str, Any]:
    """How many characters a token of the validation text has on average: loss / (ln 2 · this) is in bits per character,
    which runs with other tokenizers share. Where there is no such number, why."""
    path = folder.plain_run(asked.run)
    recipe = open_recipe(path)
    if has_source(recipe):
        return {"per_token": None, "why": "it is not a language model"}
    tokenizer, corpus = open_tokenizers(path, recipe).target, corpus_of(path, recipe)
    array = tokens_of(corpus, tokenizer, choose_split(corpus, "valid"))
    why = no_bits_per_character(tokenizer, array)
    return {"per_token": None if why else array.characters / max(len(array.ids), 1), "why": why}


def learned(folder: RunsFolder, asked: OneRun) -> dict[str, Any]:
    """The run's validation perplexity, after how many steps, and that of a bigram."""
    return progress_of(folder.plain_run(asked.run))


def model_page(folder: RunsFolder, asked: OneRun) -> dict[str, Any]:
    """The model as one file that runs by itself."""
    from regard.exchange.page_file import page

    return {"page": page(open_run(folder, asked.run))}


WORK = {"form": form, "sample": sample, "characters": characters, "learned": learned, "page": model_page}
