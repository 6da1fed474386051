"""A class of 60 generated submissions, graded by `regard exercise check FOLDER`: minutes, and mistakes found.

    python studies/class_of_60.py [--students 60] [--seed 1]

A third of the students submit a right answer, almost half of them one of the mistakes in
tests/unit/learn/exercises/answers.py, one in six something that fails in another way: a loop that never ends, a process
that exits, a blank sheet, a syntax error. Three copy an answer and change its names. The grader sees only the files.
"""

from __future__ import annotations

import argparse
import ast
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "unit" / "learn" / "exercises"))

from answers import SOLUTIONS, WRONG, filled

from regard.learn.exercises.exercise_list import EXERCISES, Exercise

COPIES = 3  # pairs of the last students: one answer, and the same with other names
OTHER = {
    "endless": ("while True:\n    pass", "never ends"),
    "exit": ("import os\nos._exit(0)", "ended the process"),
    "blank": ("", "blank is still empty"),
    "syntax": ("return (", "not valid Python"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--students", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        kinds, programs = submissions(folder, options.students, Random(options.seed))
        began = time.monotonic()
        command = [sys.executable, "-m", "regard", "exercise", "check", str(folder), "--seed", "1", "--json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        minutes = (time.monotonic() - began) / 60
    found = json.loads(done.stdout)
    rows = {row["student"]: row for row in found["submissions"]}
    totals: Counter[str] = Counter()
    verdicts: Counter[str] = Counter()
    named: Counter[str] = Counter()
    for student, (kind, sentence) in kinds.items():
        row = rows[student]
        totals[kind] += 1
        verdicts[kind] += row["right"] == (kind == "right")
        named[kind] += sentence in row["sentence"]
        if row["right"] != (kind == "right") or sentence not in row["sentence"]:
            print(f"  {student} ({kind}): expected “{sentence}”, got “{row['sentence']}”")
    for kind, total in totals.items():
        told = "" if kind == "right" else f", cause named {named[kind]} of {total}"
        print(f"{kind}: verdict right {verdicts[kind]} of {total}{told}")
    reported = [set(one["files"]) for one in found["similar"]]
    hidden = [
        files for files in programs.values() if any(int(file[7:9]) >= options.students - 2 * COPIES for file in files)
    ]
    print(f"renamed copies: {sum(any(files <= one for one in reported) for files in hidden)} of {len(hidden)} reported")
    false = sum(not any(one <= files for files in programs.values()) for one in reported)
    print(f"reported groups that are not one program: {false} of {len(reported)}")
    print(f"{len(rows)} submissions in {minutes:.1f} minutes")


def submissions(folder: Path, students: int, random: Random) -> tuple[dict[str, tuple[str, str]], dict[str, set[str]]]:
    """One file per student: kind and expected sentence of each, and the files of each program, whatever its names."""
    kinds: dict[str, tuple[str, str]] = {}
    programs: dict[str, set[str]] = {}
    longest = sorted(EXERCISES, key=lambda one: -len(SOLUTIONS[one.name]))
    for number in range(students):
        name, copied = f"student{number:02}", number >= students - 2 * COPIES
        exercise = longest[(students - 1 - number) // 2] if copied else random.choice(EXERCISES)
        kind = "right" if copied else random.choices(("right", "known", "other"), (8, 11, 4))[0]
        if kind == "right":
            body, kinds[name] = SOLUTIONS[exercise.name], ("right", "")
        elif kind == "known":
            body, sentence = random.choice(WRONG[exercise.name])
            kinds[name] = ("known mistake", sentence)
        else:
            which = random.choice(list(OTHER))
            body, sentence = OTHER[which]
            kinds[name] = (which, sentence)
        text = filled(exercise.sheet, body) if body else exercise.sheet
        if copied and number % 2:
            text = renamed(exercise, body)
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
        programs.setdefault(f"{exercise.name}\n{body}", set()).add(f"{name}.py")
    return kinds, programs


def renamed(exercise: Exercise, body: str) -> str:
    """The answer with other names for its own variables, and other comments."""
    tree = ast.parse(filled(exercise.sheet, body))
    own = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    own -= {"EXERCISE", *(node.arg for node in ast.walk(tree) if isinstance(node, ast.arg))}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in own:
            node.id = f"my_{node.id}"
    return f"# my own work\n{ast.unparse(tree)}\n"


if __name__ == "__main__":
    main()
