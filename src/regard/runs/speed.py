"""The one door to `regard.fast`. Where that package is not there, everything runs as written."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from regard.base.install import Install, as_written

install: Install
on_this_machine: Callable[..., Iterable[Any]]  # device → its rows, each with why it does not run there, or None
try:
    from regard.fast import install, on_this_machine
except ImportError:
    install, on_this_machine = as_written, lambda device: ()
