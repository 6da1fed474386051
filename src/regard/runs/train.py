"""From a recipe to a run: corpus → tokenizer → tokens → batches → model → training → folder.

Nothing is written into the run's folder before the data and the settings have been read and checked, and Regard never
writes into a folder that already contains files.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, TypedDict, Unpack, overload

import torch

from regard.base.arguments import checked
from regard.base.device import pick_device
from regard.base.errors import RegardError, Stopped
from regard.base.numbers import group_digits, pluralize
from regard.report.progress import clock, progress, say
from regard.runs.compose import compose_recipe
from regard.runs.lists import GivenData, as_file
from regard.runs.load import AnyRun, load
from regard.runs.prepare import Prepared, prepare
from regard.runs.recipe import Recipe, compose, has_smaller, read_in
from regard.runs.run_report import write_report
from regard.runs.speed import get_ready, install
from regard.runs.store.create import write_facts, write_folder
from regard.runs.store.folder import Tokenizers, count_parameters, has_source, is_counted
from regard.runs.store.lock import check_free, new_folder
from regard.runs.tasks.classification.run import ClassificationRun
from regard.runs.tasks.language.data import TextData
from regard.runs.tasks.language.run import LanguageRun
from regard.runs.tasks.translation.run import TranslationRun
from regard.runs.tracking import check_tracker, tracking
from regard.systems.catalogue import ClassificationSystem, LanguageSystem, TranslationSystem, find
from regard.training.budget import Progress
from regard.training.checkpoint import save_tensors
from regard.training.checkpointing import weights_of
from regard.training.distributed import Group, join, local_rank
from regard.training.hyperparameters import GradientTraining, Training
from regard.training.log import Callback
from regard.training.loop import Trainer
from regard.training.validation import TextValidation

FEW_STEPS = 100  # most models have learned little after that


class TrainOptions(TypedDict, total=False):
    """The keyword parameters of `train`, for its overloads."""

    data: GivenData | None
    run: str | Path | None
    size: str | None
    seed: int | None
    budget: str | None
    start: str | Path | None
    recipe: str | Path | None
    settings: Mapping[str, Mapping[str, Any]] | None
    callbacks: Sequence[Callback]
    track: str


@overload
def train(system: LanguageSystem, **options: Unpack[TrainOptions]) -> LanguageRun: ...
@overload
def train(system: TranslationSystem, **options: Unpack[TrainOptions]) -> TranslationRun: ...
@overload
def train(system: ClassificationSystem, **options: Unpack[TrainOptions]) -> ClassificationRun: ...
@overload
def train(system: str | None = None, **options: Unpack[TrainOptions]) -> AnyRun: ...
@checked
def train(
    system: str | None = None,
    *,
    data: GivenData | None = None,
    run: str | Path | None = None,
    size: str | None = None,
    seed: int | None = None,
    budget: str | None = None,
    start: str | Path | None = None,
    recipe: str | Path | None = None,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    callbacks: Sequence[Callback] = (),
    track: str = "",
) -> AnyRun:
    """Train a system and return its run.

    Example:
        regard.train("lstm", data="my.txt", run="runs/mine", settings={"training": {"steps": 500}})

    Args:
        system: The name of a system, such as "lstm", or your own class, such as "./mine.py:MyCell". Default: the system
            of `recipe` or `start`.
        data: The name of a corpus, a path, a list of lines, or a list of pairs: (source, target) for a translator,
            (text, label) for a classifier. Default: the recipe's corpus or a built-in one.
        run: The folder of the new run, which must not exist. Default: a new folder in runs/.
        size: The size of the model: "tiny", "small", "medium" or "large".
        seed: The random seed of the initial weights, the order of the data and dropout.
        budget: How long to train: a time ("60s", "10m") or a number of tokens ("5M").
        start: The folder of the run to fine-tune: training starts from its weights and tokenizer.
        recipe: A recipe file (TOML).
        settings: Settings by section: {"data": {…}, "model": {…}, "training": {…}}.
        callbacks: Functions to call with each row of metrics.jsonl as it is written. If one raises an exception,
            training saves a checkpoint and stops.
        track: "tensorboard" or "mlflow", to log the curves there as well.

    Returns:
        A LanguageRun, a TranslationRun or a ClassificationRun, depending on the system's task.

    Raises:
        RegardError: If an argument, a setting or the data is wrong, or the run's folder exists.
        Stopped: If Ctrl-C or SIGTERM ended the training; its checkpoint is in the run's folder.
    """
    composed = compose_recipe(
        system,
        data=None if data is None else as_file(data),
        size=size,
        seed=seed,
        budget=budget,
        start=start,
        recipe=recipe,
        settings=settings,
    )
    return train_recipe(composed, None if run is None else Path(run), callbacks=callbacks, track=track)


def train_recipe(
    recipe: Recipe,
    folder: Path | None = None,
    tokenizers: Tokenizers | None = None,
    callbacks: Sequence[Callback] = (),
    track: str = "",
    began: float | None = None,
) -> AnyRun:
    """Train as a recipe specifies. `tokenizers`: use these instead of new ones. `began`: the time.perf_counter() at
    which the command started, from which a budget in seconds counts.
    """
    began = time.perf_counter() if began is None else began
    check_tracker(track, recipe)
    group = join(recipe.training.device if isinstance(recipe.training, GradientTraining) else "cpu")
    if folder is not None and group.is_first:
        check_free(folder)  # checked before anything is read
    if isinstance(recipe.training, GradientTraining) and group.alone:
        get_ready(pick_device(recipe.training.device), recipe.model)
    if not group.alone:
        return _train_together(group, recipe, folder, tokenizers, callbacks, track, began)
    ready = prepare(recipe, tokenizers)
    say(ready.data.sentence)
    if is_counted(ready.recipe):
        return _count(ready, folder)
    with new_folder(ready.recipe, folder) as made:
        trainer = build_trainer(ready, made)
        size = group_digits(count_parameters(ready.model))
        say(f"{find(ready.recipe.system).label}: {size} parameters, on {trainer.device}")
        tokens = trainer.settings.batch_tokens
        limit = trainer.settings.limit
        if limit.unit == "tokens" and limit.amount < tokens:
            said = f"{limit.amount:g} tokens is less than one step of {group_digits(tokens)} tokens"
            say(f"The budget of {said}; for a time, add the unit, as in {limit.amount:g}s.")
        write_folder(made, ready.recipe, ready.data.tokenizers, ready.ancestors, ready.data.chat_template)
        trainer.save()
        write_facts(made, ready.recipe, ready.model, ready.origin, ancestors=ready.ancestors)
        return continue_training(trainer, ready, callbacks, track, began)


def _train_together(
    group: Group,
    recipe: Recipe,
    folder: Path | None,
    tokenizers: Tokenizers | None,
    callbacks: Sequence[Callback],
    track: str,
    began: float,
) -> AnyRun:
    """Train in several processes: rank 0 reads the text and creates the folder for all of them."""
    if is_counted(recipe):
        raise RegardError(f"{recipe.system} is trained by counting in one process: run it without torchrun.")
    with new_folder(recipe, folder) if group.is_first else nullcontext() as made:
        folder = Path(group.broadcast(str(made)))
        if group.is_first:
            ready = prepare(recipe, tokenizers)
            say(ready.data.sentence)
            write_folder(folder, ready.recipe, ready.data.tokenizers, ready.ancestors, ready.data.chat_template)
        group.barrier()
        if not group.is_first:
            recipe = compose(recipe.system, None, read_in(folder))
            ready = prepare(recipe, Tokenizers.load(folder, has_source(recipe)))
        parameters = count_parameters(ready.model)  # before they are sharded
        trainer = build_trainer(ready, folder, group)
        where = f"{group.size} processes on {trainer.device.type}"
        say(f"{find(recipe.system).label}: {group_digits(parameters)} parameters, {where}")
        trainer.save()
        if group.is_first:
            write_facts(folder, ready.recipe, ready.model, ready.origin, group.size, ancestors=ready.ancestors)
        return continue_training(trainer, ready, callbacks, track, began)


def how_losses_differ(recipe: Recipe) -> str:
    """The terms that only the training loss contains, as a sentence; "" if it equals the validation loss."""
    settings = {**vars(recipe.model), **vars(recipe.training)}
    only = []
    if any(name.startswith("dropout") and value > 0 for name, value in settings.items()):
        only.append("dropout")
    if settings.get("label_smoothing"):
        only.append(f"label smoothing {settings['label_smoothing']:g}")
    if settings.get("consistency"):
        only.append("R-Drop")
    said = []
    if only:
        measured = f"The training loss is measured with {' and '.join(only)}, the validation loss without"
        said.append(f"{measured}, so the two cannot be compared.")
    if settings.get("ema"):
        said.append(f"Validation uses and saves the moving average of the weights (training.ema {settings['ema']:g}).")
    return " ".join(said)


def continue_training(
    trainer: Trainer, ready: Prepared, callbacks: Sequence[Callback], track: str, began: float
) -> AnyRun:
    """Train until the budget is spent, write the report, and return the run."""
    folder, at, recipe = trainer.folder, trainer.progress, ready.recipe
    trainer.clock.began, trainer.runner.begins_as_written = began, True
    if trainer.group.is_first and (sentence := how_losses_differ(recipe)):
        say(sentence)
    with tracking(track if trainer.group.is_first else "", folder, recipe) as tracker:
        trainer.callbacks = (*callbacks, tracker.add)
        try:
            trainer.train()
        except Stopped as stopped:
            if trainer.group.is_first:
                write_report(load(folder, device=str(trainer.device)), ready.data.examples)
            say(f"stopped at step {stopped.step}; `regard resume {folder}` continues from there")
            raise
        except (RuntimeError, ConnectionError) as error:
            if trainer.group.alone or isinstance(error, RegardError):
                raise
            raise RegardError(
                f"Another process of this training run ended at step {at.step}; the last checkpoint is in {folder}: "
                f"`torchrun … -m -- regard resume {folder}` continues from there, with any number of processes."
            ) from error
        trainer.optimizer.zero_grad(set_to_none=True)  # memory for the run that is opened next
        trainer.group.barrier()  # rank 0 writes the files
        say(
            f"best validation {at.best_words} at step {at.best_step}; "
            f"{group_digits(at.tokens)} tokens in {where_time_went(at)}; saved in {folder}"
        )
        if trainer.settings.limit.unit == "seconds" and at.step < FEW_STEPS:
            steps = pluralize(at.step, "step")
            smaller = "a smaller --size or " * has_smaller(recipe)
            say(f"Only {steps} fit into this budget: use {smaller}a longer --budget to learn more.")
        run = load(folder, device=str(trainer.device))
        if trainer.group.is_first:
            shown = write_report(run, ready.data.examples)
            tracker.end(at.step, shown)
    return run


def where_time_went(at: Progress) -> str:
    """ "52 s (start 4.1 s, validation 6.0 s, saving 1.2 s)": all of it, and what was not training."""
    besides = {"start": at.started, **at.overhead_seconds}
    parts = [f"{what} {clock(seconds)}" for what, seconds in besides.items() if seconds >= 0.01 * at.elapsed]
    return clock(at.elapsed) + (f" ({', '.join(parts)})" if parts else "")


def _count(ready: Prepared, asked: Path | None) -> LanguageRun:
    recipe, model, data = ready.recipe, ready.model, ready.data
    assert isinstance(data, TextData)
    ids = data.arrays["train"].ids
    began = time.perf_counter()
    with progress(f"counting up to {recipe.model.order}-grams", recipe.model.order) as bar:
        model.count(ids, progress=lambda: bar.advance(1))  # type: ignore[operator]  # counted systems have it
    for note in model.notes:  # type: ignore[union-attr]
        say(str(note))
    seconds = time.perf_counter() - began
    held_out = data.arrays["valid"].ids[: Training().validation_tokens]  # the same number as for other systems
    loss = TextValidation(held_out, data.tokenizers.target.eos, data.tokenizers.target.begin)(model).loss
    with new_folder(recipe, asked) as folder:
        write_folder(folder, recipe, data.tokenizers, chat_template=data.chat_template)
        note = {"tokens": len(ids), "validation_loss": loss}
        save_tensors(folder / "model.safetensors", weights_of(model), note)
        origin = data.origin
        write_facts(folder, recipe, model, origin, seconds=seconds)
    grams = group_digits(count_parameters(model))
    say(f"counted {grams} n-grams in {clock(seconds)}; validation loss {loss:.4f}; saved in {folder}")
    run = LanguageRun(folder, recipe, data.tokenizers.target, model, origin["unseen_bytes"])
    write_report(run)
    return run


# -- trainer -----------------------------------------------------------------------------------------------------


def build_trainer(ready: Prepared, folder: Path, group: Group | None = None) -> Trainer:
    settings, device = ready.recipe.training, pick_device(ready.recipe.training.device)
    if group is not None and not group.alone and device.type == "cuda":
        device = torch.device("cuda", local_rank())
    model = ready.model.to(device)
    batches, validation = ready.data.batches(ready.recipe, model), ready.data.validation(ready.recipe, model)
    bf16 = settings.precision == "bf16"
    return Trainer(model, batches, validation, settings, folder, bf16=bf16, group=group, install=install)
