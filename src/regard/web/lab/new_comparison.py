"""The form of a comparison as command-line arguments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.base.errors import RegardError
from regard.systems.catalogue import SYSTEMS
from regard.text.corpus import is_named
from regard.web.lab.new_run import corpus
from regard.web.lab.requests import ComparisonForm
from regard.web.lab.runs_folder import RunsFolder


@dataclass(frozen=True)
class NewComparison:
    systems: tuple[str, ...]
    data: str
    match: str
    budget: str
    seeds: int
    size: str

    @classmethod
    def read(cls, folder: RunsFolder, form: ComparisonForm) -> NewComparison:
        known = {system.name for system in SYSTEMS}
        if not all(one in known for one in form.systems):
            raise RegardError("This system cannot be compared here.")
        data = corpus(folder, form.data) if form.data else ""
        return cls(form.systems, data, form.match, form.budget.strip(), form.seeds, form.size or "small")

    @classmethod
    def again(cls, folder: RunsFolder, question: Mapping[str, Any]) -> NewComparison:
        """From the comparison.json of one that was stopped; what a form cannot ask for goes on in a terminal."""
        data = str(question.get("data", ""))
        outside = not is_named(data) and not Path(data).resolve().is_relative_to(folder.root)
        if outside or any(question.get(key) for key in ("settings", "prompt", "placebo", "tune")):
            raise RegardError(
                "This comparison was started in a terminal: to continue it, run its command again with the same --run."
            )
        wanted = {key: question.get(key) for key in ("systems", "match", "budget", "seeds", "size")}
        checked = cls.read(folder, ComparisonForm.read(wanted))
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
