"""Locks of run folders: check that a folder is free, lock it against other processes, clean it after a kill."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

from regard.base.errors import RegardError
from regard.base.locks import try_lock
from regard.base.writing import is_partial, remove_partial_files, write_text
from regard.runs.recipe import Recipe
from regard.runs.store.facts import ANCESTORS, BEGINNING, BEGUN
from regard.systems.catalogue import find
from regard.training.checkpointing import SNAPSHOTS, weights_in

OWN_FILES = {
    "recipe.toml",
    "tokenizer.json",
    "tokenizer.source.json",
    "model.safetensors",
    "training.safetensors",
    ANCESTORS,
}


def check_free(folder: Path) -> None:
    """A new run needs a folder that does not exist, is empty, or was left by a training killed at its start."""
    if (folder / "run.json").exists():
        raise RegardError(f"{folder} already exists: `regard resume {folder}` continues it, or choose another --run.")
    if not os.path.lexists(folder):
        return
    if not folder.is_dir():
        raise RegardError(f"{folder} already exists and is not a run: choose another --run.")
    if any(not name.endswith(".py") or not was_begun(folder) for name in others_files(folder, OWN_FILES)):
        raise RegardError(f"{folder} already exists and is not a run: choose another --run.")


def others_files(folder: Path, own: Collection[str]) -> set[str]:
    """The names in a folder that were not left by a killed start; `own` are the names that a start creates."""
    left = {path.name for path in folder.iterdir()} - {".lock"}
    if was_begun(folder):
        left = {name for name in left if name not in own and name != BEGINNING and not is_partial(name)}
    return {name for name in left if not is_partial(name, BEGINNING)}


def begin(folder: Path) -> None:
    """Mark a locked folder as one in which a training is starting, and remove unfinished files of a killed start."""
    remove_partial_files(folder)
    if not was_begun(folder):
        write_text(folder / BEGINNING, BEGUN, new=True)


def was_begun(folder: Path) -> bool:
    """True if a training was killed here before it created a run. (A user's file of that name has other contents.)"""
    path = folder / BEGINNING
    try:
        plain = not path.is_symlink() and path.is_file() and path.stat().st_size == len(BEGUN.encode())
        return plain and path.read_bytes() == BEGUN.encode()
    except OSError:
        return False


def check_encodable(folder: Path) -> None:
    try:
        str(folder).encode()
    except UnicodeEncodeError:
        raise RegardError(
            f"{str(folder)!r} is not a UTF-8 name, which the weights file requires: choose another --run."
        ) from None


@contextmanager
def new_folder(recipe: Recipe, folder: Path | None) -> Iterator[Path]:
    """The requested folder, if it is free, or runs/SYSTEM-CORPUS, numbered if that exists. It is locked until the work
    in it is done, and checked under the lock, so two trainings cannot use the same folder.
    """
    corpus = "".join(filter(str.isprintable, Path(recipe.data.corpus).stem))[:100]
    default = Path("runs") / f"{find(recipe.system).label}-{corpus}"
    if folder is not None:
        check_encodable(folder)
        check_free(folder)
    with free_folder(default) if folder is None else nullcontext(folder) as chosen, claimed(chosen):
        check_free(chosen)
        begin(chosen)
        try:
            yield chosen
        except BaseException:
            if {path.name for path in chosen.iterdir()} == {".lock", BEGINNING}:  # nothing was begun
                (chosen / BEGINNING).unlink()
            raise


@contextmanager
def free_folder(wanted: Path) -> Iterator[Path]:
    """A new folder: `wanted`, or the first of wanted-2, wanted-3, … that does not exist; removed if it stays empty."""
    free, number, made = wanted, 1, not wanted.parent.exists()
    try:
        wanted.parent.mkdir(parents=True, exist_ok=True)
        while True:
            with suppress(FileExistsError):
                free.mkdir()  # only one of several processes creates it
                break
            number += 1
            free = wanted.with_name(f"{wanted.name}-{number}")
    except OSError as error:
        raise RegardError(f"Cannot create the folder {free} ({error.strerror}); choose another --run.") from None
    try:
        yield free
    except BaseException:
        with suppress(OSError):  # it is not empty
            free.rmdir()
            if made:
                wanted.parent.rmdir()
        raise


@contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """The folder, created if necessary, and locked until the work in it is done; a new folder that stays empty is
    removed.
    """
    made = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RegardError(f"Cannot create the folder {folder} ({error.strerror}); choose another --run.") from None
    with try_lock(folder / ".lock"):
        try:
            yield
        except BaseException:
            if [path.name for path in folder.iterdir()] == [".lock"]:
                with suppress(OSError):  # on systems where open files cannot be removed
                    (folder / ".lock").unlink()
                    if made:
                        folder.rmdir()
            raise


def tidy(folder: Path) -> None:
    """Remove the files that an interrupted save left in a locked run."""
    remove_partial_files(folder)
    for name in ("kept", SNAPSHOTS):
        weights_in(folder / name)  # refuses a link
        if (folder / name).is_dir():
            remove_partial_files(folder / name)
    (folder / BEGINNING).unlink(missing_ok=True)
