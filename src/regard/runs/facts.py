"""What a run's small files say of it, read without its weights and without torch: `run.json` and the headers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from regard.base.errors import RegardError
from regard.base.files import reading

FORMAT = 1  # of the run folder; raised when an older Regard could not read it
BEGINNING = ".beginning"  # in a folder that is not a run yet: what is beside it was made by the start of a training
WEIGHTS, CHECKPOINT = "model.safetensors", "training.safetensors"
REPORT_MARK = "<!-- the page of a run, written by Regard -->"  # a report.html without this line is someone else's


def read_facts(folder: Path) -> dict[str, Any]:
    """run.json: which version wrote the run, on what, from which text."""
    if not folder.exists():
        raise RegardError(f"There is no run {folder}; `regard train` makes one.")
    if not (folder / "run.json").is_file():
        if any((folder / name).exists() for name in ("model.safetensors", "training.safetensors")):
            raise RegardError(
                f"{folder} is not a run: it has weights and no run.json. Put that file back from a copy; the weights "
                "are left as they are."
            )
        raise RegardError(f"{folder} is not a run: it has no run.json; `regard train` makes one.")
    with reading(folder / "run.json") as stream:
        content = stream.read()
    try:
        facts = json.loads(content)
    except (ValueError, RecursionError):
        facts = None
    if not isinstance(facts, dict):
        raise RegardError(f"{folder / 'run.json'} is damaged; restore it, or train the run again.")
    if facts.get("format") != FORMAT:
        raise RegardError(
            f"{folder} was written by Regard {facts.get('regard', '?')} in run format {facts.get('format')}; "
            f"this version reads format {FORMAT}: install the version that wrote it."
        )
    return facts


def read_note(path: Path) -> dict[str, Any]:
    """What is written in the header of a file of weights, after making sure that the file has its full length."""
    try:
        with safe_open(path, framework="np") as file:
            note = json.loads((file.metadata() or {}).get("regard", "{}"))
    except (SafetensorError, OSError, ValueError, RecursionError) as error:
        raise RegardError(f"{path} cannot be read as safetensors ({error}): it is damaged or was cut short.") from None
    if not isinstance(note, dict):
        raise RegardError(f"{path} is damaged: its header is not what Regard writes.")
    return note
