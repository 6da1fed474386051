"""Rename or remove a run: never during training, never through a link, and never a file that Regard did not write."""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path

from regard.base.errors import RegardError
from regard.base.locks import try_lock
from regard.base.reading import MAX_JSON_BYTES, read_whole
from regard.base.writing import is_partial
from regard.runs.store.facts import ANCESTORS, BEGINNING, BEGUN, CHECKPOINT, WEIGHTS, is_report, read_facts
from regard.runs.store.gallery import check_own
from regard.runs.store.list import is_run

OWN_FILES = {
    "run.json", "recipe.toml", "tokenizer.json", "tokenizer.source.json", WEIGHTS, CHECKPOINT, ANCESTORS,
    "metrics.jsonl", "result.json", "mlflow.json", BEGINNING, ".lock",
}  # fmt: skip
LAST = (BEGINNING, "run.json", ".lock")
OWN_FOLDERS = {  # and the pattern of their files' names
    "kept": r"[0-9]+\.safetensors",
    "snapshots": r"[0-9]+\.safetensors",
    "tensorboard": r"events\.out\.tfevents\..*",
    "__pycache__": r".*\.pyc",
}


def check_run(folder: Path) -> None:
    """Refuse a path that is not the folder of the user's own run."""
    check_own(folder)
    if folder.is_symlink():
        raise RegardError(f"{folder} is a symbolic link: name the folder {os.path.realpath(folder)} itself.")
    if not folder.is_dir():
        raise RegardError(f"There is no run {folder}; `regard runs` lists those in the folder runs.")
    if not is_run(folder):
        raise RegardError(f"{folder} is not a run, so it is left unchanged.")
    if not _is_ours(folder):
        raise RegardError(
            f"{folder} contains files that have the names of run files but were not written by Regard, so it is "
            "left unchanged."
        )


def _is_ours(folder: Path) -> bool:
    """True if Regard wrote run.json or, if that is damaged or missing, the recipe or the mark of a start."""
    with suppress(RegardError):
        return isinstance(read_facts(folder).get("recipe"), dict)
    if (folder / "run.json").is_file():
        with suppress(RegardError, ValueError, RecursionError):
            facts = json.loads(read_whole(folder / "run.json", MAX_JSON_BYTES))
            if not isinstance(facts, dict) or not {"format", "regard"} <= facts.keys():
                return False  # complete, but not written by Regard
    with suppress(RegardError):
        if read_whole(folder / BEGINNING, MAX_JSON_BYTES).decode("utf-8", "replace") == BEGUN:
            return True
    from regard.runs.recipe import read_recipe
    from regard.systems.catalogue import SYSTEMS
    from regard.systems.own.code import is_own

    with suppress(RegardError):
        tree = read_recipe(folder / "recipe.toml")
        known = is_own(tree["system"]) or tree["system"] in [system.name for system in SYSTEMS]
        return known and {"data", "training"} <= tree.keys()
    return False


def rename_run(folder: Path, name: str) -> Path:
    """Rename a run within its parent folder."""
    check_run(folder)
    if not name or name != Path(name).name or name.startswith(".") or not name.isprintable() or "\\" in name:
        raise RegardError(
            f"{name!r} is not a valid name: give a name without folders; the run stays in {folder.parent}."
        )
    if (folder.parent / "comparison.json").is_file():
        raise RegardError(
            f"{folder} is a run of the comparison {folder.parent}, which finds it by its name: do not rename it."
        )
    new = folder.resolve().parent / name
    if os.path.lexists(new):
        raise RegardError(f"{folder.parent / name} already exists: choose another name.")
    with _held(folder):
        os.rename(folder, new)
    return folder.parent / name


def check_removable(folder: Path) -> None:
    """Refuse a folder that is neither a run nor the remains of an interrupted removal (a folder that contains only the
    lock).
    """
    if (
        folder.is_symlink()
        or not folder.is_dir()
        or any(path.name != ".lock" or path.lstat().st_size for path in folder.iterdir())
    ):
        check_run(folder)


def remove_run(folder: Path) -> list[Path]:
    """Remove the files that Regard wrote into a run, and its folder if it is then empty; returns the names that were
    kept.

    The files that mark it as a run are removed last, so an interrupted removal can be repeated.
    """
    check_removable(folder)
    with _held(folder):
        own = OWN_FILES | _own_names(folder)
        left: list[Path] = []
        for path in sorted(folder.iterdir()):
            if path.name in OWN_FOLDERS and path.is_dir() and not path.is_symlink():
                left += _remove_inside(path, OWN_FOLDERS[path.name])
            elif path.name in own or is_partial(path.name):
                if path.name not in LAST and (path.is_symlink() or path.is_file()):
                    path.unlink()
            else:
                left.append(path)
        for name in LAST:
            (folder / name).unlink(missing_ok=True)
    if not left:
        folder.resolve().rmdir()  # "." cannot be removed by that name
    return left


def _own_names(folder: Path) -> set[str]:
    """The report and the copied code of a run, if Regard wrote them."""
    from regard.systems.own.code import read_code

    found = set()
    report = folder / "report.html"
    if report.is_file() and is_report(report):
        found.add(report.name)
    with suppress(RegardError):
        code = read_facts(folder).get("code")
        if isinstance(code, dict) and str(code.get("file", "")).endswith(".py"):
            copy = folder / Path(str(code["file"])).name
            if copy.is_file() and hashlib.sha256(read_code(copy)).hexdigest() == code.get("sha256"):
                found.add(copy.name)
    return found


def _remove_inside(folder: Path, pattern: str) -> list[Path]:
    left = []
    for path in sorted(folder.iterdir()):
        if (re.fullmatch(pattern, path.name) or is_partial(path.name)) and (path.is_symlink() or path.is_file()):
            path.unlink()
        else:
            left.append(path)
    if not left:
        folder.rmdir()
    return left


def _held(folder: Path) -> AbstractContextManager[None]:
    """The run, locked so that no training starts in it."""
    if sys.platform == "win32":  # there, a folder with an open file cannot be moved or removed
        with try_lock(folder / ".lock"):
            return nullcontext()
    return try_lock(folder / ".lock")
