"""The training loop: batch, forward, backward, optimizer step; validation and checkpoints at intervals.

Everything that determines the next step is either a function of the step number (batches, schedule) or in the
checkpoint (weights, optimizer, carried state, random generators). So a run that was killed and resumed is bit-identical
to one that was not (on a GPU: up to the order of summation). Only a budget in seconds depends on the clock; on a GPU
its clock also decides which steps are computed by the reference methods (fast/training/captured_step.py).
"""

from __future__ import annotations

import math
import signal
import time
from pathlib import Path

import torch
from torch import Tensor

from regard.base.errors import RegardError, Stopped
from regard.base.install import Install, as_written
from regard.base.numbers import pluralize
from regard.layers.state import State
from regard.report.progress import progress
from regard.systems.model import Model
from regard.training.budget import BudgetClock, Progress
from regard.training.checkpointing import Checkpointer
from regard.training.distributed import Group
from regard.training.hyperparameters import GradientTraining
from regard.training.interrupts import stop_on_signals
from regard.training.log import Callback, TrainingLog
from regard.training.muon import hidden_matrices
from regard.training.objective import Objective, TensorBatch
from regard.training.optimizers import (
    WeightAverage,
    averaging_is_due,
    build_optimizer,
    learning_rate_at,
    set_learning_rate,
    warmup_within,
)
from regard.training.out_of_memory import is_out_of_memory, rescue
from regard.training.precision import keep_exact
from regard.training.prefetch import Batches as Batches
from regard.training.prefetch import PrefetchingLoader
from regard.training.steps import StepRunner
from regard.training.validation import Validation, ValidationResult


class Trainer:
    """Trains `model` on `batches` until the budget is spent; writes metrics.jsonl and `Checkpointer`'s files to
    `folder`."""

    def __init__(
        self,
        model: Model,
        batches: Batches,
        validation: Validation,
        settings: GradientTraining,
        folder: Path,
        *,
        bf16: bool = False,
        group: Group | None = None,
        install: Install = as_written,
    ):
        """`install` swaps methods for faster ones (regard.fast)."""
        self.group = group or Group()
        self.model, self.batches, self.validation = model, batches, validation
        self.settings, self.folder, self.bf16 = settings, folder, bf16
        self.device = model.device
        if bf16:
            keep_exact(model)
        self.carries = settings.carries
        self.objective = Objective(model, keeps=self.carries, **settings.terms)
        self.wrapped = self.group.wrap(self.objective, sharded=settings.shard)
        install(self)
        refuse_capture_without_gpu(settings, self.device)
        self.runner = self.step_runner()
        install(
            self.objective,
            device=self.device,
            training=True,
            bf16=bf16,
            captured=self.runner.needs_tensor_learning_rate,
            pairs=settings.on_pairs,
            compile=getattr(settings, "compile", "off"),
        )
        self.optimizer = build_optimizer(
            settings.optimizer,
            model.named_parameters(),
            learning_rate=settings.learning_rate,
            weight_decay=settings.weight_decay,
            beta2=settings.beta2,
            captured=self.runner.needs_tensor_learning_rate,
            hidden=hidden_matrices(model),
        )
        self.average = WeightAverage(settings.ema or 1.0)
        self.state: State | None = None  # carried from window to window, on streams
        self.clock = BudgetClock(settings, Progress(), self.group, batches.steps_per_epoch)
        self.files = Checkpointer(
            folder,
            model,
            self.optimizer,
            self.average,
            self.clock,
            self.group,
            keep=settings.kept,
            snapshots=settings.snapshots,
        )
        self.feed = PrefetchingLoader(self.batches, self.device)
        self.stop_requested, self.stop_signal = False, signal.SIGINT
        self.validating, self.rows = False, 0  # for error messages: rows of the current batch
        self.random: dict[str, Tensor] = {}  # the generators before the current step
        self.callbacks: tuple[Callback, ...] = ()

    @property
    def progress(self) -> Progress:
        """The numbers of the run so far."""
        return self.clock.progress

    @progress.setter
    def progress(self, progress: Progress) -> None:
        self.clock.progress = progress

    # -- the loop ----------------------------------------------------------------------------------------------------

    def train(self) -> Progress:
        """Trains from `self.progress` on. Raises Stopped when interrupted."""
        try:
            return self._train()
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
        finally:
            self.close()
        raise RegardError(rescue(self))  # the error was deleted, so the tensors of the failed step are freed

    def _train(self) -> Progress:
        if self.progress.finished:
            return self.progress
        clock = self.clock
        self.model.train()
        if not self.progress.step and self.settings.snapshots:
            self.files.snapshot(self.progress, self.files.copy_weights())
        self._sync()
        if not self.progress.step:
            self.progress.started = self.progress.elapsed
        with stop_on_signals(self), progress("training", clock.limit.amount, clock.spent(), clock.unit) as bar:
            path = self.folder / "metrics.jsonl" if self.group.is_first else None
            log = TrainingLog(path, bar, self.progress, self.callbacks)
            ended, shown = False, clock.spent()
            step, history = self.progress.step, self.progress.history
            if step and clock.validation_is_due() and step not in dict(history):
                self._validate(log)  # it ran out of memory before the resume
                ended = clock.patience_is_over()
            while not ended and clock.fraction() < 1:
                began, rate = time.perf_counter(), self.learning_rate
                self.files.writer.check()
                loss, count = self.step()
                if (mean := log.trained(loss, count, rate)) is not None:
                    self.check_finite(mean)
                self.progress.seconds += time.perf_counter() - began  # without validation and saving
                if self._sync(self.stop_requested or log.failure is not None):
                    self.stop_requested = True  # never reset: a signal may arrive during `_sync`
                bar.advance(clock.spent() - shown, log.note)
                shown = clock.spent()
                if validated := clock.validation_is_due():
                    self._validate(log)
                    if clock.patience_is_over():
                        worse = pluralize(self.progress.validations_since_best, "validation")
                        bar.say(f"stopping: {worse} without improvement")
                        break
                if clock.checkpoint_is_due(validated, stops=self.stop_requested, busy=self.files.is_busy):
                    self.save(wait=False)
                    self._sync()
                if self.stop_requested:
                    log.write_pending()
                    self.save()
                    raise log.failure or Stopped(self.progress.step, self.stop_signal)
            if clock.ended_by_epochs:
                bar.say(f"ending: the text was read {pluralize(self.settings.epochs, 'time')} (training.epochs)")
            if not self.progress.history or self.progress.history[-1][0] != self.progress.step:
                self._validate(log)
            self.progress.finished = True
            self.save()
            if log.failure is not None:
                raise log.failure
        return self.progress

    def step(self) -> tuple[Tensor, int]:
        """One optimizer step; returns the mean loss of its batch before the step, and its number of tokens."""
        set_learning_rate(self.optimizer, self.learning_rate)
        if not self.group.alone:  # dropout differs between ranks and is reproducible after a resume
            torch.manual_seed((self.settings.seed * 1_000_003 + self.progress.step) * 65_537 + self.group.rank)
        self.runner.changed_weights = False
        self.random, self.feed.batches = self.files.generators(), self.batches
        batch = self.feed(self.progress.step)
        self.rows = len(batch.tokens)
        loss, count = self.runner(batch)
        if self.average.active or self.settings.ema:
            self.average.add(self.model)
        self.progress.step += 1
        self.progress.tokens += count
        self.runner.changed_weights = False
        return loss, count

    def step_runner(self) -> StepRunner:
        """The runner of a step; `regard.fast` may replace it."""
        return StepRunner(self)

    @property
    def learning_rate(self) -> float:
        settings, spent, drops = self.settings, self.clock.fraction(), self.progress.drops
        if settings.schedule == "decay":
            drops = max(0, self.progress.step // self.batches.steps_per_epoch + 1 - settings.decay_after)
        whole = self.clock.whole_command
        warmup = warmup_within(settings.warmup, self.progress.step, spent) if whole else settings.warmup
        return learning_rate_at(
            settings.schedule, settings.learning_rate, self.progress.step, warmup, spent, drops, settings.decay
        )

    def forward(self, batch: TensorBatch, state: State | None) -> tuple[Tensor, State]:
        """The sum of the losses of a micro-batch, and the state after it; `regard.fast` may compile it."""
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.bf16):
            loss_sum, _, state = self.wrapped(batch, state)
        return loss_sum, state

    # -- validation --------------------------------------------------------------------------------------------------

    def _validate(self, log: TrainingLog) -> None:
        progress, began = self.progress, time.perf_counter()
        if (mean := log.write_pending()) is not None:
            self.check_finite(mean)
        self.validating = True
        if self.average.active:
            self.average.swap(self.model)
        # rank 0's result for all: a rounding difference must not lead to different decisions
        result = self.group.broadcast(self.validate())
        self.check_finite(result.loss)
        improved = result.objective < progress.best
        saves = improved or self.files.keep or self.settings.snapshots
        weights = self.files.copy_weights() if saves else {}
        if improved:
            self.files.save_best(progress.step, result, weights)
            progress.best, progress.best_step, progress.criterion = result.objective, progress.step, result.criterion
        self.files.keep_validated(progress.step, weights)
        progress.validations_since_best = 0 if improved else progress.validations_since_best + 1
        progress.history.append((progress.step, result.loss))
        self.files.snapshot(progress, weights)
        if self.average.active:
            self.average.swap(self.model)
        elif self.settings.optimizer == "asgd" and averaging_is_due([loss for _, loss in progress.history]):
            self.average.add(self.model)
            progress.validations_since_best = 0  # patience starts again for the average
        if self.settings.schedule == "plateau" and not improved:
            progress.drops += 1
        self.model.train()
        self.validating = False
        log.validated(result, improved)
        self.clock.ending = self.group.broadcast(self.clock.overhead("validation", began) + self.clock.saving)
        self._sync()
        progress.validated = self.clock.spent()

    def validate(self) -> ValidationResult:
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.bf16):
            return self.validation(self.model)

    # -- checkpoints and errors --------------------------------------------------------------------------------------

    def save(self, wait: bool = True) -> None:
        """Writes the checkpoint, but never overwrites finite weights with weights that are not. `wait`: until it is on
        disk.
        """
        try:
            self.files.save(self.progress, self.state, wait=wait)
        except FloatingPointError:
            self.check_finite(math.nan)

    def restore(self) -> None:
        """Continues from the checkpoint in the folder."""
        self.state = self.files.restore()

    def close(self) -> None:
        """Ends the threads that read batches and write files."""
        self.feed.close()
        self.files.writer.close()

    def _sync(self, stop: bool = False) -> bool:
        return self.clock.sync(stop, self.files.writer.seconds)

    @property
    def doing(self) -> str:
        """The part of the loop that failed, for error messages: step, update or validation."""
        return "validation" if self.validating else "update" if self.runner.changed_weights else "step"

    def check_finite(self, loss: float) -> None:
        if not math.isfinite(loss):
            raise RegardError(
                f"The loss became {loss} at step {self.progress.step}; the last good weights are kept in {self.folder}"
                ": try a smaller training.learning_rate"
                + (" or training.clip." if self.settings.clip else ", or training.clip 1.")
            )


def refuse_capture_without_gpu(settings: GradientTraining, device: torch.device) -> None:
    if getattr(settings, "capture", "off") == "on" and device.type != "cuda":
        raise RegardError(f"training.capture on needs a CUDA device, not {device}: leave it at auto.")
