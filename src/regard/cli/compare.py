"""`compare`: systems side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from regard.base.errors import RegardError
from regard.cli.completion import Corpus, On, Size, complete_system
from regard.cli.options import DATA_OPTIONS, Flag, check_systems, named

COMPARE_OPTIONS = ("data", "match", "budget", "seeds", "size", "prompt", "jobs", "on", "run", "csv", "latex", "json")


def compare(
    *systems: Annotated[str, Parameter(show=False, allow_leading_hyphen=True, completer=complete_system)],
    data: Corpus = "",
    match: str = "",
    budget: str = "",
    seeds: int = 1,
    size: Size = "small",
    prompt: Annotated[str, Parameter(allow_leading_hyphen=True)] = "",
    jobs: int | None = None,
    on: On = "",
    run: Path | None = None,
    csv: Path | None = None,
    latex: Path | None = None,
    json: Annotated[bool, Flag] = False,
) -> None:
    """Train systems on the same data, tokens and budget; print one table with intervals, and write report.html.

    `regard compare lstm gpt --data my.txt` compares them with a 2-gram and a 5-gram; `regard compare seq2seq
    transformer --data pairs.tsv` compares translators, by BLEU. If no system is named, all systems of a task are
    compared: translators if the data are pairs (also on the phrasebook), else language models. --section.key value
    applies to every system that has the setting. Run again with the same --run, it continues a comparison that was
    stopped.

    Parameters
    ----------
    data
        a built-in or known corpus, or your own file or folder (docs/data.md): text, pairs, a table with --data.columns
    match
        what is equal for all: tokens, seconds, or parameters (and tokens); default: what the budget counts
    budget
        tokens such as 5M (of the targets, where there are pairs), or a time such as 60s
    seeds
        train each system with the seeds 1 to N; intervals then cover seeds too
    size
        tiny, small, medium or large
    prompt
        what each language model's sample begins with; default: the first words of the held-out text
    jobs
        runs at a time, each in its own process; default: 1, with --on all; with --match seconds only 1
    on
        train on other machines: slurm or ray, with options as in slurm:partition=gpu,time=600 (docs/scaling.md)
    run
        folder of the comparison; default: runs/compare-CORPUS
    csv
        write the table to this new file, with full precision
    latex
        write the table to this new file, for a paper that loads booktabs
    json
        print a list of objects
    """
    names, settings = named(systems)
    check_systems(names)
    from regard.base.locks import write_new
    from regard.comparison.comparison import check_free
    from regard.comparison.comparison import compare as run_comparison
    from regard.comparison.findings import notes
    from regard.report.table import print_json, print_table
    from regard.runs.recipe import parse_overrides

    check_free(csv, "--csv")
    check_free(latex, "--latex")
    if csv is not None and csv == latex:
        raise RegardError("--csv and --latex need two different files.")
    done = run_comparison(
        names,
        data=data,
        match=match,
        budget=budget,
        seeds=seeds,
        size=size,
        prompt=prompt,
        jobs=jobs,
        on=on,
        run=run,
        settings=parse_overrides(settings, (*COMPARE_OPTIONS, *DATA_OPTIONS)),
    )
    if csv is not None:
        write_new(csv, done.csv())
    if latex is not None:
        write_new(latex, done.latex())
    if json:
        print_json(done.rows)
    else:
        print_table(done.shown, done.columns, done.title)
        print("\n".join(["", done.ranking, *notes(done), f"The report: {done.report}"]))
    if done.failed:
        runs = ", ".join(done.failed)
        raise RegardError(f"Some runs failed ({runs}); the same command with --run {done.folder} retries them.")
