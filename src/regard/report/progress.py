"""Progress on stderr: a live bar on a terminal, plain lines anywhere else, so that logs stay readable.

with progress("training", total=2000) as bar:
    bar.advance(1, note="loss 2.31 · 12,400 tokens/s")
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from regard.base.numbers import group_digits
from regard.report.screen import Screen, harmless

PLAIN_SECONDS = 10.0  # in a log, a line at most this often
ENOUGH = 0.01  # share of the work from which on the time that is left can be estimated


class Bar(Protocol):
    def advance(self, amount: float = 1, note: str = "") -> None: ...
    def reach(self, done: float, total: float | None = None) -> None: ...
    def say(self, line: str) -> None: ...


_hushed = False
_still = False


def hush() -> None:
    """From now on, this process shows only its progress; the parent process prints everything else."""
    global _hushed
    _hushed = True


@contextmanager
def hushed() -> Iterator[None]:
    """Inside this context the process prints nothing, not even progress, which another process shows."""
    global _hushed, _still
    before = _hushed, _still
    _hushed = _still = True
    try:
        yield
    finally:
        _hushed, _still = before


def say(line: str) -> None:
    """One line of log: stderr, so that stdout stays data."""
    if not _hushed:
        print(harmless(line), file=sys.stderr, flush=True)


@contextmanager
def progress(title: str, total: float | None = None, done: float = 0, unit: str = "") -> Iterator[Bar]:
    """`total` None means unknown; `done` is where a resumed job starts; `unit` is the unit, e.g. "s"."""
    title = harmless(title)
    if _still:
        yield _NoBar()
    elif sys.stderr.isatty():
        with _live(title, total, done) as bar:
            yield bar
    else:
        plain = _PlainBar(title, total, done, unit)
        yield plain
        plain.close()


@contextmanager
def _live(title: str, total: float | None, done: float) -> Iterator[Bar]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}", style="bold", markup=False),
        BarColumn(bar_width=None),
        TaskProgressColumn(),
        TimeRemainingColumn(compact=True),
        TextColumn("{task.fields[note]}"),
    )
    console = Console(file=sys.stderr.stream if isinstance(sys.stderr, Screen) else sys.stderr)  # it moves the cursor
    with Progress(*columns, console=console, transient=True) as display:
        task = display.add_task(title, total=total, completed=int(done), note="")

        class _LiveBar:
            def advance(self, amount: float = 1, note: str = "") -> None:
                display.advance(task, amount)
                if note:
                    display.update(task, note=note)

            def reach(self, done: float, total: float | None = None) -> None:
                display.update(task, completed=done, total=total)

            def say(self, line: str) -> None:
                if not _hushed:
                    console.print(harmless(line), markup=False, highlight=False)

        yield _LiveBar()


class _NoBar:
    def advance(self, amount: float = 1, note: str = "") -> None: ...
    def reach(self, done: float, total: float | None = None) -> None: ...
    def say(self, line: str) -> None: ...


class _PlainBar:
    def __init__(self, title: str, total: float | None, done: float, unit: str):
        self.title, self.total, self.done, self.unit = title, total, done, unit
        self.began, self.first = time.monotonic(), done
        self.printed = self.began
        self.rate_from: tuple[float, float] | None = None  # time of the first line, and progress at that time
        self.note = ""

    def advance(self, amount: float = 1, note: str = "") -> None:
        self.done += amount
        self.note = note or self.note
        if time.monotonic() - self.printed >= PLAIN_SECONDS:
            self._show()

    def reach(self, done: float, total: float | None = None) -> None:
        self.total = total
        self.advance(done - self.done)

    def say(self, line: str) -> None:
        if not _hushed:
            self.printed = time.monotonic()
            say(line)

    def close(self) -> None:
        if self.printed > self.began:  # something was printed, so print the end as well
            self._show()

    def _show(self) -> None:
        self.printed = time.monotonic()
        print(self._line(), file=sys.stderr, flush=True)
        self.rate_from = self.rate_from or (self.printed, self.done)

    def _line(self) -> str:
        counted = group_digits(self.total or self.done)
        unit = self.unit if counted != "1" or self.unit == " s" else self.unit[:-1]  # " s" are seconds
        parts = [f"{self.title} {f'{group_digits(self.done)}/' if self.total else ''}{counted}{unit}"]
        if self.note:
            parts.append(self.note)
        # Work before the first line may have been a warm-up, and work may be done long before it is counted (the
        # sentences of a batch): the rate is computed from the first line on.
        if self.total and self.rate_from and self.done - self.first >= ENOUGH * (self.total - self.first):
            since, before = self.rate_from
            left = self.total - self.done
            if left > 0 and self.done > before:
                parts.append(f"{clock((time.monotonic() - since) * left / (self.done - before))} left")
        return " · ".join(parts)


def clock(seconds: float) -> str:
    """0.8 s, 47 s, 3 min 20 s, 2 h 05 min."""
    if not seconds < 1e9:
        return "forever"
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
