"""`exercise` and `exercise check`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from regard.base.errors import RegardError
from regard.cli.help import app_of_commands
from regard.cli.options import ARGUMENTS, Json

exercise_app = app_of_commands("exercise", "regard exercise [NAME] [OPTIONS]\n       regard exercise check FILE|FOLDER")


@exercise_app.default
def exercise(
    name: Annotated[str | None, Parameter(group=ARGUMENTS)] = None,
    *,
    out: Annotated[Path | None, Parameter(metavar="FILE")] = None,
    json: Annotated[Json, Parameter(help="print the list as JSON")] = False,
) -> None:
    """Implement one mechanism yourself: get a file with a blank, fill it in, and have it graded.

    Without a name, list the exercises. Existing files are never overwritten.

        regard exercise
        regard exercise causal-mask --out mine.py
        regard exercise check mine.py

    Parameters
    ----------
    name
        name of an exercise [default: list all exercises]
    out
        file to write; a notebook if it ends in .ipynb [default: NAME.py here, such as causal_mask.py]
    """
    from regard.learn.exercises.exercise_list import EXERCISES, find_exercise, write_sheet
    from regard.learn.lectures import find
    from regard.report.table import print_json, print_table

    if name is None:
        if out is not None:
            raise RegardError(f"Name the exercise to write to {out}, as in `regard exercise causal-mask --out {out}`.")
        headings = {"name": "exercise", "title": "what you write", "chapter": "chapter", "level": "difficulty"}
        rows: list[dict[str, Any]] = [
            {"name": each.name, "title": each.title, "chapter": find(each.lecture).page.name, "level": each.level}
            for each in EXERCISES
        ]
        if json:
            print_json(rows)
            return
        print_table([row | {"level": "★" * row["level"]} for row in rows], headings)
        print(
            "\nWrite one with `regard exercise NAME --out mine.py`; grade it with `regard exercise check mine.py`.",
            file=sys.stderr,
        )
        return
    chosen = find_exercise(name)
    path = out or Path(f"{name.replace('-', '_')}.py")
    write_sheet(chosen, path)
    print(path)
    graded = "the last cell" if path.suffix == ".ipynb" else f"regard exercise check {path}"
    print(f"Fill in the blank, then run: {graded}", file=sys.stderr)


@exercise_app.command(name="check", usage="regard exercise check FILE|FOLDER [OPTIONS]")
def check(
    file: Annotated[Path, Parameter(name="FILE|FOLDER", group=ARGUMENTS)],
    *,
    seed: int | None = None,
    jobs: int | None = None,
    json: Json = False,
) -> None:
    """Grade an answer on random inputs. If it is wrong, name the mistake in one sentence and exit with code 1.

    Given a folder of students' answers, grade every Python file in a separate process and print a table of who failed
    on what, how often each mistake occurs, and which answers are the same program.

        regard exercise check causal_mask.py
        regard exercise check causal_mask.py --seed 7
        regard exercise check submissions/ --json

    Parameters
    ----------
    file
        the file that `regard exercise NAME` wrote, with its blank filled in; or a folder of students' files or folders
    seed
        seed of the random inputs [default: a new one each time]
    jobs
        with a folder: number of files to grade at once [default: one per core]
    """
    import secrets

    from regard.base.settings import check_range
    from regard.learn.exercises.grading_process import grade_file
    from regard.report.screen import harmless
    from regard.report.table import print_json

    if seed is not None and not 0 <= seed < 2**63:
        raise RegardError(f"--seed must be at least 0 and below 2^63, not {seed}.")
    seed = secrets.randbelow(10**6) if seed is None else seed
    if jobs is not None:
        check_range("--jobs", jobs, 1)
    if file.is_dir():
        return _check_class(file, seed, jobs, json)
    found = grade_file(file, seed)
    if json:
        print_json(found)
    elif found["right"]:
        laws = f", and in a model it obeys laws {', '.join(map(str, found['laws']))}" if found["laws"] else ""
        print(f"✓ {found['exercise']}: right on {found['inputs']} random inputs{laws}. {found['sentence']}.")
    else:
        end = "" if found["sentence"].endswith("?") else "."
        print(harmless(f"✗ {found['exercise']}: {found['sentence']}{end}"))
        print(f"  To repeat these inputs: regard exercise check {file} --seed {found['seed']}", file=sys.stderr)
    if not found["right"]:
        sys.exit(1)


def _check_class(folder: Path, seed: int, jobs: int | None, json: bool) -> None:
    from regard.learn.exercises.class_grading import by_exercise, grade_class, similar, submissions
    from regard.report.progress import progress
    from regard.report.screen import harmless
    from regard.report.table import print_json, print_table

    rows = []
    with progress("grading", len(submissions(folder)), unit=" files") as bar:
        for row in grade_class(folder, seed, jobs):
            rows.append(row)
            bar.advance(1)
    summary, alike = by_exercise(rows), similar(folder, rows)
    if json:
        print_json({"seed": seed, "submissions": rows, "exercises": summary, "similar": alike})
        return
    shown = [
        {**row, "right": "✓" if row["right"] else "✗", "sentence": "" if row["right"] else harmless(row["sentence"])}
        for row in rows
    ]
    headings = {"student": "student", "exercise": "exercise", "right": "", "sentence": "what is wrong"}
    print_table(shown, headings)
    for one in summary:
        print(f"{one['exercise']}: {one['right']} of {one['answers']} right")
        for sentence, count in one["mistakes"].items():
            print(harmless(f"  {count} × {sentence}"))
    for group in alike:
        print(harmless(f"the same program up to names and layout: {', '.join(group['files'])}"))
