"""Open a run from its folder."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar, overload

from regard.base.arguments import checked
from regard.base.device import pick_device
from regard.base.errors import RegardError
from regard.base.numbers import with_article
from regard.runs.run import Run
from regard.runs.speed import get_ready, install
from regard.runs.store.folder import (
    average_weights,
    build_model,
    open_recipe,
    open_tokenizers,
    read_weights,
    recorded_unseen,
    set_weights,
)
from regard.runs.store.gallery import find_run
from regard.runs.tasks.classification.run import ClassificationRun
from regard.runs.tasks.language.run import LanguageRun
from regard.runs.tasks.task import task_of
from regard.runs.tasks.translation.run import TranslationRun

AnyRun = LanguageRun | TranslationRun | ClassificationRun  # returned by `train` and `load`, by task


Kind = TypeVar("Kind", bound=Run)


@overload
def load(
    folder: str | Path, kind: None = None, *, weights: str = "best", average: int | None = None, device: str = "auto"
) -> AnyRun: ...
@overload
def load(
    folder: str | Path, kind: type[Kind], *, weights: str = "best", average: int | None = None, device: str = "auto"
) -> Kind: ...
@checked
def load(
    folder: str | Path,
    kind: type[Run] | None = None,
    *,
    weights: str = "best",
    average: int | None = None,
    device: str = "auto",
) -> Run:
    """Open the folder of a run.

    Example:
        run = regard.load("runs/enfr", regard.TranslationRun)

    Args:
        folder: The folder of the run, or the name of a model that comes with Regard, such as "gallery/gpt".
        kind: LanguageRun, TranslationRun or ClassificationRun: a run of another kind is an error, and type checkers
            know the type of the result.
        weights: "best" (on validation), "last", or a step whose weights were saved, such as "200".
        average: Load the mean of the weights of the last `average` validations instead.
        device: "cpu", "cuda", …, or "auto": a GPU if there is one.

    Returns:
        A run of the given kind; without `kind`, a LanguageRun, a TranslationRun or a ClassificationRun, depending on
        the system.

    Raises:
        RegardError: If the folder is not a run, is damaged, or is a run of another kind.
    """
    run = _open(find_run(Path(folder)), weights, average, device)
    if kind is not None and not isinstance(run, kind):
        own = type(run).__name__
        raise RegardError(f"{folder} is {with_article(run.recipe.system)}, so kind must be {own}, not {kind.__name__}.")
    return run


def _open(folder: Path, weights: str, average: int | None, device: str) -> Run:
    recipe = open_recipe(folder)
    there = pick_device(device)
    get_ready(there)
    tokenizers = open_tokenizers(folder, recipe)
    model = build_model(recipe, tokenizers, drawn=False)
    set_weights(model, read_weights(folder, weights) if average is None else average_weights(folder, average), folder)
    model = model.to(there)
    install(model)
    unseen = recorded_unseen(folder, tokenizers.target)
    return task_of(recipe).make_run(folder, recipe, tokenizers, model, unseen)


def load_language_model(folder: str | Path, *, weights: str = "best", device: str = "auto") -> LanguageRun:
    """Open the run of a language model; any other run is an error."""
    return _of_kind(LanguageRun, load(folder, weights=weights, device=device))


def load_translator(
    folder: str | Path, *, weights: str = "best", average: int | None = None, device: str = "auto"
) -> TranslationRun:
    """Open the run of a translator; any other run is an error."""
    return _of_kind(TranslationRun, load(folder, weights=weights, average=average, device=device))


def load_classifier(
    folder: str | Path, *, weights: str = "best", average: int | None = None, device: str = "auto"
) -> ClassificationRun:
    """Open the run of a classifier; any other run is an error."""
    return _of_kind(ClassificationRun, load(folder, weights=weights, average=average, device=device))


def _of_kind(kind: type[Kind], run: Run) -> Kind:
    if isinstance(run, kind):
        return run
    task = task_of(run)
    raise RegardError(
        f"{run.folder} is {with_article(run.recipe.system)}, {task.purpose}: use `regard {task.verb} {run.folder}`."
    )
