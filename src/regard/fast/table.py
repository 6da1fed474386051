"""The table of fast replacements, and `install`, which puts them into a model.

A row names the written method it replaces, the conditions, and the code that runs instead. `install(model)` goes over
the modules of a model (or over a trainer or an engine) and swaps the methods that have a row. A subclass, or any
setting, shape or device that no row fits, runs as written.

    needs(device)              None, or why this machine cannot run it                        checked once
    allows(thing, use)         None, or why this module's settings rule it out                checked by `install`
    fits(thing, *arguments)    True if shapes, precision and mode of this call fit             checked at every call
    does(thing, *arguments)    the replacement
    makes(thing)               instead of `does`, if it has state: builds the replacement for this object
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import MethodType
from typing import Any

import torch
from torch import nn

Why = str | None  # the reason why not, in a sentence; None = no objection
# The modules of this package that have ROWS; if two rows replace one method, the earlier is tried first.
MODULES = (
    "training.cpu_dropout",
    "attention.causal_attention",
    "attention.short_blocks",
    "attention.fused_block",
    "attention.language_blocks",
    "recurrence.cpu_recurrence",
    "recurrence.recurrent_layers",
    "recurrence.minimal_gru",
    "recurrence.attentive_recurrence",
    "counting.gram_table",
    "decoding.choose_token",
    "decoding.lean_step",
    "decoding.decode_step",
    "decoding.recorded_writer",
    "decoding.beam_step",
    "training.linear_cross_entropy",
    "recurrence.table_lookup",
    "training.captured_step",
    "training.compiled",
)


@dataclass(frozen=True)
class Use:
    """The planned use of a model."""

    training: bool = False
    bf16: bool = False  # training under autocast
    captured: bool = False  # a CUDA graph will replay its training step
    pairs: bool = False  # it is trained on sentence pairs, whose batches have many shapes
    compile: str = "auto"  # training.compile


@dataclass(frozen=True)
class Row:
    name: str
    stands_in_for: str  # "regard.layers.recurrent:LSTM.forward": the written method, whose result it must equal
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
        """The class whose method it replaces."""
        module, _, name = self.stands_in_for.rpartition(".")[0].partition(":")
        found: type = getattr(import_module(module), name)
        return found


@cache
def rows() -> tuple[Row, ...]:
    return tuple(row for name in MODULES for row in import_module(f"regard.fast.{name}").ROWS)


_left_out: set[str] = set()  # names of rows that `install` passes over
_noted: set[str] | None = None  # names of rows that ran, while someone notes them


@contextmanager
def without(*names: str) -> Iterator[None]:
    """Leaves these rows out of every `install` in this context; `regard bench fast-rows` measures their gain."""
    before = set(_left_out)
    _left_out.update(names)
    try:
        yield
    finally:
        _left_out.intersection_update(before)


@contextmanager
def noting() -> Iterator[set[str]]:
    """Records the names of rows that run, for everything installed in this context."""
    global _noted
    found: set[str] = set()
    _noted = found
    try:
        yield found
    finally:
        _noted = None


def install(thing: Any, use: Use | None = None, *, device: torch.device | None = None, **fields: Any) -> list[Row]:
    """Swap the methods of a model's modules, or of a plain object, for faster ones; return the rows now in use.
    Instead of a `Use`, its fields may be given."""
    uninstall(thing)
    use = use or Use(**fields)
    device = device or _device_of(thing)
    used: list[Row] = []
    for part in parts(thing):
        for method, able in _able(part, use, device).items():
            made = {row.name: row.makes(part) for row in able if row.makes is not None}
            ways = [(row, _unbound(made[row.name]) if row.name in made else row.does) for row in able]
            if _noted is not None:
                ways = [(row, _noting(row.name, does, _noted)) for row, does in ways]
            part.__dict__[method] = MethodType(_either(getattr(type(part), method), ways, made), part)
            used += [row for row in able if row not in used]
    return used


def _device_of(thing: Any) -> torch.device:
    """Where it computes. A plain object must say so: one that does not would run as written on a GPU, unnoticed."""
    if isinstance(thing, nn.Module) and not hasattr(thing, "device"):
        return next((weight.device for weight in thing.parameters()), torch.device("cpu"))
    found: torch.device = thing.device
    return found


def uninstall(thing: Any) -> None:
    """Restore the written methods."""
    for part in parts(thing):
        for name in [name for name, value in vars(part).items() if is_swapped(value)]:
            del part.__dict__[name]


@contextmanager
def as_written(*things: Any) -> Iterator[None]:
    """In this context, the written methods run."""
    held = [
        (part.__dict__, {name: value for name, value in vars(part).items() if is_swapped(value)})
        for thing in things
        for part in parts(thing)
    ]
    for attributes, swapped in held:
        for name in swapped:
            del attributes[name]
    try:
        yield
    finally:
        for attributes, swapped in held:
            attributes.update(swapped)


def installed(thing: Any, row: Row) -> bool:
    """True if this row replaces its method in this object."""
    return row in getattr(getattr(thing, row.method, None), "rows", ())


def is_swapped(method: Any) -> bool:
    return hasattr(getattr(method, "__func__", None), "rows")


def parts(thing: Any) -> Iterable[Any]:
    return thing.modules() if isinstance(thing, nn.Module) else (thing,)


def _able(part: Any, use: Use, device: torch.device) -> dict[str, list[Row]]:
    """For each method, the rows that may replace it. Exact class only: a subclass may compute something else."""
    found: dict[str, list[Row]] = {}
    for row in rows():
        if row.owner is not type(part) or row.name in _left_out:
            continue
        if row.needs(device) is None and row.allows(part, use) is None:
            found.setdefault(row.method, []).append(row)
    return found


def _either(written: Callable[..., Any], ways: list[tuple[Row, Any]], made: dict[str, Any]) -> Callable[..., Any]:
    """Calls the first row that fits, else the written method. It is bound to the module, so copies keep it."""

    def call(self: Any, *arguments: Any, **options: Any) -> Any:
        for row, does in ways:
            if row.fits(self, *arguments, **options):
                return does(self, *arguments, **options)
        return written(self, *arguments, **options)

    call.rows, call.made = tuple(row for row, _ in ways), made  # type: ignore[attr-defined]
    return call


def _unbound(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, *arguments, **options: function(*arguments, **options)


def _noting(name: str, does: Any, found: set[str]) -> Callable[..., Any]:
    def call(*arguments: Any, **options: Any) -> Any:
        found.add(name)
        return does(*arguments, **options)

    return call


# -- device checks ---------------------------------------------------------------------------------------------------


def needs_cuda(device: torch.device) -> Why:
    return None if device.type == "cuda" else "it needs a CUDA device"


@cache
def has_triton() -> bool:
    return find_spec("triton") is not None


def needs_triton(device: torch.device) -> Why:
    return needs_cuda(device) or (None if has_triton() else "it needs Triton")


def needs_hopper(device: torch.device) -> Why:
    if why := needs_cuda(device):
        return why
    return None if torch.cuda.get_device_capability(device) >= (9, 0) else "it needs a GPU of compute capability 9.0"


def needs_cpu(device: torch.device) -> Why:
    return None if device.type == "cpu" else "it runs only on a CPU"


def on_this_machine(device: torch.device) -> Iterator[tuple[Row, Why]]:
    """Every row with None, or the reason why it cannot run here; `regard doctor` prints this."""
    for row in rows():
        yield row, row.needs(device)
