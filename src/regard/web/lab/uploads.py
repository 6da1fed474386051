"""Files that are dropped into the page come in pieces: they wait in the lab's own folder until the last one came."""

from __future__ import annotations

import filecmp
import os
import re
import secrets
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from regard.base.errors import RegardError
from regard.base.writing import open_own_file, rename_new
from regard.web.lab.guarded_folder import UPLOADS, is_plain_file, is_plain_folder
from regard.web.lab.runs_folder import MARKERS, RunsFolder

MOST_UPLOAD = 4 << 30  # bytes of all files that wait together
MOST_PARTS = 100
OLDEST = 24 * 3600  # seconds after which a file that waits is given up
_one_at_a_time = threading.Lock()


def take(folder: RunsFolder, name: str, token: str, content: bytes, *, last: bool) -> dict[str, Any]:
    """One piece; the token that the next one brings, or after the last the name that the file has got."""
    place = folder.keep("uploads")
    part = place / f"{token or secrets.token_hex(16)}.part"
    if token and (not re.fullmatch("[0-9a-f]{32}", token) or not part.is_file()):
        raise RegardError("This upload is unknown: send the file again.")
    with _one_at_a_time:
        waiting = _parts(place)
        if sum(size for _, size, _ in waiting) + len(content) > MOST_UPLOAD:
            part.unlink(missing_ok=True)
            raise RegardError(
                f"Files larger than {MOST_UPLOAD >> 30} GiB cannot be uploaded: put the file next to your runs and "
                "use the terminal."
            )
        if not token and len(waiting) >= MOST_PARTS:
            raise RegardError(f"{MOST_PARTS} uploads are already in progress: wait until one finishes.")
        with open(open_own_file(part, os.O_WRONLY | os.O_APPEND), "ab") as stream:
            stream.write(content)
            size = stream.tell()
        return {"name": _store(folder, part, name), "bytes": size} if last else {"token": part.stem}


def forget_old(folder: RunsFolder) -> None:
    """Remove incomplete uploads."""
    if place := folder.own("uploads"):
        for path, _, changed in _parts(place):
            if time.time() - changed > OLDEST:
                with suppress(OSError):
                    path.unlink()


def _parts(place: Path) -> list[tuple[Path, int, float]]:
    """Each file that waits: its bytes, and when it was changed."""
    found = []
    for path in place.glob("*.part"):
        with suppress(OSError):
            about = path.lstat()
            found.append((path, about.st_size, about.st_mtime))
    return found


def _store(folder: RunsFolder, part: Path, name: str) -> str:
    """A plain, unused name that does not turn the folder into a run; an identical file is not stored twice."""
    place = folder.root / UPLOADS
    with suppress(FileExistsError):
        place.mkdir()
    if not is_plain_folder(place):
        raise RegardError(f"{place} is a link or a file, so Regard does not write to it: remove it.")
    stem, _, ending = Path(name.replace("\\", "/")).name.partition(".")
    clean = re.sub(r"[^\w-]+", "-", stem).strip("-")[:80] or "text"
    ending = re.sub(r"[^\w.]+", "", ending)[:20] or "txt"
    number, free = 1, f"{clean}.{ending}"
    while free.casefold() in MARKERS or os.path.lexists(place / free):
        if is_plain_file(place / free) and filecmp.cmp(part, place / free, shallow=False):
            part.unlink()
            return free
        number += 1
        free = f"{clean}-{number}.{ending}"
    rename_new(part, place / free)
    return free
