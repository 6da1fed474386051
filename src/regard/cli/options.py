"""What the verbs' options share: how they are declared to cyclopts, and what becomes of them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Annotated, Any

from cyclopts import Parameter

from regard.base.errors import RegardError

Flag = Parameter(negative=())
DATA_OPTIONS = ("data.columns", "data.source", "data.target", "data.encoding")  # what is meant by --columns, …
Columns = Annotated[str, Parameter(name="--data.columns")]
Encoding = Annotated[str, Parameter(name="--data.encoding")]
Settings = Annotated[str, Parameter(show=False, allow_leading_hyphen=True)]


def named(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """System names, and the --section.key value pairs among them."""
    names: list[str] = []
    settings: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if not word.startswith("-"):
            names.append(word)
            continue
        settings.append(word)
        if "=" not in word and rest:
            settings.append(rest.pop(0))
    return names, settings


def check_systems(names: Sequence[str]) -> None:
    """Answer a misspelt system before anything heavy is loaded; recipes and one's own code are looked at later."""
    from regard.systems.catalogue import find
    from regard.systems.own.code import is_own

    for name in names:
        if os.path.isfile(os.path.join(name, "run.json")):
            raise RegardError(
                f"{name} is a run, not a system: `regard resume {name}` continues it, and `regard train "
                f"{os.path.join(name, 'recipe.toml')}` trains it anew."
            )
        if not name.endswith(".toml") and not is_own(name):
            find(name)


def beam_search(width: int | None, length_penalty: float | None, n_best: int = 1) -> Any:
    from regard.decoding.beam import Beam

    width = max(5, n_best) if width is None else width
    return Beam(width, 1.0 if length_penalty is None else length_penalty, n_best)


def given_options(loaded: Any, verb: str, options: dict[str, Any]) -> dict[str, Any]:
    """The options that are not None, by their names in Python; one that the run's task does not have is refused."""
    from regard.runs.tasks.task import task_of

    task = task_of(loaded)
    given = {name: value for name, value in options.items() if value is not None}
    for name in given:
        if name not in task.options.get(verb, ()):
            raise RegardError(f"{loaded.folder} is {task.noun} ({loaded.recipe.system}): {name} does not apply here.")
    return {name.removeprefix("--").replace("-", "_"): value for name, value in given.items()}
