"""The memory of a training: when it runs out, which setting makes room; and which steps take the most of it.

Activations are what a step holds beside weights, gradients and moments, and they grow with the rows it reads at once.
`training.accumulate` reads them in parts: less memory, the same gradient. Only where a part is a single row already
must the row itself become shorter, or the model smaller.
"""

from __future__ import annotations

import math
import os
import re
from pathlib import Path

import torch

from regard.training.hyperparameters import Learning, Training
from regard.training.prefetch import Batches

SAID = re.compile(r"out of memory|can't allocate|cannot allocate memory|ALLOC_FAILED", re.I)
LOOKED_AT = 500  # batches among which the largest is looked for


def memory_of(device: torch.device) -> float:
    """All the bytes that a device has; of the machine, as far as the system says."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory
    if not hasattr(os, "sysconf"):
        return math.inf
    limit = Path("/sys/fs/cgroup/memory.max")  # of a container
    told = limit.read_text(encoding="ascii").strip() if limit.is_file() else "max"
    return min(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), math.inf if told == "max" else int(told))


def is_out_of_memory(error: BaseException | None) -> bool:
    """Of the GPU or of the machine; a library may have said so before it failed in another way."""
    while error is not None:
        if isinstance(error, (torch.OutOfMemoryError, MemoryError)) or SAID.search(str(error)):
            return True
        error = error.__cause__ or error.__context__
    return False


def how_to_go_on(
    folder: Path, settings: Learning, device: torch.device, step: int, doing: str, *, rows: int, saved: bool
) -> str:
    """One sentence: when it was, and the command that goes on with less. `rows`: of the batch that did not fit;
    `saved`: the checkpoint is of this very step; `doing`: what the trainer was doing."""
    if doing == "validation":
        when = f"in the validation after step {step}"
    else:
        when = f"in step {step + 1}" if step else "in the very first step"
    what = f"The memory of {device} ran out {when}"
    place = f"step {step}" if saved else "its last checkpoint"
    parts = min(2 * settings.accumulate, rows)
    if doing == "step" and parts > settings.accumulate:
        return (
            f"{what}: `regard resume {folder} --training.accumulate {parts}` goes on from {place} with each batch "
            f"in {parts} parts, which changes memory and not the gradient (dropout draws other masks)."
        )
    row = f"training.window (now {settings.window})" if isinstance(settings, Training) else "data.longest"
    other = f"{row}, training.batch_tokens (now {settings.batch_tokens}) or model" if doing == "step" else "model"
    return f"{what}: free some and `regard resume {folder}` goes on from {place}, or train anew with a smaller {other}."


def steps_that_stand_out(batches: Batches, steps: int) -> list[int]:
    """Among the first so many steps those with the most targets, the longest rows, and the ragged end of an epoch."""
    last = max(1, min(steps, batches.steps_per_epoch)) - 1
    looked_at = [*range(min(last, LOOKED_AT)), last]
    shapes = {step: batches.batch(step).targets.shape for step in looked_at}
    largest = max(looked_at, key=lambda step: math.prod(shapes[step]))
    longest = max(looked_at, key=lambda step: shapes[step][1])
    return sorted({largest, longest, last})
