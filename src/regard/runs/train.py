"""From a recipe to a run: corpus → tokenizer → tokens → batches → model → training → folder.

Nothing is written into the run's folder before the data and the settings have been read and understood, and a folder
that holds something already is never written into.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypedDict, Unpack, overload

import torch

from regard.base.arguments import checked
from regard.base.device import device_memory, device_name, peak_memory, pick_device
from regard.base.errors import RegardError, Stopped
from regard.base.numbers import group_digits, pluralize, with_article
from regard.base.writing import write_text
from regard.report.progress import clock, progress, say
from regard.runs.ancestors import NONE, Ancestors
from regard.runs.classification_run import ClassificationRun
from regard.runs.data import Data, PairData, TextData, data_of, read_data
from regard.runs.language_run import LanguageRun
from regard.runs.lists import GivenData, as_file
from regard.runs.load import AnyRun, load
from regard.runs.recipe import Recipe, Start, compose, has_smaller, read_in, read_recipe, written_in
from regard.runs.resolve import MAX_EPOCHS, is_small_file, resolve_device
from regard.runs.run_report import write_report
from regard.runs.speed import get_ready, install
from regard.runs.store.create import write_facts, write_folder
from regard.runs.store.folder import (
    MAY_CHANGE,
    Tokenizers,
    build_model,
    count_parameters,
    has_source,
    is_counted,
    open_recipe,
    read_weights,
    recorded_unseen,
    stays,
)
from regard.runs.store.lock import check_free, claimed, new_folder, tidy
from regard.runs.tracking import check_tracker, tracking
from regard.runs.translation_run import TranslationRun
from regard.systems.catalogue import ClassificationSystem, LanguageSystem, TranslationSystem, find
from regard.systems.code import admit, is_own, locate, name_code
from regard.systems.model import Model
from regard.text.pairs import Pairs
from regard.training.budget import Progress
from regard.training.checkpoint import load_tensors, save_tensors, weights_digest
from regard.training.checkpointing import weights_of
from regard.training.distributed import Group, join, local_rank
from regard.training.hyperparameters import Learning, PairTraining, Training
from regard.training.log import Callback
from regard.training.loop import Trainer
from regard.training.out_of_memory import is_out_of_memory
from regard.training.probe import measure_steps, probe_peak_memory
from regard.training.validation import TextValidation

FEW_STEPS = 100  # after which most models have learned little
BY_FILE = "size"  # in a recipe's `given`: nobody chose a size, and the file is small


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
        system: The name of a system, such as "lstm", or a class of your own, "./mine.py:MyCell"; without it, the
            system of `recipe` or `start`.
        data: The name of a corpus, a path, a list of lines, or a list of pairs: (source, target) for a translator,
            (text, label) for a classifier. Without it, the recipe's corpus or a built-in one.
        run: The folder of the new run, which must not exist; without it, a new folder in runs/.
        size: The size of the model: "tiny", "small", "medium" or "large".
        seed: The seed of the weights, the order of the data and dropout.
        budget: How long to train: a time ("60s", "10m") or a number of tokens ("5M").
        start: The folder of a run whose weights and tokenizer the training starts from (fine-tuning).
        recipe: A recipe file (TOML).
        settings: Settings by section: {"data": {…}, "model": {…}, "training": {…}}.
        callbacks: Functions that are called with each row of metrics.jsonl as it is written. An exception in one ends
            the training after a checkpoint.
        track: "tensorboard" or "mlflow" also logs the curves there.

    Returns:
        A LanguageRun, a TranslationRun or a ClassificationRun, by the system's task.

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


def compose_recipe(
    system: str | None,
    *,
    data: str | None = None,
    size: str | None = None,
    seed: int | None = None,
    budget: str | None = None,
    start: str | Path | None = None,
    recipe: str | Path | None = None,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
) -> Recipe:
    """One recipe from all the ways to say what is wanted, the more particular overriding the more general."""
    trees: list[Mapping[str, Any]] = []
    if "from" in (settings or {}):
        raise RegardError("The run to start from is given by --from RUN, in Python by start.")
    known: Start | None = None
    if system is not None and is_own(system):
        system = name_code(system).name
    if recipe is not None:
        is_of_run = (Path(recipe).parent / "run.json").is_file() and Path(recipe).name == "recipe.toml"
        tree = read_in(Path(recipe).parent) if is_of_run else read_recipe(Path(recipe))
        if system is None and is_own(str(tree["system"])):
            admit(locate(str(tree["system"])), recipe)
        system = system or str(tree["system"])
        trees.append(tree)
        known = Start.of(tree)
        if known is not None and start is None:
            start = known.run
            if not (Path(start) / "run.json").is_file():
                raise RegardError(
                    f"{recipe} starts from the run {start}, which is not there: put it back, or say with --from where "
                    "it is now."
                )
    if start is not None:
        before = open_recipe(Path(start))
        check_start(before, Path(start), system, size, settings or {})
        system, size = before.system, before.size
        trees.insert(0 if known else len(trees), {"model": before.tree()["model"]})  # its own settings come after
    if system is None:
        raise RegardError("Name a system (`regard systems` lists them) or a recipe file.")
    small = size is None and not any("size" in tree for tree in trees) and is_small_file(data)
    short: dict[str, dict[str, Any]] = {"data": {}, "training": {}}
    if data is not None:
        short["data"] |= {"corpus": data, "header": "auto"}  # another file than the recipe's
    if seed is not None:
        short["training"]["seed"] = seed
    if budget is not None:
        short["training"]["budget"] = budget
    made = compose(system, "tiny" if small else size, *trees, short, settings or {})
    if start is not None:
        made = replace(made, start=Start(str(Path(start).resolve()), known.weights if known else ""))
    return replace(made, given=made.given | {BY_FILE}) if small else made


def check_start(
    before: Recipe, start: Path, system: str | None, size: str | None, settings: Mapping[str, Mapping[str, Any]]
) -> None:
    """What a fine-tuned run takes from the run it begins with cannot be asked for otherwise."""
    if is_counted(before):
        raise RegardError(f"{start} is {with_article(before.system)}, which is counted: count both texts together.")
    if system is not None and find(system).name != before.system:
        raise RegardError(
            f"{start} is {with_article(before.system)}: {with_article(system)} cannot start from its weights."
        )
    if size is not None and size != before.size:
        kept = f"its size{f', {before.size}' * bool(before.size)}"
        raise RegardError(f"A run that starts from {start} keeps {kept}: leave out --size.")
    for key in ("tokenizer", "vocabulary", "normalise", "joint"):
        if key in settings.get("data", {}):
            raise RegardError(f"A run that starts from {start} keeps its tokenizer: leave out --data.{key}.")


@dataclass(frozen=True)
class Prepared:
    """Everything that training needs, before anything is written."""

    data: Data
    model: Model
    ancestors: Ancestors = NONE
    notes: Sequence[str] = ()  # what its ancestors were trained on of what is held out

    @property
    def recipe(self) -> Recipe:
        return self.data.recipe

    @property
    def origin(self) -> dict[str, Any]:
        """What run.json says of the text; the text of a run that training started from counts as seen, too."""
        origin = self.data.origin
        if self.recipe.start is not None and "unseen_bytes" in origin:
            unseen = recorded_unseen(Path(self.recipe.start.run), self.data.tokenizers.target)
            origin["unseen_bytes"] = [number for number in origin["unseen_bytes"] if number in unseen]
        return origin | {"notes": [*origin["notes"], *self.notes]}


def prepare(recipe: Recipe, tokenizers: Tokenizers | None = None) -> Prepared:
    if recipe.start is not None:
        weights = read_weights(Path(recipe.start.run))
        recipe = replace(recipe, start=_same_weights(recipe.start, weights_digest(weights)))
    if "data.corpus" not in recipe.given:
        say(f"No --data was given, so this trains on the built-in corpus {recipe.data.corpus}.")
    data, notes = read_data(recipe, tokenizers).resolved()
    for note in notes:
        say(note)
    check_room(data.recipe, data.tokenizers)
    torch.manual_seed(data.recipe.training.seed)
    model = build_model(data.recipe, data.tokenizers)
    if BY_FILE in recipe.given:
        say(f"Size: tiny, since {recipe.data.corpus} is small; --size asks for another.")
    if recipe.start is None:
        return Prepared(data, model)
    try:
        model.load_state_dict(weights)
    except RuntimeError:
        raise RegardError(
            f"These model settings do not fit the weights of {recipe.start.run}: leave model.* out."
        ) from None
    ancestors = Ancestors.and_itself(Path(recipe.start.run), recipe.start.weights)
    notes = ancestors.notes(data.corpus)
    for note in notes:
        say(note)
    return Prepared(data, model, ancestors, notes)


def _same_weights(start: Start, found: str) -> Start:
    """The start with the digest of its weights, which must be the one that the recipe names, if it does."""
    if start.weights in ("", found):
        return replace(start, weights=found)
    raise RegardError(
        f"{start.run} is not the run that this recipe starts from: its weights have the digest {found}, and the recipe "
        f"names {start.weights}. Put that run back or say with --from where it is now; to start from another one, "
        "remove [from] from a copy of the recipe."
    )


def check_room(recipe: Recipe, tokenizers: Tokenizers) -> None:
    """Refuse a model that cannot be trained in this machine's memory, before anything is allocated."""
    settings = recipe.training
    if not isinstance(settings, Learning) or settings.shard or is_own(recipe.system):
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
            f"gradients and moments alone; {device} has {room / 2**30:.0f} GiB. Make model.width, model.layers or "
            "data.vocabulary smaller."
        )


def train_recipe(
    recipe: Recipe,
    folder: Path | None = None,
    tokenizers: Tokenizers | None = None,
    callbacks: Sequence[Callback] = (),
    track: str = "",
    began: float | None = None,
) -> AnyRun:
    """Train what a recipe says; `tokenizers`: with these instead of new ones. `began`: when the command did, of which
    a budget in seconds counts them all, by time.perf_counter()."""
    began = time.perf_counter() if began is None else began
    check_tracker(track, recipe)
    group = join(recipe.training.device if isinstance(recipe.training, Learning) else "cpu")
    if folder is not None and group.is_first:
        check_free(folder)  # said before anything is read
    if isinstance(recipe.training, Learning) and group.alone:
        get_ready(pick_device(recipe.training.device))
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
            said = f"{limit.amount:g} tokens are less than one step of {group_digits(tokens)}"
            say(f"Budget: {said}; a time has its unit, as in {limit.amount:g}s.")
        write_folder(made, ready.recipe, ready.data.tokenizers, ready.ancestors)
        trainer.save()
        write_facts(made, ready.recipe, ready.model, ready.origin, ancestors=ready.ancestors)
        return _go_on(trainer, ready.data, callbacks, track, began)


def _train_together(
    group: Group,
    recipe: Recipe,
    folder: Path | None,
    tokenizers: Tokenizers | None,
    callbacks: Sequence[Callback],
    track: str,
    began: float,
) -> AnyRun:
    """The same in several processes: the leader reads the text and makes the folder, the others find both there."""
    if is_counted(recipe):
        raise RegardError(f"{recipe.system} is counted in one process: start it without torchrun.")
    with new_folder(recipe, folder) if group.is_first else nullcontext() as made:
        folder = Path(group.broadcast(str(made)))
        if group.is_first:
            ready = prepare(recipe, tokenizers)
            say(ready.data.sentence)
            write_folder(folder, ready.recipe, ready.data.tokenizers, ready.ancestors)
        group.barrier()
        if not group.is_first:
            recipe = compose(recipe.system, None, read_in(folder))
            ready = prepare(recipe, Tokenizers.load(folder, has_source(recipe)))
        parameters = count_parameters(ready.model)  # before they are shared out
        trainer = build_trainer(ready, folder, group)
        where = f"{group.size} processes on {trainer.device.type}"
        say(f"{find(recipe.system).label}: {group_digits(parameters)} parameters, {where}")
        trainer.save()
        if group.is_first:
            write_facts(folder, ready.recipe, ready.model, ready.origin, group.size, ancestors=ready.ancestors)
        return _go_on(trainer, ready.data, callbacks, track, began)


@checked
def resume(
    folder: str | Path,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    *,
    callbacks: Sequence[Callback] = (),
    track: str = "",
    began: float | None = None,
) -> AnyRun:
    """Continue a training exactly where it stopped.

    Args:
        folder: The folder of the run.
        settings: Changed settings. Only those may change that leave the model the same, such as training.device.
        callbacks: As in `train`.
        track: As in `train`.
        began: The value of time.perf_counter() when a budget in seconds began; without it, now.

    Returns:
        The trained run.

    Raises:
        RegardError: If the folder is not a run, has no checkpoint, or a setting may not change.
        Stopped: If Ctrl-C or SIGTERM ended the training; its checkpoint is in the run's folder.
    """
    began = time.perf_counter() if began is None else began
    folder = Path(folder)
    recipe = _changed(open_recipe(folder), settings or {})
    if is_counted(recipe):
        raise RegardError(f"{folder} is complete: {recipe.system} is counted in one pass.")
    if not (folder / "training.safetensors").exists():
        raise RegardError(f"{folder} has no checkpoint (training.safetensors); train it anew.")
    check_tracker(track, recipe)
    torch.set_num_threads(recipe.training.threads)
    group = join(recipe.training.device)
    data = data_of(folder, recipe)
    ready = Prepared(data, build_model(recipe, data.tokenizers, drawn=False))
    with claimed(folder) if group.is_first else nullcontext():
        if group.is_first:
            tidy(folder)
        trainer = build_trainer(ready, folder, group)
        _restore(trainer)
        if settings and group.is_first:
            write_text(folder / "recipe.toml", written_in(recipe, folder))
        return _go_on(trainer, data, callbacks, track, began)


def _changed(recipe: Recipe, settings: Mapping[str, Mapping[str, Any]]) -> Recipe:
    """The recipe with other settings, if the run stays what it is with them."""
    for section, values in settings.items():
        for name in values:
            if section != "training" or name not in MAY_CHANGE:
                raise RegardError(stays(f"{section}.{name}"))
    if isinstance(recipe.training, PairTraining) and "capture" in settings.get("training", {}):
        raise RegardError("A run on pairs keeps its training.capture, which decides the pairs that share a batch.")
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
            f"The checkpoint of {folder} does not fit its recipe.toml: one of the two was changed."
        ) from None
    if trainer.at.best_step > 0 and trainer.group.is_first:
        load_tensors(folder / "model.safetensors")  # missing or damaged: known now, and not after the training
    if trainer.at.finished:
        say(f"{folder} was already finished, after {pluralize(trainer.at.step, 'step')}.")
    else:
        say(f"{folder}: continuing from step {trainer.at.step}")


def how_losses_differ(recipe: Recipe) -> str:
    """What only the loss of training contains, as a sentence; "" where it is what validation measures."""
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
        said.append(f"{measured}: compare each with itself.")
    if settings.get("ema"):
        said.append(f"Validated and kept is the moving average of the weights (training.ema {settings['ema']:g}).")
    return " ".join(said)


def _go_on(trainer: Trainer, data: Data, callbacks: Sequence[Callback], track: str, began: float) -> AnyRun:
    folder, at = trainer.folder, trainer.at
    trainer.clock.began = began
    pairs = data.references if isinstance(data, PairData) else Pairs([], [])
    if trainer.group.is_first and (sentence := how_losses_differ(data.recipe)):
        say(sentence)
    with tracking(track if trainer.group.is_first else "", folder, data.recipe) as tracker:
        trainer.callbacks = (*callbacks, tracker.add)
        try:
            trainer.train()
        except Stopped as stopped:
            if trainer.group.is_first:
                write_report(load(folder, device=str(trainer.device)), zip(pairs.sources, pairs.targets))
            say(f"stopped at step {stopped.step}; `regard resume {folder}` continues from there")
            raise
        except (RuntimeError, ConnectionError) as error:
            if trainer.group.alone or isinstance(error, RegardError):
                raise
            raise RegardError(
                f"Another process of this training ended at step {at.step}; the last checkpoint is in {folder}: "
                f"`torchrun … -m -- regard resume {folder}` continues from there, with any number of processes."
            ) from error
        trainer.optimizer.zero_grad(set_to_none=True)  # room for the run that is opened beside it
        trainer.group.barrier()  # the files are the leader's
        say(
            f"best validation {at.best_words} at step {at.best_step}; "
            f"{group_digits(at.tokens)} tokens in {where_time_went(at)}; saved in {folder}"
        )
        if trainer.settings.limit.unit == "seconds" and at.step < FEW_STEPS:
            steps = pluralize(at.step, "step")
            smaller = "a smaller --size or " * has_smaller(data.recipe)
            say(f"Only {steps} fitted into this budget: {smaller}a longer --budget learns more.")
        run = load(folder, device=str(trainer.device))
        if trainer.group.is_first:
            shown = write_report(run, zip(pairs.sources, pairs.targets))
            tracker.end(at.step, shown)
    return run


def where_time_went(at: Progress) -> str:
    """ "52 s (start 4.1 s, validation 6.0 s, saving 1.2 s)": all of it, and what was not training."""
    besides = {"start": at.started, **at.besides}
    parts = [f"{what} {clock(seconds)}" for what, seconds in besides.items() if seconds >= 0.01 * at.elapsed]
    return clock(at.elapsed) + (f" ({', '.join(parts)})" if parts else "")


def _count(ready: Prepared, asked: Path | None) -> LanguageRun:
    data = ready.data
    assert isinstance(data, TextData)
    recipe, model, ids = ready.recipe, ready.model, data.arrays["train"].ids
    began = time.perf_counter()
    with progress(f"counting up to {recipe.model.order}-grams", recipe.model.order) as bar:
        model.count(ids, progress=lambda: bar.advance(1))  # type: ignore[operator]  # counted systems have it
    for note in model.notes:  # type: ignore[union-attr]
        say(str(note))
    seconds = time.perf_counter() - began
    held_out = data.arrays["valid"].ids[: Training().validation_tokens]  # as much as others are validated on
    loss = TextValidation(held_out, data.tokenizers.target.eos)(model).loss
    with new_folder(recipe, asked) as folder:
        write_folder(folder, recipe, data.tokenizers)
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
    batches, validation = ready.data.batches(model), ready.data.validation(model)
    bf16 = settings.precision == "bf16"
    return Trainer(model, batches, validation, settings, folder, bf16=bf16, group=group, install=install)


# -- what would it cost ----------------------------------------------------------------------------------------------


TOO_MANY = f"more than {MAX_EPOCHS} epochs: a corpus this small is soon memorised; set --training.patience to stop then"


def dry_run(recipe: Recipe) -> dict[str, Any]:
    """Parameters, memory and time of a training, from three real steps; nothing stays but the token cache.

    The memory is the most this process held after it did once, after the three steps, everything else that a training
    does: the batches that stand out, a validation, a checkpoint.
    """
    ready = prepare(recipe)
    training_tokens, pairs = ready.data.tokens, isinstance(ready.data, PairData)
    facts: dict[str, Any] = {
        "system": ready.recipe.system,
        "corpus": ready.data.origin["name"],
        "vocabulary": ready.data.tokenizers.target.vocabulary,
        "training_tokens": training_tokens,
        **({"tokens_are": "those of the target; training.batch_tokens counts both sides"} if pairs else {}),
    }
    if is_counted(ready.recipe):
        return facts | {"note": "counting takes about a second per million tokens"}
    with TemporaryDirectory() as folder:
        trainer = build_trainer(ready, Path(folder))
        try:
            seconds, per_step = measure_steps(trainer, 3)
            limit = trainer.settings.limit
            steps = limit.amount / {"steps": 1.0, "tokens": per_step, "seconds": seconds}[limit.unit]
            probe_peak_memory(trainer, round(steps))
        except RegardError as error:  # of a folder that is gone in a moment
            raise RegardError(str(error).replace(f"; the last good weights are kept in {folder}", "")) from None
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            parts = f"--training.accumulate {2 * trainer.settings.accumulate}"
            raise RegardError(
                f"{trainer.device} has too little memory for this training: try {parts}, which changes "
                "memory and not the gradient, or a smaller model."
            ) from error
    epochs = steps * per_step / training_tokens
    return facts | {
        "parameters": count_parameters(ready.model),
        "device": device_name(trainer.device),
        "threads": ready.recipe.training.threads,
        "tokens_per_step": round(per_step),
        "steps": round(steps),
        "epochs": round(epochs, 2),
        "seconds_per_step": round(seconds, 4),
        "tokens_per_second": round(per_step / seconds),
        "training_time": clock(steps * seconds),
        "weights_gradients_optimizer_bytes": resident_bytes(trainer),
        "peak_memory_bytes": peak_memory(trainer.device),
        **({"warning": TOO_MANY} if epochs > MAX_EPOCHS and not trainer.settings.patience else {}),
        **(on_the_gpu(trainer) if trainer.device.type == "cuda" else {}),
    }


def on_the_gpu(trainer: Trainer) -> dict[str, int]:
    """What PyTorch keeps for its tensors, and beside it the CUDA context, libraries and other processes; and of the
    machine's memory what is copied there to be saved."""
    free, total = torch.cuda.mem_get_info(trainer.device)
    return {
        "peak_reserved_bytes": torch.cuda.max_memory_reserved(trainer.device),
        "gpu_memory_beside_bytes": total - free - torch.cuda.memory_reserved(trainer.device),
        "host_memory_for_saving_bytes": trainer.files.writer.host_bytes,
    }


def resident_bytes(trainer: Trainer) -> int:
    """Weights, gradients, the optimiser's moments and the average: what stays in memory between steps."""
    held = sum(p.numel() * p.element_size() * 2 for p in trainer.model.parameters())
    moments = (t for values in trainer.optimizer.state.values() for t in values.values() if isinstance(t, torch.Tensor))
    averaged = trainer.average.weights.values()
    return held + sum(t.numel() * t.element_size() for t in (*moments, *averaged))
