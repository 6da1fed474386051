"""The seconds of a step and the peak memory of a training, measured on a few steps (--dry-run)."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import torch

from regard.training.loop import Trainer
from regard.training.out_of_memory import largest_steps
from regard.training.validation import TextValidation

PROBED_TOKENS = 20_000  # tokens of validation text that a dry run reads: more than one batch


def repeat_step(trainer: Trainer, step: int, times: int) -> None:
    """Takes one step several times: warm-up before a measurement."""
    for _ in range(times):
        trainer.progress.step, trainer.state = step, None
        trainer.step()
    _synchronize(trainer)


def measure_steps(trainer: Trainer, steps: int, clock: Callable[[], float] = time.perf_counter) -> tuple[float, float]:
    """Seconds and tokens of a training step, after its warm-up. The model is not usable afterwards."""
    seconds, tokens = 0.0, 0
    for number in range(steps):
        repeat_step(trainer, number, trainer.runner.warm_up_steps or int(number == 0))
        trainer.progress.step, began, before = number, clock(), trainer.progress.tokens
        trainer.step()
        _synchronize(trainer)
        seconds += clock() - began
        tokens += trainer.progress.tokens - before
    return seconds / steps, tokens / steps


def probe_peak_memory(trainer: Trainer, steps: int) -> None:
    """Runs the part that needs most memory in a training of `steps` steps; the model is not usable afterwards. Twice,
    because freed memory is fragmented and may not fit the second time."""
    validation = trainer.validation
    if isinstance(validation, TextValidation):  # the beginning is enough: batches have one size
        validation = replace(validation, ids=validation.ids[:PROBED_TOKENS])
    largest = largest_steps(trainer.batches, steps)
    try:
        for _ in range(2):
            for step in largest:
                repeat_step(trainer, step, trainer.runner.warm_up_steps or 1)
            if trainer.settings.optimizer == "asgd":
                trainer.average.add(trainer.model)
            with torch.autocast(trainer.device.type, torch.bfloat16, enabled=trainer.bf16):
                result = validation(trainer.model)
            trainer.model.train()
        trainer.files.save_best(trainer.progress.step, result, trainer.files.copy_weights())
        trainer.save()
    finally:
        trainer.close()


def _synchronize(trainer: Trainer) -> None:
    if trainer.device.type == "cuda":
        torch.cuda.synchronize(trainer.device)
