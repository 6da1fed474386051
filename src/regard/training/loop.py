"""The training loop: batch, forward, backward, optimiser step; validation and checkpoints at intervals.

Everything that determines the next step is either a function of the step number (batches, schedule) or in the
checkpoint (weights, optimiser, carried state, random generators). So a run that was killed and resumed ends bit by bit
equal to one that was not (on a GPU: up to the order of sums). Only a budget in seconds depends on the clock.
"""

from __future__ import annotations

import gc
import math
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.base.errors import RegardError, Stopped
from regard.base.install import Install, as_written
from regard.base.numbers import counted, grouped
from regard.layers.state import State, detach, map_state
from regard.report.progress import Bar, progress
from regard.systems.model import Model
from regard.text.batches import Batch
from regard.text.pair_batches import PairBatch
from regard.training.background_files import FileWriter
from regard.training.checkpoint import (
    flatten,
    load_tensors,
    optimizer_tensors,
    restore_optimizer,
    save_tensors,
    unflatten,
)
from regard.training.distributed import Group, like, refuse_few_rows, whole
from regard.training.hyperparameters import Learning, PairTraining, Training
from regard.training.metrics import append_metrics, cut_metrics
from regard.training.muon import hidden_matrices
from regard.training.objective import Objective, TensorBatch, micro_batches, to_device
from regard.training.optimisers import (
    Average,
    averaging_is_due,
    build_optimizer,
    clip,
    learning_rate_at,
    set_learning_rate,
    warmup_within,
)
from regard.training.out_of_memory import how_to_go_on, is_out_of_memory, largest_steps
from regard.training.prefetch import Batches as Batches
from regard.training.prefetch import Feed
from regard.training.validation import TextValidation, Validation, Verdict, best_words

REHEARSED = 20_000  # tokens of validation text that a dry run reads: more than one batch
Callback = Callable[[dict[str, Any]], object]  # is called with each row of metrics.jsonl
SNAPSHOTS = "snapshots"  # a folder in the run's
WEIGHTS, CHECKPOINT = "weights", "checkpoint"  # kinds of files, of each of which one copy is held
NAMES = {"bleu": "BLEU", "chrf": "chrF"}  # of figures, where the field writes them in capitals
SAVED_SECONDS = 60.0  # between checkpoints at most, in one process …
SAVED_REST = 50  # … but at least so many times as long as one takes
NOTABLE = 0.05  # a share of the time that the progress note mentions
LOG_SECONDS = 1.0  # interval at which metrics.jsonl and the progress note are updated
REST = 4  # times as long as a validation takes, at least, until the next: in the seconds of a whole command


@dataclass
class Progress:
    """The numbers of a run so far; stored in the checkpoint."""

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0  # of the steps alone
    elapsed: float = 0.0  # of everything, from the command on
    started: float = 0.0  # elapsed before the first step
    besides: dict[str, float] = field(default_factory=dict)  # seconds of validation and of saving
    best: float = math.inf  # of the validations: the lowest loss, nats per token, or −BLEU
    criterion: str = "loss"  # what `best` measures
    best_step: int = -1
    stuck: int = 0  # validations since the best
    drops: int = 0  # times the plateau schedule lowered the learning rate
    averaged: int = 0  # weights in the running mean
    finished: bool = False
    history: list[tuple[int, float]] = field(default_factory=list)  # (step, validation loss)
    validated: float = 0.0  # what of the budget was spent after the last validation

    @property
    def best_words(self) -> str:
        return best_words(self.best, self.criterion)


class Trainer:
    """Trains `model` on `batches` until the limit, and writes to `folder`:

    folder/model.safetensors      the weights that were best on validation
    folder/training.safetensors   the checkpoint: the last weights and all else that a resume needs
    folder/metrics.jsonl          one line for each log point and each validation
    folder/kept/                  for pairs, the weights of the last validations, to be averaged
    folder/snapshots/             if asked for, the weights of moments from the beginning to the end
    """

    def __init__(
        self,
        model: Model,
        batches: Batches,
        validation: Validation,
        settings: Learning,
        folder: Path,
        *,
        bf16: bool = False,
        group: Group | None = None,
        install: Install = as_written,
    ):
        """`install` swaps methods for faster ones (regard.fast)."""
        self.group = group or Group()
        self.model, self.batches, self.validation = model, batches, validation
        self.settings, self.limit, self.folder, self.bf16 = settings, settings.limit, folder, bf16
        self.device = model.device
        pairs = settings if isinstance(settings, PairTraining) else None
        self.keep, self.ema = pairs.keep if pairs else 0, settings.ema
        self.carries = isinstance(settings, Training) and settings.batches == "stream"
        terms = {"smoothing": pairs.label_smoothing, "consistency": pairs.consistency} if pairs else {}
        self.objective = Objective(model, keeps=self.carries, **terms)
        self.wrapped = self.group.wrap(self.objective, sharded=settings.shard)
        self.warm_up = 0  # steps of each batch shape before its full speed
        self.recorded = False  # a CUDA graph replays the step, so the learning rate must be a tensor
        install(self)
        refuse_what_was_not_recorded(settings, self.device)
        install(
            self.objective,
            device=self.device,
            training=True,
            bf16=bf16,
            captured=self.recorded,
            pairs=pairs is not None,
            compile=getattr(settings, "compile", "off"),
        )
        self.optimizer = build_optimizer(
            settings.optimizer,
            model.named_parameters(),
            learning_rate=settings.learning_rate,
            weight_decay=settings.weight_decay,
            beta2=settings.beta2,
            captured=self.recorded,
            hidden=hidden_matrices(model),
        )
        self.average = Average(self.ema or 1.0)
        self.state: State | None = None  # carried from window to window, on streams
        self.at = Progress()
        self.began, self.earlier = time.perf_counter(), 0.0  # when the command began; at.elapsed of earlier commands
        self.saving = self.ending = 0.0  # seconds of the last checkpoint; of the validation and checkpoint at the end
        self.saved = 0.0  # at.elapsed when the last checkpoint was made
        self.writer, self.writing = FileWriter(self.device), 0.0  # seconds that its last files took
        self.stop_requested = False
        self.feed = Feed(self.batches, self.device)
        self.doing = "step"  # or "update" or "validation": for error messages
        self.rows = 0  # of the current batch
        self.random: dict[str, Tensor] = {}  # the generators before the current step
        self.callbacks: tuple[Callback, ...] = ()

    # -- the loop ----------------------------------------------------------------------------------------------------

    def train(self) -> Progress:
        """Trains from `self.at` on. Raises Stopped when interrupted."""
        try:
            return self._train()
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
        finally:
            self.feed.close()
            self.writer.close()
        raise RegardError(self._rescue())  # here the error is gone, and so the tensors of the failed step are freed

    def _train(self) -> Progress:
        if self.at.finished:
            return self.at
        self.model.train()
        if not self.at.step and self.settings.snapshots:
            self._snapshot(self._copy_weights())
        self._look_at_the_clock()
        if not self.at.step:
            self.at.started = self.at.elapsed
        with self._interruptible(), progress("training", self.limit.amount, self._spent(), self._unit()) as bar:
            log = _Log(self.folder / "metrics.jsonl" if self.group.is_first else None, bar, self.at, self.callbacks)
            stuck, shown = False, self._spent()
            if self.at.step and self._validation_is_due() and self.at.step not in dict(self.at.history):
                self._validate(log)  # it ran out of memory before the resume
                stuck = self._is_stuck()
            while not stuck and self._share() < 1:
                began, rate = time.perf_counter(), self.learning_rate
                self.writer.check()
                loss, count = self.step()
                if (mean := log.trained(loss, count, rate)) is not None:
                    self._check_finite(mean)
                self.at.seconds += time.perf_counter() - began  # without validation and saving
                self.stop_requested = self._look_at_the_clock(self.stop_requested or log.failure is not None)
                bar.advance(self._spent() - shown, log.note)
                shown = self._spent()
                if validated := self._validation_is_due():
                    self._validate(log)
                    if self._is_stuck():
                        bar.say(f"stopping: {counted(self.at.stuck, 'validation')} without improvement")
                        break
                if self._checkpoint_is_due(validated):
                    self.save(wait=False)
                    self._look_at_the_clock()
                if self.stop_requested:
                    self.save()
                    raise log.failure or Stopped(self.at.step)
            if not self.at.history or self.at.history[-1][0] != self.at.step:
                self._validate(log)
            self.at.finished = True
            self.save()
            if log.failure is not None:
                raise log.failure
        return self.at

    def _validation_is_due(self) -> bool:
        at, settings = self.at, self.settings
        if self._all_seconds() and not at.history and self._share() >= 0.5:
            return True  # it shows how much time to leave for the last one
        if not settings.validations:
            return at.step % settings.evaluate_every == 0
        if self._all_seconds():  # which pass in validations too; how long one takes is not known before the first
            early = at.elapsed - at.validated < REST * self.ending if at.history else at.step < settings.evaluate_every
            if early:
                return False
        made, due = (int(self._share(spent, settings.validations)) for spent in (at.validated, self._spent()))
        return due > made

    def _checkpoint_is_due(self, validated: bool) -> bool:
        """Not where another is written at once: the last of a training that ends or stops here."""
        every, at = self.settings.checkpoint_every, self.at
        ends = self.stop_requested or (self._share() >= 1 and dict(at.history[-1:]).keys() == {at.step})
        if ends:
            return False
        if self.group.alone and self.writer.is_busy(CHECKPOINT):
            return False  # rather the next one than to wait for the files of the last
        if self.group.alone and at.elapsed - self.saved >= max(SAVED_SECONDS, SAVED_REST * self.saving):
            return True  # steps are slow: no more than this is lost if the process is killed
        return at.step % every == 0 if every else validated

    def _is_stuck(self) -> bool:
        return 0 < self.settings.patience <= self.at.stuck

    def step(self) -> tuple[Tensor, int]:
        """One optimiser step; returns the mean loss of its batch before the step, and its number of tokens."""
        set_learning_rate(self.optimizer, self.learning_rate)
        if not self.group.alone:  # dropout differs between ranks, and is the same after a resume
            torch.manual_seed((self.settings.seed * 1_000_003 + self.at.step) * 65_537 + self.group.rank)
        self.doing, self.random, self.feed.batches = "step", self._generators(), self.batches
        batch = self.feed(self.at.step)
        self.rows = len(batch.tokens)
        loss, count = self.update(batch)
        if self.average.active or self.ema:
            self.average.add(self.model)
        self.at.step += 1
        self.at.tokens += count
        self.doing = "step"
        return loss, count

    def update(self, batch: Batch | PairBatch) -> tuple[Tensor, int]:
        """One optimiser step on this batch."""
        loss, count = self.gradient(batch)
        self.descend(loss)
        return loss, count

    @property
    def learning_rate(self) -> float:
        settings, spent, drops = self.settings, self._share(), self.at.drops
        if settings.schedule == "decay":
            drops = max(0, self.at.step // self.batches.steps_per_epoch + 1 - settings.decay_after)
        warmup = warmup_within(settings.warmup, self.at.step, spent) if self._all_seconds() else settings.warmup
        return learning_rate_at(
            settings.schedule, settings.learning_rate, self.at.step, warmup, spent, drops, settings.decay
        )

    def gradient(self, batch: Batch | PairBatch) -> tuple[Tensor, int]:
        """Computes the gradient of the mean loss, in micro-batches; returns the loss and the number of tokens."""
        count = int(batch.lengths.sum()) if batch.lengths is not None else batch.targets.size
        state = None if batch.fresh else self.state
        rows = len(batch.tokens)
        if self.carries:
            refuse_few_rows(rows, self.group)
        mine = to_device(batch, self.device).each(lambda part: part[self.group.share(rows)])
        parts = min(self.settings.accumulate, max(1, rows // self.group.size))  # the same in every process
        loss, self.state = self.backward(mine, state, count, parts, self.group.weight(rows))
        return self.group.sum(loss), count

    def backward(
        self, batch: TensorBatch, state: State | None, count: int | Tensor, parts: int, weight: float = 1.0
    ) -> tuple[Tensor, State | None]:
        """The gradient of this process's rows, divided by the `count` tokens of all processes."""
        self.optimizer.zero_grad(set_to_none=True)
        sums: list[Tensor] = []
        states: list[State] = []
        for number, (rows, part) in enumerate(micro_batches(batch, parts), start=1):
            with self.group.synchronising(self.wrapped, last=number == parts):
                loss_sum, after = self.forward(part, None if state is None else _rows(state, rows))
                # DDP and FSDP average gradients over processes; times `size` it is their sum
                (loss_sum * (weight * self.group.size) / count).backward()
            sums.append(loss_sum.detach() * weight)
            if self.carries:
                states.append(detach(after))
        return torch.stack(sums).sum() / count, _join(states) if states else None

    def descend(self, loss: Tensor) -> None:
        """Clips the gradient and takes the optimiser step."""
        if self.device.type == "cpu":  # a GPU would have to synchronise; there the log checks, once a second
            self._check_finite(float(loss))
        if self.settings.clip:
            clip(self.model, self.settings.clip, self.optimizer)
        self.doing = "update"
        self.optimizer.step()

    def forward(self, batch: TensorBatch, state: State | None) -> tuple[Tensor, State]:
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.bf16):
            loss_sum, _, state = self.wrapped(batch, state)
        return loss_sum, state

    # -- validation --------------------------------------------------------------------------------------------------

    def _validate(self, log: _Log) -> None:
        at, began = self.at, time.perf_counter()
        self.doing = "validation"
        if self.average.active:
            self.average.swap(self.model)
        verdict = self.group.broadcast(
            self.judge()
        )  # rank 0's for all: a rounding difference must not lead to different decisions
        self._check_finite(verdict.loss)
        improved = verdict.badness < at.best
        saves = improved or self.keep or self.settings.snapshots
        weights = self._copy_weights() if saves else {}
        if improved:
            self.save_best(verdict, weights)
            at.best, at.best_step, at.criterion = verdict.badness, at.step, verdict.criterion
        self._keep(weights)
        at.stuck = 0 if improved else at.stuck + 1
        at.history.append((at.step, verdict.loss))
        self._snapshot(weights)
        if self.average.active:
            self.average.swap(self.model)
        elif self.settings.optimizer == "asgd" and averaging_is_due([loss for _, loss in at.history]):
            self.average.add(self.model)
            at.stuck = 0  # patience starts again for the average
        if self.settings.schedule == "plateau" and not improved:
            at.drops += 1
        self.model.train()
        self.doing = "step"
        log.validated(verdict, improved)
        self.ending = self.group.broadcast(self._besides("validation", began) + self.saving)
        self._look_at_the_clock()
        at.validated = self._spent()

    def judge(self) -> Verdict:
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.bf16):
            return self.validation(self.model)

    # -- files and checkpoints ---------------------------------------------------------------------------------------

    def _copy_weights(self) -> dict[str, Tensor]:
        return self._copy(WEIGHTS, weights_of(self.model))

    def _copy(self, kind: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """What they hold now, to be written beside the training; sharded tensors are gathered first."""
        tensors = whole(tensors)
        return self.writer.copy(kind, tensors) if self.group.is_first else tensors

    def save_best(self, verdict: Verdict, weights: dict[str, Tensor]) -> None:
        note = {"step": self.at.step, "validation_loss": verdict.loss} | verdict.figures
        self._write(self.folder / "model.safetensors", WEIGHTS, weights, note)

    def _keep(self, weights: dict[str, Tensor]) -> None:
        """Saves the validated weights, and deletes those of older validations."""
        if not self.keep:
            return

        def prune() -> None:
            for old in kept_weights(self.folder)[: -self.keep]:
                old.unlink()

        kept_weights(self.folder)  # refuses a symbolic link before anything is written
        self._write(self.folder / "kept" / f"{self.at.step:08d}.safetensors", WEIGHTS, weights, then=prune)

    def _snapshot(self, weights: dict[str, Tensor]) -> None:
        """Saves the weights, and deletes every second earlier moment, again and again, until few enough are left."""
        if not self.settings.snapshots:
            return
        moments = thinned([0, *(step for step, _ in self.at.history)], self.settings.snapshots)

        def prune() -> None:
            for old in weights_in(self.folder / SNAPSHOTS):
                if int(old.stem) not in moments:
                    old.unlink()

        weights_in(self.folder / SNAPSHOTS)  # refuses a symbolic link before anything is written
        self._write(self.folder / SNAPSHOTS / f"{self.at.step:08d}.safetensors", WEIGHTS, weights, then=prune)

    def _write(
        self,
        path: Path,
        kind: str,
        tensors: dict[str, Tensor],
        note: dict[str, Any] | None = None,
        then: Callable[[], None] = lambda: None,
    ) -> None:
        """Rank 0 writes the file, and does after it what comes then."""

        def job() -> None:
            save_tensors(path, tensors, note)
            then()

        if self.group.is_first:
            self.writer.submit(kind, job)

    def save(self, wait: bool = True) -> None:
        """Writes the checkpoint, but never overwrites finite weights by others. `wait`: until it is on the disk."""
        began = time.perf_counter()
        weights = whole(weights_of(self.model))
        if not all_finite(weights.values()):
            self._check_finite(math.nan)
        self.at.averaged = self.average.count
        tensors = flatten(weights, "model") | optimizer_tensors(self.optimizer)
        tensors |= flatten(self.group.all_gather(self.state) or {}, "state") | flatten(self.average.weights, "average")
        tensors |= self._generators()
        path, note = self.folder / "training.safetensors", {"progress": asdict(self.at)}
        self._write(path, CHECKPOINT, self._copy(CHECKPOINT, tensors), note)
        self.saving, self.saved = time.perf_counter() - began, self.at.elapsed
        if wait:
            self.writer.wait()
        self._besides("saving", began)

    def restore(self) -> None:
        """Loads the checkpoint, and removes metrics and weights that were written after it."""
        tensors, note = load_tensors(self.folder / "training.safetensors")
        if "progress" not in note:
            raise RegardError(f"{self.folder / 'training.safetensors'} is not a checkpoint of a training.")
        # Copied, since in the file they lie at any address, and matrix products of numbers that are not aligned as in
        # PyTorch's own memory may round otherwise.
        tensors = {name: tensor.clone() for name, tensor in tensors.items()}
        self.at = Progress(**note["progress"])
        self.at.history = [(int(step), float(loss)) for step, loss in self.at.history]
        self.earlier = self.at.elapsed = self.at.elapsed or self.at.seconds  # older checkpoints have none
        self.saved = self.at.elapsed
        patterns = weights_of(self.model)
        saved = unflatten(tensors, "model")
        if saved.keys() != patterns.keys():
            raise RuntimeError("other weights")  # as for shapes that differ
        self.model.load_state_dict({name: like(value, patterns[name]) for name, value in saved.items()})
        restore_optimizer(self.optimizer, tensors)
        carried = unflatten(tensors, "state")
        self.state = map_state(lambda leaf: leaf[self.group.share(len(leaf))].to(self.device), carried) or None
        self.average.count = self.at.averaged
        means = unflatten(tensors, "average")
        self.average.weights = {name: like(value.to(self.device), patterns[name]) for name, value in means.items()}
        self._set_generators(tensors)
        if self.group.is_first:
            self._forget_later()
        self.group.barrier()

    def _generators(self) -> dict[str, Tensor]:
        random = {"random/cpu": torch.get_rng_state()}
        return random | ({"random/cuda": torch.cuda.get_rng_state(self.device)} if self.device.type == "cuda" else {})

    def _set_generators(self, random: Mapping[str, Tensor]) -> None:
        torch.set_rng_state(random["random/cpu"])
        if self.device.type == "cuda":
            torch.cuda.set_rng_state(random.get("random/cuda", torch.cuda.get_rng_state(self.device)), self.device)

    def _rescue(self) -> str:
        """After memory ran out: frees memory, saves the last complete step, and returns the error message."""
        self.optimizer.zero_grad(set_to_none=True)
        vars(self).pop("update", None)  # recorded steps hold memory
        gc.collect()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        saved = self.group.alone and self._save_rescued()
        rows = self.rows // self.group.size
        return how_to_go_on(self.folder, self.settings, self.device, self.at.step, self.doing, rows=rows, saved=saved)

    def _save_rescued(self) -> bool:
        """Saves, unless an update was interrupted or the weights are swapped for their average: the old file stays."""
        if self.doing == "update" or (self.doing == "validation" and self.average.active):
            return False
        try:
            if self.doing == "step" and self.random:
                self._set_generators(self.random)  # as before the failed step
            self.save()
        except (RuntimeError, MemoryError):  # a failed capture may leave the generator unusable
            return False
        return True

    def _forget_later(self) -> None:
        """Removes metrics and weights that were written after the checkpoint."""
        cut_metrics(self.folder / "metrics.jsonl", self.at.step)
        for later in [*kept_weights(self.folder), *weights_in(self.folder / SNAPSHOTS)]:
            if int(later.stem) > self.at.step:
                later.unlink()

    def repeat(self, step: int, times: int) -> None:
        """Takes one step several times: warm-up before a measurement."""
        for _ in range(times):
            self.at.step, self.state = step, None
            self.step()
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def rehearse(self, steps: int) -> None:
        """For --dry-run: runs whatever needs the most memory in a training of `steps` steps; the model is not usable
        afterwards. Twice, because freed memory is fragmented and may not fit the second time."""
        validation = self.validation
        if isinstance(validation, TextValidation):  # the beginning is enough: batches have one size
            validation = replace(validation, ids=validation.ids[:REHEARSED])
        largest = largest_steps(self.batches, steps)
        try:
            for _ in range(2):
                for step in largest:
                    self.repeat(step, self.warm_up or 1)
                if self.settings.optimizer == "asgd":
                    self.average.add(self.model)
                with torch.autocast(self.device.type, torch.bfloat16, enabled=self.bf16):
                    verdict = validation(self.model)
                self.model.train()
            self.save_best(verdict, self._copy_weights())
            self.save()
        finally:
            self.feed.close()
            self.writer.close()

    # ----------------------------------------------------------------------------------------------------------------

    def _spent(self) -> float:
        seconds = self.at.elapsed if self.limit.whole else self.at.seconds
        return float({"steps": self.at.step, "tokens": self.at.tokens, "seconds": seconds}[self.limit.unit])

    def _all_seconds(self) -> bool:
        return self.limit.unit == "seconds" and self.limit.whole

    def _share(self, spent: float | None = None, parts: int = 1) -> float:
        """Of the budget that is spent so far, or was, 0 to 1, or to so many equal parts. Of the seconds of a whole
        command those from the first step to the last, at least half of it."""
        spent = self._spent() if spent is None else spent
        if not self._all_seconds():
            return parts * spent / self.limit.amount
        steps = self.limit.amount - self.ending - self.writing - self.at.started
        return parts * max(0.0, spent - self.at.started) / max(steps, self.limit.amount / 2)

    def _look_at_the_clock(self, stop: bool = False) -> bool:
        """Sets the clocks to those of rank 0, in every process; and was any process asked to stop?"""
        elapsed = self.earlier + time.perf_counter() - self.began
        clocks = (self.at.seconds, elapsed, self.writer.seconds)
        (self.at.seconds, self.at.elapsed, self.writing), stop = self.group.all_reduce(clocks, stop)
        return stop

    def _besides(self, what: str, began: float) -> float:
        """Counts the seconds since `began`, which are not steps, and returns them."""
        took = time.perf_counter() - began
        self.at.besides[what] = self.at.besides.get(what, 0.0) + took
        return took

    def _unit(self) -> str:
        return {"steps": " steps", "tokens": " tokens", "seconds": " s"}[self.limit.unit]

    def _check_finite(self, loss: float) -> None:
        if not math.isfinite(loss):
            raise RegardError(
                f"The loss became {loss} at step {self.at.step}; the last good weights are kept in {self.folder}: "
                "try a smaller training.learning_rate"
                + (" or training.clip." if self.settings.clip else ", or training.clip 1.")
            )

    @contextmanager
    def _interruptible(self) -> Iterator[None]:
        """Ctrl-C and SIGTERM stop the run after this step, with a checkpoint; a second Ctrl-C stops it at once,
        or on a GPU when the files that are being written are whole."""
        if threading.current_thread() is not threading.main_thread():
            yield  # only the main thread receives signals
            return

        def request_stop(number: int, frame: Any) -> None:
            if self.stop_requested:
                raise KeyboardInterrupt
            self.stop_requested = True

        previous = {number: signal.signal(number, request_stop) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        except (RuntimeError, ConnectionError):
            if not self.group.alone:  # another process died: torchrun now ends this one, which is to say so first
                previous.clear()
            raise
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)


def refuse_what_was_not_recorded(settings: Learning, device: torch.device) -> None:
    if getattr(settings, "capture", "off") == "on" and device.type != "cuda":
        raise RegardError(f"training.capture on needs a CUDA device, not {device}: leave it at auto.")


class _Log:
    """metrics.jsonl and the note beside the progress bar, about once a second."""

    def __init__(self, path: Path | None, bar: Bar, at: Progress, callbacks: tuple[Callback, ...] = ()):
        """`path` None: this process does not write."""
        self.path, self.bar, self.at, self.callbacks = path, bar, at, callbacks
        self.failure: Exception | None = None  # of a callback; the training ends with it after its step
        self.since = time.monotonic()
        self.pending: list[tuple[Tensor, int]] = []
        self.note = ""

    def trained(self, loss: Tensor, count: int, rate: float) -> float | None:
        """Records a step; if a log point is due, writes it and returns the mean loss since the last one."""
        self.pending.append((loss, count))
        if time.monotonic() - self.since < LOG_SECONDS:
            return None
        counts = [count for _, count in self.pending]
        losses = torch.stack([loss for loss, _ in self.pending]).tolist()  # waits for the device
        tokens = sum(counts)
        mean = sum(loss * count for loss, count in zip(losses, counts, strict=True)) / tokens
        speed = tokens / (time.monotonic() - self.since)
        self._write(loss=mean, perplexity=_exp(mean), learning_rate=rate, tokens_per_second=round(speed, 1))
        self.note = f"loss {mean:.3f} · perplexity {_exp(mean):.2f} · {grouped(speed)} tokens/s"
        for what, seconds in self.at.besides.items():
            if seconds > NOTABLE * self.at.elapsed:
                self.note += f" · {what} {seconds / self.at.elapsed:.0%} of the time"
        self.pending, self.since = [], time.monotonic()
        return mean

    def validated(self, verdict: Verdict, improved: bool) -> None:
        loss = verdict.loss
        self._write(split="valid", loss=loss, perplexity=_exp(loss), **verdict.figures)
        also = "".join(f", {NAMES.get(name, name)} {value:.2f}" for name, value in verdict.figures.items())
        mark = "  best so far" if improved else ""
        self.bar.say(f"step {self.at.step}: validation loss {loss:.4f}, perplexity {_exp(loss):.2f}{also}{mark}")
        self.since, self.pending = time.monotonic(), []

    def _write(self, **numbers: Any) -> None:
        if self.path is None:
            return
        clocks = {"seconds": round(self.at.seconds, 3), "elapsed": round(self.at.elapsed, 3)}
        at = {"step": self.at.step, "tokens": self.at.tokens, **clocks}
        row = at | {key: _json(value) for key, value in numbers.items()}
        append_metrics(self.path, row)
        try:
            for callback in self.callbacks:
                callback(dict(row))
        except Exception as error:
            self.failure = error


def kept_weights(folder: Path) -> list[Path]:
    """The weights of the last validations, oldest first."""
    return weights_in(folder / "kept")


def weights_in(folder: Path) -> list[Path]:
    """Files named by their step, the earliest first."""
    if folder.is_symlink():
        raise RegardError(f"{folder} leads out of the run: put the folder itself there.")
    found = folder.glob("*.safetensors")
    return sorted(path for path in found if path.stem.isascii() and path.stem.isdecimal())


def thinned(steps: Sequence[int], most: int) -> set[int]:
    """At most so many of them (but first and last): every second, fourth, … from the first on, whichever is enough."""
    stride = 1
    while len(kept := {*steps[::stride], steps[-1]}) > max(most, 2):
        stride *= 2
    return kept


def weights_of(model: Model) -> dict[str, Tensor]:
    """Every tensor of the model once: a tied matrix has a single name."""
    return dict(model.state_dict())


def all_finite(tensors: Iterable[Tensor]) -> bool:
    """One pass over the numbers, and one answer that a GPU is waited for."""
    numbers = (tensor for tensor in tensors if tensor.is_floating_point() and tensor.numel())
    ends = [end.double() for tensor in numbers for end in tensor.aminmax()]
    return not ends or bool(torch.stack(ends).isfinite().all())


def _rows(state: State, rows: slice) -> State:
    return map_state(lambda leaf: leaf[rows], state)


def _join(states: list[State]) -> State:
    """The states of micro-batches concatenated along rows."""
    first, *others = states
    if not others:
        return first

    def join(part: Any, *more: Any) -> Any:
        if isinstance(part, dict):
            return {name: join(leaf, *(other[name] for other in more)) for name, leaf in part.items()}
        return torch.cat([part, *more])

    return join(first, *others)


def _json(value: Any) -> Any:
    """JSON has no infinity."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _exp(loss: float) -> float:
    try:
        return math.exp(loss)
    except OverflowError:
        return math.inf


def measure_steps(trainer: Trainer, steps: int, clock: Callable[[], float] = time.perf_counter) -> tuple[float, float]:
    """Seconds and tokens of a training step, after its warm-up; for --dry-run. The model is not usable afterwards."""
    seconds, tokens = 0.0, 0
    for number in range(steps):
        trainer.repeat(number, trainer.warm_up or int(number == 0))
        trainer.at.step, began, before = number, clock(), trainer.at.tokens
        trainer.step()
        if trainer.device.type == "cuda":
            torch.cuda.synchronize(trainer.device)
        seconds += clock() - began
        tokens += trainer.at.tokens - before
    return seconds / steps, tokens / steps
