"""The hook `install(thing)` by which trainers and engines accept faster methods without importing `regard.fast`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Install = Callable[..., Any]  # swaps methods of a model or an object for faster ones; keywords say what it is used for


def as_written(thing: Any, **use: Any) -> None:
    """Install nothing."""
