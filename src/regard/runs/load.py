"""Open a run's folder again."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn, TypeVar, overload

from regard.base.arguments import checked
from regard.base.device import pick_device
from regard.base.errors import RegardError
from regard.base.numbers import with_article
from regard.runs.classification_run import ClassificationRun
from regard.runs.language_run import LanguageRun
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
from regard.runs.translation_run import TranslationRun
from regard.systems.classifier import Classifier
from regard.systems.translator import Translator

AnyRun = LanguageRun | TranslationRun | ClassificationRun  # what `train` and `load` give, by the system's task


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
        folder: The folder of the run.
        kind: LanguageRun, TranslationRun or ClassificationRun: refuse a run of another kind. Type checkers then know
            the type of the result.
        weights: "best" (on validation), "last", or a step whose weights were kept, such as "200".
        average: Load the mean of the weights of this many last validations instead.
        device: "cpu", "cuda", …, or "auto": a GPU if there is one.

    Returns:
        A run of the given kind; without one, a LanguageRun, a TranslationRun or a ClassificationRun by its system.

    Raises:
        RegardError: If the folder is not a run, is damaged, or is a run of another kind.
    """
    run = _open(Path(folder), weights, average, device)
    if kind is not None and not isinstance(run, kind):
        own = type(run).__name__
        raise RegardError(f"{folder} is {with_article(run.recipe.system)}, so kind must be {own}, not {kind.__name__}.")
    return run


def _open(folder: Path, weights: str, average: int | None, device: str) -> AnyRun:
    recipe = open_recipe(folder)
    there = pick_device(device)
    get_ready(there)
    tokenizers = open_tokenizers(folder, recipe)
    model = build_model(recipe, tokenizers, drawn=False)
    set_weights(model, read_weights(folder, weights) if average is None else average_weights(folder, average), folder)
    model = model.to(there)
    install(model)
    unseen = recorded_unseen(folder, tokenizers.target)
    if isinstance(model, Classifier):
        assert tokenizers.source is not None
        return ClassificationRun(folder, recipe, tokenizers.source, tokenizers.target, model)
    if isinstance(model, Translator):
        assert tokenizers.source is not None
        return TranslationRun(folder, recipe, tokenizers.source, tokenizers.target, model, unseen)
    return LanguageRun(folder, recipe, tokenizers.target, model, unseen)


def load_language_model(folder: str | Path, *, weights: str = "best", device: str = "auto") -> LanguageRun:
    """Open the run of a language model; any other is refused."""
    run = load(folder, weights=weights, device=device)
    return run if isinstance(run, LanguageRun) else _refuse(run)


def load_translator(
    folder: str | Path, *, weights: str = "best", average: int | None = None, device: str = "auto"
) -> TranslationRun:
    """Open the run of a translator; any other is refused."""
    run = load(folder, weights=weights, average=average, device=device)
    return run if isinstance(run, TranslationRun) else _refuse(run)


def load_classifier(
    folder: str | Path, *, weights: str = "best", average: int | None = None, device: str = "auto"
) -> ClassificationRun:
    """Open the run of a classifier; any other is refused."""
    run = load(folder, weights=weights, average=average, device=device)
    return run if isinstance(run, ClassificationRun) else _refuse(run)


def _refuse(run: AnyRun) -> NoReturn:
    """What this run is instead, and the verb for that."""
    if isinstance(run, ClassificationRun):
        what, verb = "which labels", "classify"
    elif isinstance(run, TranslationRun):
        what, verb = "which translates", "translate"
    else:
        what, verb = "a language model with no source to translate or label", "generate"
    raise RegardError(f"{run.folder} is {with_article(run.recipe.system)}, {what}: use `regard {verb} {run.folder}`.")
