"""In a worker process: an answer's grade, and Regard's own code for an exercise.

The answer itself runs in another process with a time limit (`learn/exercises/grading_process.py`).
"""

from __future__ import annotations

import secrets
from typing import Any

from regard.base.errors import RegardError
from regard.learn.exercises.exercise_list import find_exercise
from regard.learn.exercises.own_code import own_code
from regard.learn.exercises.progress import check_answer, progress_of
from regard.web.lab.requests import Answer, OneExercise
from regard.web.lab.runs_folder import RunsFolder


def check(folder: RunsFolder, asked: Answer) -> dict[str, Any]:
    """Grades an answer on new random inputs."""
    return check_answer(find_exercise(asked.name), asked.code, secrets.randbelow(10**6))


def own(folder: RunsFolder, asked: OneExercise) -> list[dict[str, str]]:
    """Regard's own code, once an answer was right."""
    exercise = find_exercise(asked.name)
    if not progress_of(exercise)["solved"]:
        raise RegardError("Regard's own code is shown once your answer is right.")
    return own_code(exercise)


WORK = {"check": check, "own": own}
