"""The user's cache: where it is, and results that are computed once.

The first line of a cached file is the digest of the rest. A file that is missing or does not fit its digest is computed
again; without a writable cache everything works, only slower.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from regard.base.errors import RegardError
from regard.base.locks import exclusive_name
from regard.base.reading import open_file
from regard.base.writing import writing

Made = TypeVar("Made")


def cache_folder() -> Path:
    """$REGARD_CACHE, or `regard` in the user's own cache folder."""
    if chosen := os.environ.get("REGARD_CACHE"):
        return Path(chosen)
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "regard"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "regard"


def cached(
    part: str, name: str, make: Callable[[], Made], dump: Callable[[Made], bytes], parse: Callable[[bytes], Made]
) -> Made:
    """The result of `make()`, computed once; this part of the cache holds it as `dump` wrote it for `parse`."""
    path = cache_folder() / part / name
    with suppress(OSError, ValueError, RegardError):  # missing, damaged, or not a plain file
        return parse(read_cached(path))
    made = make()
    with suppress(OSError, RegardError):  # another process writes the same file, or the cache cannot be written
        write_cached(path, dump(made))
    return made


def write_cached(path: Path, content: bytes) -> None:
    with exclusive_name(path), writing(path) as stream:
        stream.write(_digest(content))
        stream.write(content)


def read_cached(path: Path) -> bytes:
    """The content; ValueError if it does not fit its digest."""
    with open_file(path) as stream:
        digest, content = stream.readline(), stream.read()
    if digest != _digest(content):
        raise ValueError
    return content


def _digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=16).hexdigest().encode() + b"\n"
