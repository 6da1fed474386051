"""The one door to `regard.fast`. Where that package is not there, everything runs as written."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from regard.base.install import Install, as_written
from regard.systems.model import Model

install: Install
on_this_machine: Callable[..., Iterable[Any]]  # device → its rows, each with why it does not run there, or None
get_ready: Callable[[torch.device], None]  # starts a device beside other work
try:
    from regard.fast import get_ready, install, on_this_machine
except ImportError:
    install, on_this_machine, get_ready = as_written, lambda device: (), lambda device: None


def recordable(model: Model) -> bool:
    """True if a GPU can record its training step for each shape of a batch of pairs."""
    try:
        from regard.fast.training import captured_step
    except ImportError:
        return False
    return captured_step.recordable(model)
