"""Recipe → corpus → tokenizer → resolved settings → data → model: everything that training needs in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from regard.base.device import device_memory, pick_device
from regard.base.errors import RegardError
from regard.report.progress import say
from regard.runs.ancestors import NONE, Ancestors
from regard.runs.data import Data
from regard.runs.recipe import Recipe, Start
from regard.runs.resolve import BY_FILE, resolve, resolve_data, resolve_machine
from regard.runs.store.facts import read_facts
from regard.runs.store.folder import Tokenizers, build_model, is_counted, open_tokenizers, read_weights, recorded_unseen
from regard.runs.tasks.task import task_of
from regard.systems.model import Model
from regard.systems.own.code import is_own
from regard.training.checkpoint import weights_digest
from regard.training.hyperparameters import GradientTraining


@dataclass(frozen=True)
class Prepared:
    """Everything that training needs, before anything is written."""

    recipe: Recipe  # with every setting decided
    data: Data
    model: Model
    ancestors: Ancestors = NONE
    notes: Sequence[str] = ()  # on held-out lines that its ancestors were trained on

    @property
    def origin(self) -> dict[str, Any]:
        """The entry of run.json about the text. The text of a parent run also counts as seen."""
        origin = self.data.origin
        if self.recipe.start is not None and "unseen_bytes" in origin:
            unseen = recorded_unseen(Path(self.recipe.start.run), self.data.tokenizers.target)
            origin["unseen_bytes"] = [number for number in origin["unseen_bytes"] if number in unseen]
        return origin | {"notes": [*origin["notes"], *self.notes]}


@dataclass(frozen=True)
class Opened:
    """A corpus with its tokenizers, and the recipe with the settings that follow from them."""

    recipe: Recipe
    corpus: Any
    tokenizers: Tokenizers

    def cut(self) -> Data:
        """The corpus as tokens."""
        torch.set_num_threads(self.recipe.training.threads)
        return task_of(self.recipe).cut(self.recipe, self.corpus, self.tokenizers)


def open_data(recipe: Recipe, tokenizers: Tokenizers | None = None) -> Opened:
    """Open the corpus of a recipe, with the tokenizers of the run that it starts from, or those given, or new ones."""
    task = task_of(recipe)
    if recipe.start is not None:
        tokenizers = open_tokenizers(Path(recipe.start.run), recipe)
    task.check(recipe)
    corpus = task.open_corpus(recipe)
    for note in corpus.notes:
        say(note)
    if tokenizers is None:
        tokenizers = task.learn_tokenizers(recipe, corpus)
    data = resolve_data(recipe, corpus, task.reading_tokenizer(tokenizers))
    recipe = recipe.replace(data=data | task.resolved_data(recipe, corpus, tokenizers))
    recipe, notes = resolve_machine(recipe, len(corpus.splits["train"]) if task.has_source else 0)
    for note in notes:
        say(note)
    return Opened(recipe, corpus, tokenizers)


def data_of(folder: Path, recipe: Recipe) -> Data:
    """The data that a run was trained on, unchanged since."""
    task = task_of(recipe)
    tokenizers = open_tokenizers(folder, recipe)
    data = task.cut(recipe, task.corpus_of(folder, recipe), tokenizers)
    if data.made_up != read_facts(folder)["corpus"].get("made_up", ""):
        raise RegardError(
            f"{recipe.data.monolingual} or {recipe.data.translator} has changed since {folder} was trained with "
            f"them; restore them, or train a new run with --from {folder}."
        )
    return data


def prepare(recipe: Recipe, tokenizers: Tokenizers | None = None) -> Prepared:
    """Read the data, decide the settings, and build the model."""
    if recipe.start is not None:
        weights = read_weights(Path(recipe.start.run))
        recipe = replace(recipe, start=_same_weights(recipe.start, weights_digest(weights)))
    if "data.corpus" not in recipe.given:
        say(f"No --data was given, so this trains on the built-in corpus {recipe.data.corpus}.")
    opened = open_data(recipe, tokenizers)
    data = opened.cut()
    recipe, notes = resolve(opened.recipe, data.facts(opened.recipe)) if not is_counted(recipe) else (opened.recipe, [])
    for note in notes:
        say(note)
    check_room(recipe, data.tokenizers)
    torch.manual_seed(recipe.training.seed)
    model = build_model(recipe, data.tokenizers)
    if BY_FILE in recipe.given:
        say(f"The size is tiny, because {recipe.data.corpus} is small; use --size to choose a different size.")
    if recipe.start is None:
        return Prepared(recipe, data, model)
    try:
        model.load_state_dict(weights)
    except RuntimeError:
        raise RegardError(
            f"These model settings do not fit the weights of {recipe.start.run}: remove the settings model.*."
        ) from None
    ancestors = Ancestors.and_itself(Path(recipe.start.run), recipe.start.weights)
    notes = ancestors.notes(data.corpus)
    for note in notes:
        say(note)
    return Prepared(recipe, data, model, ancestors, notes)


def _same_weights(start: Start, found: str) -> Start:
    """The starting run with the digest of its weights, which must equal the recipe's, if the recipe has one."""
    if start.weights in ("", found):
        return replace(start, weights=found)
    raise RegardError(
        f"{start.run} is not the run that this recipe starts from: its weights have the digest {found}, but the recipe "
        f"names {start.weights}. Restore that run or give its new path with --from; to start from another one, "
        "remove [from] from a copy of the recipe."
    )


def check_room(recipe: Recipe, tokenizers: Tokenizers) -> None:
    """Refuse a model that cannot be trained in this machine's memory, before anything is allocated."""
    settings = recipe.training
    if not isinstance(settings, GradientTraining) or settings.shard or is_own(recipe.system):
        return
    try:
        with torch.device("meta"):  # shapes alone
            numbers = sum(p.numel() for p in build_model(recipe, tokenizers, drawn=False).parameters())
    except RuntimeError:  # more components than 64 bits can count
        numbers = 2**63
    copies = {"adamw": 4, "muon": 3}.get(settings.optimizer, 2)  # weights, gradients, moments
    device = pick_device(settings.device)
    wanted, room = 4 * copies * numbers, device_memory(device)
    if wanted > room:
        raise RegardError(
            f"This model has {numbers:.2g} parameters, and training it takes {wanted / 2**30:.2g} GiB for its weights, "
            f"gradients and optimizer state alone; {device} has {room / 2**30:.0f} GiB. Reduce "
            "model.width, model.layers or data.vocabulary."
        )
