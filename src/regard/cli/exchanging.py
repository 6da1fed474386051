"""To and from the ecosystem: `export`, `import`."""

from __future__ import annotations

from pathlib import Path

from regard.cli.completing import RunFolder


def export_run(run: RunFolder, *, to: str, out: Path) -> None:
    """Export a run to a format that other tools read.

    Parameters
    ----------
    run
        the run's folder
    to
        arpa: the back-off format every n-gram toolkit reads
    out
        the file to write; it must not exist yet
    """
    from regard.exchange.formats import export

    export(run, to, out)
    print(out)


def import_run(file: Path, *, run: Path, tokenizer: Path | None = None) -> None:
    """Import a model from another tool as a run: an .arpa file.

    Parameters
    ----------
    file
        the model
    run
        folder of the new run
    tokenizer
        the tokenizer.json that the model's text was tokenised with; default: words are separated by spaces
    """
    from regard.exchange.formats import import_file

    print(import_file(file, run, tokenizer))
