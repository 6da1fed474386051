"""`compare`: systems side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from regard.base.errors import RegardError
from regard.cli.completion import complete_system
from regard.cli.options import (
    ARGUMENTS,
    DATA_OPTIONS,
    OUTPUT,
    Corpus,
    Json,
    OutputFolder,
    Prompt,
    Size,
    check_systems,
    named,
    one_of_these,
)

Match = Annotated[str, one_of_these("tokens", "seconds", "parameters")]
On = Annotated[str, one_of_these("slurm", "ray")]
COMPARE_OPTIONS = (
    "data",
    "match",
    "budget",
    "seeds",
    "size",
    "prompt",
    "jobs",
    "on",
    "placebo",
    "tune",
    "run",
    "csv",
    "latex",
    "json",
)


def compare(
    *systems: Annotated[
        str,
        Parameter(
            name="system",
            allow_leading_hyphen=True,
            completer=complete_system,
            group=ARGUMENTS,
            help="systems (`regard systems`), or your own layer, ./mine.py:MyCell [default: all for the task]",
        ),
    ],
    data: Corpus = "",
    match: Match = "",
    budget: Annotated[str, Parameter(metavar="TIME|TOKENS")] = "",
    seeds: int = 3,
    size: Size = "small",
    prompt: Prompt = "",
    jobs: int | None = None,
    on: On = "",
    placebo: bool = False,
    tune: Annotated[int, Parameter(metavar="TRIALS")] = 0,
    run: OutputFolder = None,
    csv: Annotated[Path | None, Parameter(group=OUTPUT, metavar="FILE")] = None,
    latex: Annotated[Path | None, Parameter(group=OUTPUT, metavar="FILE")] = None,
    json: Json = False,
) -> None:
    """Train systems on the same data with the same budget and compare them, with confidence intervals.

    The command prints one table and writes report.html. Language models are also compared with a 2-gram and a 5-gram;
    translators are compared by BLEU. If you name no system, all systems for the task are compared: translators if the
    data are pairs (or the phrasebook), otherwise language models. Each system is trained with three seeds, but n-grams
    are counted only once. A setting such as --model.width 128 applies to every system that has it. To continue a
    comparison that was stopped, run the same command with the same --run.

        regard compare lstm gpt --data my.txt --budget 5m
        regard compare seq2seq transformer --data pairs.tsv --tune 8
        regard compare gru ./mine.py:MyCell --data my.txt

    Parameters
    ----------
    data
        a file, a folder or the name of a corpus (`regard data`)
    match
        quantity to keep equal for all systems [default: the unit of the budget]
    budget
        number of tokens (5M; for pairs, target tokens) or time (60s) for each system
    seeds
        train each system with seeds 1 to N; with fewer than 3, the table compares runs, not systems
    prompt
        start of each language model's sample [default: the first words of the held-out text]
    jobs
        number of runs to train at once, each in its own process [default: 1; with --on, all; with --match seconds, 1]
    on
        train on other machines; append options, as in slurm:partition=gpu,time=600
    placebo
        compare each system with itself, trained with other seeds, and report how often a difference is found
    tune
        first tune each system's settings in this many trials, each with the same budget; 0 = no tuning
    run
        output folder [default: runs/compare-CORPUS]
    csv
        write the table to this new file, with full precision
    latex
        write the table to this new LaTeX file (requires the booktabs package)
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
        raise RegardError("--csv and --latex must name different files.")
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
        placebo=placebo,
        tune=tune,
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
        print("\n".join(["", done.ranking, *notes(done), f"Report: {done.report}"]))
    if done.failed:
        runs = ", ".join(done.failed)
        raise RegardError(f"Some runs failed ({runs}); to retry them, run the same command with --run {done.folder}.")
