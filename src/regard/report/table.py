"""Tables for a terminal (rich), a pipe (plain columns), a program (JSON), a spreadsheet (CSV) and a paper (LaTeX)."""

from __future__ import annotations

import csv
import io
import json
import math
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from regard.base.numbers import group_digits
from regard.report.screen import for_stdout, harmless


def print_json(value: Any) -> None:
    """JSON on stdout; numbers JSON cannot hold (infinity, not-a-number) become null."""
    print(for_stdout(json.dumps(finite(value), ensure_ascii=False, indent=2)))


def print_table(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str], title: str = "") -> None:
    """`columns`: key of a row → heading. Numbers are right-aligned, text is left-aligned."""
    if sys.stdout.isatty():
        _rich_table(rows, columns, title)
        return
    print(plain_table(rows, columns, title))


def plain_table(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str], title: str = "") -> str:
    """The table as lines of text, columns under each other."""
    cells = [[*columns.values()], *([text(row.get(key)) for key in columns] for row in rows)]
    widths = [max(len(row[c]) for row in cells) for c in range(len(columns))]
    right = [is_numeric(rows, key) for key in columns]
    lines = [
        "  ".join(cell.rjust(w) if r else cell.ljust(w) for cell, w, r in zip(row, widths, right)).rstrip()
        for row in cells
    ]
    return "\n".join([harmless(title), *lines] if title else lines)


def csv_text(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> str:
    """Comma-separated values with full precision, the keys as headings; missing and non-finite values stay empty."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        values = (finite(row.get(key)) for key in columns)
        writer.writerow(["" if value is None else value for value in values])
    return file.getvalue()


def latex_text(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str], caption: str) -> str:
    """A table for a paper that loads the booktabs package."""
    right = [is_numeric(rows, key) for key in columns]
    cells = [[_latex(value) for value in columns.values()]]
    cells += [[_latex(text(row.get(key))) for key in columns] for row in rows]
    head, *body = ["    " + " & ".join(line) + r" \\" for line in cells]
    return "\n".join(
        [
            r"\begin{table}",
            r"  \centering",
            rf"  \caption{{{_latex(caption)}}}",
            rf"  \begin{{tabular}}{{{''.join('r' if r else 'l' for r in right)}}}",
            r"    \toprule",
            head,
            r"    \midrule",
            *body,
            r"    \bottomrule",
            r"  \end{tabular}",
            r"\end{table}",
            "",
        ]
    )


NUMBERS = re.compile(r"[\d.,\s–−]*\d( to −?[\d.]+)?( [A-Za-z]+| %)?")
LATEX = {
    "\\": r"\textbackslash{}",
    **{sign: "\\" + sign for sign in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "–": "--",
    "−": "$-$",
    "±": r"$\pm$",
    "∞": r"$\infty$",
    "≈": r"$\approx$",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
}


def _latex(words: str) -> str:
    """Text as LaTeX."""
    return "".join(LATEX.get(sign, sign) for sign in words)


def _rich_table(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str], title: str) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(
        title=Text(harmless(title)) if title else None, title_justify="left", box=SIMPLE_HEAD, title_style="bold"
    )
    for key, column in columns.items():
        table.add_column(column, justify="right" if is_numeric(rows, key) else "left")
    for row in rows:
        table.add_row(*(Text(text(row.get(key))) for key in columns))
    Console().print(table)


def text(value: Any) -> str:
    """A cell: – for nothing, groups of three digits for large integers, four significant digits for other numbers."""
    if value is None or value == "":
        return "–"
    if isinstance(value, (bool, str)):
        return harmless(str(value))
    if isinstance(value, int):
        return group_digits(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            return "∞" if value > 0 else "–"
        if abs(value) >= 10_000:
            return group_digits(value)
        return f"{value:.4g}" if abs(value) < 1000 else f"{value:.1f}"
    return str(value)


def significant(value: float) -> str:
    """Four significant digits, including zeros: 5.300, 264.0, 1349; all digits before the point of a larger number."""
    return f"{value:#.4g}".rstrip(".") if abs(value) < 9999.5 else group_digits(value)


def seconds(value: float) -> str:
    """Hundredths of short times, tenths of longer ones: 0.02, 9.81, 192.9."""
    return f"{value:.2f}" if value < 9.995 else f"{value:.1f}"


def is_numeric(rows: Sequence[Mapping[str, Any]], key: str) -> bool:
    """True if the column holds numbers, or numbers as text: 3.50, 3.41 – 3.58, −0.2 to 0.1, 254 MiB."""
    values = [row.get(key) for row in rows if row.get(key) is not None]
    return bool(values) and all(
        bool(NUMBERS.fullmatch(v)) if isinstance(v, str) else isinstance(v, (int, float)) and not isinstance(v, bool)
        for v in values
    )


def finite(value: Any) -> Any:
    """The same with null in place of infinity and not-a-number, which JSON cannot hold."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {key: finite(v) for key, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(v) for v in value]
    return value
