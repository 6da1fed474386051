"""Continue a training run exactly where it stopped."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch

from regard.base.arguments import checked
from regard.base.errors import RegardError
from regard.base.numbers import pluralize
from regard.base.writing import write_text
from regard.report.progress import say
from regard.runs.load import AnyRun
from regard.runs.prepare import Prepared, data_of
from regard.runs.recipe import Recipe, compose, written_in
from regard.runs.resolve import resolve_device
from regard.runs.store.folder import MAY_CHANGE, build_model, is_counted, open_recipe, stays
from regard.runs.store.gallery import check_own, find_run
from regard.runs.store.lock import claimed, tidy
from regard.runs.tasks.task import task_of
from regard.runs.tracking import check_tracker
from regard.runs.train import build_trainer, continue_training
from regard.training.checkpoint import load_tensors
from regard.training.distributed import join
from regard.training.log import Callback
from regard.training.loop import Trainer


@checked
def resume(
    folder: str | Path,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    *,
    callbacks: Sequence[Callback] = (),
    track: str = "",
    began: float | None = None,
) -> AnyRun:
    """Continue a training run exactly where it stopped.

    Args:
        folder: The folder of the run.
        settings: Settings to change. Only settings that do not affect the model can change, such as training.device.
        callbacks: As in `train`.
        track: As in `train`.
        began: The value of time.perf_counter() at which a budget in seconds began. Default: now.

    Returns:
        The trained run.

    Raises:
        RegardError: If the folder is not a run, it has no checkpoint, or a setting cannot change.
        Stopped: If Ctrl-C or SIGTERM ended the training; its checkpoint is in the run's folder.
    """
    began = time.perf_counter() if began is None else began
    folder = find_run(Path(folder))
    check_own(folder)
    recipe = _changed(open_recipe(folder), settings or {})
    if is_counted(recipe):
        raise RegardError(f"{folder} is complete: {recipe.system} is trained by counting, in one pass.")
    if not (folder / "training.safetensors").exists():
        raise RegardError(f"{folder} has no checkpoint (training.safetensors); train it again.")
    check_tracker(track, recipe)
    torch.set_num_threads(recipe.training.threads)
    group = join(recipe.training.device)
    data = data_of(folder, recipe)
    ready = Prepared(recipe, data, build_model(recipe, data.tokenizers, drawn=False))
    with claimed(folder) if group.is_first else nullcontext():
        if group.is_first:
            tidy(folder)
        trainer = build_trainer(ready, folder, group)
        _restore(trainer)
        if settings and group.is_first:
            write_text(folder / "recipe.toml", written_in(recipe, folder))
        return continue_training(trainer, ready, callbacks, track, began)


def _changed(recipe: Recipe, settings: Mapping[str, Mapping[str, Any]]) -> Recipe:
    """The recipe with changed settings; a setting that would change the model is an error."""
    for section, values in settings.items():
        for name in values:
            if section != "training" or name not in MAY_CHANGE:
                raise RegardError(stays(f"{section}.{name}"))
    for name, why in task_of(recipe).fixed.items():
        if name in settings.get("training", {}):
            raise RegardError(why)
    if not settings or is_counted(recipe):
        return recipe
    changed = compose(recipe.system, None, recipe.tree(), settings)
    return changed.replace(training=resolve_device(changed.training))


def _restore(trainer: Trainer) -> None:
    folder = trainer.folder
    try:
        trainer.restore()
    except RuntimeError:  # shapes that differ
        raise RegardError(
            f"The checkpoint of {folder} does not fit its recipe.toml: one of the two has been modified."
        ) from None
    if trainer.progress.best_step > 0 and trainer.group.is_first:
        load_tensors(folder / "model.safetensors")  # missing or damaged: known now, and not after the training
    if trainer.progress.finished:
        say(f"{folder} is already finished, after {pluralize(trainer.progress.step, 'step')}.")
    else:
        say(f"{folder}: continuing from step {trainer.progress.step}")
