"""The named parts of a written equation. `note` gives a part its name, and lets an intervention replace its value.

    forget = note("forget", forget.sigmoid())          in a cell: [R, D], at one step
    with inside("layer/0"): …                          the names noted there begin with layer/0/

Without an intervention a part is returned unchanged. `insight/interventions` watches and changes parts.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Protocol

from torch import Tensor


class Watcher(Protocol):
    """Sees each part as it is computed; `place` and `step` say where the computation is."""

    place: tuple[str, ...]
    step: int | None  # of the cell that is being unrolled
    backwards: bool  # it reads its columns backwards

    def see(self, name: str, value: Tensor) -> Tensor: ...


_watcher: Watcher | None = None


def note(name: str, value: Tensor) -> Tensor:
    """The part of this name: `value`, or its replacement."""
    return value if _watcher is None else _watcher.see(name, value)


def at_step(step: int | None) -> None:
    """The following parts belong to this column; None: to all columns."""
    if _watcher is not None:
        _watcher.step = step


def inside(place: str, *, backwards: bool = False) -> AbstractContextManager[None]:
    """Names noted within begin with `place`; `backwards`: the columns are read from the last to the first."""
    return nullcontext() if _watcher is None else _enter(_watcher, place, backwards)


@contextmanager
def _enter(watcher: Watcher, place: str, backwards: bool) -> Iterator[None]:
    before = watcher.place, watcher.backwards
    watcher.place, watcher.backwards = (*watcher.place, place), watcher.backwards != backwards
    try:
        yield
    finally:
        watcher.place, watcher.backwards = before


@contextmanager
def watched_by(watcher: Watcher) -> Iterator[None]:
    """Every part that is computed within is given to the watcher."""
    global _watcher
    before, _watcher = _watcher, watcher
    try:
        yield
    finally:
        _watcher = before
