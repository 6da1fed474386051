"""Downloads known corpora: streamed, checked against their SHA-256, and cached only if complete.

The SHA-256 is the catalog's, or where the publisher changes a file, that of its first download."""

from __future__ import annotations

import hashlib
import lzma
import os
import re
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from time import monotonic
from typing import IO

from regard.base.cache import cache_folder
from regard.base.errors import RegardError
from regard.base.locks import lock
from regard.base.numbers import group_digits
from regard.base.settings import closest
from regard.base.writing import writing
from regard.corpora.downloads import CATALOGUE, File

Progress = Callable[[int, int | None], None]  # bytes done, bytes in all if known
BLOCK = 1 << 20
SECONDS_OF_SILENCE = 30
SLOW_BYTES, SLOW_SECONDS = 1 << 17, 60  # a server that sends less than this in that time is given up
MAX_BYTES = 1 << 29  # of a download, packed and unpacked; enwik8 has 100 million


def data_folders() -> list[Path]:
    """The folders searched for corpora: $REGARD_DATA first, then the cache."""
    chosen = os.environ.get("REGARD_DATA")
    return [*([Path(chosen)] if chosen else []), cache_folder() / "data"]


def fetch(name: str, *, progress: Progress | None = None, mirror: str | None = None) -> Path:
    """Downloads the files of a known corpus that are not in the cache yet; returns their folder.

    A mirror ($REGARD_MIRROR) is a base address that serves each file under its usual host and path.
    """
    if name not in CATALOGUE:
        close = closest(name, CATALOGUE)
        advice = f"did you mean {close[0]!r}?" if close else f"choose one of {', '.join(CATALOGUE)}."
        raise RegardError(f"There is no download {name!r}; {advice}")
    mirror = mirror or os.environ.get("REGARD_MIRROR")
    base = mirror.rstrip("/") + "/" if mirror else "https://"
    folder = cache_folder() / "data" / name
    with _alone(folder):
        for file in CATALOGUE[name].files:
            path = folder / file.name
            if not _is_there(path, file.sha256 or _recorded(path)):
                _download(file, base + file.address, path, progress)
    return folder


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """A lock: one process at a time fetches a corpus; remains of a killed one are removed."""
    with ExitStack() as held:
        try:
            held.enter_context(lock(folder.with_name(f".{folder.name}.lock")))
            for leftover in folder.glob(".*.part"):
                leftover.unlink()
        except OSError as error:
            raise RegardError(
                f"The cache {str(cache_folder())!r} cannot be written ({error.strerror}); choose another folder with "
                "REGARD_CACHE."
            ) from None
        yield


def _record(path: Path) -> Path:
    """The file with the SHA-256 of the first download, for files whose publisher changes them now and then."""
    return path.with_name(f"{path.name}.sha256")


def _recorded(path: Path) -> str | None:
    try:
        match = re.match(r"[0-9a-f]{64}\b", _record(path).read_text(encoding="ascii", errors="replace"))
    except OSError:
        return None
    return match[0] if match else None


def _is_there(path: Path, sha256: str | None) -> bool:
    if not path.exists() or sha256 is None:
        return path.exists()
    with open(path, "rb") as stream:
        return _sha256(stream) == sha256


def _sha256(stream: IO[bytes]) -> str:
    digest = hashlib.sha256()
    while block := stream.read(BLOCK):
        digest.update(block)
    return digest.hexdigest()


def _download(file: File, url: str, path: Path, progress: Progress | None) -> None:
    with writing(path) as stream:
        if file.member is None:
            _stream(url, stream, progress)
        else:
            with TemporaryFile(dir=path.parent) as archive:
                _stream(url, archive, progress)
                _unpack(archive, file.member, url, stream)
        stream.seek(0)
        digest = _sha256(stream)
        if file.sha256 is not None and digest != file.sha256:
            raise RegardError(
                f"{url} is not the genuine {file.name} (SHA-256 {digest[:12]}…, not {file.sha256[:12]}…), "
                f"so it was discarded; try again later or fetch it from a mirror (REGARD_MIRROR)."
            )
        if file.sha256 is None and (first := _recorded(path)) not in (None, digest):
            raise RegardError(
                f"{url} no longer provides the {file.name} that was downloaded the first time (SHA-256 "
                f"{digest[:12]}…, not {first[:12]}…), so "
                "it was discarded: its publisher or someone else has changed it. To accept the new file, remove "
                f"{_record(path)}."
            )
        if file.sha256 is None:  # before the file has its name: no file without a record
            with writing(_record(path)) as record:
                record.write(f"{digest}  {path.name}\n".encode())


def _stream(url: str, stream: IO[bytes], progress: Progress | None) -> None:
    from http.client import HTTPException
    from urllib.error import HTTPError
    from urllib.request import urlopen

    @contextmanager
    def network() -> Iterator[None]:  # around reading only: a full disk is another error
        try:
            yield
        except HTTPError as error:
            raise RegardError(f"{url} returned {error.code} ({error.reason}); try a mirror (REGARD_MIRROR).") from None
        except (OSError, HTTPException, ValueError) as error:
            reason = getattr(error, "reason", None) or error
            raise RegardError(f"{url} cannot be reached ({reason}); check the network and try again.") from None

    with network():
        response = urlopen(url, timeout=SECONDS_OF_SILENCE)
    with response:
        length = response.headers.get("Content-Length") or ""
        total = int(length) if length.isascii() and length.isdecimal() and len(length) < 16 else None
        done = mark = 0  # bytes so far, and at the last check of the speed
        since = monotonic()
        while True:
            with network():
                block = response.read1(BLOCK)  # returns the bytes received so far, so that a slow server is noticed
            if not block:
                break
            done += len(block)
            _require_size(url, max(done, total or 0))
            stream.write(block)
            if progress:
                progress(done, total)
            if (now := monotonic()) - since > SLOW_SECONDS:
                if done - mark < SLOW_BYTES:
                    raise RegardError(
                        f"{url} sent less than {group_digits(SLOW_BYTES)} bytes in {SLOW_SECONDS} seconds; "
                        "try again later or use a mirror (REGARD_MIRROR)."
                    )
                since, mark = now, done
    if total is not None and done < total:
        raise RegardError(
            f"The download of {url} stopped after {group_digits(done)} of {group_digits(total)} bytes; run the "
            "command again."
        )


def _require_size(url: str, size: int) -> None:
    if size > MAX_BYTES:
        raise RegardError(
            f"{url} is larger than {MAX_BYTES >> 20} MiB, more than any corpus in the catalog, so it was discarded; "
            "fetch it from a mirror (REGARD_MIRROR)."
        )


def _unpack(archive: IO[bytes], member: str, url: str, stream: IO[bytes]) -> None:
    @contextmanager
    def whole() -> Iterator[None]:  # around reading only; zipfile raises all of these for damaged archives
        try:
            yield
        except KeyError:
            raise RegardError(f"{url} is a zip archive that does not contain {member!r}; try again later.") from None
        except (zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, EOFError, OSError, ValueError):
            raise RegardError(
                f"{url} is not a complete zip archive that contains {member!r}; try again later."
            ) from None
        except RuntimeError as error:  # encrypted, or an unsupported compression
            raise RegardError(f"{url} cannot be unpacked ({error}); fetch it from a mirror (REGARD_MIRROR).") from None

    with ExitStack() as opened:
        with whole():
            content = opened.enter_context(opened.enter_context(zipfile.ZipFile(archive)).open(member))
        done = 0
        while True:
            with whole():
                block = content.read(BLOCK)
            if not block:
                return
            done += len(block)
            _require_size(url, done)
            stream.write(block)
