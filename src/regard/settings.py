"""How a setting is declared and checked: a field with one line of documentation, and errors that name its key."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import field
from typing import Any

from regard.errors import RegardError


def setting(default: Any, doc: str) -> Any:
    """A dataclass field that carries its documentation into `--print-recipe`."""
    return field(default=default, metadata={"doc": doc})


def one_of(key: str, value: str, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise RegardError(f"{key} must be one of {', '.join(allowed)}, not {value!r}.")


def at_least(key: str, value: float, least: float) -> None:
    if not value >= least:
        raise RegardError(f"{key} must be at least {least}, not {value}.")
    if value >= 2**31:
        raise RegardError(f"{key} must be below 2 147 483 648, not {value}.")


def meant(word: str, known: Sequence[str]) -> str:
    """`: did you mean X?` where something close is known, else what there is."""
    by_letters = {name.lower(): name for name in known}  # LSTM is lstm
    near = difflib.get_close_matches(word.lower(), by_letters, n=1, cutoff=0.6)
    return f": did you mean {by_letters[near[0]]}?" if near else f" (there are {', '.join(known)})."
