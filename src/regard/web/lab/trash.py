"""Deleting with undo: a run is moved into the lab's own folder, and back."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from regard.base.errors import RegardError
from regard.base.writing import write_text
from regard.runs.store.list import is_running
from regard.web.lab.guarded_folder import ALLOWED, UPLOADS, is_plain_folder
from regard.web.lab.runs_folder import RunsFolder


class Trash:
    def __init__(self, folder: RunsFolder):
        self.folder = folder
        self._one_at_a_time = threading.Lock()

    def put(self, name: str) -> dict[str, Any]:
        """A run or a comparison, out of sight."""
        with self._one_at_a_time:
            path = self.folder.made(name)
            if not any((path / marker).is_file() for marker in ("run.json", "comparison.json")):
                raise RegardError(f"{name} is neither a run nor a comparison, so it was not deleted.")
            if is_running(path):
                raise RegardError(f"{name} is training: stop it first.")
            mark = secrets.token_hex(8)
            place = self.folder.keep("trash") / mark
            try:
                was = json.dumps({"name": name})
                write_text(place / "was.json", was)  # and makes the folder
                os.rename(path, place / "run")
            except OSError as error:  # another program is at work in the folder
                shutil.rmtree(place, ignore_errors=True)
                raise RegardError(f"{name} could not be deleted ({error.strerror}): try again.") from None
            return {"mark": mark, "name": name}

    def back(self, mark: str) -> dict[str, Any]:
        """Where it was; refused if something else is there now."""
        with self._one_at_a_time:
            place = self._at(mark)
            if place is None:
                raise RegardError("This item was already restored or permanently deleted.")
            name = self._name(mark)
            path = self.folder.root / name
            if os.path.lexists(path):
                raise RegardError(f"{name} exists again: rename or delete the new one first.")
            if path.parent != self.folder.root:
                self.folder.inside(path.parent.relative_to(self.folder.root).as_posix())
            try:
                os.rename(place / "run", path)
            except OSError as error:
                raise RegardError(f"{name} could not be restored ({error.strerror}): look in {place}.") from None
            shutil.rmtree(place, ignore_errors=True)
            return {"name": name}

    def list(self) -> list[dict[str, Any]]:
        """Newest first."""
        with self._one_at_a_time:
            places = []
            for mark in self.folder.own_names("trash"):
                if place := self._at(mark):
                    with suppress(FileNotFoundError):
                        places.append((place.stat().st_mtime, mark))
            return [{"mark": mark, "name": self._name(mark)} for _, mark in sorted(places, reverse=True)]

    def empty(self) -> None:
        """Permanently delete what is in the trash."""
        with self._one_at_a_time:
            place = self.folder.keep("trash")
            try:
                shutil.rmtree(place)
            except OSError as error:
                raise RegardError(f"{place} could not be emptied ({error.strerror}): delete it yourself.") from None

    def _at(self, mark: str) -> Path | None:
        """The path of a deleted item; None if there is none, or if it is a link, which the lab never makes."""
        place = self.folder.own(f"trash/{mark}") if re.fullmatch("[0-9a-f]{16}", mark) else None
        return place if place and is_plain_folder(place / "run") else None

    def _name(self, mark: str) -> str:
        try:
            name = json.loads(self.folder.read_own(f"trash/{mark}", "was.json"))["name"]
            parts = name.split("/")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            parts = [""]
        plain = all(ALLOWED.fullmatch(part) and not part.startswith(".") for part in parts)
        return "/".join(parts) if plain and parts[0] != UPLOADS else f"restored-{mark[:6]}"
