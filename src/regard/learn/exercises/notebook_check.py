"""`%%check EXERCISE` in a notebook: the cell has the function of the sheet, and the grader's sentence is printed.

    %%check causal-mask
    def causal_mask(length):
        return …

The cell is graded as a file is, in a separate process. After it is right, it also runs in the notebook, so that later
cells can call the function.
"""

from __future__ import annotations

import ast
import secrets
import tempfile
from pathlib import Path
from typing import Any

from regard.base.errors import RegardError
from regard.learn.exercises.exercise_list import Exercise, find_exercise
from regard.learn.exercises.grading_process import grade_file


def check_cell(shell: Any, line: str, cell: str) -> None:
    """Grades the cell, prints one sentence, and runs the cell if it is right."""
    try:
        exercise = find_exercise(line.strip())
        program = f"{_imports(exercise)}\nEXERCISE = {exercise.name!r}\n{cell}"
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"{exercise.name.replace('-', '_')}.py"
            path.write_text(program, encoding="utf-8")
            found = grade_file(path, secrets.randbelow(10**6))
    except RegardError as error:
        print(f"✗ {error}")
        return
    if not found["right"]:
        print(f"✗ {exercise.name}: {found['sentence']}")
        return
    print(f"✓ {exercise.name}: right on {found['inputs']} random inputs. {found['sentence']}.")
    shell.run_cell(f"{_imports(exercise)}\n{cell}").raise_error()


def _imports(exercise: Exercise) -> str:
    """The import lines of the exercise's sheet."""
    kinds = (ast.Import, ast.ImportFrom)
    return "\n".join(ast.unparse(node) for node in ast.parse(exercise.sheet).body if isinstance(node, kinds))
