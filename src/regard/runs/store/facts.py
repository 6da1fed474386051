"""The facts in a run's small files, `run.json` and the headers, read without its weights and without torch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from regard.base.digests import without_digest
from regard.base.errors import RegardError
from regard.base.reading import MAX_JSON_BYTES, check_tensor_file, read_object, read_whole
from regard.base.settings import closest

FORMAT = 1  # of the run folder; raised when an older Regard could not read it
BEGINNING = ".beginning"  # in a folder that is not a run yet: the start of a training made the other files in it
BEGUN = (
    "Regard is creating a run here. "
    "If no training is in progress, the next training in this folder starts from the beginning.\n"
)
WEIGHTS, CHECKPOINT = "model.safetensors", "training.safetensors"
ANCESTORS = "ancestors.safetensors"
REPORT_MARK = "<!-- the page of a run, written by Regard -->"  # a report.html without this line is someone else's


def read_facts(folder: Path) -> dict[str, Any]:
    """run.json: the version that wrote the run, its device and its training text."""
    if not folder.exists():
        near = closest(folder.name, _names(folder.parent))
        raise RegardError(
            f"There is no run {folder}"
            + (f": did you mean {folder.parent / near[0]}?" if near else "; `regard train` creates one.")
        )
    if not (folder / "run.json").is_file():
        if (folder / BEGINNING).exists():
            raise RegardError(f"{folder} is not a run yet: its training ended before the first step; train it again.")
        if any((folder / name).exists() for name in ("model.safetensors", "training.safetensors")):
            raise RegardError(
                f"{folder} is not a run: it has weights but no run.json. Restore that file from a backup; the weights "
                "are unchanged."
            )
        raise RegardError(f"{folder} is not a run: it has no run.json; `regard train` creates one.")
    facts = read_object(folder / "run.json")
    if facts is None:
        raise RegardError(f"{folder / 'run.json'} is damaged; restore it, or train the run again.")
    if facts.get("format") != FORMAT:
        raise RegardError(
            f"{folder} was written by Regard {facts.get('regard', '?')} in run format {facts.get('format')}; "
            f"this version reads format {FORMAT}: install the version that wrote it."
        )
    return without_digest(facts, folder / "run.json")


def is_report(path: Path) -> bool:
    """True for a report.html that Regard wrote."""
    try:
        return REPORT_MARK.encode() in read_whole(path, MAX_JSON_BYTES)
    except RegardError:
        return False


def parent_of(facts: Mapping[str, Any]) -> str | None:
    """The name of the run that a fine-tuned one started from."""
    ancestors = facts.get("ancestors")
    parent = ancestors[0] if isinstance(ancestors, list) and ancestors else None
    return str(parent["run"]) if isinstance(parent, dict) and "run" in parent else None


def _names(folder: Path) -> list[str]:
    """The runs in a folder."""
    try:
        return sorted(path.name for path in folder.iterdir() if (path / "run.json").is_file())
    except OSError:
        return []


def read_note(path: Path) -> dict[str, Any]:
    """The note in the header of a weights file, after checking that the file is complete."""
    if not path.exists():
        raise RegardError(f"There is no {path}: no weights were saved, or the file was moved.")
    try:
        check_tensor_file(path)
        with safe_open(path, framework="np") as file:
            note = json.loads((file.metadata() or {}).get("regard", "{}"))
    except (SafetensorError, OSError, ValueError, RecursionError) as error:
        raise RegardError(f"{path} cannot be read as safetensors ({error}): it is damaged or truncated.") from None
    if not isinstance(note, dict):
        raise RegardError(f"{path} is damaged: its header was not written by Regard.")
    return note
