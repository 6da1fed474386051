"""The log of a training: metrics.jsonl, callbacks, and the note next to the progress bar."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.base.numbers import group_digits
from regard.report.progress import Bar
from regard.training.budget import Progress
from regard.training.metrics import append_metrics
from regard.training.validation import ValidationResult

Callback = Callable[[dict[str, Any]], object]  # is called with each row of metrics.jsonl
NAMES = {"bleu": "BLEU", "chrf": "chrF"}  # metrics that are written in capitals
NOTABLE = 0.05  # a share of the time that the progress note mentions
LOG_SECONDS = 1.0  # interval at which metrics.jsonl and the progress note are updated


class TrainingLog:
    """metrics.jsonl and the note next to the progress bar: about once a second, and before a validation or a stop."""

    def __init__(self, path: Path | None, bar: Bar, progress: Progress, callbacks: tuple[Callback, ...] = ()):
        """`path` None: this process does not write."""
        self.path, self.bar, self.progress, self.callbacks = path, bar, progress, callbacks
        self.failure: Exception | None = None  # raised by a callback; training ends with it after the step
        self.since = time.monotonic()
        self.pending: list[tuple[Tensor, int]] = []
        self.rate = 0.0
        self.note = ""

    def trained(self, loss: Tensor, count: int, rate: float) -> float | None:
        """Records a step; if a log point is due, writes it and returns the mean loss since the last one."""
        self.pending.append((loss, count))
        self.rate = rate
        return self.write_pending() if time.monotonic() - self.since >= LOG_SECONDS else None

    def write_pending(self) -> float | None:
        """Writes a row of the steps since the last one, if there are any; returns their mean loss."""
        if not self.pending:
            return None
        counts = [count for _, count in self.pending]
        losses = torch.stack([loss for loss, _ in self.pending]).tolist()  # waits for the device
        tokens = sum(counts)
        mean = sum(loss * count for loss, count in zip(losses, counts, strict=True)) / tokens
        speed = tokens / max(time.monotonic() - self.since, 1e-9)
        self._write(
            loss=mean, perplexity=perplexity_of(mean), learning_rate=self.rate, tokens_per_second=round(speed, 1)
        )
        self.note = f"loss {mean:.3f} · perplexity {perplexity_of(mean):.2f} · {group_digits(speed)} tokens/s"
        for what, seconds in self.progress.overhead_seconds.items():
            if seconds > NOTABLE * self.progress.elapsed:
                self.note += f" · {what} {seconds / self.progress.elapsed:.0%} of the time"
        self.pending, self.since = [], time.monotonic()
        return mean

    def validated(self, result: ValidationResult, improved: bool) -> None:
        loss = result.loss
        self._write(split="valid", loss=loss, perplexity=perplexity_of(loss), **result.figures)
        also = "".join(f", {NAMES.get(name, name)} {value:.2f}" for name, value in result.figures.items())
        mark = "  best so far" if improved else ""
        self.bar.say(
            f"step {self.progress.step}: validation loss {loss:.4f}, perplexity {perplexity_of(loss):.2f}{also}{mark}"
        )
        self.since = time.monotonic()

    def _write(self, **numbers: Any) -> None:
        if self.path is None:
            return
        clocks = {"seconds": round(self.progress.seconds, 3), "elapsed": round(self.progress.elapsed, 3)}
        row = {"step": self.progress.step, "tokens": self.progress.tokens, **clocks}
        row |= {key: finite_or_none(value) for key, value in numbers.items()}
        append_metrics(self.path, row)
        try:
            for callback in self.callbacks:
                callback(dict(row))
        except Exception as error:
            self.failure = error


def finite_or_none(value: Any) -> Any:
    """JSON has no infinity."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def perplexity_of(loss: float) -> float:
    try:
        return math.exp(loss)
    except OverflowError:
        return math.inf
