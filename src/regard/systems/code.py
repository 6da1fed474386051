"""Code of one's own: `./mine.py:MyCell`, or `my.package:MyCell`, wherever a system is named.

Naming a file is running it, as `python mine.py` would. What was named here is remembered by path and SHA-256 in the
cache. `load` is the one gate: whatever a run, a recipe or a comparison names is run only if it is that very code, so
that opening a folder from a stranger runs nothing. A `Code` holds the bytes it was located with, and these are what is
hashed, asked about and run. Files it imports in turn are not looked at. Nothing here imports torch.
"""

from __future__ import annotations

import hashlib
import importlib
import linecache
import os
import sys
import traceback
import unicodedata
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from regard.base.errors import RegardError
from regard.base.settings import meant
from regard.corpora.fetch import cache_folder

NAMED = "own-code.txt"  # in the cache: `sha256  path`, a line for each version of a file that was named here
_named_here: set[str] = set()  # the same lines, of this process: there may be no cache to write to
_in_use: dict[str, Code] = {}  # by its full name, what this process named or opened last, whatever the file holds now
_loaded: dict[tuple[Path, str], ModuleType] = {}  # a file that changes is another module


def is_own(name: str) -> bool:
    """Does this name code, rather than a registered system?"""
    return ":" in name or name.endswith(".py")


@dataclass(frozen=True)
class Code:
    """A class of one's own, where it stands, and the file's bytes; not yet run."""

    name: str  # as recipes keep it: /home/me/mine.py:MyCell, or my.package:MyCell
    file: Path
    label: str  # the class's name
    source: bytes = field(repr=False)
    neighbours: Path  # the folder it may import from

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.source).hexdigest()

    @property
    def is_file(self) -> bool:
        return self.name.rpartition(":")[0].endswith(".py")


def locate(name: str) -> Code:
    """The file that a name means, read once; nothing of it is run."""
    place, _, label = name.rpartition(":")
    if not place or not label or label.endswith(".py"):
        raise RegardError(f"{name!r} names no class: write {name.removesuffix(':')}:MyCell with the name of yours.")
    if any(unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp") for character in name):
        raise RegardError(f"{name!r} holds a control character, and so names no file of code.")
    if place.endswith(".py"):
        file = _resolved(Path(place).expanduser())
        if not file.is_file():
            raise RegardError(f"There is no file {place} (looked for {file}); check the spelling and the folder.")
        return Code(f"{file}:{label}", file, label, _read(file), file.parent)
    if "/" in place or "\\" in place:
        raise RegardError(f"{place} is not a Python file: write ./mine.py:MyCell, or my.package:MyCell for a module.")
    file = _module_file(place)
    return Code(name, file, label, _read(file), Path.cwd())


def _resolved(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError) as error:  # links that lead to themselves
        raise RegardError(f"{path} cannot be found ({error}); check the file.") from None


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise RegardError(f"{file} cannot be read ({error.strerror}); check the file.") from None


# -- the gate --------------------------------------------------------------------------------------------------------


def name_code(name: str) -> Code:
    """The user names this code, here and now: what its file holds at this moment may run, in this process and later."""
    code = locate(name)
    line = _line(code.digest, code.file)
    if line not in _named():
        with suppress(OSError):  # with no cache to write to, it must be named in each process
            cache_folder().mkdir(parents=True, exist_ok=True)
            with open(cache_folder() / NAMED, "a", encoding="utf-8") as stream:
                stream.write(f"{line}\n")
    _named_here.add(line)
    return use(code)


def was_named(digest: str, file: Path) -> bool:
    """Has this user named this file, with this content, before?"""
    line = _line(digest, file)
    return line in _named_here or line in _named()


def admit(code: Code, where: str | Path = "This") -> Code:
    """Refuse the code that `where`, a run, a recipe or a comparison, names, unless that very code was named here."""
    if not was_named(code.digest, code.file):
        raise RegardError(
            f"{where} would run {code.file}, and that file as it is now was never named on this machine: read it, and "
            f"if you trust it, run `regard laws {code.name}` and try again."
        )
    return use(code)


def admit_copy(copy: Code, original: Path) -> Code:
    """A run's copy of code that was named here as `original`: the same bytes, with the original's neighbours."""
    _named_here.add(_line(copy.digest, copy.file))
    return use(Code(copy.name, copy.file, copy.label, copy.source, original.parent))


def use(code: Code) -> Code:
    _in_use[code.name] = code
    return code


def in_use(name: str) -> Code:
    """The code this process took under that name, whatever its file holds now; else what the file holds."""
    return _in_use.get(name) or locate(name)


def named_here() -> list[str]:
    """What a process that works for this one is told to take as named: `named_before` takes it there."""
    return sorted(_line(code.digest, code.file) for code in _in_use.values() if was_named(code.digest, code.file))


def named_before(lines: Iterable[str]) -> None:
    _named_here.update(lines)


def _line(digest: str, file: Path) -> str:
    return f"{digest}  {file}"


def _named() -> set[str]:
    try:
        return set((cache_folder() / NAMED).read_text(encoding="utf-8").splitlines())
    except (OSError, UnicodeDecodeError):
        return set()


# -- running it ------------------------------------------------------------------------------------------------------


def load(code: Code) -> tuple[ModuleType, Any]:
    """Run the code, once for each content, and take the class from it. Nothing else runs code of one's own."""
    admit(code)
    module = _loaded.get((code.file, code.digest)) or (_run(code) if code.is_file else _import(code))
    _loaded[code.file, code.digest] = module
    classes = [name for name, value in vars(module).items() if isinstance(value, type) and _is_from(value, module)]
    if not isinstance(getattr(module, code.label, None), type):
        if not classes:
            raise RegardError(f"{code.file.name} has no class {code.label}, nor any other.")
        raise RegardError(f"{code.file.name} has no class {code.label}{meant(code.label, classes)}")
    return module, getattr(module, code.label)


def _is_from(kind: type, module: ModuleType) -> bool:
    return kind.__module__ == module.__name__


def _run(code: Code) -> ModuleType:
    reach(code.neighbours)
    module = ModuleType(f"own_{code.file.stem}_{code.digest[:12]}")
    module.__file__ = str(code.file)
    sys.modules[module.__name__] = module  # dataclasses look their module up there
    linecache.checkcache(module.__file__)
    try:
        exec(compile(code.source, module.__file__, "exec"), module.__dict__)
    except (Exception, SystemExit) as error:
        del sys.modules[module.__name__]
        raise RegardError(_import_failed(code, error)) from None
    return module


def _import(code: Code) -> ModuleType:
    reach(code.neighbours)
    if sys.modules.get(code.name.rpartition(":")[0]) in _loaded.values():  # an older content of the same file
        del sys.modules[code.name.rpartition(":")[0]]
    try:
        with _these_bytes(code) as name:
            return importlib.import_module(name)
    except (Exception, SystemExit) as error:
        raise RegardError(_import_failed(code, error)) from None


@contextmanager
def _these_bytes(code: Code) -> Iterator[str]:
    """While a module is imported, by whomever, it is made of the bytes that were asked about, not of a file or .pyc."""
    module = code.name.rpartition(":")[0]

    class Given(SourceFileLoader):
        def get_code(self, fullname: str) -> CodeType:
            return compile(code.source, str(code.file), "exec")

    class Finder:
        @staticmethod
        def find_spec(fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
            given = Given(fullname, str(code.file))
            return spec_from_file_location(fullname, code.file, loader=given) if fullname == module else None

    finder: Any = Finder()
    sys.meta_path.insert(0, finder)
    try:
        yield module
    finally:
        sys.meta_path.remove(finder)


def reach(folder: Path) -> None:
    """Let a file import its neighbours; last in the list, so that none of them hides an installed package.

    Never a run's folder: code in it is there as a record, and what else lies there may be a stranger's.
    """
    if str(folder) not in sys.path and not (folder / "run.json").exists():
        sys.path.append(str(folder))


def _module_file(name: str) -> Path:
    """Where a module's source lies, found without running even its parents' __init__."""
    path: Any = [*sys.path, str(Path.cwd())]
    origin = None
    for depth, part in enumerate(parts := name.split("."), start=1):
        try:
            spec = PathFinder.find_spec(".".join(parts[:depth]), path) if part and path else None
        except KeyError:  # a folder without __init__.py below a package that is not loaded
            path, origin = [folder for each in path if os.path.isdir(folder := os.path.join(each, part))], None
            continue
        if spec is None:
            hint = f"; for a file write ./{name}.py:…" if Path(f"{name}.py").exists() else ""
            raise RegardError(f"There is no module {name} on Python's path or in {Path.cwd()}{hint}.")
        path, origin = spec.submodule_search_locations and list(spec.submodule_search_locations), spec.origin
    if origin is None or not origin.endswith(".py"):
        raise RegardError(f"The module {name} has no source file to take a class from.")
    return _resolved(Path(origin))


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
