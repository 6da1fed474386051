"""The form of a new run as command-line arguments. Only named corpora and files of this folder are read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from regard.base.errors import RegardError
from regard.systems.catalogue import SYSTEMS
from regard.text.corpus import is_named
from regard.web.lab.guarded_folder import UPLOADS
from regard.web.lab.requests import RunForm
from regard.web.lab.runs_folder import RunsFolder

SECTIONS = ("data", "model", "training")


@dataclass(frozen=True)
class NewRun:
    system: str | None  # None: that of `start`
    size: str | None
    data: str | None  # a name, or a path in the folder
    start: Path | None  # the run it begins with
    settings: Mapping[str, Mapping[str, str]]

    @classmethod
    def read(cls, folder: RunsFolder, form: RunForm) -> NewRun:
        if form.system and form.system not in {one.name for one in SYSTEMS}:
            raise RegardError(f"There is no system {form.system!r}.")
        settings: dict[str, dict[str, str]] = {}
        for key, value in form.settings.items():
            section, _, name = key.partition(".")
            if section not in SECTIONS or not re.fullmatch("[a-z_0-9]+", name) or key == "data.corpus":
                raise RegardError(f"There is no setting {key!r}.")
            settings.setdefault(section, {})[name] = _inside(folder, key, value)
        return cls(
            form.system or None,
            form.size or None,
            corpus(folder, form.data) if form.data else None,
            folder.run(form.from_) if form.from_ else None,
            settings,
        )

    def words(self) -> list[str]:
        """`regard train …`; each value is joined to its key, so that none is mistaken for an option."""
        words = ["train", *([self.system] if self.system and not self.start else [])]
        for key, value in (("size", None if self.start else self.size), ("data", self.data), ("from", self.start)):
            if value:
                words.append(f"--{key}={value}")
        return words + [
            f"--{part}.{name}={value}" for part, some in self.settings.items() for name, value in some.items()
        ]


def corpus(folder: RunsFolder, name: str) -> str:
    """A corpus that has a name, or the path of an uploaded file."""
    return name if is_named(name) else str(folder.inside(f"{UPLOADS}/{name}", kind="file"))


def _inside(folder: RunsFolder, key: str, value: str) -> str:
    """Settings that name files or runs: only those in this folder."""
    if not value:
        return value
    if key == "data.translator":
        return str(folder.run(value))
    if key == "data.monolingual":
        return corpus(folder, value)
    if key == "data.also":
        pairs = [one.strip().rpartition(":") for one in value.split(",")]
        return ",".join(f"{corpus(folder, name or rest)}{mark}{rest if mark else ''}" for name, mark, rest in pairs)
    return value
