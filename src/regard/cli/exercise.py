"""`exercise` and `exercise check`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from regard.base.errors import RegardError
from regard.cli.help import app_of_commands
from regard.cli.options import ARGUMENTS, Json

exercise_app = app_of_commands("exercise", "regard exercise [NAME] [OPTIONS]\n       regard exercise check FILE")


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
        file to write [default: NAME.py in this folder, such as causal_mask.py]
    """
    from regard.learn.exercises.exercise_list import EXERCISES, find_exercise, write_sheet
    from regard.report.table import print_json, print_table

    if name is None:
        if out is not None:
            raise RegardError(f"Name the exercise to write to {out}, as in `regard exercise causal-mask --out {out}`.")
        headings = {"name": "exercise", "title": "what you write", "lecture": "lecture", "level": "difficulty"}
        rows = [{key: getattr(each, key) for key in headings} for each in EXERCISES]
        if json:
            print_json(rows)
            return
        print_table([row | {"level": "★" * row["level"]} for row in rows], headings)
        print(
            "\n`regard exercise NAME --out mine.py` writes one; `regard exercise check mine.py` grades it.",
            file=sys.stderr,
        )
        return
    chosen = find_exercise(name)
    path = out or Path(f"{name.replace('-', '_')}.py")
    write_sheet(chosen, path)
    print(path)
    print(f"Fill in the blank, then run: regard exercise check {path}", file=sys.stderr)


@exercise_app.command(name="check", usage="regard exercise check FILE [OPTIONS]")
def check(file: Annotated[Path, Parameter(group=ARGUMENTS)], *, seed: int | None = None, json: Json = False) -> None:
    """Run a file and grade it on random inputs: right, or one sentence about the mistake. Exit with 1 if it is wrong.

        regard exercise check causal_mask.py
        regard exercise check causal_mask.py --seed 7

    Parameters
    ----------
    file
        the file that `regard exercise NAME` wrote, with its blank filled in
    seed
        seed of the random inputs [default: a new one each time]
    """
    import secrets

    from regard.learn.exercises.grading_process import grade_file
    from regard.report.screen import harmless
    from regard.report.table import print_json

    if seed is not None and not 0 <= seed < 2**63:
        raise RegardError(f"--seed must be at least 0 and below 2^63, not {seed}.")
    found = grade_file(file, secrets.randbelow(10**6) if seed is None else seed)
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
