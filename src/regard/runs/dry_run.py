"""The cost of a training, from three real steps: `regard train --dry-run`."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from regard.base.device import device_name, peak_memory
from regard.base.errors import RegardError
from regard.report.progress import clock
from regard.runs.prepare import prepare
from regard.runs.recipe import Recipe
from regard.runs.resolve import MAX_EPOCHS
from regard.runs.store.folder import count_parameters, is_counted
from regard.runs.train import build_trainer
from regard.training.loop import Trainer
from regard.training.out_of_memory import is_out_of_memory
from regard.training.probe import measure_steps, probe_peak_memory

TOO_MANY = (
    f"more than {MAX_EPOCHS} epochs: a corpus this small is quickly memorized; "
    "set --training.patience to stop when that happens"
)


def dry_run(recipe: Recipe) -> dict[str, Any]:
    """Parameters, memory and time of a training, from three real steps; only the token cache is saved.

    The memory is this process's peak. After the three steps it also runs, once, everything else that a training does:
    the largest batches, a validation, a checkpoint.
    """
    ready = prepare(recipe)
    training_tokens, unit = ready.data.tokens, ready.data.unit
    facts: dict[str, Any] = {
        "system": ready.recipe.system,
        "corpus": ready.data.origin["name"],
        "vocabulary": ready.data.tokenizers.target.vocabulary,
        "training_tokens": training_tokens,
        **({"tokens_are": unit} if unit else {}),
    }
    if is_counted(ready.recipe):
        return facts | {"note": "counting takes about a second per million tokens"}
    with TemporaryDirectory() as folder:
        trainer = build_trainer(ready, Path(folder))
        try:
            seconds, per_step = measure_steps(trainer, 3)
            limit = trainer.clock.limit
            steps = limit.amount / {"steps": 1.0, "tokens": per_step, "seconds": seconds}[limit.unit]
            steps = min(steps, trainer.clock.last_step or steps)
            probe_peak_memory(trainer, round(steps))
        except RegardError as error:  # of a temporary folder
            raise RegardError(str(error).replace(f"; the last good weights are kept in {folder}", "")) from None
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            parts = f"--training.accumulate {2 * trainer.settings.accumulate}"
            raise RegardError(
                f"{trainer.device} has too little memory for this training run: try {parts}, which saves "
                "memory without changing the gradient, or a smaller model."
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
    """The GPU memory reserved by PyTorch, and in addition that of the CUDA context, libraries and other processes; and
    the host memory of copies to be saved.
    """
    free, total = torch.cuda.mem_get_info(trainer.device)
    return {
        "peak_reserved_bytes": torch.cuda.max_memory_reserved(trainer.device),
        "gpu_memory_beside_bytes": total - free - torch.cuda.memory_reserved(trainer.device),
        "host_memory_for_saving_bytes": trainer.files.writer.host_bytes,
    }


def resident_bytes(trainer: Trainer) -> int:
    """Weights, gradients, the optimizer's moments and the average: what stays in memory between steps."""
    held = sum(p.numel() * p.element_size() * 2 for p in trainer.model.parameters())
    moments = (t for values in trainer.optimizer.state.values() for t in values.values() if isinstance(t, torch.Tensor))
    averaged = trainer.average.weights.values()
    return held + sum(t.numel() * t.element_size() for t in (*moments, *averaged))
