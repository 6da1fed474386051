"""Files: read as streams with one clear sentence for what can go wrong, and written whole or not at all."""

from __future__ import annotations

import errno
import gzip
import hashlib
import io
import json
import os
import re
import secrets
import shutil
import stat
import sys
import time
import unicodedata
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, cast

from regard.base.errors import RegardError

BLOCK = 1 << 16  # bytes
PACKED = (".gz", ".zst")
MOST_HEADER = 1 << 24  # bytes of a safetensors file's header: names and shapes of a hundred thousand tensors
SMALL, MOST_TIMES = 1 << 22, 200  # a packed file may hold 4 MiB, or 200 times its own size: text has 3 to 20 times
LOOKED_AT = 1 << 26  # bytes of a packed file that are unpacked to see whether it holds text

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
        if int.from_bytes(stream.read(8), "little") > MOST_HEADER:
            raise ValueError(f"its header says that it has more than {MOST_HEADER >> 20} MiB")


def _open_regular(path: str, flags: int) -> int:
    descriptor = os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):  # a folder is refused by `open`
        os.close(descriptor)
        raise RegardError(f"{str(path)!r} is a pipe or a device: put a file there.")
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
        return RegardError(f"{str(self.name)!r} is a pipe or a device: put a file there.")


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
        raise RegardError(f"{str(path)!r} may not be read; change its permissions or give a copy of it.") from None
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise RegardError(f"{str(path)!r} is not a whole {path.suffix[1:]} file; copy or download it again.") from None
    except OSError as error:
        raise RegardError(f"{str(path)!r} cannot be read ({error.strerror or error}); check the file.") from None


def read_whole(path: Path, most: int) -> bytes:
    """The bytes of a file that is read at once; one of more than `most` is not what its name says."""
    with reading(path) as stream:
        if path.suffix not in PACKED:
            _check_size(stream, path, most)
        blocks = iter(lambda: stream.read(BLOCK), b"")  # `read(most)` would take so much memory for any file
        content = b"".join(islice(blocks, most // BLOCK + 1))
    if len(content) > most:
        raise _too_large(path, most)
    return content


def _check_size(stream: BinaryIO, path: Path, most: int) -> None:
    if os.fstat(stream.fileno()).st_size > most:
        raise _too_large(path, most)


def _too_large(path: Path, most: int) -> RegardError:
    size = f"{most >> 20} MiB" if most >= 1 << 20 else f"{most} bytes"
    return RegardError(f"{str(path)!r} has more than {size}, so Regard did not write it: check the file.")


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


def most_unpacked(path: Path) -> int:
    """The most bytes that a packed file may hold."""
    return max(SMALL, MOST_TIMES * path.stat().st_size)


def unpacks_to_too_much(path: Path) -> RegardError:
    return RegardError(
        f"{str(path)!r} unpacks to more than {MOST_TIMES} times its size, which text does not; unpack it yourself if "
        "you trust it."
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
        while unpacked < LOOKED_AT and (block := stream.read(1 << 20)):
            unpacked += len(block)
        if unpacked > max(SMALL, MOST_TIMES * plain.tell()):  # what was read of the file so far
            raise unpacks_to_too_much(path)


class _Unpacked(io.RawIOBase):
    """What a packed file holds; one that holds far more than text does is refused before it fills the memory."""

    def __init__(self, stream: BinaryIO, path: Path):
        self._stream, self._path = stream, path
        self._most = most_unpacked(path)

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


def file_digest(path: Path, most: int | None = None) -> str:
    """The digest of a file's bytes on the disk, read now; one of more than `most` bytes is refused unread."""
    with open_file(path) as stream:
        if most is not None:
            _check_size(stream, path, most)
        return hashlib.file_digest(stream, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def check_digests(folder: Path, names: Sequence[str], recorded: Mapping[str, str]) -> None:
    """Refuse a folder in which one of these files is not the one whose digest was recorded."""
    for name in names:
        if (folder / name).exists() != (name in recorded):
            raise RegardError(f"{folder / name} {'is missing' if name in recorded else 'does not belong there'}.")
        if name in recorded and file_digest(folder / name, MOST_SHARED) != recorded[name]:
            raise RegardError(f"{folder / name} is damaged or was changed: put it back from a copy.")


MOST_JSON = 1 << 26  # bytes
MOST_SHARED = 1 << 28  # bytes of a tokenizer.json (seven million words), or of a comparison's test sentences
DIGEST = "blake2b"  # the entry of a JSON object that holds the digest of the others


def with_digest(tree: Mapping[str, Any]) -> dict[str, Any]:
    """A JSON object with the digest of its entries as the last one."""
    return {**tree, DIGEST: _entries_digest(tree)}


def without_digest(tree: dict[str, Any], path: Path) -> dict[str, Any]:
    """The object that `with_digest` was given; refused if `path`, where it stood, was changed since. Files of older
    versions have no digest and are taken as they are."""
    entries = {key: value for key, value in tree.items() if key != DIGEST}
    if DIGEST in tree and tree[DIGEST] != _entries_digest(entries):
        raise RegardError(f"{path} is damaged or was changed: put it back from a copy.")
    return entries


def read_with_digest(path: Path) -> dict[str, Any]:
    """The object of a JSON file that Regard wrote."""
    content = read_whole(path, MOST_JSON)
    try:
        tree = json.loads(content)
    except (ValueError, RecursionError):
        tree = None
    if not isinstance(tree, dict):
        raise RegardError(f"{path} is damaged: put it back from a copy.")
    return without_digest(tree, path)


def _entries_digest(tree: Mapping[str, Any]) -> str:
    return hashlib.blake2b(json.dumps(tree, sort_keys=True).encode(), digest_size=16).hexdigest()


@contextmanager
def replacing(path: Path, *, new: bool = False) -> Iterator[Path]:
    """A path beside `path` to write to; it takes the place of `path` only once it is complete and on the disk.

    `new`: of no file; one that appeared under that name in the meantime stays, and this is refused. A link is replaced,
    never written through.
    """
    temporary = _beside(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        with open(temporary, "rb+") as handle:
            os.fsync(handle.fileno())
        give_name(temporary, path) if new else os.replace(temporary, path)
    except OSError as error:
        raise _not_saved(path, error) from error
    finally:
        with suppress(OSError):  # nothing to remove is as good
            temporary.unlink()


@contextmanager
def making_folder(path: Path) -> Iterator[Path]:
    """A new folder beside `path` to write into; it gets that name only once everything in it is on the disk, and never
    takes the place of another."""
    temporary = _beside(path)
    try:
        temporary.mkdir(parents=True)
        yield temporary
        for file in filter(Path.is_file, temporary.rglob("*")):
            with open(file, "rb+") as handle:
                os.fsync(handle.fileno())
        if os.path.lexists(path):
            raise RegardError(f"{path} exists already, and is left as it is: choose another name.")
        temporary.rename(path)
    except OSError as error:
        reason = "the disk is full" if error.errno == errno.ENOSPC else error.strerror or str(error)
        raise RegardError(f"The folder {str(path)!r} was not written ({reason}); nothing is left of it.") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _not_saved(path: Path, error: OSError) -> RegardError:
    kept = "what was there before is untouched" if path.exists() else "nothing was written"
    if error.errno == errno.ENOSPC:
        return RegardError(f"The disk is full, so {str(path)!r} was not saved; {kept}: free some space.")
    return RegardError(f"{str(path)!r} could not be saved ({error.strerror or error}); {kept}: check the folder.")


def _beside(path: Path, end: str = "") -> Path:
    """A hidden name beside `path`; without `end` one of its own, so that two writers never mix."""
    if not path.name:  # "." and "/"
        raise RegardError(f"{str(path)!r} is a folder, and no name for something new: add one.")
    return path.with_name(f".{path.name}.{end or f'{secrets.token_hex(4)}.part'}")


def give_name(made: Path, path: Path) -> None:
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
        raise RegardError(f"{path} exists already, and is left as it is: choose another name.") from None


def sweep(folder: Path, of: str | None = None) -> None:
    """Remove the files that a kill in the middle of `replacing` left in a folder that is held by `locked`. `of`: what
    was left of this name alone, by `making_folder` too."""
    for left in folder.iterdir():
        if is_partial(left.name, of):
            if left.is_file() or left.is_symlink():
                left.unlink()
            elif of is not None:
                shutil.rmtree(left)


def is_partial(name: str, of: str | None = None) -> bool:
    """Is this the name of a file that `replacing` has not finished? `of`: of the file with this name."""
    return re.fullmatch(rf"\.{'.+' if of is None else re.escape(of)}\.[0-9a-f]{{8}}\.part", name) is not None


@contextmanager
def writing(path: Path) -> Iterator[BinaryIO]:
    """A binary file that appears under its name only once it is complete."""
    with replacing(path) as temporary, open(temporary, "x+b") as stream:
        yield stream
        stream.flush()


def open_own_file(path: Path, flags: int) -> int:
    """A descriptor of a plain file in a run's folder, made if need be; a link out of it is not followed."""
    try:
        descriptor = os.open(
            path, flags | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0), 0o666
        )
    except OSError as error:
        if path.is_symlink() or (path.exists() and not path.is_file()):
            raise RegardError(f"{path} is not a plain file, so it is not written to: remove it.") from None
        raise RegardError(f"{str(path)!r} could not be opened ({error.strerror}); check the folder.") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise RegardError(f"{path} is not a plain file, so it is not written to: remove it.")
    return descriptor


def append_line(path: Path, line: str) -> None:
    try:
        with open(open_own_file(path, os.O_WRONLY | os.O_APPEND), "a", encoding="utf-8") as stream:
            stream.write(line + "\n")
    except OSError as error:
        raise _not_saved(path, error) from error


class Held(RegardError):
    """Another process holds a lock."""


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold `path` as a lock, which the system lets go however the process ends; refused while another holds it."""
    tries = 0
    while True:
        with open(open_own_file(path, os.O_RDWR), "r+b") as handle:
            try:
                _take(handle)
            except OSError:
                tries += 1
                if tries < 5:  # `is_held` of another process takes it for a moment
                    time.sleep(0.02)
                    continue
                raise Held(f"Another process is working in {path.parent}; wait until it has ended.") from None
            if not is_still(handle, path):  # who held it before removed it
                continue
            yield
            return


def is_held(path: Path) -> bool:
    """Does a process hold this lock now? Nothing is made where there is none."""
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


def is_still(handle: BinaryIO, path: Path) -> bool:
    """Does `path` still name the open file, or was it removed or replaced?"""
    try:
        return os.path.samestat(os.fstat(handle.fileno()), os.stat(path))
    except FileNotFoundError:
        return False


@contextmanager
def claiming(path: Path) -> Iterator[None]:
    """Hold the name of a file or folder that is to be made, so that of two processes one makes it, and remove what a
    killed one left of it."""
    lock = _beside(path, "lock")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _not_saved(path, error) from error
    with locked(lock):
        try:
            sweep(path.parent, of=path.name)
            yield
        finally:
            with suppress(OSError):  # where files that are open cannot be removed
                if lock.stat().st_size == 0:
                    lock.unlink()


@contextmanager
def waiting_for(path: Path) -> Iterator[None]:
    """`locked`, but while another process holds it, wait."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with ExitStack() as held:
        while True:
            try:
                held.enter_context(locked(path))
                break
            except Held:
                time.sleep(0.2)
        yield


def check_names(names: Sequence[str], where: Path) -> None:
    """Names that were read from a file and will be those of folders beside it: letters, digits and hyphens, never a
    path, and no two that a file system could take for one."""
    for name in names:
        if not re.fullmatch(r"[\w-]+", name) or len(name.encode()) > 200:
            raise RegardError(f"{where} names {name!r}, which cannot be the name of a run: restore the file.")
    if len({unicodedata.normalize("NFKC", name).casefold() for name in names}) < len(names):
        raise RegardError(f"{where} has two runs of one name: restore the file.")


def write_text(path: Path, text: str, *, new: bool = False) -> None:
    with replacing(path, new=new) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="")


def write_new(path: Path, text: str) -> None:
    """A file that a user named; one that is there stays."""
    with claiming(path):
        write_text(path, text, new=True)
