"""The digest of measuring code: a module, all that it imports, recursively, and their data files.

When any of it changes, results are measured again. `report` is left out: it only prints.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import regard

HOME = Path(regard.__file__).parent
NAMED = re.compile(r"regard(?:\.\w+)+\.?")  # in a string: "regard.systems.gpt:GPT", or f"regard.fast.{name}"
PRINTING = ("regard.report",)


@cache
def digest(*modules: str) -> str:
    seen = hashlib.sha256()
    for file in sorted(files_of(modules)):
        seen.update(file.relative_to(HOME).as_posix().encode() + b"\0" + file.read_bytes())
    return seen.hexdigest()[:16]


def files_of(modules: tuple[str, ...]) -> set[Path]:
    """The source files of these modules and of all they import, with the non-Python files next to them."""
    files: set[Path] = set()
    waiting = [path for module in modules for path in source(module)]
    while waiting:
        path = waiting.pop()
        if path not in files:
            files.add(path)
            waiting += [more for name in imported(path) for more in source(name)]
    beside = {file for path in files for file in path.parent.iterdir() if file.is_file() and file.suffix != ".py"}
    return files | beside


def source(name: str) -> Iterator[Path]:
    """A module's file, or a package's __init__.py; for a name that ends in a dot (an f-string), all files below it."""
    if name.startswith(PRINTING):
        return
    path = HOME.joinpath(*name.rstrip(".").split(".")[1:])
    if path.with_suffix(".py").is_file():
        yield path.with_suffix(".py")
    elif (path / "__init__.py").is_file():
        yield from path.rglob("*.py") if name.endswith(".") else [path / "__init__.py"]


@cache
def imported(path: Path) -> tuple[str, ...]:
    names: list[str] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and "\n" not in node.value:
            names += NAMED.findall(node.value)
    return tuple(name for name in names if name.startswith("regard."))
