"""Deleting with undo: a run is moved into the lab's own folder, and back."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
from pathlib import Path
from typing import Any

from regard.base.errors import RegardError
from regard.base.files import write_text
from regard.lab.runs_folder import RunsFolder, is_working


class Trash:
    def __init__(self, folder: RunsFolder):
        self.folder = folder

    @property
    def _place(self) -> Path:
        return self.folder.own / "trash"

    def put(self, name: str) -> dict[str, Any]:
        """A run or a comparison, out of sight."""
        path = self.folder.inside(name)
        if not any((path / marker).is_file() for marker in ("run.json", "comparison.json")):
            raise RegardError(f"{name} is neither a run nor a comparison, so it is left as it is.")
        if is_working(path):
            raise RegardError(f"{name} is training: stop it first.")
        mark = secrets.token_hex(8)
        place = self.folder.keep("trash") / mark
        place.mkdir()
        write_text(place / "was.json", json.dumps({"name": name}))
        os.rename(path, place / "run")
        return {"mark": mark, "name": name}

    def back(self, mark: str) -> dict[str, Any]:
        """Where it was; refused if something else is there now."""
        place = self._find(mark)
        name = self._name(place)
        path = self.folder.root / name
        if os.path.lexists(path):
            raise RegardError(f"{name} exists again: rename or delete that one first.")
        if path.parent != self.folder.root:
            self.folder.inside(path.parent.relative_to(self.folder.root).as_posix())
        os.rename(place / "run", path)
        shutil.rmtree(place)
        return {"name": name}

    def list(self) -> list[dict[str, Any]]:
        """Newest first."""
        places = sorted(
            self._place.iterdir() if self._place.is_dir() else (), key=lambda place: place.stat().st_mtime, reverse=True
        )
        return [{"mark": place.name, "name": self._name(place)} for place in places if (place / "run").is_dir()]

    def empty(self) -> None:
        """Delete for good what was deleted before."""
        shutil.rmtree(self.folder.keep("trash"))

    def _find(self, mark: str) -> Path:
        place = self._place / mark
        if not re.fullmatch("[0-9a-f]{16}", mark) or not (place / "run").is_dir():
            raise RegardError("This was restored already, or deleted for good.")
        return place

    def _name(self, place: Path) -> str:
        try:
            name = json.loads((place / "was.json").read_text(encoding="utf-8"))["name"]
        except (OSError, ValueError, KeyError, TypeError):
            name = ""
        parts = str(name).split("/")
        if not name or any(part in ("", ".", "..") or "\\" in part for part in parts):
            return f"restored-{place.name[:6]}"
        return str(name)
