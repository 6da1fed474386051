"""`import`: a model of another program becomes a run."""

from __future__ import annotations

from pathlib import Path


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
