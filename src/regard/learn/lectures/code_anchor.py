"""A place in Regard's code, named by its file and the text of one line; its number is looked up when it is shown.

If several lines have this text, the function is also named: Dot.compare.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from regard.base.errors import RegardError

SOURCE = Path(__file__).parents[2]  # the package regard, installed or in its repository
MARGIN = 4  # lines that are shown before and after an anchor


@dataclass(frozen=True)
class Anchor:
    file: str  # within the package, as in layers/recurrent.py
    text: str  # the text of exactly one line of it
    within: str = ""  # or of this function

    @property
    def line(self) -> int:
        """The number of the line, from 1."""
        lines = _lines(self.file)
        inside = _functions(self.file).get(self.within, range(0)) if self.within else range(1, len(lines) + 1)
        places = [number for number in inside if self.text in lines[number - 1]]
        if len(places) != 1:
            raise RegardError(
                f"{len(places) or 'No'} lines of regard/{self.file} contain {self.text!r} where one was expected: "
                "the page of the lecture and the code do not belong to the same version of Regard."
            )
        return places[0]

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}"

    def around(self) -> list[tuple[int, str]]:
        """The line and some around it, with their numbers; of a function its statements, not its head or docstring."""
        lines, line = _lines(self.file), self.line
        body = _body(self.file, line)
        shown = range(max(body.start, line - MARGIN), min(body.stop, line + MARGIN + 1))
        while len(shown) > 1 and not lines[shown[-1] - 1].strip():
            shown = shown[:-1]
        return [(number, lines[number - 1]) for number in shown]


def source_of(file: str, name: str) -> tuple[int, str]:
    """The first line and the text of a function or class, such as Block.norm, of a file of the package."""
    inside = _functions(file)[name]
    return inside.start, "\n".join(_lines(file)[number - 1] for number in inside)


@cache
def _lines(file: str) -> list[str]:
    path = SOURCE / file
    if not path.is_file():
        raise RegardError(f"regard/{file} does not exist: the lecture page belongs to a different version of Regard.")
    return path.read_text(encoding="utf-8").splitlines()


def _body(file: str, line: int) -> range:
    """The lines of the innermost function's statements around a line; outside of functions, those of the file."""
    lines = _lines(file)
    inside = range(1, len(lines) + 1)
    for node in ast.walk(ast.parse("\n".join(lines))):
        if isinstance(node, ast.FunctionDef) and node.lineno <= line <= (node.end_lineno or node.lineno):
            first = node.body[1] if ast.get_docstring(node) and len(node.body) > 1 else node.body[0]
            if first.lineno <= line and first.lineno >= inside.start:
                inside = range(first.lineno, (node.end_lineno or node.lineno) + 1)
    return inside


@cache
def _functions(file: str) -> dict[str, range]:
    """The lines of each function by its name, of a method by its class's, too."""
    functions: dict[str, range] = {}

    def walk(node: ast.AST, name: str) -> None:
        for part in ast.iter_child_nodes(node):
            if isinstance(part, ast.FunctionDef | ast.ClassDef):
                functions[name + part.name] = range(part.lineno, (part.end_lineno or part.lineno) + 1)
                walk(part, f"{name}{part.name}.")

    walk(ast.parse("\n".join(_lines(file))), "")
    return functions
