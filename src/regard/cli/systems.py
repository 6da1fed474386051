"""`systems`: list them."""

from __future__ import annotations

from typing import Annotated

from regard.cli.options import Flag


def systems(*, json: Annotated[bool, Flag] = False) -> None:
    """List the systems: name, year, paper, task.

    Parameters
    ----------
    json
        print a list of objects
    """
    from dataclasses import asdict

    from regard.report.table import print_json, print_table
    from regard.systems.catalogue import SYSTEMS

    rows = [{k: v for k, v in asdict(system).items() if k != "target"} for system in SYSTEMS]
    if json:
        print_json(rows)
    else:
        print_table(rows, {"name": "system", "year": "year", "title": "what it is", "task": "task", "paper": "paper"})
