"""`export`: write a run in a format that other programs read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from regard.cli.completion import choices
from regard.cli.options import ARGUMENTS, Json, RunFolder
from regard.exchange.formats import FORMATS

TO = "\n\n".join(f"{name}: {form.what}" for name, form in FORMATS.items())
OWN = "\n\n".join(
    f"{name} --{option}: {about}" for name, form in FORMATS.items() for option, about in (form.options or {}).items()
)


def export_run(
    run: RunFolder,
    out: Annotated[Path, Parameter(group=ARGUMENTS)],
    *,
    to: Annotated[str, Parameter(help=TO, metavar="FORMAT", completer=choices(*FORMATS))],
    check: bool = False,
    embed: bool = False,
    json: Annotated[Json, Parameter(help="with --check: print JSON")] = False,
    **options: Annotated[str, Parameter(help=OWN, metavar="VALUE")],
) -> None:
    """Export a run to a format that other programs read.

        regard export runs/mine model --to huggingface
        regard export runs/translator model --to ctranslate2 --quantization int8
        regard export runs/mine model.gguf --to gguf --check
        regard export runs/mine model.html --to page

    Parameters
    ----------
    out
        file or folder to write; it must not exist yet
    check
        load the result in the target program and print the largest difference from Regard
    embed
        with --to page: write a fragment that another page can include
    """
    from regard.cli.printing import print_facts
    from regard.exchange.formats import export

    options |= {"embed": "yes"} if embed else {}
    parity = export(run, to, out, options=options, check=check)
    if parity is None:
        print(out)
    else:
        print_facts(vars(parity), json)
