"""The learning curve of a run, as recorded in metrics.jsonl."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from regard.base.arguments import checked
from regard.base.errors import RegardError
from regard.base.fields import is_number
from regard.base.numbers import with_article
from regard.base.settings import did_you_mean
from regard.report.page import table
from regard.report.progress import say
from regard.training.metrics import Entry, sound_metrics

HEADINGS = {"step": "step", "tokens": "tokens", "seconds": "seconds", "split": "split", "loss": "loss"}


def read_metrics(path: Path) -> list[Entry]:
    """The undamaged lines of metrics.jsonl; none if there is no such file."""
    found, damaged = sound_metrics(path)
    if damaged is not None:
        say(f"note: {path} is damaged on line {damaged}; the remaining lines are shown")
    return [entry for entry in found if all(is_number(entry.get(key)) for key in ("step", "tokens", "seconds", "loss"))]


@checked
class History(list[Entry]):
    """The learning curve of a run: a list of dicts, oldest first.

    Each dict has step, tokens, seconds, loss, perplexity, …. In a validation, "split" is "valid".
    """

    @property
    def validations(self) -> History:
        """Only the validations."""
        return History(entry for entry in self if entry.get("split") == "valid")

    def plot(self, key: str = "loss", axes: Any = None) -> Any:
        """Plot training and validation metrics against the number of tokens seen.

        Args:
            key: The metric to plot: "loss", "perplexity" or another key of the dicts.
            axes: The Matplotlib axes to draw on. Default: new axes.

        Returns:
            The Matplotlib axes.

        Raises:
            RegardError: If matplotlib is not installed, or no dict has this key.
        """
        if axes is not None and not hasattr(axes, "plot"):
            raise RegardError(f"axes must be matplotlib axes, not {with_article(type(axes).__name__)}.")
        known = {name for entry in self for name, value in entry.items() if is_number(value)}
        if self and key not in known:
            raise RegardError(f"There is no key {key!r}{did_you_mean(key, sorted(known))}")
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
        """In a notebook: the validations as a table, or all rows if there are no validations."""
        rows = self.validations or self
        headings = HEADINGS | {key: key.replace("_", " ") for entry in rows for key in entry}
        return table(rows, headings)
