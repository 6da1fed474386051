"""Open a run's folder again."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

from regard.base.errors import RegardError
from regard.base.numbers import a
from regard.runs.classification_run import ClassificationRun
from regard.runs.folder import (
    average_weights,
    build_model,
    open_recipe,
    open_tokenizers,
    pick_device,
    read_weights,
    set_weights,
)
from regard.runs.language_run import LanguageRun
from regard.runs.speed import get_ready, install
from regard.runs.translation_run import TranslationRun
from regard.systems.classifier import Classifier
from regard.systems.translator import Translator

AnyRun = LanguageRun | TranslationRun | ClassificationRun  # what `train` and `load` give, by the system's task


def load(folder: str | Path, *, weights: str = "best", average: int | None = None, device: str = "auto") -> AnyRun:
    """Open a run folder. `weights`: "best" on validation, or "last"; `average`: the mean of the last validations'.
    `device`: cpu, cuda, …, or auto: a GPU if there is one."""
    folder = Path(folder)
    recipe = open_recipe(folder)
    there = pick_device(device)
    get_ready(there)
    tokenizers = open_tokenizers(folder, recipe)
    model = build_model(recipe, tokenizers, drawn=False)
    set_weights(model, read_weights(folder, weights) if average is None else average_weights(folder, average), folder)
    model = model.to(there)
    install(model)
    if isinstance(model, Classifier):
        assert tokenizers.source is not None
        return ClassificationRun(folder, recipe, tokenizers.source, tokenizers.target, model)
    if isinstance(model, Translator):
        assert tokenizers.source is not None
        return TranslationRun(folder, recipe, tokenizers.source, tokenizers.target, model)
    return LanguageRun(folder, recipe, tokenizers.target, model)


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
    raise RegardError(f"{run.folder} is {a(run.recipe.system)}, {what}: use `regard {verb} {run.folder}`.")
