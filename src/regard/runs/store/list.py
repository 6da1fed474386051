"""Lists of runs: the runs below a folder, the state of each, and their differences.

Only small files and the headers of the weights are read, so that a hundred runs are listed at once.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.base.errors import RegardError
from regard.base.locks import is_locked
from regard.runs.store.facts import BEGINNING, CHECKPOINT, WEIGHTS, parent_of, read_facts, read_note

Cached = Callable[[Path, Callable[[], dict[str, Any]]], dict[str, Any]]
DEPTH = 3  # folders between the one asked for and a run: runs/compare-my/lstm has one


def is_run(folder: Path) -> bool:
    """True for a run, intact or damaged, or the remains of a training that never started."""
    if (folder / "run.json").is_file() or (folder / BEGINNING).is_file():
        return True
    return (folder / "recipe.toml").is_file() and any((folder / name).is_file() for name in (WEIGHTS, CHECKPOINT))


def find_runs(folder: Path, depth: int = DEPTH) -> Iterator[Path]:
    """The runs at or below a folder. A link is followed only if it leads to a run itself."""
    if is_run(folder):
        yield folder
        return
    try:
        inside = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    except PermissionError:
        return
    for path in inside:
        if is_run(path):
            yield path
        elif depth and not path.is_symlink():
            yield from find_runs(path, depth - 1)


def list_runs(folder: Path) -> list[dict[str, Any]]:
    """The facts about each run at or below a folder, newest last."""
    if not folder.is_dir():
        raise RegardError(
            f"There is no folder {folder}; `regard train` creates runs in the folder runs, and `regard runs gallery` "
            "lists the models that come with Regard."
        )
    return sorted(map(describe, find_runs(folder)), key=lambda row: (row["created"] or "", row["run"]))


@dataclass(frozen=True)
class Summary:
    """One run, for the command line and the lab: the contents of its small files, and its state."""

    folder: Path
    facts: Mapping[str, Any]  # run.json; empty if that is damaged
    progress: Mapping[str, Any]  # of the checkpoint; empty for an n-gram
    best: Mapping[str, Any]  # the validation that selected the weights, as noted in their file
    state: str  # running, done, stopped, damaged or not begun
    damage: str  # why it cannot be opened


def is_running(folder: Path) -> bool:
    """True while a process trains in this run or comparison."""
    return is_locked(folder / ".lock")


def read_now(path: Path, read: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    return read()


def summarize(folder: Path, cached: Cached = read_now) -> Summary:
    """`cached(path, read)`: `read()`, or its result as long as the file at `path` is the same."""

    def note(name: str) -> dict[str, Any]:
        return cached(folder / name, lambda: read_note(folder / name))

    running = is_running(folder)
    facts: dict[str, Any] = {}
    try:
        facts = cached(folder / "run.json", lambda: read_facts(folder))
        found = note(WEIGHTS) if (folder / WEIGHTS).is_file() else None
        at = mapping(note(CHECKPOINT).get("progress")) if (folder / CHECKPOINT).is_file() else None
        if found is None and at is None and not running:
            raise RegardError(f"{folder} contains no weights.")
        if not (folder / "recipe.toml").is_file():
            raise RegardError(f"{folder / 'recipe.toml'} is missing.")
    except RegardError as error:
        begun = "not begun" if (folder / BEGINNING).is_file() else "damaged"
        return Summary(folder, facts, {}, {}, "running" if running else begun, str(error))
    progress = at or {}
    state = "running" if running else "done" if not progress or progress.get("finished") else "stopped"
    return Summary(folder, facts, progress, found or {}, state, "")


def describe(folder: Path) -> dict[str, Any]:
    """One run as a row of `regard runs`, with the metric that selected its weights."""
    run = summarize(folder)
    recipe, corpus = mapping(run.facts.get("recipe")), mapping(run.facts.get("corpus"))
    readable = not run.damage
    return {
        "run": str(folder),
        "system": recipe.get("system"),
        "size": recipe.get("size"),
        "from": parent_of(run.facts),
        "data": corpus.get("name"),
        "created": run.facts.get("created"),
        "state": run.state,
        "why": run.damage if run.damage and run.state != "running" else None,
        "step": run.progress.get("step"),
        "tokens": run.progress.get("tokens"),
        "seconds": run.progress.get("seconds", run.facts.get("seconds")) if readable else None,
        "parameters": run.facts.get("parameters"),
        **_best(run.best),
        "bytes": size_on_disk(folder),
    }


def _best(note: Mapping[str, Any]) -> dict[str, Any]:
    """The metric of the best validation: BLEU if it selected the weights, otherwise perplexity."""
    loss = note.get("validation_loss")
    if isinstance(note.get("bleu"), (int, float)):
        return {"best": note["bleu"], "measure": "bleu", "best_step": note.get("step")}
    if not isinstance(loss, (int, float)):
        return {"best": None, "measure": None, "best_step": None}
    return {"best": perplexity(loss), "measure": "perplexity", "best_step": note.get("step")}


def perplexity(loss: float) -> float:
    return math.exp(loss) if loss < 700 else math.inf


def size_on_disk(folder: Path) -> int:
    """Bytes of the files below a folder; link targets are not counted."""
    return sum(entry.stat(follow_symlinks=False).st_size for entry in _files(folder))


def _files(folder: Path) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as inside:
            for entry in inside:
                if entry.is_dir(follow_symlinks=False):
                    yield from _files(Path(entry.path))
                else:
                    yield entry
    except OSError:  # it is not readable, or was deleted in the meantime
        return


def mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


# -- in what they differ ---------------------------------------------------------------------------------------------

FIGURES = (
    "from", "state", "best", "measure", "best_step", "step", "tokens", "seconds", "parameters", "bytes", "created"
)  # fmt: skip
ORDER = ("system", "size", "from", "data", "model", "training")


def compare_runs(folders: Sequence[Path]) -> dict[str, Any]:
    """The metrics of several runs, the settings in which they differ, and whether the metrics can be compared."""
    if len(folders) < 2:
        raise RegardError("Name at least two runs: regard runs compare runs/one runs/two.")
    facts = [read_facts(folder) for folder in folders]  # refuses what is no run, in a sentence
    rows = [describe(folder) for folder in folders]
    settings = [dict(_settings(one)) for one in facts]
    names = sorted(dict.fromkeys(name for one in settings for name in one), key=_section)  # each section together
    differ = {name: values for name in names if _unlike(values := [one.get(name) for one in settings])}
    return {
        "runs": [str(folder) for folder in folders],
        "figures": {name: [row[name] for row in rows] for name in FIGURES},
        "settings": differ,
        "note": _comparable(rows, facts),
    }


def _settings(facts: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Every setting by its name, followed by other facts that may explain a difference."""
    for part, values in mapping(facts.get("recipe")).items():
        if isinstance(values, Mapping):
            yield from ((f"{part}.{name}", value) for name, value in values.items())
        else:
            yield part, values
    yield "data.checksum", mapping(facts.get("corpus")).get("checksum")
    yield from ((name, facts.get(name)) for name in ("processes", "device", "regard", "torch", "python", "platform"))


def _section(name: str) -> int:
    part = name.partition(".")[0]
    return ORDER.index(part) if part in ORDER else len(ORDER)


def _unlike(values: Sequence[Any]) -> bool:
    return len({json.dumps(value, sort_keys=True) for value in values}) > 1


def _comparable(rows: Sequence[Mapping[str, Any]], facts: Sequence[Mapping[str, Any]]) -> str:
    """Why the scores of these runs cannot be compared; "" if they can."""
    if _unlike([row["measure"] for row in rows if row["measure"]]):
        return "Their scores measure different things."
    corpora = [mapping(one.get("corpus")) for one in facts]
    if _unlike([one.get("checksum", one.get("name")) for one in corpora]):
        return "They were validated on different data, so their scores cannot be compared."
    if any(row["measure"] == "perplexity" for row in rows) and _unlike([one.get("files") for one in facts]):
        return (
            "Their tokenizers differ, so their perplexities cannot be compared: `regard evaluate` gives bits per "
            "character, which can."
        )
    return ""


def short_names(folders: Sequence[str]) -> list[str]:
    """The names of the runs if they are all different, otherwise their paths."""
    names = [re.sub(r"[\\/]+$", "", folder).replace("\\", "/").rpartition("/")[2] for folder in folders]
    return names if len(set(names)) == len(names) else list(folders)
