"""Downloads known corpora: streamed, checked against their SHA-256, and kept in the cache whole or not at all."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

from regard.base.errors import RegardError
from regard.base.files import writing
from regard.base.numbers import grouped
from regard.corpora.downloads import CATALOGUE, File

Progress = Callable[[int, int | None], None]  # bytes done, bytes in all if known
BLOCK = 1 << 20
SECONDS_OF_SILENCE = 30


def cache_folder() -> Path:
    """$REGARD_CACHE, or `regard` in the user's own cache folder."""
    if chosen := os.environ.get("REGARD_CACHE"):
        return Path(chosen)
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "regard"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "regard"


def data_folders() -> list[Path]:
    """Where corpora are looked for: $REGARD_DATA first, then the cache."""
    chosen = os.environ.get("REGARD_DATA")
    return [*([Path(chosen)] if chosen else []), cache_folder() / "data"]


def fetch(name: str, *, progress: Progress | None = None, mirror: str | None = None) -> Path:
    """Downloads the files of a known corpus that are not in the cache yet; returns their folder.

    A mirror ($REGARD_MIRROR) is a base address under which each file lies by its usual host and path.
    """
    if name not in CATALOGUE:
        close = get_close_matches(name, CATALOGUE, 1)
        advice = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(CATALOGUE)}."
        raise RegardError(f"There is no download {name!r}; {advice}")
    base = mirror or os.environ.get("REGARD_MIRROR") or "https:/"
    folder = cache_folder() / "data" / name
    for file in CATALOGUE[name].files:
        if not _is_there(folder / file.name, file.sha256):
            _download(file, f"{base.rstrip('/')}/{file.address}", folder / file.name, progress)
    return folder


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
        found = _sha256(stream)
        if file.sha256 is not None and found != file.sha256:
            raise RegardError(
                f"{url} is not the genuine {file.name} (SHA-256 {found[:12]}…, not {file.sha256[:12]}…), "
                f"so it was not kept; try again later or fetch it from elsewhere (REGARD_MIRROR)."
            )
    if file.sha256 is None:
        with writing(path.with_name(f"{path.name}.sha256")) as record:
            record.write(f"{found}  {path.name}\n".encode())


def _stream(url: str, stream: IO[bytes], progress: Progress | None) -> None:
    from http.client import HTTPException
    from urllib.error import HTTPError
    from urllib.request import urlopen

    @contextmanager
    def network() -> Iterator[None]:  # around reading alone: a full disk is another story
        try:
            yield
        except HTTPError as error:
            raise RegardError(f"{url} answers {error.code} ({error.reason}); try a mirror (REGARD_MIRROR).") from None
        except (OSError, HTTPException, ValueError) as error:
            reason = getattr(error, "reason", None) or error
            raise RegardError(f"{url} cannot be reached ({reason}); check the network and try again.") from None

    with network():
        response = urlopen(url, timeout=SECONDS_OF_SILENCE)
    with response:
        length = response.headers.get("Content-Length")
        done, total = 0, int(length) if length else None
        while True:
            with network():
                block = response.read(BLOCK)
            if not block:
                break
            stream.write(block)
            done += len(block)
            if progress:
                progress(done, total)
    if total is not None and done < total:
        raise RegardError(f"{url} broke off after {grouped(done)} of {grouped(total)} bytes; run the command again.")


def _unpack(archive: IO[bytes], member: str, url: str, stream: IO[bytes]) -> None:
    try:
        with zipfile.ZipFile(archive) as files, files.open(member) as content:
            shutil.copyfileobj(content, stream, BLOCK)
    except (zipfile.BadZipFile, KeyError):
        raise RegardError(f"{url} is no zip archive with {member!r} in it; try again later.") from None
