"""What the form of a comparison asks for, as the words of the command line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.base.errors import RegardError
from regard.lab.new_run import corpus, text_in_form
from regard.lab.runs_folder import RunsFolder
from regard.systems.catalogue import SYSTEMS
from regard.text.corpus import is_named


@dataclass(frozen=True)
class NewComparison:
    systems: tuple[str, ...]
    data: str
    match: str
    budget: str
    seeds: int
    size: str

    @classmethod
    def read(cls, folder: RunsFolder, body: Mapping[str, Any]) -> NewComparison:
        """From the JSON of a form."""
        data, match, budget, size = (text_in_form(body, key) for key in ("data", "match", "budget", "size"))
        systems, seeds = body.get("systems") or [], body.get("seeds", 1)
        known = {system.name for system in SYSTEMS}
        if not isinstance(systems, list) or not all(isinstance(one, str) and one in known for one in systems):
            raise RegardError("There is no such system to choose here.")
        if isinstance(seeds, str) and seeds.strip().isdecimal():
            seeds = int(seeds)
        if not isinstance(seeds, int) or not 1 <= seeds <= 100:
            raise RegardError("--seeds must be a whole number between 1 and 100.")
        return cls(tuple(systems), corpus(folder, data) if data else "", match, budget.strip(), seeds, size or "small")

    @classmethod
    def again(cls, folder: RunsFolder, question: Mapping[str, Any]) -> NewComparison:
        """From the comparison.json of one that was stopped; what a form cannot ask for goes on in a terminal."""
        data = str(question.get("data", ""))
        outside = not is_named(data) and not Path(data).resolve().is_relative_to(folder.root)
        if question.get("settings") or question.get("prompt") or outside:
            raise RegardError("This comparison was started in a terminal: go on there, with its command and --run.")
        systems = question.get("systems") or []
        wanted = {key: question.get(key, "") for key in ("match", "budget", "size")}
        checked = cls.read(folder, {**wanted, "systems": systems, "seeds": question.get("seeds", 1)})
        return cls(checked.systems, data, checked.match, checked.budget, checked.seeds, checked.size)

    def words(self) -> list[str]:
        options = {
            "data": self.data,
            "match": self.match,
            "budget": self.budget,
            "seeds": self.seeds,
            "size": self.size,
        }
        return ["compare", *self.systems, *(f"--{key}={value}" for key, value in options.items() if value)]
