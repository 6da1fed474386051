"""Digests of large files, computed once: a file that did not change since is not read again.

A file counts as unchanged if its device, inode, size, mtime and ctime, and samples of its bytes, are those of the time
when it was read. A program can restore a file's size and mtime after an edit; its ctime the system sets, to the time of
the edit. Three cases remain in which an edit would leave the ctime as it is, and they are excluded when a digest is
recorded: an edit while the file is read, one within the same tick of the file system's clock, and one by a program that
has the file mapped and written a page of it that is not yet on the disk.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from regard.base.cache import cache_folder, read_cached, write_cached
from regard.base.errors import RegardError
from regard.base.reading import PACKED, open_file

MIN_BYTES = 1 << 24  # a smaller file is read in less than 0.05 s …
MIN_PACKED_BYTES = 1 << 21  # … and unpacked, if it is packed
TICK = 3.0  # seconds; FAT has the coarsest clock, of two
SAMPLES, SAMPLE_BYTES = 64, 4096


def known_digest(path: Path, kind: str, compute: Callable[[], str], *, tick: float = TICK) -> str:
    """`compute()`, which reads the file at `path`, or its result the last time, if the file has not changed since.

    `kind` names what is computed. `tick`: how long ago the file must have changed for the result to be recorded; 0 for
    a file that only this process could have changed since.
    """
    state = _state(path)
    least = MIN_PACKED_BYTES if path.suffix in PACKED else MIN_BYTES
    if state[2] < least or sys.platform == "win32":  # there ctime is the time of creation
        return compute()
    name = hashlib.blake2b(f"{state[0]} {state[1]} {kind}".encode(), digest_size=16).hexdigest()
    record = cache_folder() / "tokens" / f"{name}.digest"
    with suppress(OSError, ValueError, RegardError, IndexError):  # missing or damaged
        known = json.loads(read_cached(record))
        if known == _known(path, state, known[-1]):
            return str(known[-1])
    settled = time.time_ns() - max(state[3:]) >= tick * 1e9
    if settled:
        _to_disk(path)
    digest = compute()
    with suppress(OSError, RegardError):  # the cache cannot be written, or another process writes the same record
        if settled and _state(path) == state:
            write_cached(record, json.dumps(_known(path, state, digest)).encode())
    return digest


def _state(path: Path) -> list[int]:
    state = path.stat()
    return [state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns]


def _known(path: Path, state: list[int], digest: str) -> list[object]:
    """What is recorded of a file."""
    return [*state, _samples(path, state[2]), digest]


def _samples(path: Path, size: int) -> str:
    """A digest of blocks at equal distances, from the first to the last."""
    found = hashlib.blake2b(digest_size=16)
    with open_file(path) as stream:
        for place in range(SAMPLES):
            stream.seek((size - SAMPLE_BYTES) * place // (SAMPLES - 1))
            found.update(stream.read(SAMPLE_BYTES))
    return found.hexdigest()


def _to_disk(path: Path) -> None:
    """The next write to a mapped page then sets the file's ctime."""
    with suppress(OSError, RegardError), open_file(path) as stream:
        os.fsync(stream.fileno())
