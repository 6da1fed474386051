"""A user's file, graded in a process of its own: what never ends is ended, and what it prints goes to stderr.

The process writes one JSON object to its stdout. If it is not done in time, or crashes, faulthandler writes there
where it was.
"""

from __future__ import annotations

import faulthandler
import json
import os
import re
import subprocess
import sys
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.base.errors import RegardError
from regard.exercises.exercise_list import Exercise, exercise_of

if TYPE_CHECKING:
    from regard.exercises.grading import Grader, Verdict

LIMIT = 20  # seconds for what takes less than one


def grade_file(path: Path, seed: int, limit: int = LIMIT) -> dict[str, Any]:
    """{"exercise", "right", "sentence", "inputs", "laws", "seed"} of a file, graded in a process of its own."""
    exercise = exercise_of(path)
    command = [sys.executable, "-m", "regard.exercises.grading_process", str(path), str(seed), str(limit)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, encoding="utf-8")
    try:
        found = json.loads(done.stdout)
    except ValueError:
        found = {"right": False, "sentence": _unfinished(done.stdout, path, limit), "inputs": 0, "laws": []}
    if "refused" in found:
        raise RegardError(found["refused"])
    return {"exercise": exercise.name, **found, "seed": seed}


def _unfinished(said: str, path: Path, limit: int) -> str:
    """What became of a process that gave no verdict; faulthandler names the line that ran last, innermost first."""
    line = re.search(rf'File "{re.escape(str(path.resolve()))}", line (\d+)', said)
    where = f" in line {line[1]} of {path.name}" if line else ""
    if said.startswith("Timeout"):
        return f"it was not done after {limit} seconds{where}: is there a loop that never ends?"
    return f"it ended the process{where}: return an answer instead"


def grade_here(path: Path, exercise: Exercise, seed: int) -> Verdict:
    """The verdict on a file that its user named. Runs it in this process."""
    from regard.exercises.grading import grade
    from regard.systems.code import name_code, run_code

    module = run_code(name_code(f"{path}:{exercise.function}"))
    function = getattr(module, exercise.function, None)
    if not callable(function):
        raise RegardError(
            f"{path} has no function {exercise.function}, which {exercise.name} asks for: write its first line again, "
            f"or take the file anew by `regard exercise {exercise.name} --out other.py`."
        )
    return grade(function, grader_of(exercise), seed)


def grader_of(exercise: Exercise) -> Grader:
    return import_module(f"regard.exercises.{exercise.topic}_exercises").GRADERS[exercise.name]


def main(path: str, seed: str, limit: str) -> None:
    answer = os.dup(1)
    os.dup2(2, 1)
    file = Path(path)
    exercise = exercise_of(file)
    grader_of(exercise)  # loads torch, before the time begins to run
    faulthandler.enable(answer)
    faulthandler.dump_traceback_later(int(limit), exit=True, file=answer)
    try:
        found = asdict(grade_here(file, exercise, int(seed)))
    except RegardError as error:
        found = {"refused": str(error)}
    faulthandler.cancel_dump_traceback_later()
    with open(answer, "w", encoding="utf-8") as stream:
        json.dump(found, stream)


if __name__ == "__main__":
    main(*sys.argv[1:])
