"""From a recipe to a run: corpus → tokenizer → tokens → batches → model → training → folder.

Nothing is written into the run's folder before the data and the settings have been read and understood, and a folder
that holds something already is never written into.
"""

from __future__ import annotations

import datetime
import json
import os
import platform
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

import regard
from regard.errors import RegardError, Stopped
from regard.files import write_text
from regard.layers.state import State
from regard.recipe import Recipe, compose, read_recipe
from regard.report.progress import clock, grouped, progress, say
from regard.run import (
    FORMAT,
    Run,
    build_model,
    count_parameters,
    is_counted,
    load,
    open_folder,
    pick_device,
    read_facts,
    read_weights,
    set_weights,
    tokens_of,
)
from regard.systems.model import Model
from regard.text.batches import Streams, Windows
from regard.text.corpus import Corpus, open_corpus
from regard.text.tokenizer import Tokenizer
from regard.text.tokens import TokenArray
from regard.training.checkpoint import save_tensors
from regard.training.loop import Trainer, measure_steps, weights_of


def train(
    system: str | None = None,
    *,
    data: str | None = None,
    run: str | Path | None = None,
    size: str | None = None,
    seed: int | None = None,
    budget: str | None = None,
    start: str | Path | None = None,
    recipe: str | Path | None = None,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
) -> Run:
    """Train a system on a text and return the run. `start`: a run whose weights and tokenizer it begins with.

    regard.train("lstm", data="my.txt", run="runs/mine", settings={"model": {"layers": 1}, "training": {"steps": 500}})
    """
    composed = compose_recipe(
        system, data=data, size=size, seed=seed, budget=budget, start=start, recipe=recipe, settings=settings
    )
    return train_recipe(composed, Path(run) if run is not None else None, Path(start) if start is not None else None)


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
    if start is not None:
        before, _ = open_folder(Path(start))
        if system is not None and system != before.system:
            raise RegardError(f"{start} is a {before.system}; a {system} cannot begin with its weights.")
        system, size = before.system, size or before.size
        trees.append({"model": before.tree()["model"]})
    if recipe is not None:
        tree = read_recipe(Path(recipe))
        system = system or str(tree["system"])
        trees.append(tree)
    if system is None:
        raise RegardError("Name a system (`regard systems` lists them) or a recipe file.")
    short: dict[str, dict[str, Any]] = {"data": {}, "training": {}}
    if data is not None:
        short["data"]["corpus"] = data
    if seed is not None:
        short["training"]["seed"] = seed
    if budget is not None:
        short["training"]["budget"] = budget
    return compose(system, size, *trees, short, settings or {})


def train_recipe(recipe: Recipe, folder: Path | None = None, start: Path | None = None) -> Run:
    corpus, tokenizer, recipe = read_data(recipe, start)
    folder = new_folder(recipe, folder)
    set_threads(recipe.training.threads)
    tokens = {split: tokens_of(corpus, tokenizer, split) for split in ("train", "valid")}
    check_tokens(corpus, tokens)
    say(
        f"{corpus.name}: {grouped(len(tokens['train'].ids))} training tokens, {tokenizer.kind} vocabulary of "
        f"{grouped(tokenizer.vocabulary)}"
    )
    torch.manual_seed(recipe.training.seed)
    model = build_model(recipe, tokenizer)
    if is_counted(recipe):
        return _count(recipe, corpus, tokenizer, tokens, model, folder)
    if start is not None:
        set_weights(model, read_weights(start), start)
    trainer = build_trainer(recipe, tokenizer, tokens, model, folder)
    say(f"{recipe.system}: {grouped(count_parameters(model))} parameters, on {trainer.device}")
    write_folder(folder, recipe, tokenizer, model, origin_of(corpus))
    trainer.save()
    return _go_on(trainer)


def resume(folder: str | Path) -> Run:
    """Go on exactly where a run stopped."""
    folder = Path(folder)
    facts = read_facts(folder)
    recipe, tokenizer = open_folder(folder)
    if is_counted(recipe):
        raise RegardError(f"{folder} is complete: a {recipe.system} is counted in one go.")
    if not (folder / "training.safetensors").exists():
        raise RegardError(f"{folder} has no checkpoint (training.safetensors); train it anew.")
    split = recipe.data.split
    corpus = open_corpus(recipe.data.corpus, None if split == "auto" else split)
    if corpus.checksum() != facts["corpus"]["checksum"]:
        raise RegardError(
            f"{recipe.data.corpus} has changed since {folder} was begun; put the text back, or start a new run "
            f"with --from {folder}."
        )
    set_threads(recipe.training.threads)
    tokens = {name: tokens_of(corpus, tokenizer, name) for name in ("train", "valid")}
    trainer = build_trainer(recipe, tokenizer, tokens, build_model(recipe, tokenizer), folder)
    try:
        trainer.restore()
    except RuntimeError:  # shapes that differ
        raise RegardError(
            f"The checkpoint of {folder} does not fit its recipe.toml: one of the two was changed."
        ) from None
    if trainer.at.finished:
        say(f"{folder} had finished: {trainer.at.step} steps.")
    else:
        say(f"{folder}: going on from step {trainer.at.step}")
    return _go_on(trainer)


def _go_on(trainer: Trainer) -> Run:
    folder, at = trainer.folder, trainer.at
    try:
        trainer.train()
    except Stopped as stopped:
        say(f"stopped at step {stopped.step}; `regard resume {folder}` goes on from there")
        raise
    say(
        f"best validation loss {at.best:.4f} at step {at.best_step}; "
        f"{grouped(at.tokens)} tokens in {clock(at.seconds)}; the run is in {folder}"
    )
    return load(folder, device=str(trainer.device))


def _count(
    recipe: Recipe, corpus: Corpus, tokenizer: Tokenizer, tokens: Mapping[str, TokenArray], model: Any, folder: Path
) -> Run:
    began = time.perf_counter()
    with progress(f"counting up to {recipe.model.order}-grams", recipe.model.order) as bar:
        model.count(tokens["train"].ids, progress=lambda: bar.advance(1))
    for note in model.notes:
        say(note)
    write_folder(folder, recipe, tokenizer, model, origin_of(corpus))
    seconds = time.perf_counter() - began
    save_tensors(
        folder / "model.safetensors", weights_of(model), {"seconds": seconds, "tokens": len(tokens["train"].ids)}
    )
    say(f"counted {grouped(count_parameters(model))} n-grams in {clock(seconds)}; the run is in {folder}")
    return Run(folder, recipe, tokenizer, model)


# -- data ------------------------------------------------------------------------------------------------------------


def read_data(recipe: Recipe, start: Path | None = None) -> tuple[Corpus, Tokenizer, Recipe]:
    """The corpus, its tokenizer, and the recipe with every `auto` of [data] and the thread count filled in."""
    data = recipe.data
    corpus = open_corpus(data.corpus, None if data.split == "auto" else data.split)
    for note in corpus.notes:
        say(note)
    if start is not None:
        tokenizer = Tokenizer.load(start / "tokenizer.json")
    else:
        kind = corpus.suggested_tokenizer if data.tokenizer == "auto" else data.tokenizer
        normalise = data.normalise if data.normalise != "auto" else "none" if kind in ("bpe", "byte") else "nfc"
        tokenizer = Tokenizer.train(
            corpus.splits["train"],
            kind,
            data.vocabulary or None,
            normalise=normalise,
            pretokenised=corpus.pretokenised,
        )
    path = Path(data.corpus)
    resolved = {
        "normalise": tokenizer.normalisation,
        "corpus": str(path.resolve()) if path.exists() else data.corpus,
        "tokenizer": tokenizer.kind,
        "vocabulary": tokenizer.vocabulary,
    }
    return corpus, tokenizer, recipe.replace(data=resolved, training={"threads": recipe.training.threads or cores()})


def check_tokens(corpus: Corpus, tokens: Mapping[str, TokenArray]) -> None:
    for split, array in tokens.items():
        if len(array.ids) < 2:
            raise RegardError(f"The {split} split of {corpus.name} has no text to learn from; give it more lines.")


# -- model and trainer -----------------------------------------------------------------------------------------------


def build_trainer(
    recipe: Recipe, tokenizer: Tokenizer, tokens: Mapping[str, TokenArray], model: Model, folder: Path
) -> Trainer:
    settings = recipe.training
    device = pick_device(settings.device)
    model = model.to(device)
    ids, eos = tokens["train"].ids, tokenizer.eos
    rows = min(settings.rows, max(1, len(ids) // settings.window))  # a short text fills fewer rows
    if settings.batches == "stream" and grows(model):
        raise RegardError(f"The state of {recipe.system} grows with the text: use training.batches windows.")
    batches: Streams | Windows
    if settings.batches == "stream":
        batches = Streams(ids, rows, settings.window, eos)
    else:
        batches = Windows(ids, rows, settings.window, eos, settings.seed)
    validation = tokens["valid"].ids[: settings.validation_tokens or None]
    bf16 = settings.precision == "bf16" or (
        settings.precision == "auto" and device.type == "cuda" and torch.cuda.is_bf16_supported()
    )
    return Trainer(model, batches, validation, settings, folder, eos=eos, bf16=bf16)


def grows(model: Model) -> bool:
    """Does the state get larger with every token read (keys and values), so that it cannot be carried forever?"""

    def empty(part: State) -> bool:
        return any(empty(leaf) if isinstance(leaf, dict) else leaf.numel() == 0 for leaf in part.values())

    return empty(model.begin(rows=1)["past"])


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def set_threads(threads: int) -> None:
    torch.set_num_threads(threads)


# -- the folder ------------------------------------------------------------------------------------------------------


def new_folder(recipe: Recipe, folder: Path | None) -> Path:
    """The folder asked for, if it is free; else runs/SYSTEM-CORPUS, with a number if that is taken."""
    if folder is not None:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise RegardError(
                f"{folder} exists already: `regard resume {folder}` goes on with it, or choose another --run."
            )
        return folder
    return free_folder(Path("runs") / f"{recipe.system}-{Path(recipe.data.corpus).stem}")


def free_folder(wanted: Path) -> Path:
    """`wanted`, or wanted-2, wanted-3, … whichever does not exist yet."""
    free, number = wanted, 1
    while free.exists():
        number += 1
        free = wanted.with_name(f"{wanted.name}-{number}")
    return free


def write_folder(folder: Path, recipe: Recipe, tokenizer: Tokenizer, model: Model, origin: Mapping[str, Any]) -> None:
    """Everything about the run but its weights; `origin` says what text it comes from."""
    facts = {
        "format": FORMAT,
        "regard": regard.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "device": device_name(model.device),
        "threads": recipe.training.threads,
        "seed": recipe.training.seed,
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "parameters": count_parameters(model),
        "corpus": dict(origin),
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RegardError(f"Cannot make the folder {folder} ({error.strerror}); choose another --run.") from None
    write_text(folder / "recipe.toml", recipe.toml())
    tokenizer.save(folder / "tokenizer.json")
    write_text(folder / "run.json", json.dumps(facts, indent=2, ensure_ascii=False) + "\n")


def origin_of(corpus: Corpus) -> dict[str, Any]:
    return {"name": corpus.name, "checksum": corpus.checksum(), "notes": list(corpus.notes)}


def device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else f"{device} ({platform.machine()})"


# -- what would it cost ----------------------------------------------------------------------------------------------


def dry_run(recipe: Recipe, start: Path | None = None) -> dict[str, Any]:
    """Parameters, memory and time of a training, from three real steps; nothing is written but the token cache."""
    corpus, tokenizer, recipe = read_data(recipe, start)
    set_threads(recipe.training.threads)
    tokens = {split: tokens_of(corpus, tokenizer, split) for split in ("train", "valid")}
    check_tokens(corpus, tokens)
    torch.manual_seed(recipe.training.seed)
    model = build_model(recipe, tokenizer)
    facts: dict[str, Any] = {
        "system": recipe.system,
        "corpus": corpus.name,
        "vocabulary": tokenizer.vocabulary,
        "training_tokens": len(tokens["train"].ids),
    }
    if is_counted(recipe):
        return facts | {"note": "counting takes about a second per million tokens"}
    trainer = build_trainer(recipe, tokenizer, tokens, model, Path())
    before = peak_memory(trainer.device)
    seconds = measure_steps(trainer, 3)
    limit, per_step = trainer.limit, recipe.training.rows * recipe.training.window
    steps = {"steps": limit.amount, "tokens": limit.amount / per_step, "seconds": limit.amount / seconds}[limit.unit]
    return facts | {
        "parameters": count_parameters(model),
        "device": device_name(trainer.device),
        "threads": recipe.training.threads,
        "tokens_per_step": per_step,
        "steps": round(steps),
        "epochs": round(steps * per_step / len(tokens["train"].ids), 2),
        "seconds_per_step": round(seconds, 4),
        "tokens_per_second": round(per_step / seconds),
        "training_time": clock(steps * seconds),
        "weights_gradients_optimizer_bytes": resident_bytes(trainer),
        "peak_memory_growth_bytes": peak_memory(trainer.device) - before,
    }


def resident_bytes(trainer: Trainer) -> int:
    """Weights, gradients and the optimiser's moments: what stays in memory between steps."""
    held = sum(p.numel() * p.element_size() * 2 for p in trainer.model.parameters())
    moments = (t for values in trainer.optimizer.state.values() for t in values.values() if isinstance(t, torch.Tensor))
    return held + sum(t.numel() * t.element_size() for t in moments)


def peak_memory(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    if sys.platform == "win32":
        return 0  # Windows keeps no such count for a process
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
