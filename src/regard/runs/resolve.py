"""Settings that depend on the corpus, the device and the budget. Explicit settings win.

The other defaults, such as the learning rate of a system and size, are in `recipes/sizes/NAME.toml`, which `compose` in
`recipe.py` reads; this module adapts them.

A system's default number of steps suits millions of tokens. A few hundred sentences would be read a thousand times and
memorized within minutes. So by default a corpus is read at most `MAX_EPOCHS` times, in batches small enough for
`STEPS_PER_EPOCH` steps; training stops after `PATIENCE` validations without improvement, which are
`EPOCHS_PER_VALIDATION` epochs apart; dropout is at least `DROPOUT`.

A large GPU takes nearly as long for a few thousand tokens as for `FULL_STEP`. There, translators of size medium and
large take fewer steps of this size, with a learning rate that grows with the square root of their tokens.

The default settings of some systems were tuned for few tokens. In a long training run, they get the settings in the
section [SIZE.long] of their file instead: with a budget in seconds on a large GPU, and translators also without a
budget or with one of more than `LONG` tokens. With a budget in seconds, such a GPU could read a text dozens of times,
so a language model ends after `EPOCHS` of them, but not before `MIN_STEPS` steps.

With a budget in seconds, the number of steps depends on the machine, so validations are spread over the time.
"""

from __future__ import annotations

import math
import os
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from regard.base.device import cores, device_memory, pick_device
from regard.base.numbers import group_digits, pluralize
from regard.runs.recipe import Recipe
from regard.systems.sizes import sizes_of
from regard.systems.translator import BY_CORPUS, dropout_for
from regard.text.corpus import Corpus, is_named
from regard.text.pairs import PairCorpus
from regard.text.tokenizers.tokenizer import Tokenizer
from regard.training.hyperparameters import CountTraining, GradientTraining

MAX_EPOCHS = 100
STEPS_PER_EPOCH = 20
MIN_BATCH = 512  # tokens: a step with fewer takes as long
EPOCHS_PER_VALIDATION, PATIENCE = 2, 10
DROPOUT = 0.3
FULL_STEP, MEDIUM_STEP = 32_768, 8192  # tokens of both sides, in a step that fills a GPU, and in one of size medium
ROOM = 16 << 30  # bytes of a GPU that has room for full steps of either size
LONG = 2e6  # target tokens: twice as many as the defaults of translators were tuned for
EPOCHS, MIN_STEPS = 20, 2000
MAX_RATE = 2e7  # tokens per second that no GPU reaches in training
VALIDATIONS, MINUTE = 10, 60  # minimum number in a budget in seconds; a long one has one per minute
BY_FILE = "size"  # in a recipe's `given`: no size was chosen, and the file is small
SMALL_FILE = 200_000  # bytes: on a smaller file, the smallest model size learns as much in less time


@dataclass(frozen=True)
class CorpusFacts:
    """The facts about a corpus that settings depend on."""

    tokens: int  # read in one epoch, as training.batch_tokens counts them
    longest: int  # the fewest tokens that a batch must hold
    fills_gpu: bool = False  # steps may grow with the memory of a GPU


def resolve(recipe: Recipe, corpus: CorpusFacts) -> tuple[Recipe, list[str]]:
    """The recipe with every setting decided, and one sentence for the log about each decision."""
    notes = []
    device = pick_device(recipe.training.device)
    memory = device_memory(device) if corpus.fills_gpu and device.type == "cuda" else 0
    if changes := gpu_batch_defaults(recipe.training, corpus.tokens, memory, recipe.given):
        recipe = recipe.replace(training=changes)
        tokens, rate = group_digits(recipe.training.batch_tokens), recipe.training.learning_rate
        notes.append(f"Training: steps of {tokens} tokens, to fill this GPU, and a learning rate of {rate:g}.")
    if limit := epoch_limit(recipe.training, corpus.tokens, memory, recipe.given):
        recipe = recipe.replace(training={"epochs": limit})
        notes.append(
            f"Training: this GPU reads the text at most {limit} times, because more would overfit; --training.epochs 0 "
            "uses the whole budget."
        )
    if changes := validation_schedule(recipe.training, recipe.given):
        recipe = recipe.replace(training=changes)
        count = pluralize(recipe.training.validations, "validation")
        notes.append(
            f"Training: up to {count}, spread evenly over the budget; --training.evaluate-every N makes one "
            "every N steps."
        )
    given, training = recipe.given, recipe.training
    if training.epochs and not training.budget and "training.steps" not in given:
        steps = math.ceil(training.epochs * corpus.tokens / training.batch_tokens)
        recipe, given = recipe.replace(training={"steps": 2 * steps}), given | {"training.steps"}  # the epochs end it
    changes = small_corpus_defaults(recipe.training, corpus.tokens, corpus.longest, given)
    built_in = bool(recipe.training.budget) and is_named(recipe.data.corpus)  # comparisons set what they need
    if changes and not built_in:
        recipe = recipe.replace(training=changes)
        if "model.dropout" not in recipe.given and 0 <= getattr(recipe.model, "dropout", 1.0) < DROPOUT:
            recipe = recipe.replace(model={"dropout": DROPOUT})
        notes.append(describe_plan(recipe.training, corpus.tokens))
    return recipe, notes


def resolve_data(recipe: Recipe, found: Corpus | PairCorpus, tokenizer: Tokenizer) -> dict[str, Any]:
    """The automatic settings of [data], decided; for every task."""
    corpus = recipe.data.corpus
    return {
        "corpus": corpus if is_named(corpus) else str(Path(corpus).resolve()),
        "columns": found.columns,
        "header": found.header,
        "normalise": tokenizer.normalisation,
        "tokenizer": tokenizer.kind,
        "vocabulary": tokenizer.vocabulary,
    }


def resolve_machine(recipe: Recipe, pairs: int) -> tuple[Recipe, list[str]]:
    """The recipe with threads, device, precision, the settings of a long training run and, for `pairs` training pairs,
    dropout; and sentences about what was chosen."""
    recipe, notes = recipe.replace(training=resolve_device(recipe.training)), []
    if isinstance(recipe.training, GradientTraining):
        device = torch.device(recipe.training.device)
        memory = device_memory(device) if device.type == "cuda" else 0
        if changes := long_training_defaults(recipe, memory):
            recipe = recipe.replace(**changes)
            tokens, rate = group_digits(recipe.training.batch_tokens), recipe.training.learning_rate
            notes.append(
                f"Training: steps of {tokens} tokens and a learning rate of {rate:g}, which suit a long training run."
            )
    if getattr(recipe.model, "dropout", None) != BY_CORPUS:
        return recipe, notes
    chosen = dropout_for(pairs)
    many = "few and quickly memorized" if chosen == dropout_for(0) else "many"
    notes.append(f"Dropout: {chosen}, because {group_digits(pairs)} pairs are {many}.")
    return recipe.replace(model={"dropout": chosen}), notes


def resolve_device(settings: GradientTraining | CountTraining) -> dict[str, Any]:
    """Threads, device and precision as they will be used: a resume elsewhere must not change them silently."""
    chosen: dict[str, Any] = {"threads": settings.threads or int(os.environ.get("OMP_NUM_THREADS") or 0) or cores()}
    if isinstance(settings, GradientTraining):
        device = pick_device(settings.device)
        has_bf16 = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
        chosen["device"] = str(device)
        chosen["precision"] = settings.precision.replace("auto", "bf16" if has_bf16 else "fp32")
    return chosen


def is_small_file(data: str | None) -> bool:
    """True for a user's file smaller than SMALL_FILE: its default size is tiny."""
    return data is not None and Path(data).is_file() and Path(data).stat().st_size < SMALL_FILE


def epochs(settings: GradientTraining, tokens: int) -> float:
    """How often the training text is read in the configured steps."""
    return settings.steps * settings.batch_tokens / tokens


def small_corpus_defaults(
    settings: GradientTraining, tokens: int, longest: int, given: Collection[str]
) -> dict[str, Any]:
    """The settings to change for a corpus of `tokens` tokens; a batch must hold at least `longest` tokens.

    `given`: the settings that were set explicitly, as section.key.
    """
    if "training.steps" in given or epochs(settings, tokens) <= MAX_EPOCHS:
        return {}
    batch = settings.batch_tokens
    if "training.batch_tokens" not in given:
        batch = min(batch, max(tokens // STEPS_PER_EPOCH, MIN_BATCH, longest))
    epoch = max(1.0, tokens / batch)
    steps = min(settings.steps, round(MAX_EPOCHS * epoch))
    wanted = {
        "batch_tokens": batch,
        "steps": steps,
        "warmup": min(settings.warmup, max(1, steps // 10)),
        "evaluate_every": min(settings.evaluate_every, max(1, round(EPOCHS_PER_VALIDATION * epoch))),
        "patience": PATIENCE,
    }
    if "training.budget" in given:  # the length is given: only its use depends on the corpus
        del wanted["steps"], wanted["patience"]
    return {name: value for name, value in wanted.items() if f"training.{name}" not in given}


def gpu_batch_defaults(
    settings: GradientTraining, tokens: int, memory: float, given: Collection[str]
) -> dict[str, Any]:
    """The settings that fill a GPU with `memory` bytes, 0 on a CPU; a corpus of `tokens` tokens still has
    `STEPS_PER_EPOCH` steps. `given` as above."""
    small = settings.batch_tokens
    large = min(FULL_STEP, tokens // STEPS_PER_EPOCH)
    if sets_steps(given) or memory < ROOM or not settings.on_pairs or not MEDIUM_STEP <= small < large:
        return {}
    times = large / small
    fewer = {  # as many tokens in all; a validation takes as long as before, so there are fewer
        "steps": round(settings.steps / times),
        "warmup": round(settings.warmup / times),
        "evaluate_every": round(settings.evaluate_every / times**0.5),
        "checkpoint_every": round(settings.checkpoint_every / times**0.5),
    }
    wanted = {"batch_tokens": large, "learning_rate": round(settings.learning_rate * times**0.5, 6)} | fewer
    return {name: value for name, value in wanted.items() if f"training.{name}" not in given}


def sets_steps(given: Collection[str]) -> bool:
    """True if the batch size or the learning rate was set explicitly: they belong together."""
    return not {"training.batch_tokens", "training.learning_rate"}.isdisjoint(given)


def long_training_defaults(recipe: Recipe, memory: float) -> dict[str, dict[str, Any]]:
    """The settings to change, by section, in a long training run on a GPU with `memory` bytes, 0 on a CPU."""
    limit = recipe.training.limit
    if limit.unit == "seconds":
        is_long = memory >= ROOM
    else:
        is_long = recipe.training.on_pairs and (limit.unit == "steps" or limit.amount > LONG)
    if not is_long or sets_steps(recipe.given):
        return {}
    changes: dict[str, dict[str, Any]] = {}
    for name, value in sizes_of(recipe.system).of(recipe.size, "long").items():
        part = "model" if name == "dropout" else "training"
        if f"{part}.{name}" not in recipe.given:
            changes.setdefault(part, {})[name] = value
    return changes


def epoch_limit(settings: GradientTraining, tokens: int, memory: float, given: Collection[str]) -> int:
    """The number of epochs after which a language model ends in a budget in seconds on a GPU with `memory` bytes; 0 if
    there is no limit, or the budget is too short to reach it. `given` as above."""
    limit = settings.limit
    if memory < ROOM or limit.unit != "seconds" or not limit.whole or settings.on_pairs:
        return 0  # a comparison gives all systems the same seconds of steps
    if sets_steps(given) or "training.epochs" in given or EPOCHS * tokens > MAX_RATE * limit.amount:
        return 0
    return max(EPOCHS, math.ceil(MIN_STEPS * settings.batch_tokens / tokens))


def validation_schedule(settings: GradientTraining, given: Collection[str]) -> dict[str, Any]:
    """The settings that spread validations, each with a checkpoint, over a budget in seconds; `given` as above."""
    if settings.limit.unit != "seconds" or not {"training.evaluate_every", "training.validations"}.isdisjoint(given):
        return {}
    many = max(VALIDATIONS, round(settings.limit.amount / MINUTE), settings.snapshots - 1)  # one snapshot is the first
    wanted = {"validations": many, "checkpoint_every": 0}
    return {name: value for name, value in wanted.items() if f"training.{name}" not in given}


def describe_plan(settings: GradientTraining, tokens: int) -> str:
    """One sentence for the log: how training on a small corpus differs."""
    few = f"{group_digits(tokens)} tokens{' of both sides' * settings.on_pairs} are few"
    if settings.budget:
        return (
            f"Training: {few}, so each step reads {group_digits(settings.batch_tokens)} of "
            f"them, with {group_digits(settings.warmup)} steps of warm-up."
        )
    most = pluralize(max(1, round(epochs(settings, tokens))), "epoch")
    ends = f", or until {pluralize(settings.patience, 'validation')} bring no improvement" if settings.patience else ""
    return (
        f"Training: {few}, so at most {group_digits(settings.steps)} steps of "
        f"{group_digits(settings.batch_tokens)} tokens ({most}){ends}; --training.steps or --budget trains for longer."
    )
