"""`export`: write a run in a format that other programs read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from regard.cli.completion import RunFolder
from regard.cli.options import Flag
from regard.exchange.formats import FORMATS

TO = "; ".join(f"{name}: {form.what}" for name, form in FORMATS.items())


def export_run(
    run: RunFolder,
    out: Path,
    *,
    to: Annotated[str, Parameter(help=TO)],
    check: Annotated[bool, Flag] = False,
    json: Annotated[bool, Flag] = False,
    **options: str,
) -> None:
    """Export a run to a format that other tools read.

    Parameters
    ----------
    run
        the run's folder
    out
        the file or folder to write; it must not exist yet
    check
        open what was written with the program it is for, and print the largest difference to Regard
    json
        print what the check found as JSON
    options
        a format's own, as in --quantization int8
    """
    from regard.cli.printing import print_facts
    from regard.exchange.formats import export

    parity = export(run, to, out, options=options, check=check)
    if parity is None:
        print(out)
    else:
        print_facts(vars(parity), json)
