"""Code of one's own: `./mine.py:MyCell`, or `my.package:MyCell`, wherever a system is named.

Naming a file is running it, as `python mine.py` would. What was named here is remembered by path and SHA-256 in the
cache: a run or a recipe that names code has it run only if it is that very code, so that opening a folder from a
stranger runs nothing. Files it imports in turn are not looked at. Nothing here imports torch.
"""

from __future__ import annotations

import hashlib
import importlib
import linecache
import os
import sys
import traceback
from contextlib import suppress
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

from regard.errors import RegardError
from regard.settings import meant
from regard.text.fetch import cache_folder

NAMED = "own-code.txt"  # in the cache: `sha256  path`, a line for each version of a file that was named here
_loaded: dict[tuple[Path, str], ModuleType] = {}  # a file that changes is another module


def is_own(name: str) -> bool:
    """Does this name code, rather than a registered system?"""
    return ":" in name or name.endswith(".py")


@dataclass(frozen=True)
class Code:
    """A class of one's own and where it stands, not yet run."""

    name: str  # as recipes keep it: /home/me/mine.py:MyCell, or my.package:MyCell
    file: Path
    label: str  # the class's name

    @property
    def source(self) -> bytes:
        try:
            return self.file.read_bytes()
        except OSError as error:
            raise RegardError(f"{self.file} cannot be read ({error.strerror}); check the file.") from None

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.source).hexdigest()

    @property
    def is_file(self) -> bool:
        return self.name.rpartition(":")[0].endswith(".py")


def locate(name: str) -> Code:
    """The file that a name means; nothing of it is run."""
    place, _, label = name.rpartition(":")
    if not place or not label or label.endswith(".py"):
        raise RegardError(f"{name} names no class: write {name.removesuffix(':')}:MyCell with the name of yours.")
    if place.endswith(".py"):
        file = Path(place).expanduser().resolve()
        if not file.is_file():
            raise RegardError(f"There is no file {place} (looked for {file}); check the spelling and the folder.")
        return Code(f"{file}:{label}", file, label)
    if "/" in place or "\\" in place:
        raise RegardError(f"{place} is not a Python file: write ./mine.py:MyCell, or my.package:MyCell for a module.")
    return Code(name, _module_file(place), label)


def load(code: Code) -> tuple[ModuleType, Any]:
    """Run the file, once for each content, and take the class from it."""
    module = _run(code) if code.is_file else _import(code)
    _remember(code)
    classes = [name for name, value in vars(module).items() if isinstance(value, type) and _is_from(value, module)]
    if not isinstance(getattr(module, code.label, None), type):
        if not classes:
            raise RegardError(f"{code.file.name} has no class {code.label}, nor any other.")
        raise RegardError(f"{code.file.name} has no class {code.label}{meant(code.label, classes)}")
    return module, getattr(module, code.label)


def _is_from(kind: type, module: ModuleType) -> bool:
    return kind.__module__ == module.__name__


def _run(code: Code) -> ModuleType:
    source = code.source
    digest = hashlib.sha256(source).hexdigest()
    if (code.file, digest) in _loaded:
        return _loaded[code.file, digest]
    reach(code.file.parent)
    module = ModuleType(f"own_{code.file.stem}_{digest[:12]}")
    module.__file__ = str(code.file)
    sys.modules[module.__name__] = module  # dataclasses look their module up there
    linecache.checkcache(module.__file__)
    try:
        exec(compile(source, module.__file__, "exec"), module.__dict__)  # these very bytes, not a stale .pyc
    except (Exception, SystemExit) as error:
        del sys.modules[module.__name__]
        raise RegardError(_import_failed(code, error)) from None
    _loaded[code.file, digest] = module
    return module


def _import(code: Code) -> ModuleType:
    reach(Path.cwd())
    try:
        module = importlib.import_module(code.name.rpartition(":")[0])
    except (Exception, SystemExit) as error:
        raise RegardError(_import_failed(code, error)) from None
    _loaded.setdefault((code.file, ""), module)
    return module


def reach(folder: Path) -> None:
    """Let a file import its neighbours; last in the list, so that none of them hides an installed package."""
    if str(folder) not in sys.path:
        sys.path.append(str(folder))


def _module_file(name: str) -> Path:
    """Where a module's source lies, found without running even its parents' __init__."""
    reach(Path.cwd())
    spec: ModuleSpec | None = None
    path: Any = None
    for depth, _ in enumerate(parts := name.split("."), start=1):
        try:
            spec = PathFinder.find_spec(".".join(parts[:depth]), path)
        except (KeyError, ValueError):  # below a namespace package, whose place is known only once it is imported
            raise RegardError(f"{name} lies in a namespace package: name its file, as in ./mine.py:MyCell.") from None
        if spec is None:
            hint = f"; for a file write ./{name}.py:…" if Path(f"{name}.py").exists() else ""
            raise RegardError(f"There is no module {name} on Python's path or in {Path.cwd()}{hint}.")
        path = spec.submodule_search_locations
    if spec is None or not spec.has_location or spec.origin is None:
        raise RegardError(f"The module {name} has no source file to take a class from.")
    return Path(spec.origin).resolve()


# -- what was named here ---------------------------------------------------------------------------------------------


def was_named(digest: str, file: Path) -> bool:
    """Has this user named this file, with this content, before?"""
    return f"{digest}  {file}" in _named()


def _named() -> set[str]:
    try:
        return set((cache_folder() / NAMED).read_text(encoding="utf-8").splitlines())
    except (OSError, UnicodeDecodeError):
        return set()


def _remember(code: Code) -> None:
    with suppress(OSError):  # with no cache to write to, a run must be vouched for each time
        if not was_named(digest := code.digest, code.file):
            cache_folder().mkdir(parents=True, exist_ok=True)
            with open(cache_folder() / NAMED, "a", encoding="utf-8") as stream:
                stream.write(f"{digest}  {code.file}\n")


def vouch(code: Code, where: str | Path) -> None:
    """Refuse the code that `where`, a run or a recipe, names, unless that very code was named here before."""
    if not was_named(code.digest, code.file):
        raise RegardError(
            f"{where} would run {code.file}, and that file as it is now was never named on this machine: read it, and "
            f"if you trust it, run `regard laws {code.name}` and try again."
        )


# -- whose fault -----------------------------------------------------------------------------------------------------


def crash(error: BaseException) -> str:
    """What went wrong in which line of the user's own file, in a sentence; empty if it went wrong elsewhere."""
    files = {str(file): file.name for file, _ in _loaded}
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename in files]
    if not frames:
        return ""
    last = frames[-1]
    return f"{_said(error)} in line {last.lineno} of {files[last.filename]}{_quoted(last.line)}."


def _import_failed(code: Code, error: BaseException) -> str:
    if isinstance(error, SyntaxError) and error.filename == str(code.file):
        return f"{code.file.name} is not valid Python: {error.msg} in line {error.lineno}{_quoted(error.text)}."
    frames = [f for f in traceback.extract_tb(error.__traceback__) if os.path.realpath(f.filename) == str(code.file)]
    line = f" in line {frames[-1].lineno}{_quoted(frames[-1].line)}" if frames else ""
    return f"{code.file.name} cannot be imported: {_said(error)}{line}."


def _said(error: BaseException) -> str:
    first = next(iter(str(error).splitlines()), "").rstrip(".")
    return type(error).__name__ + (f": {first}" if first else "")


def _quoted(line: str | None) -> str:
    return f" ({' '.join(line.split())})" if line and line.strip() else ""
