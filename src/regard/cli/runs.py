"""`runs`, `runs compare`, `runs rename`, `runs remove`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from regard.base.errors import RegardError
from regard.base.numbers import format_bytes, pluralize
from regard.base.settings import did_you_mean
from regard.cli.help import app_of_commands
from regard.cli.options import ARGUMENTS, Json, RunFolder, RunFolders
from regard.cli.printing import agreed, print_prose

runs_app = app_of_commands("runs", "regard runs [FOLDER] [OPTIONS]\n       regard runs compare|rename|remove RUN...")


@runs_app.default
def runs_list(folder: Annotated[Path, Parameter(group=ARGUMENTS)] = Path("runs"), *, json: Json = False) -> None:
    """List the runs in a folder and its subfolders; compare, rename or remove runs.

    `regard runs gallery` lists the trained models that come with Regard; every command that takes a run also takes
    their names, such as gallery/gpt.

        regard runs
        regard runs experiments --json
        regard runs gallery
        regard runs compare runs/mine runs/other

    Parameters
    ----------
    folder
        folder to search
    """
    from regard.report.progress import say
    from regard.report.table import print_json
    from regard.runs.store.gallery import GALLERY, find_run, gallery_names, shown_name
    from regard.runs.store.list import list_runs

    near = did_you_mean(str(folder), ["compare", "rename", "remove"])
    if not folder.exists() and near.startswith(": did"):
        raise RegardError(f"There is no folder {folder}{near}")
    folder = find_run(folder)
    rows = [row | {"run": shown_name(Path(row["run"]))} for row in list_runs(folder)]
    if json:
        print_json(rows)
        return
    if not rows:
        print(f"There are no runs in {folder}; create one with `regard train`.", file=sys.stderr)
    else:
        _print_runs(rows)
    if folder != GALLERY:
        say(f"Models that come with Regard (`regard runs gallery`): {', '.join(gallery_names())}")


def _print_runs(rows: list[dict[str, Any]]) -> None:
    from regard.report.table import print_table

    headings = {"run": "run", "system": "system"}
    if any(row["from"] for row in rows):
        headings["from"] = "from"
    headings |= {"data": "data", "created": "when", "state": "state"}
    headings |= {"best": "best validation", "parameters": "parameters", "bytes": "size"}
    print_table([row | _shown(row) for row in rows], headings)
    for row in rows:
        if row["why"]:
            print_prose(f"{row['state']}: {row['why']}", indent="  ")


def _shown(row: dict[str, Any]) -> dict[str, str | None]:
    """A row's cells as people read them."""
    step = f" at step {row['step']}" if row["step"] is not None and row["state"] in ("stopped", "running") else ""
    return {
        "created": _local_time(row["created"]),
        "state": row["state"] + step,
        "best": _best(row["best"], row["measure"]),
        "bytes": format_bytes(row["bytes"]),
    }


def _best(value: float | None, measure: str | None) -> str | None:
    from regard.report.table import significant

    return None if value is None else f"{'BLEU' if measure == 'bleu' else measure} {significant(value)}"


def _local_time(created: Any) -> str | None:
    from datetime import datetime

    try:
        return datetime.fromisoformat(created).astimezone().strftime("%Y-%m-%d %H:%M")
    except (TypeError, ValueError):
        return None


@runs_app.command(name="compare", usage="regard runs compare RUN... [OPTIONS]")
def runs_compare(*runs: RunFolders, json: Json = False) -> None:
    """Show the results of two or more runs side by side, and every setting in which they differ.

    Settings that only one run has are counted; --json lists them.

        regard runs compare runs/mine runs/other
    """
    from regard.report.table import print_json, print_table
    from regard.runs.store.list import compare_runs, short_names

    found = compare_runs(runs)
    if json:
        print_json(found)
        return
    figures = {name: cells for name, cells in found["figures"].items() if name != "from" or any(cells)}
    measures = figures.pop("measure")
    figures["best"] = [_best(value, measure) for value, measure in zip(figures["best"], measures)]
    figures["bytes"] = [format_bytes(size) for size in figures["bytes"]]
    figures["created"] = [_local_time(created) for created in figures["created"]]
    named = {"best": "best validation", "best_step": "at step", "step": "steps", "bytes": "size", "created": "when"}
    columns = [*enumerate(short_names(found["runs"]))]

    def rows(values: dict[str, list[Any]]) -> list[dict[str, Any]]:
        return [{"": named.get(key, key), **{str(n): cells[n] for n, _ in columns}} for key, cells in values.items()]

    print_table(rows(figures), {"": "", **{str(n): name for n, name in columns}})
    if found["note"]:
        print_prose(found["note"])
    print()
    if not found["settings"]:
        print("All settings are identical.")
        return
    named = {}
    shared = {key: cells for key, cells in found["settings"].items() if sum(cell is not None for cell in cells) > 1}
    print_table(rows(shared), {"": "setting", **{str(n): name for n, name in columns}})
    if alone := len(found["settings"]) - len(shared):
        print_prose(f"Only one of the runs has {pluralize(alone, 'further setting')}; --json lists them.")


@runs_app.command(name="rename", usage="regard runs rename RUN NAME")
def runs_rename(run: RunFolder, name: Annotated[str, Parameter(group=ARGUMENTS)]) -> None:
    """Rename a run; it stays in the same parent folder.

        regard runs rename runs/mine better

    Parameters
    ----------
    name
        new name, without folders
    """
    from regard.runs.store.remove import rename_run

    print(rename_run(run, name))


@runs_app.command(name="remove", usage="regard runs remove RUN... [OPTIONS]")
def runs_remove(*runs: RunFolders, yes: bool = False) -> None:
    """Delete runs after confirmation. Runs still in training are refused; files that Regard did not write are kept.

        regard runs remove runs/old runs/older
        regard runs remove runs/old --yes

    Parameters
    ----------
    yes
        do not ask for confirmation
    """
    from regard.base.locks import is_locked
    from regard.report.progress import say
    from regard.runs.store.list import size_on_disk
    from regard.runs.store.remove import check_removable, remove_run

    if not runs:
        raise RegardError("Name the runs to remove: regard runs remove runs/old.")
    for run in runs:  # all of them, before the first is removed
        check_removable(run)
        if is_locked(run / ".lock"):
            raise RegardError(f"{run} is still training: stop it first, or wait until it finishes.")
    size = format_bytes(sum(map(size_on_disk, runs)))
    what = f"{runs[0]}" if len(runs) == 1 else f"{pluralize(len(runs), 'run')}: {', '.join(map(str, runs))}"
    if not agreed(f"Remove {what} ({size})?", yes):
        say("Nothing was removed.")
        return
    for run in runs:
        if left := remove_run(run):
            say(f"{run}: these files were kept because Regard did not write them: {', '.join(map(str, left))}")
        print(run)
