"""Files: read as streams with one clear sentence for what can go wrong, and written whole or not at all."""

from __future__ import annotations

import errno
import gzip
import io
import os
import secrets
import sys
import time
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, cast

from regard.base.errors import RegardError

PACKED = (".gz", ".zst")
SMALL, MOST_TIMES = 1 << 22, 200  # a packed file may hold 4 MiB, or 200 times its own size: text has 3 to 20 times


@contextmanager
def reading(path: Path) -> Iterator[BinaryIO]:
    """The bytes of a file, unpacked if its name ends in `.gz` or `.zst`."""
    try:
        if path.suffix in PACKED:
            with _open_packed(path) as packed, io.BufferedReader(_Unpacked(packed, path), 1 << 16) as stream:
                yield cast(BinaryIO, stream)
        else:
            with open(path, "rb") as plain:
                yield plain
    except FileNotFoundError:
        raise RegardError(f"There is no file {str(path)!r}; check the spelling and the folder.") from None
    except PermissionError:
        raise RegardError(f"{str(path)!r} may not be read; change its permissions or give a copy of it.") from None
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise RegardError(f"{str(path)!r} is not a whole {path.suffix[1:]} file; copy or download it again.") from None
    except OSError as error:
        raise RegardError(f"{str(path)!r} cannot be read ({error.strerror or error}); check the file.") from None


def _open_packed(path: Path) -> BinaryIO:
    if path.suffix == ".gz":
        return cast(BinaryIO, gzip.open(path, "rb"))
    try:
        from compression import zstd  # Python 3.14
    except ImportError:
        try:
            from backports import zstd
        except ImportError:
            raise RegardError(f"To read {str(path)!r}, install Zstandard: pip install 'regard[data]'.") from None
    return cast(BinaryIO, zstd.open(path, "rb"))


class _Unpacked(io.RawIOBase):
    """What a packed file holds; one that holds far more than text does is refused before it fills the memory."""

    def __init__(self, stream: BinaryIO, path: Path):
        self._stream, self._path = stream, path
        self._most = max(SMALL, MOST_TIMES * path.stat().st_size)

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
            raise RegardError(
                f"{str(self._path)!r} unpacks to more than {MOST_TIMES} times its size, which text does not; unpack it "
                "yourself if you trust it."
            )
        return len(block)

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._stream.seek(offset, whence)

    def tell(self) -> int:
        return self._stream.tell()


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path beside `path` to write to; it takes the place of `path` only once it is complete and on the disk."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")  # its own name: two writers never mix
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        with open(temporary, "rb+") as handle:
            os.fsync(handle.fileno())
        os.replace(temporary, path)
    except OSError as error:
        kept = "what was there before is untouched" if path.exists() else "nothing was written"
        if error.errno == errno.ENOSPC:
            raise RegardError(f"The disk is full, so {str(path)!r} was not saved; {kept}: free some space.") from error
        reason = error.strerror or str(error)
        raise RegardError(f"{str(path)!r} could not be saved ({reason}); {kept}: check the folder.") from error
    finally:
        with suppress(OSError):  # nothing to remove is as good
            temporary.unlink()


@contextmanager
def writing(path: Path) -> Iterator[BinaryIO]:
    """A binary file that appears under its name only once it is complete."""
    with replacing(path) as temporary, open(temporary, "x+b") as stream:
        yield stream
        stream.flush()


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold `path` as a lock, which the system lets go however the process ends; refused while another holds it."""
    with open(path, "a+b") as handle:
        try:
            if sys.platform == "win32":
                import msvcrt

                msvcrt.locking(handle.fileno(), msvcrt.LK_NBLCK, 1)
            else:
                import fcntl

                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise RegardError(f"Another process is working in {path.parent}; wait until it has ended.") from None
        yield


@contextmanager
def waiting_for(path: Path) -> Iterator[None]:
    """`locked`, but while another process holds it, wait."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with ExitStack() as held:
        while True:
            try:
                held.enter_context(locked(path))
                break
            except RegardError:
                time.sleep(0.2)
        yield


def write_text(path: Path, text: str) -> None:
    with writing(path) as stream:
        stream.write(text.encode("utf-8"))
