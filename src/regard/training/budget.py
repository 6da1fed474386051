"""How much of its budget a training has used, and when it is due to validate and to save."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from regard.training.distributed import Group
from regard.training.hyperparameters import Budget, GradientTraining
from regard.training.validation import best_words

SAVED_SECONDS = 60.0  # between checkpoints at most, in one process …
SAVED_REST = 50  # … but at least this many times as long as one takes
REST = 4  # a validation is followed by this many times its own seconds of training, in the seconds of a whole command
NAMES_ON_DISK = {"overhead_seconds": "besides", "validations_since_best": "stuck"}  # names of fields in checkpoints


@dataclass
class Progress:
    """The numbers of a run so far; stored in the checkpoint."""

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0  # of the steps alone
    elapsed: float = 0.0  # of everything, from the command on
    started: float = 0.0  # elapsed before the first step
    overhead_seconds: dict[str, float] = field(default_factory=dict)  # of validation and of saving
    best: float = math.inf  # of the validations: the lowest loss, nats per token, or −BLEU
    criterion: str = "loss"  # what `best` measures
    best_step: int = -1
    validations_since_best: int = 0
    drops: int = 0  # times the plateau schedule lowered the learning rate
    averaged: int = 0  # weights in the running mean
    finished: bool = False
    history: list[tuple[int, float]] = field(default_factory=list)  # (step, validation loss)
    validated: float = 0.0  # budget used when the last validation finished

    def as_note(self) -> dict[str, Any]:
        return {NAMES_ON_DISK.get(name, name): value for name, value in asdict(self).items()}

    @classmethod
    def from_note(cls, note: Mapping[str, Any]) -> Progress:
        fields = {saved: name for name, saved in NAMES_ON_DISK.items()}
        progress = cls(**{fields.get(saved, saved): value for saved, value in note.items()})
        progress.history = [(int(step), float(loss)) for step, loss in progress.history]
        return progress

    @property
    def best_words(self) -> str:
        return best_words(self.best, self.criterion)


class BudgetClock:
    """The budget of a training and the seconds it is measured in; every process reads the clock of rank 0."""

    def __init__(self, settings: GradientTraining, progress: Progress, group: Group, steps_per_epoch: int = 0) -> None:
        self.settings, self.limit, self.progress, self.group = settings, settings.limit, progress, group
        self.last_step = settings.epochs * steps_per_epoch  # 0 = no limit
        if self.last_step and self.limit.unit == "steps":
            self.limit = Budget(min(self.limit.amount, self.last_step), "steps")
        self.began, self.earlier = time.perf_counter(), 0.0  # start of this command; `elapsed` of earlier commands
        self.ending = 0.0  # seconds of the validation and the checkpoint at the end
        self.saving = 0.0  # seconds of the last checkpoint
        self.saved = 0.0  # `elapsed` when the last checkpoint was made
        self.writing = 0.0  # seconds that the last files took

    def resumed(self, progress: Progress) -> None:
        """Continues the clocks of a checkpoint."""
        self.progress = progress
        self.earlier = progress.elapsed = progress.elapsed or progress.seconds  # older checkpoints have none
        self.saved = progress.elapsed

    @property
    def whole_command(self) -> bool:
        """True for a budget in seconds that counts from the command to its end."""
        return self.limit.unit == "seconds" and self.limit.whole

    @property
    def unit(self) -> str:
        return {"steps": " steps", "tokens": " tokens", "seconds": " s"}[self.limit.unit]

    def spent(self) -> float:
        """Steps, tokens or seconds used so far."""
        seconds = self.progress.elapsed if self.limit.whole else self.progress.seconds
        return float({"steps": self.progress.step, "tokens": self.progress.tokens, "seconds": seconds}[self.limit.unit])

    def fraction(self) -> float:
        """Fraction of the budget used, or of the epochs if they end sooner."""
        return self._used(self.spent(), self.progress.step)

    def _used(self, spent: float, step: int, parts: int = 1) -> float:
        """`parts` times the fraction used at a step. For a whole command, only the time after the first step counts,
        at least half of it."""
        epochs = parts * step / self.last_step if self.last_step else 0.0
        if not self.whole_command:
            return max(epochs, parts * spent / self.limit.amount)
        steps = self.limit.amount - self.ending - self.writing - self.progress.started
        return max(epochs, parts * max(0.0, spent - self.progress.started) / max(steps, self.limit.amount / 2))

    @property
    def ended_by_epochs(self) -> bool:
        """True if the epochs ended the training before its budget was used."""
        return 0 < self.last_step <= self.progress.step and self.limit.unit != "steps"

    def sync(self, stop: bool = False, writing: float = 0.0) -> bool:
        """Sets the clocks to those of rank 0, in every process; returns whether any process received a stop signal."""
        elapsed = self.earlier + time.perf_counter() - self.began
        clocks = (self.progress.seconds, elapsed, writing)
        (self.progress.seconds, self.progress.elapsed, self.writing), stop = self.group.all_reduce(clocks, stop)
        return stop

    def overhead(self, kind: str, began: float) -> float:
        """Records the seconds since `began` as validation or saving, and returns them."""
        seconds = time.perf_counter() - began
        self.progress.overhead_seconds[kind] = self.progress.overhead_seconds.get(kind, 0.0) + seconds
        return seconds

    def validation_is_due(self) -> bool:
        progress, settings = self.progress, self.settings
        if self.whole_command and not progress.history and self.fraction() >= 0.5:
            return True  # it shows how much time to leave for the last one
        if not settings.validations:
            return progress.step % settings.evaluate_every == 0
        if self.whole_command:  # its seconds pass in validations too; how long one takes is not known before the first
            early = (
                progress.elapsed - progress.validated < REST * self.ending
                if progress.history
                else progress.step < settings.evaluate_every
            )
            if early:
                return False
        last = progress.history[-1][0] if progress.history else 0
        moments = ((progress.validated, last), (self.spent(), progress.step))
        made, due = (int(self._used(spent, step, settings.validations)) for spent, step in moments)
        return due > made

    def checkpoint_is_due(self, validated: bool, *, stops: bool, busy: bool) -> bool:
        """`stops`: the training stops after this step; `busy`: the files of the last checkpoint are being written."""
        every, progress = self.settings.checkpoint_every, self.progress
        ends = stops or (self.fraction() >= 1 and dict(progress.history[-1:]).keys() == {progress.step})
        if ends:
            return False  # another checkpoint follows at once
        if self.group.alone and busy:
            return False  # skip this one rather than wait
        if self.group.alone and progress.elapsed - self.saved >= max(SAVED_SECONDS, SAVED_REST * self.saving):
            return True  # steps are slow: at most this much is lost if the process is killed
        return progress.step % every == 0 if every else validated

    def patience_is_over(self) -> bool:
        return 0 < self.settings.patience <= self.progress.validations_since_best
