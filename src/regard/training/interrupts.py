"""Ctrl-C and SIGTERM while a model is trained."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from regard.base.errors import Terminated

if TYPE_CHECKING:
    from regard.training.loop import Trainer


@contextmanager
def stop_on_signals(trainer: Trainer) -> Iterator[None]:
    """Ctrl-C and SIGTERM stop the run after this step, with a checkpoint; a second Ctrl-C stops it at once, or on a GPU
    once the files being written are complete."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread receives signals
        return

    def request_stop(number: int, frame: Any) -> None:
        if trainer.stop_requested:
            raise Terminated if number == signal.SIGTERM else KeyboardInterrupt
        trainer.stop_requested, trainer.stop_signal = True, signal.Signals(number)

    previous = {number: signal.signal(number, request_stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    except (RuntimeError, ConnectionError):
        if not trainer.group.alone:  # another process died: torchrun ends this one and reports the failure
            previous.clear()
        raise
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
