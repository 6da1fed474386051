"""In the worker process: runs that stay open between questions."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path

from regard.base.errors import RegardError
from regard.base.fields import whole_number
from regard.runs.load import AnyRun, load
from regard.runs.store.folder import moments
from regard.web.lab.runs_folder import RunsFolder

MOST_OPEN = 6

_open: OrderedDict[tuple[Path, str], tuple[int, AnyRun]] = OrderedDict()


def open_run(folder: RunsFolder, name: str, weights: str = "best") -> AnyRun:
    """The run of this name, on the CPU or GPU; opened again only if its weights were written since."""
    path = folder.plain_run(name)
    file = path / ("training.safetensors" if weights == "last" else "model.safetensors")
    if (step := whole_number(weights)) is not None:
        file = moments(path).get(step, file)
    try:
        changed = file.stat().st_mtime_ns
    except OSError:
        raise RegardError(f"{name} has no saved weights yet: wait for its first validation.") from None
    key = (path, weights)
    if key not in _open or _open[key][0] != changed:
        _open[key] = (changed, load(path, weights=weights))
    _open.move_to_end(key)
    while len(_open) > MOST_OPEN:
        _open.popitem(last=False)
    return _open[key][1]
