"""Writing files and folders: complete or not at all, and never over something of another."""

from __future__ import annotations

import errno
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from regard.base.errors import RegardError


@contextmanager
def atomic_write(path: Path, *, new: bool = False) -> Iterator[Path]:
    """A path beside `path` to write to; it takes the place of `path` only once it is complete and on the disk.

    `new`: fail if `path` exists, even if it was created while we were writing. A link is replaced, never written
    through.
    """
    temporary = hidden_name(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        with open(temporary, "rb+") as handle:
            os.fsync(handle.fileno())
        rename_new(temporary, path) if new else os.replace(temporary, path)
    except OSError as error:
        raise not_saved(path, error) from error
    finally:
        with suppress(OSError):  # nothing to remove is as good
            temporary.unlink()


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """A new folder beside `path` to write into; it gets that name only once everything in it is on the disk, and never
    takes the place of another."""
    temporary = hidden_name(path)
    try:
        temporary.mkdir(parents=True)
        yield temporary
        for file in filter(Path.is_file, temporary.rglob("*")):
            with open(file, "rb+") as handle:
                os.fsync(handle.fileno())
        if os.path.lexists(path):
            raise RegardError(f"{path} already exists and was not changed: choose another name.")
        temporary.rename(path)
    except OSError as error:
        reason = "the disk is full" if error.errno == errno.ENOSPC else error.strerror or str(error)
        raise RegardError(
            f"The folder {str(path)!r} was not written ({reason}); its partial files were removed."
        ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def not_saved(path: Path, error: OSError) -> RegardError:
    kept = "the previous contents are unchanged" if path.exists() else "nothing was written"
    if error.errno == errno.ENOSPC:
        return RegardError(f"The disk is full, so {str(path)!r} was not saved; {kept}: free some space.")
    return RegardError(f"{str(path)!r} could not be saved ({error.strerror or error}); {kept}: check the folder.")


def hidden_name(path: Path, end: str = "") -> Path:
    """A hidden name beside `path`; without `end` one of its own, so that two writers never mix."""
    if not path.name:  # "." and "/"
        raise RegardError(f"{str(path)!r} is a folder: add a file name.")
    return path.with_name(f".{path.name}.{end or f'{secrets.token_hex(4)}.part'}")


def rename_new(made: Path, path: Path) -> None:
    """Rename a file that is complete, but never over another."""
    try:
        try:
            os.link(made, path)
        except FileExistsError:
            raise
        except OSError:  # a file system without hard links
            with open(path, "xb"):
                pass
            os.replace(made, path)
        else:
            made.unlink()
    except FileExistsError:
        raise RegardError(f"{path} already exists and was not changed: choose another name.") from None


def remove_partial_files(folder: Path, of: str | None = None) -> None:
    """Remove the files that a killed `atomic_write` left in a folder whose lock this process holds.

    `of`: only the partial files and folders of this name, those of `atomic_folder` included.
    """
    for left in folder.iterdir():
        if is_partial(left.name, of):
            if left.is_file() or left.is_symlink():
                left.unlink()
            elif of is not None:
                shutil.rmtree(left)


def is_partial(name: str, of: str | None = None) -> bool:
    """True for the name of a file that `atomic_write` has not finished. `of`: of the file with this name."""
    return re.fullmatch(rf"\.{'.+' if of is None else re.escape(of)}\.[0-9a-f]{{8}}\.part", name) is not None


@contextmanager
def writing(path: Path) -> Iterator[BinaryIO]:
    """A binary file that appears under its name only once it is complete."""
    with atomic_write(path) as temporary, open(temporary, "x+b") as stream:
        yield stream


def open_own_file(path: Path, flags: int) -> int:
    """A descriptor of a plain file in a run's folder, made if need be; a link out of it is not followed."""
    try:
        descriptor = os.open(
            path, flags | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0), 0o666
        )
    except OSError as error:
        if path.is_symlink() or (path.exists() and not path.is_file()):
            raise RegardError(
                f"{path} is not a regular file, so Regard does not write to it: remove it or choose another name."
            ) from None
        raise RegardError(f"{str(path)!r} could not be opened ({error.strerror}); check the folder.") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise RegardError(
            f"{path} is not a regular file, so Regard does not write to it: remove it or choose another name."
        )
    return descriptor


def append_line(path: Path, line: str) -> None:
    try:
        with open(open_own_file(path, os.O_WRONLY | os.O_APPEND), "a", encoding="utf-8") as stream:
            stream.write(line + "\n")
    except OSError as error:
        raise not_saved(path, error) from error


def write_text(path: Path, text: str, *, new: bool = False) -> None:
    with atomic_write(path, new=new) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="")
