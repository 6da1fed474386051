"""Running out of memory during training: which setting to change, and which steps need the most memory.

Activations grow with the rows that a step reads at once. `training.accumulate` splits them into micro-batches: less
memory, the same gradient. Once a micro-batch is a single row, the row must become shorter or the model smaller.
"""

from __future__ import annotations

import gc
import math
import re
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from regard.training.hyperparameters import GradientTraining, Training
from regard.training.prefetch import Batches

if TYPE_CHECKING:
    from regard.training.loop import Trainer

MESSAGE = re.compile(r"out of memory|can't allocate|cannot allocate memory|ALLOC_FAILED", re.I)
SEARCHED = 500  # number of first batches among which the largest is searched


def is_out_of_memory(error: BaseException | None) -> bool:
    """True if the error, or one of its causes, means that the GPU or the machine ran out of memory."""
    while error is not None:
        if isinstance(error, (torch.OutOfMemoryError, MemoryError)) or MESSAGE.search(str(error)):
            return True
        error = error.__cause__ or error.__context__
    return False


def rescue(trainer: Trainer) -> str:
    """Frees memory, saves the last complete step, and returns the error message."""
    trainer.optimizer.zero_grad(set_to_none=True)
    trainer.runner.release()
    gc.collect()
    if trainer.device.type == "cuda":
        torch.cuda.empty_cache()
    saved, rows = trainer.group.alone and _save(trainer), trainer.rows // trainer.group.size
    step = trainer.progress.step
    return how_to_go_on(trainer.folder, trainer.settings, trainer.device, step, trainer.doing, rows=rows, saved=saved)


def _save(trainer: Trainer) -> bool:
    """Saves the step, unless an update was interrupted or the weights are swapped for their average; then the old file
    stays.
    """
    if trainer.doing == "update" or (trainer.validating and trainer.average.active):
        return False
    try:
        if trainer.doing == "step" and trainer.random:
            trainer.files.set_generators(trainer.random)  # as before the failed step
        trainer.save()
    except (RuntimeError, MemoryError):  # a failed capture may leave the generator unusable
        return False
    return True


def how_to_go_on(
    folder: Path, settings: GradientTraining, device: torch.device, step: int, doing: str, *, rows: int, saved: bool
) -> str:
    """The error message: when memory ran out, and the command that continues with less. `rows`: of the batch that did
    not fit; `saved`: a checkpoint of this step exists; `doing`: what the trainer was doing."""
    if doing == "validation":
        when = f"in the validation after step {step}"
    else:
        when = f"in step {step + 1}" if step else "in the very first step"
    what = f"Out of memory on {device} {when}"
    place = f"step {step}" if saved else "its last checkpoint"
    parts = min(2 * settings.accumulate, rows)
    if doing == "step" and parts > settings.accumulate:
        return (
            f"{what}: `regard resume {folder} --training.accumulate {parts}` continues from {place} with each batch "
            f"in {parts} parts, which saves memory without changing the gradient (dropout draws other masks)."
        )
    row = f"training.window (now {settings.window})" if isinstance(settings, Training) else "data.longest"
    other = f"{row}, training.batch_tokens (now {settings.batch_tokens}) or model" if doing == "step" else "model"
    return (
        f"{what}: free some memory, then run `regard resume {folder}`; it continues from {place}. "
        f"Or train again with a smaller {other}."
    )


def largest_steps(batches: Batches, steps: int) -> list[int]:
    """The steps that need the most memory: most targets, longest rows, and the ragged end of an epoch."""
    last = max(1, min(steps, batches.steps_per_epoch)) - 1
    searched = [*range(min(last, SEARCHED)), last]
    shapes = {step: batches.batch(step).targets.shape for step in searched}
    largest = max(searched, key=lambda step: math.prod(shapes[step]))
    longest = max(searched, key=lambda step: shapes[step][1])
    return sorted({largest, longest, last})
