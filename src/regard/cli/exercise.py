"""`exercise` and `exercise check`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import App, Group

from regard.base.errors import RegardError
from regard.cli.options import Flag

exercise_app = App(
    name="exercise",
    help="Write one mechanism yourself: take a file with a blank, and have it checked.",
    group_commands=Group("Commands"),
)


@exercise_app.default
def exercise(name: str | None = None, *, out: Path | None = None, json: Annotated[bool, Flag] = False) -> None:
    """List the exercises, or write the file of one, with its blank. No file is overwritten.

    Parameters
    ----------
    name
        an exercise of the list; without it, the list
    out
        where to write it; without it, a file of its name in this folder, such as causal_mask.py
    json
        print the list as objects
    """
    from regard.learn.exercises.exercise_list import EXERCISES, find_exercise, write_sheet
    from regard.report.table import print_json, print_table

    if name is None:
        if out is not None:
            raise RegardError(f"Say which exercise to write to {out}, as in `regard exercise causal-mask --out {out}`.")
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
    print(f"Fill the blank, then: regard exercise check {path}", file=sys.stderr)


@exercise_app.command(name="check")
def check(file: Path, *, seed: int | None = None, json: Annotated[bool, Flag] = False) -> None:
    """Grade a file on random inputs: right, or one sentence about what is wrong. Exit 1 if it is wrong. Runs the file.

    Parameters
    ----------
    file
        what `regard exercise NAME` wrote, with its blank filled
    seed
        of the random inputs; without it, another one each time
    json
        print one object
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
        print(f"  The same inputs again: regard exercise check {file} --seed {found['seed']}", file=sys.stderr)
    if not found["right"]:
        sys.exit(1)
