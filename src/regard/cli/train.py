"""`train`: make a run."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from regard.base.device import start_driver
from regard.base.errors import RegardError
from regard.base.settings import check_range
from regard.cli.completion import complete_run, complete_target
from regard.cli.options import (
    ARGUMENTS,
    DATA_OPTIONS,
    OUTPUT,
    Corpus,
    Json,
    OutputFolder,
    Settings,
    Size,
    Track,
    check_systems,
)
from regard.cli.printing import print_facts
from regard.systems.catalogue import SYSTEMS

Target = Annotated[
    str | None,
    Parameter(
        name="system|recipe",
        allow_leading_hyphen=True,
        completer=complete_target,
        group=ARGUMENTS,
        help=f"{', '.join(system.name for system in SYSTEMS)}; a recipe.toml; or your own layer, ./mine.py:MyCell",
    ),
]
TRAIN_OPTIONS = ("data", "run", "size", "seed", "budget", "from", "tune", "track", "print-recipe", "dry-run", "json")


def train(
    target: Target = None,
    /,
    *settings: Settings,
    data: Corpus | None = None,
    size: Annotated[Size | None, Parameter(help="model size [default: small; tiny for a small corpus]")] = None,
    seed: int | None = None,
    budget: Annotated[str | None, Parameter(metavar="TIME|TOKENS")] = None,
    start: Annotated[Path | None, Parameter(name="--from", metavar="RUN", completer=complete_run)] = None,
    dry_run: bool = False,
    tune: Annotated[int, Parameter(metavar="TRIALS")] = 0,
    run: OutputFolder = None,
    track: Track = "",
    print_recipe: Annotated[bool, Parameter(group=OUTPUT)] = False,
    json: Annotated[Json, Parameter(help="with --dry-run: print JSON")] = False,
) -> None:
    """Train a model on your data and save it as a run.

    Every setting of the model, the data and the training is also an option, such as --model.layers 3 or
    --training.steps 500. `regard train SYSTEM --print-recipe` lists all of them with their defaults.

        regard train lstm --data my.txt --run runs/mine
        regard train transformer --data pairs.tsv --size small --budget 10m
        regard train runs/mine/recipe.toml
        regard train gpt --print-recipe

    Parameters
    ----------
    data
        a file, a folder or the name of a corpus (`regard data`) [default: pyref; translators: phrasebook]
    seed
        random seed, short for --training.seed [default: 1]
    budget
        wall-clock time (60s, 10m, 2h) or number of tokens (5M) to train for; short for --training.budget
    start
        fine-tune: start from the weights and the tokenizer of this run
    dry_run
        estimate parameters, memory and time from three measured steps and exit
    tune
        first tune the settings in this many trials, each with the same budget, saved in RUN-trials; 0 = no tuning
    run
        output folder [default: runs/SYSTEM-CORPUS]
    print_recipe
        print every setting with its documentation as TOML and exit
    """
    began = time.perf_counter()  # before anything heavy is imported
    check_systems([target] if target is not None and not target.startswith("--") else [])
    start_driver()
    from regard.runs.compose import compose_recipe
    from regard.runs.dry_run import dry_run as estimate
    from regard.runs.recipe import parse_overrides
    from regard.runs.store.lock import check_free
    from regard.runs.train import train_recipe

    if target is not None and target.startswith("--"):  # no system was named, so the first setting stands in its place
        settings, target = (target, *settings), None
    is_file = target is not None and target.endswith(".toml")
    given = parse_overrides(settings, (*TRAIN_OPTIONS, *DATA_OPTIONS), target)
    recipe = compose_recipe(
        None if is_file else target,
        data=data,
        size=size,
        seed=seed,
        budget=budget,
        start=start,
        recipe=target if is_file else None,
        settings=given,
    )
    if tune:
        from regard.comparison.tuning import tune_recipe

        check_range("--tune", tune, 1)
        if run is None or is_file:
            raise RegardError("--tune needs --run, a name for the run and its trials, and a system, not a recipe file.")
        check_free(run)
        recipe = tune_recipe(recipe, tune, given, run)
    if print_recipe:
        print(recipe.documented(), end="")
    elif dry_run:
        print_facts(estimate(recipe), json)
    else:
        print(train_recipe(recipe, run, track=track, began=began).folder)
