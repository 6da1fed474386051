"""In the worker process: runs that stay open between questions, and the limits on what a question may hold."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from regard.base.errors import RegardError
from regard.base.numbers import grouped
from regard.lab.runs_folder import RunsFolder
from regard.runs.folder import moments
from regard.runs.load import AnyRun, load

MOST_OPEN = 6
MOST_TEXT = 5000  # characters

_open: OrderedDict[tuple[Path, str], tuple[int, AnyRun]] = OrderedDict()


def open_run(folder: RunsFolder, name: str, weights: str = "best") -> AnyRun:
    """The run of this name, on the CPU or GPU; opened again only if its weights were written since."""
    path = folder.plain_run(name)
    file = path / ("training.safetensors" if weights == "last" else "model.safetensors")
    if weights.isdecimal():
        file = moments(path).get(int(weights), file)
    try:
        changed = file.stat().st_mtime_ns
    except OSError:
        raise RegardError(f"{name} has no weights yet: wait for its first validation.") from None
    key = (path, weights)
    if key not in _open or _open[key][0] != changed:
        _open[key] = (changed, load(path, weights=weights))
    _open.move_to_end(key)
    while len(_open) > MOST_OPEN:
        _open.popitem(last=False)
    return _open[key][1]


def text_in(body: Mapping[str, Any], key: str = "text", most: int = MOST_TEXT) -> str:
    """A text in a question, refused where it is too long to be looked at."""
    text = body.get(key, "")
    if not isinstance(text, str):
        raise RegardError(f"{key} must be text.")
    if len(text) > most:
        raise RegardError(f"This text has {grouped(len(text))} characters: {grouped(most)} can be looked at at once.")
    return text.replace("\0", "")


def number_in(body: Mapping[str, Any], key: str, default: float, least: float, most: float) -> float:
    value = body.get(key, default)
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not least <= value <= most:
        raise RegardError(f"{key} must be a number between {least:g} and {most:g}.")
    return value
