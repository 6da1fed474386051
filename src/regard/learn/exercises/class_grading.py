"""Grades the submissions of a class: every Python file of a folder, each in a separate process with a time limit.

    submissions/ada/mask.py, submissions/ada/lstm.py       a student's folder
    submissions/grace.py                                   or a student's file

Two answers of one exercise are called similar if they are the same program up to names, comments and layout and have
at least MIN_NODES parts: short answers are often the same by chance.
"""

from __future__ import annotations

import ast
import os
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from regard.base.errors import RegardError
from regard.learn.exercises.exercise_list import MAX_ANSWER_BYTES, exercise_of
from regard.learn.exercises.grading_process import grade_file

MAX_SUBMISSIONS = 10_000
MIN_NODES = 40  # of the syntax tree of an answer


def grade_class(folder: Path, seed: int, jobs: int | None = None) -> Iterator[dict[str, Any]]:
    """One row per file, in the order of students and files: student, file, exercise, right, sentence."""
    files = submissions(folder)
    if not files:
        raise RegardError(
            f"{folder} has no Python files: put each student's answers in a folder named after the student."
        )
    workers = min(jobs or os.cpu_count() or 1, len(files))
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        for file, graded in zip(files, pool.map(_graded, files, repeat(seed)), strict=True):
            inside = file.relative_to(folder)
            student = inside.parts[0] if len(inside.parts) > 1 else inside.stem
            yield {"student": student, "file": inside.as_posix(), **graded}


def submissions(folder: Path) -> list[Path]:
    """The Python files of a folder; links are not followed."""
    found = []
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith((".", "__")))
        found += [Path(place, name) for name in sorted(files) if name.endswith(".py")]
        if len(found) > MAX_SUBMISSIONS:
            raise RegardError(f"{folder} has more than {MAX_SUBMISSIONS} Python files: grade it in parts.")
    return [path for path in found if not path.is_symlink()]


def _graded(path: Path, seed: int) -> dict[str, Any]:
    try:
        graded = grade_file(path, seed)
    except RegardError as error:
        return {"exercise": "", "right": False, "sentence": str(error)}
    return {name: graded[name] for name in ("exercise", "right", "sentence")}


def by_exercise(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """For each exercise how many answers are right, and the mistakes by their frequency."""
    summary = []
    for name in dict.fromkeys(row["exercise"] for row in rows if row["exercise"]):
        own = [row for row in rows if row["exercise"] == name]
        wrong = Counter(row["sentence"].partition(":")[0] for row in own if not row["right"])
        summary.append(
            {
                "exercise": name,
                "answers": len(own),
                "right": sum(row["right"] for row in own),
                "mistakes": dict(wrong.most_common()),
            }
        )
    return summary


def similar(folder: Path, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Answers of different students that are the same program up to names, comments and layout."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        if row["exercise"] and (shape := _shape(folder / row["file"])):
            groups[row["exercise"], shape].append(row)
    return [
        {"exercise": exercise, "files": [row["file"] for row in group]}
        for (exercise, _), group in groups.items()
        if len({row["student"] for row in group}) > 1
    ]


def _shape(path: Path) -> str:
    """The graded function's syntax tree with its variables numbered; "" if it is short or cannot be read."""
    try:
        exercise = exercise_of(path)
        tree = ast.parse(path.read_bytes()[:MAX_ANSWER_BYTES])
    except (RegardError, OSError, SyntaxError, ValueError, RecursionError):
        return ""
    answers = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == exercise.function]
    if not answers:
        return ""
    body = answers[0].body[1:] if ast.get_docstring(answers[0]) else answers[0].body
    nodes = [node for part in body for node in ast.walk(part)]
    if len(nodes) < MIN_NODES:
        return ""
    own = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    numbers: dict[str, str] = {}
    for node in nodes:
        if isinstance(node, ast.Name) and node.id in own:
            node.id = numbers.setdefault(node.id, f"v{len(numbers)}")
    return "\n".join(ast.dump(part) for part in body)
