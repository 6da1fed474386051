"""Reading files: plain or packed, bounded in size, with one clear sentence for each possible failure."""

from __future__ import annotations

import gzip
import io
import json
import os
import stat
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, cast

from regard.base.errors import RegardError

MAX_JSON_BYTES = 1 << 26
BLOCK = 1 << 16  # bytes
PACKED = (".gz", ".zst")
MAX_HEADER_BYTES = 1 << 24  # bytes of a safetensors file's header: names and shapes of a hundred thousand tensors
MAX_SMALL_BYTES, MAX_UNPACKING = (
    1 << 22,
    200,
)  # a packed file may hold 4 MiB, or 200 times its own size: text has 3 to 20 times
PROBED_BYTES = 1 << 26  # bytes of a packed file that are unpacked to see whether it holds text


PLAIN = sum(getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_BINARY"))  # as far as a system has them


def open_file(path: Path) -> io.BufferedReader:
    """A file to read from. A pipe or a device is refused, as it may never end or begin, unless the path itself lies in
    /dev: then someone wrote <(…) or /dev/stdin."""
    if path.as_posix().startswith("/dev/"):
        return open(path, "rb")
    return io.BufferedReader(_Regular(path, opener=_open_regular), BLOCK)


def check_tensor_file(path: Path) -> None:
    """Before the library opens a safetensors file by its name: it is a file, and its header has a size that makes
    sense, for the library would take 30 times as much memory."""
    with open_file(path) as stream:
        if int.from_bytes(stream.read(8), "little") > MAX_HEADER_BYTES:
            raise ValueError(f"its header is larger than {MAX_HEADER_BYTES >> 20} MiB")


def _open_regular(path: str, flags: int) -> int:
    descriptor = os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):  # a folder is refused by `open`
        os.close(descriptor)
        raise RegardError(f"{str(path)!r} is a pipe or a device, not a file: replace it with a file.")
    return descriptor


class _Regular(io.FileIO):
    """Reads never wait. Some files of /proc claim to be regular and have nothing to read yet: they are refused."""

    def readinto(self, buffer: Any) -> int:
        count = super().readinto(buffer)
        if count is None:
            raise self._waits()
        return count

    def readall(self) -> bytes:
        content = super().readall()
        if content is None:
            raise self._waits()
        return content

    def _waits(self) -> RegardError:
        return RegardError(f"{str(self.name)!r} is a pipe or a device, not a file: replace it with a file.")


@contextmanager
def reading(path: Path) -> Iterator[BinaryIO]:
    """The bytes of a file, unpacked if its name ends in `.gz` or `.zst`."""
    try:
        if path.suffix in PACKED:
            _refuse_bomb(path, *_state(path))
            with open_file(path) as plain, _open_packed(plain, path) as packed:
                yield cast(BinaryIO, io.BufferedReader(_Unpacked(packed, path), 1 << 16))
        else:
            with open_file(path) as plain:
                yield plain
    except FileNotFoundError:
        raise RegardError(f"There is no file {str(path)!r}; check the spelling and the folder.") from None
    except PermissionError:
        raise RegardError(f"{str(path)!r} cannot be read; change its permissions or use a copy.") from None
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise RegardError(
            f"{str(path)!r} is not a complete {path.suffix[1:]} file; copy or download it again."
        ) from None
    except OSError as error:
        raise RegardError(f"{str(path)!r} cannot be read ({error.strerror or error}); check the file.") from None


def read_whole(path: Path, most: int, *, foreign: bool = False) -> bytes:
    """The bytes of a file that is read at once, at most `most`. `foreign`: a file that Regard did not write."""
    with reading(path) as stream:
        if path.suffix not in PACKED:
            check_size(stream, path, most, foreign=foreign)
        blocks = iter(lambda: stream.read(BLOCK), b"")  # `read(most)` would take so much memory for any file
        content = b"".join(islice(blocks, most // BLOCK + 1))
    if len(content) > most:
        raise _too_large(path, most, foreign)
    return content


def read_object(path: Path, most: int = MAX_JSON_BYTES, *, foreign: bool = False) -> dict[str, Any] | None:
    """The object of a JSON file; None if it is damaged."""
    return parse_object(read_whole(path, most, foreign=foreign))


def parse_object(content: bytes | str) -> dict[str, Any] | None:
    """A JSON object; None for anything else, including one nested too deeply."""
    try:
        tree = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return tree if isinstance(tree, dict) else None


def check_size(stream: BinaryIO, path: Path, most: int, *, foreign: bool = False) -> None:
    if os.fstat(stream.fileno()).st_size > most:
        raise _too_large(path, most, foreign)


def _too_large(path: Path, most: int, foreign: bool) -> RegardError:
    size = f"{most >> 20} MiB" if most >= 1 << 20 else f"{most} bytes"
    so = "more than Regard accepts" if foreign else "so Regard did not write it"
    return RegardError(f"{str(path)!r} is larger than {size}, {so}: check the file.")


def _open_packed(stream: BinaryIO, path: Path) -> BinaryIO:
    if path.suffix == ".gz":
        return cast(BinaryIO, gzip.open(stream, "rb"))
    try:
        from compression import zstd  # Python 3.14
    except ImportError:
        try:
            from backports import zstd  # type: ignore[attr-defined,unused-ignore]
        except ImportError:
            raise RegardError(f"To read {str(path)!r}, install Zstandard: pip install 'regard[data]'.") from None
    return cast(BinaryIO, zstd.open(stream, "rb"))


def max_unpacked_bytes(path: Path) -> int:
    """The most bytes that a packed file may hold."""
    return max(MAX_SMALL_BYTES, MAX_UNPACKING * path.stat().st_size)


def unpacks_to_too_much(path: Path) -> RegardError:
    return RegardError(
        f"{str(path)!r} unpacks to more than {MAX_UNPACKING} times its size, far more than text does; unpack it "
        "yourself if you trust it."
    )


def _state(path: Path) -> tuple[int, int]:
    state = path.stat()
    return state.st_size, state.st_mtime_ns


@lru_cache(maxsize=256)
def _refuse_bomb(path: Path, size: int, changed: int) -> None:
    """Unpacks the beginning once, before anyone works on its lines: those of a small file that unpacks to 200 times its
    size can keep Python busy for a minute."""
    with open_file(path) as plain, _open_packed(plain, path) as packed:
        stream = io.BufferedReader(_Unpacked(packed, path), 1 << 20)
        unpacked = 0
        while unpacked < PROBED_BYTES and (block := stream.read(1 << 20)):
            unpacked += len(block)
        if unpacked > max(MAX_SMALL_BYTES, MAX_UNPACKING * plain.tell()):  # what was read of the file so far
            raise unpacks_to_too_much(path)


class _Unpacked(io.RawIOBase):
    """What a packed file holds; one that holds far more than text does is refused before it fills the memory."""

    def __init__(self, stream: BinaryIO, path: Path):
        self._stream, self._path = stream, path
        self._most = max_unpacked_bytes(path)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            block = self._stream.read(len(buffer))
        except Exception as error:  # each Zstandard package has its own exception
            if type(error).__name__ == "ZstdError":
                raise zlib.error from None
            raise
        buffer[: len(block)] = block
        if self._stream.tell() > self._most:
            raise unpacks_to_too_much(self._path)
        return len(block)

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._stream.seek(offset, whence)

    def tell(self) -> int:
        return self._stream.tell()
