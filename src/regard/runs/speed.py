"""The only access to `regard.fast`. Without that package, everything uses the reference implementation."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from regard.base.errors import RegardError
from regard.base.install import Install, as_written
from regard.base.settings import check_choice
from regard.systems.model import Model

install: Install
on_this_machine: Callable[..., Iterable[Any]]  # device → its optimizations, each with why it cannot run, or None
get_ready: Callable[..., None]  # initializes a device, for a model with these settings, in parallel with other work
try:
    from regard.fast import get_ready, install, on_this_machine
except ImportError:
    install, on_this_machine, get_ready = as_written, lambda device: (), lambda device, settings=None: None


PRECISIONS = ("fp32", "bf16", "int8")


def set_precision(model: Model, precision: str) -> None:
    """Change a loaded model to this precision; `int8`: 8-bit weights, on a CPU."""
    check_choice("--precision", precision, PRECISIONS)
    if precision == "bf16":
        model.bfloat16()
    elif precision == "int8":
        try:
            from regard.fast.decoding.eight_bit import use_eight_bits
        except ImportError:
            raise RegardError("--precision int8 needs the package regard.fast, which is not installed.") from None
        use_eight_bits(model)


def recordable(model: Model) -> bool:
    """True if a GPU can record its training step for each shape of a batch of pairs."""
    try:
        from regard.fast.training import captured_step
    except ImportError:
        return False
    return captured_step.recordable(model)
