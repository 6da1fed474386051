"""The learning curve of a run, as it stands in metrics.jsonl."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from regard.base.errors import RegardError
from regard.report.page import table
from regard.report.progress import say
from regard.training.metrics import Entry, sound_metrics

HEADINGS = {"step": "step", "tokens": "tokens", "seconds": "seconds", "split": "split", "loss": "loss"}


def read_metrics(path: Path) -> list[Entry]:
    """The lines of metrics.jsonl that are as they were written; none where there is no such file."""
    found, damaged = sound_metrics(path)
    if damaged is not None:
        say(f"note: {path} is damaged on line {damaged}; what is left of it is shown")
    return [entry for entry in found if all(is_number(entry.get(key)) for key in ("step", "tokens", "seconds", "loss"))]


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value)


class History(list[Entry]):
    """A list of dicts, oldest first: step, tokens, seconds, loss, perplexity, …; `split` is "valid" in a validation."""

    @property
    def validations(self) -> History:
        return History(entry for entry in self if entry.get("split") == "valid")

    def plot(self, key: str = "loss", axes: Any = None) -> Any:
        """Draw training and validation against the tokens seen; the axes of matplotlib, to be changed or saved."""
        try:
            from matplotlib import pyplot
        except ImportError:
            raise RegardError("To plot a history, install matplotlib: pip install matplotlib.") from None
        axes = axes or pyplot.subplots()[1]
        for name, entries in (("training", [e for e in self if "split" not in e]), ("validation", self.validations)):
            points = [(entry["tokens"], entry[key]) for entry in entries if is_number(entry.get(key))]
            if points:
                axes.plot(*zip(*points), label=name)
        axes.set_xlabel("tokens seen")
        axes.set_ylabel(key.replace("_", " "))
        axes.legend()
        return axes

    def _repr_html_(self) -> str:
        """In a notebook: the validations as a table, or all there is where none was made."""
        rows = self.validations or self
        headings = HEADINGS | {key: key.replace("_", " ") for entry in rows for key in entry}
        return table(rows, headings)
