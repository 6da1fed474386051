"""One table, three readers: a terminal (rich), a pipe (plain columns), a program (JSON)."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any


def print_json(value: Any) -> None:
    """JSON on stdout; numbers JSON cannot hold (infinity, not-a-number) become null."""
    print(json.dumps(_finite(value), ensure_ascii=False, indent=2))


def print_table(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str], title: str = "") -> None:
    """`columns`: key of a row → heading. Numbers stand right, text stands left."""
    if sys.stdout.isatty():
        _rich_table(rows, columns, title)
        return
    if title:
        print(title)
    cells = [[*columns.values()], *([text(row.get(key)) for key in columns] for row in rows)]
    widths = [max(len(row[c]) for row in cells) for c in range(len(columns))]
    right = [_numeric(rows, key) for key in columns]
    for row in cells:
        line = "  ".join(cell.rjust(w) if r else cell.ljust(w) for cell, w, r in zip(row, widths, right))
        print(line.rstrip())


def _rich_table(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str], title: str) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title or None, title_justify="left", box=SIMPLE_HEAD, title_style="bold")
    for key, heading in columns.items():
        table.add_column(heading, justify="right" if _numeric(rows, key) else "left")
    for row in rows:
        table.add_row(*(Text(text(row.get(key))) for key in columns))
    Console().print(table)


def text(value: Any) -> str:
    """A cell: – for nothing, thin groups for large whole numbers, four significant digits for the rest."""
    if value is None or value == "":
        return "–"
    if isinstance(value, (bool, str)):
        return str(value)
    if isinstance(value, int):
        return f"{value:,}".replace(",", " ") if abs(value) >= 10_000 else str(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            return "∞" if value > 0 else "–"
        if abs(value) >= 10_000:
            return f"{value:,.0f}".replace(",", " ")
        return f"{value:.4g}" if abs(value) < 1000 else f"{value:.1f}"
    return str(value)


def _numeric(rows: Sequence[Mapping[str, Any]], key: str) -> bool:
    values = [row.get(key) for row in rows if row.get(key) is not None]
    return bool(values) and all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in values)


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {key: _finite(v) for key, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(v) for v in value]
    return value
