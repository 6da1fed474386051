"""The answers that were written in the lab's editor and their grades, in the user's cache: `exercises/NAME.py` and
`exercises/NAME.json`. They are not in a folder of runs, because such a folder may come from someone else. Nothing here
imports torch.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from regard.base.cache import cache_folder
from regard.base.errors import RegardError
from regard.base.reading import parse_object, read_whole
from regard.base.writing import write_text
from regard.learn.exercises.exercise_list import MAX_ANSWER_BYTES, Exercise, exercise_of
from regard.learn.exercises.grading_process import grade_file

MAX_RECORD_BYTES = 1 << 16


def answer_path(exercise: Exercise) -> Path:
    return cache_folder() / "exercises" / f"{exercise.name}.py"


def answer_of(exercise: Exercise) -> str:
    """The last checked answer; "" if there is none."""
    return _content(answer_path(exercise), MAX_ANSWER_BYTES)


def progress_of(exercise: Exercise) -> dict[str, Any]:
    """{"solved", "checks", "right", "sentence"}; `solved` stays true once an answer was right."""
    record = parse_object(_content(answer_path(exercise).with_suffix(".json"), MAX_RECORD_BYTES)) or {}
    checks = record.get("checks")
    return {
        "solved": record.get("solved") is True,
        "checks": checks if isinstance(checks, int) else 0,
        "right": record.get("right") is True,
        "sentence": str(record.get("sentence", "")),
    }


def check_answer(exercise: Exercise, code: str, seed: int) -> dict[str, Any]:
    """Saves the answer and grades it in a separate process (`grade_file`); returns the grade and the progress."""
    path = answer_path(exercise)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, code)
    try:
        if (named := exercise_of(path)).name != exercise.name:
            raise RegardError(f'This code answers {named.name}: restore the line EXERCISE = "{exercise.name}".')
        found = grade_file(path, seed)
    except RegardError as error:
        raise RegardError(str(error).replace(str(path), "Your answer")) from None
    before = progress_of(exercise)
    record = {
        "solved": before["solved"] or found["right"],
        "checks": before["checks"] + 1,
        "right": found["right"],
        "sentence": found["sentence"],
    }
    write_text(path.with_suffix(".json"), json.dumps(record, ensure_ascii=False))
    return found | record


def _content(path: Path, limit: int) -> str:
    try:
        return read_whole(path, limit, foreign=True).decode("utf-8", "replace")
    except (OSError, RegardError):
        return ""
