"""A user's own code, `./mine.py:MyCell` or `my.package:MyCell`, wherever a system is named.

Naming a file runs it, as `python mine.py` would, and stores its path and SHA-256 in the cache. Code that a run, a
recipe or a comparison names is run only if exactly this content was named before (`require_trusted`), so opening a
stranger's folder runs nothing. A `Code` holds the file's bytes; these are hashed, checked and run. Files that it
imports are not checked. Nothing here imports torch.
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

from regard.base.cache import cache_folder
from regard.base.errors import RegardError
from regard.base.settings import did_you_mean

NAMED = "own-code.txt"  # in the cache: a line `sha256  path` for each version of a file that was named
MAX_CODE = 1 << 24  # bytes of a file of code
_named_here: set[str] = set()  # the same lines for this process: the cache may not be writable
_in_use: dict[str, Code] = {}  # by full name, what this process named or opened last, even if the file has changed
_loaded: dict[tuple[Path, str], ModuleType] = {}  # a changed file is another module


def is_own(name: str) -> bool:
    """True if the name is a user's code, not a registered system."""
    return ":" in name or name.endswith(".py")


@dataclass(frozen=True)
class Code:
    """A user's class, its file and the file's bytes; not yet run."""

    name: str  # as in recipes: /home/me/mine.py:MyCell, or my.package:MyCell
    file: Path
    label: str  # the class's name
    source: bytes = field(repr=False)
    neighbours: Path  # the folder that it may import from

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.source).hexdigest()

    @property
    def is_file(self) -> bool:
        return self.name.rpartition(":")[0].endswith(".py")


def locate(name: str) -> Code:
    """Finds and reads the file of a name; runs nothing."""
    place, _, label = name.rpartition(":")
    if not place or not label or label.endswith(".py"):
        raise RegardError(
            f"{name!r} does not name a class: write {name.removesuffix(':')}:MyCell with the name of your class."
        )
    if any(unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp") for character in name):
        raise RegardError(f"{name!r} contains a control character, so it is not a valid file name.")
    if place.endswith(".py"):
        file = _resolved(Path(place).expanduser())
        if not file.is_file():
            raise RegardError(f"There is no file {place} (looked for {file}); check the spelling and the folder.")
        return Code(f"{file}:{label}", file, label, read_code(file), file.parent)
    if "/" in place or "\\" in place:
        raise RegardError(f"{place} is not a Python file: write ./mine.py:MyCell, or my.package:MyCell for a module.")
    file = _module_file(place)
    return Code(name, file, label, read_code(file), Path.cwd())


def _resolved(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError) as error:  # circular links
        raise RegardError(f"{path} cannot be found ({error}); check the file.") from None


def read_code(file: Path) -> bytes:
    try:
        if file.stat().st_size > MAX_CODE:
            raise RegardError(f"{file} is larger than {MAX_CODE >> 20} MiB, too large for a code file: check it.")
        return file.read_bytes()
    except OSError as error:
        raise RegardError(f"{file} cannot be read ({error.strerror}); check the file.") from None


# -- trust -----------------------------------------------------------------------------------------------------------


def trust_code(name: str) -> Code:
    """The user names this code: the file's current content may run, in this process and later."""
    code = locate(name)
    line = _line(code.digest, code.file)
    if line not in _named():
        with suppress(OSError):  # without a writable cache it must be named in each process
            cache_folder().mkdir(parents=True, exist_ok=True)
            with open(cache_folder() / NAMED, "a", encoding="utf-8", opener=_for_its_owner) as stream:
                stream.write(f"{line}\n")
    _named_here.add(line)
    return register(code)


def was_named(digest: str, file: Path) -> bool:
    """True if this user has named this file with this content before."""
    line = _line(digest, file)
    return line in _named_here or line in _named()


def require_trusted(code: Code, where: str | Path = "This") -> Code:
    """Refuses code that `where` (a run, a recipe, a comparison) names, unless the user has named this content."""
    if not was_named(code.digest, code.file):
        raise RegardError(
            f"{where} would run {code.file}, but its current version has not been approved on this machine: read "
            f"it, and if you trust it, run `regard laws {code.name}` and try again."
        )
    return register(code)


def trust_copy(copy: Code, original: Path) -> Code:
    """A run's copy of code that was named as `original`: the same bytes; it imports from the original's folder."""
    _named_here.add(_line(copy.digest, copy.file))
    return register(Code(copy.name, copy.file, copy.label, copy.source, original.parent))


def register(code: Code) -> Code:
    _in_use[code.name] = code
    return code


def in_use(name: str) -> Code:
    """The code that this process uses under that name, even if the file has changed; else the file's."""
    return _in_use.get(name) or locate(name)


def named_here() -> list[str]:
    """The lines of named code to pass to a child process, which gives them to `named_before`."""
    return sorted(_line(code.digest, code.file) for code in _in_use.values() if was_named(code.digest, code.file))


def named_before(lines: Iterable[str]) -> None:
    _named_here.update(lines)


def _line(digest: str, file: Path) -> str:
    return f"{digest}  {file}"


def _named() -> set[str]:
    try:
        with open(cache_folder() / NAMED, encoding="utf-8", opener=_for_its_owner) as stream:
            return set(stream.read().splitlines())
    except (OSError, UnicodeDecodeError):
        return set()


def _for_its_owner(path: str, flags: int) -> int:
    """Opens a file that nobody else may read or write, whatever the umask is or was."""
    descriptor = os.open(path, flags, 0o600)
    if hasattr(os, "fchmod"):
        with suppress(OSError):  # a file of another user, or a read-only cache
            os.fchmod(descriptor, 0o600)
    return descriptor


# -- running it ------------------------------------------------------------------------------------------------------


def run_code(code: Code) -> ModuleType:
    """Runs the code, once per content, and returns the module. Nothing else runs a user's code."""
    require_trusted(code)
    module = _loaded.get((code.file, code.digest)) or (_run(code) if code.is_file else _import(code))
    _loaded[code.file, code.digest] = module
    return module


def load(code: Code) -> tuple[ModuleType, Any]:
    """Runs the code and returns the module and the class that it names."""
    module = run_code(code)
    classes = [name for name, value in vars(module).items() if isinstance(value, type) and _is_from(value, module)]
    if not isinstance(getattr(module, code.label, None), type):
        if not classes:
            raise RegardError(f"{code.file.name} has no class {code.label}, nor any other class.")
        raise RegardError(f"{code.file.name} has no class {code.label}{did_you_mean(code.label, classes)}")
    return module, getattr(module, code.label)


def _is_from(kind: type, module: ModuleType) -> bool:
    return kind.__module__ == module.__name__


def _run(code: Code) -> ModuleType:
    add_to_path(code.neighbours)
    module = ModuleType(f"own_{code.file.stem}_{code.digest[:12]}")
    module.__file__ = str(code.file)
    sys.modules[module.__name__] = module  # dataclasses look up their module there
    linecache.checkcache(module.__file__)
    try:
        exec(compile(code.source, module.__file__, "exec"), module.__dict__)
    except (Exception, SystemExit) as error:
        del sys.modules[module.__name__]
        raise RegardError(_import_failed(code, error)) from None
    return module


def _import(code: Code) -> ModuleType:
    add_to_path(code.neighbours)
    if sys.modules.get(code.name.rpartition(":")[0]) in _loaded.values():  # an older version of the same file
        del sys.modules[code.name.rpartition(":")[0]]
    try:
        with _these_bytes(code) as name:
            return importlib.import_module(name)
    except (Exception, SystemExit) as error:
        raise RegardError(_import_failed(code, error)) from None


@contextmanager
def _these_bytes(code: Code) -> Iterator[str]:
    """While active, importing the module uses the checked bytes, not the file or a .pyc."""
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


def add_to_path(folder: Path) -> None:
    """Lets a file import modules of its folder; last on the path, so that none of them hides an installed package.

    Never a run's folder: its code is only a record, and its other files may be a stranger's.
    """
    if str(folder) not in sys.path and not (folder / "run.json").exists():
        sys.path.append(str(folder))


def _module_file(name: str) -> Path:
    """The source file of a module, found without running its parents' __init__."""
    path: Any = [*sys.path, str(Path.cwd())]
    origin = None
    for depth, part in enumerate(parts := name.split("."), start=1):
        try:
            spec = PathFinder.find_spec(".".join(parts[:depth]), path) if part and path else None
        except KeyError:  # a folder without __init__.py below a package that is not loaded
            path, origin = [folder for each in path if os.path.isdir(folder := os.path.join(each, part))], None
            continue
        if spec is None:
            hint = f"; for a file, write ./{name}.py:…" if Path(f"{name}.py").exists() else ""
            raise RegardError(f"There is no module {name} on Python's path or in {Path.cwd()}{hint}.")
        path, origin = spec.submodule_search_locations and list(spec.submodule_search_locations), spec.origin
    if origin is None or not origin.endswith(".py"):
        raise RegardError(f"The module {name} has no source file to take a class from.")
    file = Path(os.path.abspath(origin))
    root = file.parents[len(parts) - (file.name != "__init__.py")]
    if _resolved(root) / file.relative_to(root) != _resolved(file):  # its packages would be another folder's
        raise RegardError(f"The module {name} is reached through a link: name its file, as in ./mine.py:MyCell.")
    return _resolved(file)


# -- crashes ---------------------------------------------------------------------------------------------------------


class Crashed(Exception):
    """A crash of a user's code in another process, with the sentence that `crash` gave there."""

    def __init__(self, said: str, where: str) -> None:
        super().__init__(said)
        self.where = where


def crash(error: BaseException) -> str:
    """A sentence with the error and its line in the user's file; empty if it happened elsewhere."""
    if isinstance(error, Crashed):
        return error.where
    files = {str(file): file.name for file, _ in _loaded}
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename in files]
    if not frames:
        return ""
    last = frames[-1]
    return f"{_said(error)} on line {last.lineno} of {files[last.filename]}{_quoted(last.line)}."


def _import_failed(code: Code, error: BaseException) -> str:
    if isinstance(error, SyntaxError) and error.filename == str(code.file):
        return f"{code.file.name} is not valid Python: {error.msg} on line {error.lineno}{_quoted(error.text)}."
    frames = [f for f in traceback.extract_tb(error.__traceback__) if os.path.realpath(f.filename) == str(code.file)]
    line = f" on line {frames[-1].lineno}{_quoted(frames[-1].line)}" if frames else ""
    return f"{code.file.name} cannot be imported: {_said(error)}{line}."


def _said(error: BaseException) -> str:
    first = next(iter(str(error).splitlines()), "").rstrip(".")
    return type(error).__name__ + (f": {first}" if first else "")


def _quoted(line: str | None) -> str:
    return f" ({' '.join(line.split())})" if line and line.strip() else ""
