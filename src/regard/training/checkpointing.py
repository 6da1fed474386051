"""The files of a training: best weights, the checkpoint, weights of earlier validations, and how each is restored."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.base.errors import RegardError
from regard.layers.state import State, map_state
from regard.systems.model import Model
from regard.training.background_files import FileWriter
from regard.training.budget import BudgetClock, Progress
from regard.training.checkpoint import (
    flatten,
    load_tensors,
    optimizer_tensors,
    restore_optimizer,
    save_tensors,
    unflatten,
)
from regard.training.distributed import Group, gather_full, shard_like
from regard.training.metrics import cut_metrics
from regard.training.optimizers import WeightAverage
from regard.training.validation import ValidationResult

BEST, CHECKPOINT = "model.safetensors", "training.safetensors"
SNAPSHOTS = "snapshots"  # a folder in the run's
COPIES = ("weights", "checkpoint")  # kinds of files; one copy of each is held while it is written


class Checkpointer:
    """Writes the files of a run's folder in the background, from rank 0:

    model.safetensors      the weights that were best on validation
    training.safetensors   the checkpoint: the last weights and everything that a resume needs
    kept/                  for pairs, the weights of the last validations, to be averaged
    snapshots/             if asked for, weights from the beginning to the end of the training
    """

    def __init__(
        self,
        folder: Path,
        model: Model,
        optimizer: torch.optim.Optimizer,
        average: WeightAverage,
        clock: BudgetClock,
        group: Group,
        *,
        keep: int = 0,
        snapshots: int = 0,
    ) -> None:
        self.folder, self.model, self.optimizer, self.average = folder, model, optimizer, average
        self.clock, self.group, self.device = clock, group, model.device
        self.keep, self.snapshots = keep, snapshots
        self.writer = FileWriter(self.device)

    @property
    def is_busy(self) -> bool:
        """True while the files of the last checkpoint are being written."""
        return self.writer.is_busy(COPIES[1])

    def copy_weights(self) -> dict[str, Tensor]:
        """A copy of the current weights, to be written while training continues."""
        return self._copy(COPIES[0], weights_of(self.model))

    def _copy(self, kind: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Sharded tensors are gathered first."""
        tensors = gather_full(tensors)
        return self.writer.copy(kind, tensors) if self.group.is_first else tensors

    def save_best(self, step: int, result: ValidationResult, weights: dict[str, Tensor]) -> None:
        note = {"step": step, "validation_loss": result.loss} | result.figures
        self._write(self.folder / BEST, COPIES[0], weights, note)

    def keep_validated(self, step: int, weights: dict[str, Tensor]) -> None:
        """Saves the validated weights, and deletes those of older validations."""
        if not self.keep:
            return

        def prune() -> None:
            for old in kept_weights(self.folder)[: -self.keep]:
                old.unlink()

        kept_weights(self.folder)  # refuses a symbolic link before anything is written
        self._write(self.folder / "kept" / f"{step:08d}.safetensors", COPIES[0], weights, then=prune)

    def snapshot(self, progress: Progress, weights: dict[str, Tensor]) -> None:
        """Saves the weights, and deletes every second earlier snapshot until few enough are left."""
        if not self.snapshots:
            return
        steps = subsample_steps([0, *(step for step, _ in progress.history)], self.snapshots)

        def prune() -> None:
            for old in weights_in(self.folder / SNAPSHOTS):
                if int(old.stem) not in steps:
                    old.unlink()

        weights_in(self.folder / SNAPSHOTS)  # refuses a symbolic link before anything is written
        self._write(self.folder / SNAPSHOTS / f"{progress.step:08d}.safetensors", COPIES[0], weights, then=prune)

    def _write(
        self,
        path: Path,
        kind: str,
        tensors: dict[str, Tensor],
        note: dict[str, Any] | None = None,
        then: Callable[[], None] = lambda: None,
    ) -> None:
        """Rank 0 writes the file, then calls `then`."""

        def job() -> None:
            save_tensors(path, tensors, note)
            then()

        if self.group.is_first:
            self.writer.submit(kind, job)

    def save(self, progress: Progress, state: State | None, *, wait: bool = True) -> None:
        """Writes the checkpoint. `wait` blocks until it is on the disk.

        Raises:
            FloatingPointError: a weight is not finite; the files stay as they are.
        """
        began = time.perf_counter()
        weights = gather_full(weights_of(self.model))
        if not all_finite(weights.values()):
            raise FloatingPointError
        progress.averaged = self.average.count
        tensors = flatten(weights, "model") | optimizer_tensors(self.optimizer)
        tensors |= flatten(self.group.all_gather(state) or {}, "state") | flatten(self.average.weights, "average")
        tensors |= self.generators()
        self._write(
            self.folder / CHECKPOINT, COPIES[1], self._copy(COPIES[1], tensors), {"progress": progress.as_note()}
        )
        self.clock.saving, self.clock.saved = time.perf_counter() - began, progress.elapsed
        if wait:
            self.writer.wait()
        self.clock.overhead("saving", began)

    def restore(self) -> State | None:
        """Loads the checkpoint and removes metrics and weights written after it; returns the carried state."""
        tensors, note = load_tensors(self.folder / CHECKPOINT)
        if "progress" not in note:
            raise RegardError(f"{self.folder / CHECKPOINT} is not a training checkpoint.")
        # Cloned because in the file they start at any address, and products of numbers that are not aligned as in
        # PyTorch's own memory may round differently.
        tensors = {name: tensor.clone() for name, tensor in tensors.items()}
        progress = Progress.from_note(note["progress"])
        self.clock.resumed(progress)
        patterns = weights_of(self.model)
        saved = unflatten(tensors, "model")
        if saved.keys() != patterns.keys():
            raise RuntimeError("other weights")  # as for shapes that differ
        self.model.load_state_dict({name: shard_like(value, patterns[name]) for name, value in saved.items()})
        restore_optimizer(self.optimizer, tensors)
        carried = unflatten(tensors, "state")
        state = map_state(lambda leaf: leaf[self.group.local_rows(len(leaf))].to(self.device), carried) or None
        self.average.count = progress.averaged
        means = unflatten(tensors, "average")
        self.average.weights = {
            name: shard_like(value.to(self.device), patterns[name]) for name, value in means.items()
        }
        self.set_generators(tensors)
        if self.group.is_first:
            self._discard_after(progress.step)
        self.group.barrier()
        return state

    def _discard_after(self, step: int) -> None:
        """Removes metrics and weights of later steps."""
        cut_metrics(self.folder / "metrics.jsonl", step)
        for later in [*kept_weights(self.folder), *weights_in(self.folder / SNAPSHOTS)]:
            if int(later.stem) > step:
                later.unlink()

    def generators(self) -> dict[str, Tensor]:
        """The states of the random generators."""
        random = {"random/cpu": torch.get_rng_state()}
        return random | ({"random/cuda": torch.cuda.get_rng_state(self.device)} if self.device.type == "cuda" else {})

    def set_generators(self, random: Mapping[str, Tensor]) -> None:
        torch.set_rng_state(random["random/cpu"])
        if self.device.type == "cuda":
            torch.cuda.set_rng_state(random.get("random/cuda", torch.cuda.get_rng_state(self.device)), self.device)


def kept_weights(folder: Path) -> list[Path]:
    """The weights of the last validations, oldest first."""
    return weights_in(folder / "kept")


def weights_in(folder: Path) -> list[Path]:
    """Files named by their step, the earliest first."""
    if folder.is_symlink():
        raise RegardError(f"{folder} is a link that points outside the run: replace it with a real folder.")
    files = folder.glob("*.safetensors")
    return sorted(path for path in files if path.stem.isascii() and path.stem.isdecimal())


def subsample_steps(steps: Sequence[int], most: int) -> set[int]:
    """Keeps every 2^k-th step and the last, with the smallest k that leaves at most `most` (never fewer than two)."""
    stride = 1
    while len(steps_left := {*steps[::stride], steps[-1]}) > max(most, 2):
        stride *= 2
    return steps_left


def weights_of(model: Model) -> dict[str, Tensor]:
    """Every tensor of the model once: a tied matrix has a single name."""
    return dict(model.state_dict())


def all_finite(tensors: Iterable[Tensor]) -> bool:
    """True if every tensor is finite; a single device synchronization."""
    numbers = (tensor for tensor in tensors if tensor.is_floating_point() and tensor.numel())
    ends = [end.double() for tensor in numbers for end in tensor.aminmax()]
    return not ends or bool(torch.stack(ends).isfinite().all())
