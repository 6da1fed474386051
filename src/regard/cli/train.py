"""`train`: make a run."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from regard.cli.completion import Corpus, Size, Track, complete_target
from regard.cli.options import DATA_OPTIONS, Flag, Settings, check_systems
from regard.cli.printing import print_facts

TRAIN_OPTIONS = ("data", "run", "size", "seed", "budget", "from", "track", "print-recipe", "dry-run", "json")


def train(
    target: Annotated[str | None, Parameter(allow_leading_hyphen=True, completer=complete_target)] = None,
    /,
    *settings: Settings,
    data: Corpus | None = None,
    run: Path | None = None,
    size: Size | None = None,
    seed: int | None = None,
    budget: str | None = None,
    start: Annotated[Path | None, Parameter(name="--from")] = None,
    track: Track = "",
    print_recipe: Annotated[bool, Flag] = False,
    dry_run: Annotated[bool, Flag] = False,
    json: Annotated[bool, Flag] = False,
) -> None:
    """Train a system, or a recipe file, on a text. Every setting can be given: --model.layers 3 --training.steps 500.

    Parameters
    ----------
    target
        a system (`regard systems`), a layer of your own (./mine.py:MyCell), or a recipe.toml
    data
        a built-in or known corpus, or your own file or folder (docs/data.md): text, pairs, a table with --data.columns;
        default: pyref, for translators phrasebook
    run
        folder of the new run; default: runs/SYSTEM-CORPUS
    size
        tiny, small, medium or large
    seed
        short for --training.seed
    budget
        short for --training.budget: 60s, 10m, 2h from the command to its end, or tokens such as 5M
    start
        start from the weights and tokenizer of this run (fine-tuning)
    track
        draw the curves while it learns: tensorboard (in RUN/tensorboard) or mlflow (in mlflow.db beside the run)
    print_recipe
        print every setting with its documentation, as TOML, and stop
    dry_run
        estimate parameters, memory and time from three measured steps, and stop
    json
        with --dry-run: print one object
    """
    began = time.perf_counter()  # before anything heavy is imported
    check_systems([target] if target is not None and not target.startswith("--") else [])
    from regard.runs import train as fit
    from regard.runs.recipe import parse_overrides

    if target is not None and target.startswith("--"):  # no system was named, so the first setting stands in its place
        settings, target = (target, *settings), None
    is_file = target is not None and target.endswith(".toml")
    recipe = fit.compose_recipe(
        None if is_file else target,
        data=data,
        size=size,
        seed=seed,
        budget=budget,
        start=start,
        recipe=target if is_file else None,
        settings=parse_overrides(settings, (*TRAIN_OPTIONS, *DATA_OPTIONS), target),
    )
    if print_recipe:
        print(recipe.documented(), end="")
    elif dry_run:
        print_facts(fit.dry_run(recipe), json)
    else:
        print(fit.train_recipe(recipe, run, track=track, began=began).folder)
