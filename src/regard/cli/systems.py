"""`systems`: list them."""

from __future__ import annotations

from regard.cli.options import Json


def systems(*, json: Json = False) -> None:
    """List the systems (kinds of model) with year, task and paper.

    Train one with `regard train NAME`.

        regard systems
        regard systems --json
    """
    from dataclasses import asdict

    from regard.report.table import print_json, print_table
    from regard.systems.catalogue import SYSTEMS

    rows = [{k: v for k, v in asdict(system).items() if k != "target"} for system in SYSTEMS]
    if json:
        print_json(rows)
    else:
        print_table(rows, {"name": "system", "year": "year", "title": "description", "task": "task", "paper": "paper"})
