"""A folder that may come from a stranger: names lead nowhere else, links are not followed, and reading is bounded."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Container
from pathlib import Path

from regard.base.errors import RegardError
from regard.base.reading import PLAIN

UPLOADS = "uploads"  # files that were dropped into the page
OWN = ".lab"  # what the lab itself keeps: jobs, samples, what was deleted
MOST_BYTES = 1 << 24  # of a JSON or TOML file that describes a run
ALLOWED = re.compile(r"[^\x00-\x1f\x7f\\/]{1,200}")  # one part of a name


class GuardedFolder:
    def __init__(self, root: Path):
        if root.exists() and not root.is_dir():
            raise RegardError(f"{root} is not a folder: give the folder of your runs, as in `regard lab runs`.")
        try:
            root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RegardError(f"Cannot open the folder {root} ({error.strerror}): choose another folder.") from None
        self.root = root.resolve()

    def inside(self, name: str, *, kind: str = "run") -> Path:
        """The path of something in this folder; refused where its name leads elsewhere or nothing is there."""
        path = self.root
        for part in name.split("/") or [""]:
            if not ALLOWED.fullmatch(part) or part.startswith("."):
                raise RegardError(f"There is no {kind} {name[:200]!r} in this folder.")
            path = path / part
            try:
                mode = os.lstat(path).st_mode
            except (OSError, ValueError):
                raise RegardError(f"There is no {kind} {name[:200]!r} in this folder.") from None
            if not stat.S_ISDIR(mode) and not stat.S_ISREG(mode):  # a link, a device, a pipe
                raise RegardError(f"There is no {kind} {name[:200]!r} in this folder.")
        return path

    def new(self, name: str) -> Path:
        """The folder of a new run with this name; only the name is checked, the training claims the folder."""
        if not re.fullmatch(r"[^\W_][\w.-]{0,99}", name) or name == UPLOADS or name.endswith("."):
            raise RegardError(f"{name[:100]!r} is not a valid run name: use letters, digits, hyphens and dots.")
        if os.path.lexists(self.root / name):
            raise RegardError(f"{name} already exists: choose another name.")
        return self.root / name

    def free_name(self, wanted: str, taken: Container[str] = ()) -> str:
        """`wanted`, or wanted-2, wanted-3, …: the first that does not exist and is not taken."""
        clean = re.sub(r"[^\w.-]+", "-", wanted).strip("-._")[:80] or "run"
        number, name = 1, clean
        while name in taken or os.path.lexists(self.root / name):
            number += 1
            name = f"{clean}-{number}"
        return name

    def name_of(self, path: Path) -> str:
        return path.relative_to(self.root).as_posix()

    def keep(self, kind: str) -> Path:
        """The place in the lab's own folder for things of a kind, made if need be."""
        own = self.root / OWN
        path = own / kind
        for place in (own, path):
            try:
                place.mkdir(exist_ok=True)
            except OSError as error:
                if not os.path.lexists(place):
                    raise RegardError(
                        f"Regard cannot write to {self.root} ({error.strerror}): open another folder."
                    ) from None
            if not is_plain_folder(place):
                raise RegardError(f"{place} is a link or a file, so Regard does not write to it: remove it.")
        return path

    def own(self, kind: str) -> Path | None:
        """A path in the lab's own folder; None if it does not exist or part of it is a link. The folder may have
        come from a stranger, so what lies there is not trusted either."""
        path = self.root
        for part in (OWN, *kind.split("/")):
            path = path / part
            if not is_plain_folder(path):
                return None
        return path

    def own_names(self, kind: str) -> list[str]:
        """The folder's contents, sorted by name."""
        place = self.own(kind)
        try:
            return sorted(os.listdir(place)) if place else []
        except OSError:
            return []

    def read_own(self, kind: str, name: str, most: int = MOST_BYTES) -> bytes:
        """The end of a plain file there; empty if there is none."""
        place = self.own(kind)
        try:
            if place is None or not is_plain_file(place / name):
                return b""
            with open(os.open(place / name, os.O_RDONLY | PLAIN), "rb") as stream:
                stream.seek(max(0, os.fstat(stream.fileno()).st_size - most))
                return stream.read(most)
        except OSError:
            return b""


def read_plain(path: Path) -> bytes:
    with open(os.open(path, os.O_RDONLY | PLAIN), "rb") as stream:
        content = stream.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise ValueError("too large")
    return content


def is_plain_folder(path: Path) -> bool:
    """A folder itself, not a link to one."""
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except (OSError, ValueError):
        return False


def is_plain_file(path: Path) -> bool:
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except OSError:
        return False
