"""Locks between processes: on a folder, and on the name of a file or folder that is about to be made."""

from __future__ import annotations

import errno
import os
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from regard.base.errors import RegardError
from regard.base.reading import PLAIN
from regard.base.writing import hidden_name, not_saved, open_own_file, remove_partial_files, write_text


class Locked(RegardError):
    """Another process holds a lock."""


@contextmanager
def try_lock(path: Path) -> Iterator[None]:
    """Hold `path` as a lock, which the system lets go however the process ends; refused while another holds it."""
    tries = 0
    while True:
        with open(open_own_file(path, os.O_RDWR), "r+b") as handle:
            try:
                _take(handle)
            except OSError:
                tries += 1
                if tries < 5:  # `is_locked` of another process takes it for a moment
                    time.sleep(0.02)
                    continue
                raise Locked(f"Another process is using {path.parent}; wait for it to finish.") from None
            if not same_file(handle, path):  # the previous holder deleted the lock file: try again
                continue
            yield
            return


def is_locked(path: Path) -> bool:
    """True if a process holds this lock now. No lock file is created if there is none."""
    try:
        descriptor = os.open(path, (os.O_RDWR if os.access(path, os.W_OK) else os.O_RDONLY) | PLAIN)
    except OSError:
        return False
    with open(descriptor, "rb") as handle:
        try:
            _take(handle, shared=True)  # two that ask at the same time do not see each other
        except OSError as error:
            return error.errno in (errno.EAGAIN, errno.EACCES, errno.EDEADLK)
    return False


def _take(handle: BinaryIO, shared: bool = False) -> None:
    """Take the lock at once, or raise OSError. `shared`: beside others that ask for it so, where the system can."""
    if sys.platform == "win32":
        import msvcrt

        msvcrt.locking(handle.fileno(), msvcrt.LK_NBLCK, 1)
    else:
        import fcntl

        fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)


def same_file(handle: BinaryIO, path: Path) -> bool:
    """True if `path` still names the open file; False if it was removed or replaced."""
    try:
        return os.path.samestat(os.fstat(handle.fileno()), os.stat(path))
    except FileNotFoundError:
        return False


@contextmanager
def exclusive_name(path: Path) -> Iterator[None]:
    """Hold the name of a file or folder that is to be made, so that of two processes one makes it, and remove what a
    killed one left of it."""
    name_lock = hidden_name(path, "lock")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise not_saved(path, error) from error
    with try_lock(name_lock):
        try:
            remove_partial_files(path.parent, of=path.name)
            yield
        finally:
            with suppress(OSError):  # on systems where open files cannot be removed
                if name_lock.stat().st_size == 0:
                    name_lock.unlink()


@contextmanager
def lock(path: Path) -> Iterator[None]:
    """`try_lock`, but while another process holds it, wait."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with ExitStack() as held:
        while True:
            try:
                held.enter_context(try_lock(path))
                break
            except Locked:
                time.sleep(0.2)
        yield


def write_new(path: Path, text: str) -> None:
    """A file that a user named; one that is there stays."""
    with exclusive_name(path):
        write_text(path, text, new=True)
