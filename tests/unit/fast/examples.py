"""What a row of the table is tried with."""

from __future__ import annotations

from typing import Any, NamedTuple

from regard.fast.table import Use


class Example(NamedTuple):
    thing: Any  # the module or object whose method the row stands in for
    arguments: tuple[Any, ...]  # of a call that fits
    use: Use = Use()
    refused: tuple[tuple[Any, ...], ...] = ()  # arguments of calls that must run as written
