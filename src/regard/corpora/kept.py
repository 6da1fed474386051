"""What was made once is kept in the cache: the first line of a file is the digest of the rest.

A file that is not there, or does not fit its digest, is made again; a cache that cannot be written is done without.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from regard.base.errors import RegardError
from regard.base.files import claiming, open_file, writing
from regard.corpora.fetch import cache_folder

Made = TypeVar("Made")


def kept(
    part: str, name: str, make: Callable[[], Made], dump: Callable[[Made], bytes], parse: Callable[[bytes], Made]
) -> Made:
    """`make()`, if it is not in this part of the cache under this name. `parse` reads what `dump` has written."""
    path = cache_folder() / part / name
    with suppress(OSError, ValueError, RegardError):  # not there, not whole, or no plain file
        return parse(read_kept(path))
    made = make()
    with suppress(OSError, RegardError):  # another process writes the same, or none can
        write_kept(path, dump(made))
    return made


def write_kept(path: Path, content: bytes) -> None:
    with claiming(path), writing(path) as stream:
        stream.write(_digest(content))
        stream.write(content)


def read_kept(path: Path) -> bytes:
    """The content; ValueError if it does not fit its digest."""
    with open_file(path) as stream:
        digest, content = stream.readline(), stream.read()
    if digest != _digest(content):
        raise ValueError
    return content


def _digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=16).hexdigest().encode() + b"\n"
