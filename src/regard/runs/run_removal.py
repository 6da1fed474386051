"""A run renamed or removed: never one that is being trained, never through a link, never a file that is not ours."""

from __future__ import annotations

import os
import sys
from contextlib import AbstractContextManager, nullcontext
from fnmatch import fnmatch
from pathlib import Path

from regard.base.errors import RegardError
from regard.base.files import is_partial, locked
from regard.runs.facts import BEGINNING, CHECKPOINT, REPORT_MARK, WEIGHTS, read_facts
from regard.runs.run_list import is_run

OWN_FILES = {
    "recipe.toml", "tokenizer.json", "tokenizer.source.json", WEIGHTS, CHECKPOINT, "metrics.jsonl", "result.json",
    "mlflow.json", BEGINNING, ".lock",
}  # fmt: skip
OWN_FOLDERS = {  # and what the names of their files are like
    "kept": "*.safetensors",
    "tensorboard": "events.out.tfevents.*",
    "__pycache__": "*.pyc",
}


def check_run(folder: Path) -> None:
    """Refuse what is not itself the folder of a run."""
    if folder.is_symlink():
        raise RegardError(f"{folder} is a link: name the folder {os.path.realpath(folder)} itself.")
    if not folder.is_dir():
        raise RegardError(f"There is no run {folder}; `regard runs` lists those in the folder runs.")
    if not is_run(folder):
        raise RegardError(f"{folder} is not a run, so it is left as it is.")


def rename_run(folder: Path, name: str) -> Path:
    """Give a run another name in the folder in which it lies."""
    check_run(folder)
    if not name or name != Path(name).name or name.startswith(".") or not name.isprintable() or "\\" in name:
        raise RegardError(f"{name!r} is not a name: give one without folders; the run stays in {folder.parent}.")
    if (folder.parent / "comparison.json").is_file():
        raise RegardError(f"{folder} is a run of the comparison {folder.parent}, which finds it by its name.")
    new = folder.resolve().parent / name
    if os.path.lexists(new):
        raise RegardError(f"{folder.parent / name} exists already: choose another name.")
    with _held(folder):
        os.rename(folder, new)
    return folder.parent / name


def remove_run(folder: Path) -> list[Path]:
    """Remove what Regard wrote into a run, and its folder if nothing else lies there; what was left alone.

    run.json goes last: a removal that is killed can be made again.
    """
    check_run(folder)
    with _held(folder):
        own = OWN_FILES | _own_names(folder)
        left: list[Path] = []
        for path in sorted(folder.iterdir()):
            if path.name in OWN_FOLDERS and path.is_dir() and not path.is_symlink():
                left += _remove_inside(path, OWN_FOLDERS[path.name])
            elif path.name in own or is_partial(path.name):
                if path.name != ".lock" and (path.is_symlink() or path.is_file()):
                    path.unlink()
            elif path.name != "run.json":
                left.append(path)
        (folder / "run.json").unlink(missing_ok=True)
        (folder / ".lock").unlink(missing_ok=True)
    if not left:
        folder.rmdir()
    return left


def _own_names(folder: Path) -> set[str]:
    """The page and the copied code of a run, if they are what Regard wrote there."""
    found = set()
    report = folder / "report.html"
    if report.is_file() and REPORT_MARK in report.read_text(encoding="utf-8", errors="replace"):
        found.add(report.name)
    try:
        code = read_facts(folder).get("code")
    except RegardError:
        code = None
    if isinstance(code, dict) and str(code.get("file", "")).endswith(".py"):
        found.add(Path(str(code["file"])).name)
    return found


def _remove_inside(folder: Path, pattern: str) -> list[Path]:
    left = []
    for path in sorted(folder.iterdir()):
        if (fnmatch(path.name, pattern) or is_partial(path.name)) and (path.is_symlink() or path.is_file()):
            path.unlink()
        else:
            left.append(path)
    if not left:
        folder.rmdir()
    return left


def _held(folder: Path) -> AbstractContextManager[None]:
    """The run, held so that no training begins in it."""
    if sys.platform == "win32":  # there an open file keeps its folder from being moved or removed
        with locked(folder / ".lock"):
            return nullcontext()
    return locked(folder / ".lock")
