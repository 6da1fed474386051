"""Regard's own code for an exercise: the functions and classes that its grader names."""

from __future__ import annotations

import re

from regard.learn.exercises.exercise_list import Exercise
from regard.learn.exercises.grading_process import grader_of
from regard.learn.lectures.code_anchor import source_of

PLACE = re.compile(r"(\w[\w/]*\.py): ((?:[\w.]+)(?:, [\w.]+(?=,|$))*)")


def own_code(exercise: Exercise) -> list[dict[str, str]]:
    """[{"place": "layers/cache.py:12", "name": "visible", "code": …}] for "layers/cache.py: visible"."""
    found = []
    for file, names in PLACE.findall(grader_of(exercise).own):
        for name in names.split(", "):
            line, code = source_of(file, name)
            found.append({"place": f"{file}:{line}", "name": name, "code": code})
    return found
