"""`import`: turn another program's model into a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from regard.cli.options import ARGUMENTS, OutputFolder


def import_run(
    file: Annotated[Path, Parameter(group=ARGUMENTS)],
    *,
    run: OutputFolder = None,
    tokenizer: Annotated[Path | None, Parameter(metavar="FILE")] = None,
) -> None:
    """Import a model as a run: an archive, a Hugging Face folder (GPT-2, Llama, Marian, Pegasus), or an .arpa file.

        regard import model.zip --run runs/from-a-colleague
        regard import gpt2/ --run runs/gpt2
        regard import news.arpa

    Parameters
    ----------
    file
        the model: a file or a folder
    run
        output folder [default: runs/ and the file's name]
    tokenizer
        tokenizer.json of a run, for a model without one [default for .arpa: words separated by spaces]
    """
    from regard.exchange.formats import import_file

    print(import_file(file, run, tokenizer))
