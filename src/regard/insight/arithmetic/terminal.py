"""A `WorkedExample` in the terminal: each line with its letters, and below it with its numbers."""

from __future__ import annotations

import shutil
import sys
from io import StringIO

from rich.cells import cell_len
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from regard.insight.arithmetic.equation import NARROW, Equation, WorkedExample
from regard.report.figures import isolated
from regard.report.terminal import NARROWEST, WIDEST

INDENT = 4  # of a line with numbers


def show_work(work: WorkedExample, *, width: int | None = None) -> str:
    """All equations, no wider than `width`, by default the terminal's width, or 80 in a pipe or a file."""
    seen = sys.stdout.isatty()
    width = width or (min(WIDEST, shutil.get_terminal_size().columns) if seen else 80)
    page = Console(
        file=StringIO(),
        width=max(NARROWEST, width),
        force_terminal=seen,
        highlight=False,
        emoji=False,
        markup=False,
    )
    page.print(Text(_heading(work)))
    for section in work.sections:
        page.print()
        page.print(Text(section.title, style="bold"))
        if section.about:
            page.print(Padding(Text(section.about, style="dim"), (0, 0, 0, 2)))
        formula = ""
        for line in section.lines:
            if line.formula != formula:
                page.print(Padding(Text(line.formula, style="italic"), (0, 0, 0, 2)))
            formula = line.formula
            page.print(_numbers(line, page.width))
    assert isinstance(page.file, StringIO)
    return "\n".join(row.rstrip() for row in page.file.getvalue().splitlines())


def _heading(work: WorkedExample) -> str:
    said = work.system
    if work.layer:
        head = f" --head {work.head}" if work.layers[work.layer] > 1 else ""
        said += f", {work.title[:1].lower() + work.title[1:]} (--layer {work.layer}{head})"
    said += f", step {work.step}: reads {isolated(work.read)}"
    return said + (f", predicts {isolated(work.then)}" if work.then else "")


def _numbers(line: Equation, width: int) -> Text:
    """name = numbers, broken between terms, each further row a little to the right."""
    name = f"{' ' * INDENT}{isolated(line.name)}"
    rows = [f"{name} ="]
    for piece in line.written.split(" "):
        if cell_len(rows[-1]) + 1 + cell_len(piece) > width:
            rows.append(" " * (INDENT + 3))
        rows[-1] += f" {piece}"
    words = Text("\n".join(rows).replace(NARROW, " "))
    words.stylize("bold", 0, len(name))
    return words
