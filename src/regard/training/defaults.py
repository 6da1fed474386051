"""What no one has set follows the corpus, the GPU and the budget.

A system's default number of steps suits millions of tokens. A few hundred sentences would be read a thousand times and
memorised within minutes. So by default a corpus is read at most `MOST_EPOCHS` times, in batches small enough for
`STEPS_PER_EPOCH` steps; training stops after `PATIENCE` validations without improvement, which are
`EPOCHS_PER_VALIDATION` epochs apart; dropout is at least `DROPOUT`.

A large GPU takes nearly as long for a few thousand tokens as for `FULL_STEP`, so there translators of size medium and
large have such steps: fewer of them, with a learning rate that grows with the square root of their tokens.

In a budget in seconds, how many steps there are depends on the machine, so validations are spread over the time.
Explicit settings are never changed.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from regard.base.numbers import counted, grouped
from regard.training.hyperparameters import Learning, PairTraining

MOST_EPOCHS = 100
STEPS_PER_EPOCH = 20
SMALLEST_BATCH = 512  # tokens: a step with fewer takes as long
EPOCHS_PER_VALIDATION, PATIENCE = 2, 10
DROPOUT = 0.3
FULL_STEP, MEDIUM_STEP = 32_768, 8192  # tokens of both sides, in a step that fills a GPU, and in one of size medium
ROOM = 16 << 30  # bytes of a GPU that has room for full steps of either size
VALIDATIONS, MINUTE = 10, 60  # at least so many in a budget in seconds; in a long one, one a minute
SMALL_FILE = 200_000  # bytes: from a smaller file, a model of the smallest size learns as much, and faster


def epochs(settings: Learning, tokens: int) -> float:
    """How often the training text is read in the configured steps."""
    return settings.steps * settings.batch_tokens / tokens


def suited(settings: Learning, tokens: int, longest: int, given: Collection[str]) -> dict[str, Any]:
    """The settings to change for a corpus of `tokens` tokens; a batch must hold at least `longest` tokens.

    `given`: the settings that were set explicitly, as section.key.
    """
    if "training.steps" in given or epochs(settings, tokens) <= MOST_EPOCHS:
        return {}
    batch = settings.batch_tokens
    if "training.batch_tokens" not in given:
        batch = min(batch, max(tokens // STEPS_PER_EPOCH, SMALLEST_BATCH, longest))
    epoch = max(1.0, tokens / batch)
    steps = min(settings.steps, round(MOST_EPOCHS * epoch))
    wanted = {
        "batch_tokens": batch,
        "steps": steps,
        "warmup": min(settings.warmup, max(1, steps // 10)),
        "evaluate_every": min(settings.evaluate_every, max(1, round(EPOCHS_PER_VALIDATION * epoch))),
        "patience": PATIENCE,
    }
    if "training.budget" in given:  # how long is said: only how it is spent follows the corpus
        del wanted["steps"], wanted["patience"]
    return {name: value for name, value in wanted.items() if f"training.{name}" not in given}


def filled(settings: Learning, tokens: int, room: float, given: Collection[str]) -> dict[str, Any]:
    """The settings that fill a GPU with `room` bytes, 0 on a CPU; a corpus of `tokens` tokens still has
    `STEPS_PER_EPOCH` steps. `given` as above."""
    small = settings.batch_tokens
    large = min(FULL_STEP, tokens // STEPS_PER_EPOCH)
    asked = not {"training.batch_tokens", "training.learning_rate"}.isdisjoint(given)
    if asked or room < ROOM or not isinstance(settings, PairTraining) or not MEDIUM_STEP <= small < large:
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


def spread(settings: Learning, given: Collection[str]) -> dict[str, Any]:
    """The settings that spread validations, each with a checkpoint, over a budget in seconds; `given` as above."""
    if settings.limit.unit != "seconds" or not {"training.evaluate_every", "training.validations"}.isdisjoint(given):
        return {}
    many = max(VALIDATIONS, round(settings.limit.amount / MINUTE), settings.snapshots - 1)  # one snapshot is the first
    wanted = {"validations": many, "checkpoint_every": 0}
    return {name: value for name, value in wanted.items() if f"training.{name}" not in given}


def plan(settings: Learning, tokens: int) -> str:
    """One sentence for the log: how training on a small corpus differs."""
    few = f"{grouped(tokens)} tokens{' of both sides' if isinstance(settings, PairTraining) else ''} are few"
    if settings.budget:
        return (
            f"Training: {few}, so steps have {grouped(settings.batch_tokens)} of them, "
            f"with {grouped(settings.warmup)} of warm-up."
        )
    most = counted(max(1, round(epochs(settings, tokens))), "epoch")
    ends = f", or until {counted(settings.patience, 'validation')} bring no improvement" if settings.patience else ""
    return (
        f"Training: {few}, so at most {grouped(settings.steps)} steps of "
        f"{grouped(settings.batch_tokens)} tokens ({most}){ends}; --training.steps or --budget asks for more."
    )
