"""To and from the ecosystem: `export`, `import`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from regard.cli.completing import RunFolder
from regard.cli.options import Flag
from regard.exchange.formats import FORMATS

TO = "; ".join(f"{name}: {form.what}" for name, form in FORMATS.items())


def export_run(
    run: RunFolder,
    out: Path,
    *,
    to: Annotated[str, Parameter(help=TO)],
    check: Annotated[bool, Flag] = False,
    embed: Annotated[bool, Flag] = False,
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
    embed
        --to page: write a part that another page can include
    json
        print what the check found as JSON
    options
        a format's own, as in --quantization int8
    """
    from regard.cli.printing import print_facts
    from regard.exchange.formats import export

    options |= {"embed": "yes"} if embed else {}
    parity = export(run, to, out, options=options, check=check)
    if parity is None:
        print(out)
    else:
        print_facts(vars(parity), json)


def import_run(file: Path, *, run: Path | None = None, tokenizer: Path | None = None) -> None:
    """Import a model as a run: an archive, a folder of Hugging Face (GPT-2, Llama, Marian, Pegasus), or an .arpa file.

    Parameters
    ----------
    file
        the model: a file, or a folder
    run
        folder of the new run; default: runs/ and the file's name
    tokenizer
        the tokenizer.json of a run, for a model that has none; an .arpa file's words are else separated by spaces
    """
    from regard.exchange.formats import import_file

    print(import_file(file, run, tokenizer))
