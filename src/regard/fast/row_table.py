"""The table of faster code, and the one way in which it is put to use.

A row says which written method it stands in for, where and when it may, and what runs instead. `install(model)` goes
over a model (or over the trainer's and the engines' own objects) and swaps the methods that a row knows. What no row
fits runs as written: a subclass, another setting, another shape, another device.

    needs(device)              why this machine cannot, in a sentence; None = it can          asked once
    allows(thing, use)         why this module cannot, by its settings; None = it can         asked by `install`
    fits(thing, *arguments)    may this call? by shapes, precision and mode                   asked at every call
    does(thing, *arguments)    what the written method does, faster
    makes(thing)               instead of `does`, where it keeps something: the function for this very object
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import MethodType
from typing import Any

import torch
from torch import nn

Why = str | None  # a sentence that says why not; None = nothing speaks against it
# The modules of this package that have ROWS; of two rows for one method the earlier is asked first.
MODULES = (
    "cpu_dropout",
    "causal_attention",
    "short_attention",
    "short_blocks",
    "fused_block",
    "recurrence",
    "attentive_recurrence",
    "gram_table",
    "choose_token",
    "lean_step",
    "decode_step",
    "recorded_writer",
    "beam_step",
    "linear_cross_entropy",
    "captured_step",
    "compiled",
)


@dataclass(frozen=True)
class Use:
    """What a model is about to be used for."""

    training: bool = False
    bf16: bool = False  # training under autocast
    captured: bool = False  # its training step will be replayed by a CUDA graph
    compile: str = "auto"  # training.compile


@dataclass(frozen=True)
class Row:
    name: str
    stands_in_for: str  # "regard.layers.recurrent:LSTM.forward": the written method, which it must equal
    does: Callable[..., Any] | None = None
    fits: Callable[..., bool] = field(default=lambda *arguments, **options: True)
    allows: Callable[[Any, Use], Why] = field(default=lambda thing, use: None)
    needs: Callable[[torch.device], Why] = field(default=lambda device: None)
    makes: Callable[[Any], Callable[..., Any]] | None = None

    @property
    def method(self) -> str:
        return self.stands_in_for.rpartition(".")[2]

    @property
    def owner(self) -> type:
        """The class whose method it stands in for."""
        module, _, name = self.stands_in_for.rpartition(".")[0].partition(":")
        found: type = getattr(import_module(module), name)
        return found


@cache
def rows() -> tuple[Row, ...]:
    return tuple(row for name in MODULES for row in import_module(f"regard.fast.{name}").ROWS)


def install(thing: Any, use: Use | None = None, *, device: torch.device | None = None, **fields: Any) -> list[Row]:
    """Swap the methods of a model's modules, or of a plain object, for faster ones; the rows that are now in use.
    The use may be given by its fields."""
    uninstall(thing)
    use = use or Use(**fields)
    device = device or getattr(thing, "device", None) or torch.device("cpu")
    used: list[Row] = []
    for part in parts(thing):
        for method, able in _able(part, use, device).items():
            made = {row.name: row.makes(part) for row in able if row.makes is not None}
            ways = [(row, _unbound(made[row.name]) if row.name in made else row.does) for row in able]
            part.__dict__[method] = MethodType(_either(getattr(type(part), method), ways, made), part)
            used += [row for row in able if row not in used]
    return used


def uninstall(thing: Any) -> None:
    """Everything as written again."""
    for part in parts(thing):
        for name in [name for name, value in vars(part).items() if is_swapped(value)]:
            del part.__dict__[name]


def installed(thing: Any, row: Row) -> bool:
    """Does this row stand in for that method of this very thing?"""
    return row in getattr(getattr(thing, row.method, None), "rows", ())


def is_swapped(method: Any) -> bool:
    return hasattr(getattr(method, "__func__", None), "rows")


def parts(thing: Any) -> Iterable[Any]:
    return thing.modules() if isinstance(thing, nn.Module) else (thing,)


def _able(part: Any, use: Use, device: torch.device) -> dict[str, list[Row]]:
    """By method, the rows that may stand in. Only of the very class: a subclass may mean something else."""
    found: dict[str, list[Row]] = {}
    for row in rows():
        if row.owner is type(part) and row.needs(device) is None and row.allows(part, use) is None:
            found.setdefault(row.method, []).append(row)
    return found


def _either(written: Callable[..., Any], ways: list[tuple[Row, Any]], made: dict[str, Any]) -> Callable[..., Any]:
    """The first row that fits the call, else the written method; bound, so that it follows a module into copies."""

    def call(self: Any, *arguments: Any, **options: Any) -> Any:
        for row, does in ways:
            if row.fits(self, *arguments, **options):
                return does(self, *arguments, **options)
        return written(self, *arguments, **options)

    call.rows, call.made = tuple(row for row, _ in ways), made  # type: ignore[attr-defined]
    return call


def _unbound(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, *arguments, **options: function(*arguments, **options)


# -- what machines offer ---------------------------------------------------------------------------------------------


def needs_cuda(device: torch.device) -> Why:
    return None if device.type == "cuda" else "it needs a CUDA device"


def needs_triton(device: torch.device) -> Why:
    return needs_cuda(device) or (None if find_spec("triton") else "it needs Triton")


def needs_hopper(device: torch.device) -> Why:
    if why := needs_cuda(device):
        return why
    return None if torch.cuda.get_device_capability(device) >= (9, 0) else "it needs a GPU of compute capability 9.0"


def needs_cpu(device: torch.device) -> Why:
    return None if device.type == "cpu" else "it is for the CPU"


def on_this_machine(device: torch.device) -> Iterator[tuple[Row, Why]]:
    """Every row, and why it does not run here, if it does not: what `regard doctor` prints."""
    for row in rows():
        yield row, row.needs(device)
