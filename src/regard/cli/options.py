"""The options that verbs share, each declared once for cyclopts: type, group, help and completion."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Group, Parameter

from regard.base.errors import RegardError
from regard.cli.completion import choices, complete_data, complete_run

ARGUMENTS = Group("Arguments", sort_key=0)
OPTIONS = Group("Options", sort_key=1)
SEARCH = Group("Search and sampling", sort_key=2)
LANGUAGE_MODELS = Group("Language models", sort_key=3)
TRANSLATORS = Group("Translators", sort_key=4)
CLASSIFIERS = Group("Classifiers", sort_key=5)
CONSTRAINT = Group("Constraints", sort_key=6)
OUTPUT = Group("Output", sort_key=7)
MODEL = Group("Model and device", sort_key=8)


def one_of_these(*words: str, **more: Any) -> Parameter:
    """An option with a closed set of values: shown in the help and completed by the shell."""
    return Parameter(metavar=f"{{{','.join(words)}}}", completer=choices(*words), **more)


def with_default(value: Any) -> str | None:
    """The default that the help shows; None where there is nothing to show."""
    return None if value is None or value is False or value in ("", ()) else str(value)


DATA_OPTIONS = ("data.columns", "data.source", "data.target", "data.encoding")  # what is meant by --columns, …
Settings = Annotated[str, Parameter(show=False, allow_leading_hyphen=True)]


def to_run(type_: Any, tokens: Sequence[Any]) -> Path:
    """A run's folder as it was typed, or a model that comes with Regard."""
    from regard.runs.store.gallery import find_run

    return find_run(Path(tokens[0].value))


_RUN: dict[str, Any] = {"converter": to_run, "completer": complete_run, "group": ARGUMENTS}
RunFolder = Annotated[Path, Parameter(help="folder of the run", **_RUN)]
RunFolders = Annotated[Path, Parameter(name="run", help="run folders", **_RUN)]
OutputFolder = Annotated[Path | None, Parameter(metavar="DIR", group=OUTPUT)]

Corpus = Annotated[str, Parameter(metavar="FILE|NAME", completer=complete_data)]
Columns = Annotated[
    str, Parameter(name="--data.columns", metavar="NAMES", help="columns of a table, by name or number: en, or sw,en")
]
Encoding = Annotated[
    str,
    Parameter(
        name="--data.encoding",
        metavar="NAME",
        help="encoding of files without a byte-order mark, for example cp1252 (Excel on Windows)",
    ),
]
Split = Annotated[str, one_of_these("train", "valid", "test", "all")]
Size = Annotated[str, one_of_these("tiny", "small", "medium", "large", help="model size")]
Track = Annotated[
    str,
    one_of_these(
        "tensorboard",
        "mlflow",
        group=OUTPUT,
        help="log the learning curves, in RUN/tensorboard or in mlflow.db next to the run",
    ),
]

Beam = Annotated[int | None, Parameter(metavar="N", group=TRANSLATORS, help="beam size; 1 = greedy [default: 5]")]
LengthPenalty = Annotated[
    float | None,
    Parameter(metavar="X", group=TRANSLATORS, help="divide log P by the length to this power [default: 1]"),
]
TopK = Annotated[int, Parameter(metavar="K", group=SEARCH, help="sample from the K most probable tokens; 0 = all")]
TopP = Annotated[
    float,
    Parameter(metavar="P", group=SEARCH, help="sample from the most probable tokens whose probabilities sum to P"),
]
Engine = Annotated[str, one_of_these("regard", "ctranslate2", "ctranslate2-int8", group=MODEL)]
Prompt = Annotated[str, Parameter(metavar="TEXT", allow_leading_hyphen=True)]
Truncate = Annotated[bool, Parameter(help="truncate lines longer than any seen in training instead of refusing them")]
InFile = Annotated[Path | None, Parameter(name="--in", metavar="FILE")]
OutFile = Annotated[
    Path | None,
    Parameter(metavar="FILE", help="with --in: output file; if interrupted, run the same command again to continue"),
]

Weights = Annotated[
    str,
    Parameter(
        metavar="{best,last,STEP}", group=MODEL, help="weights to use: best on validation, last, or from a saved step"
    ),
]
Average = Annotated[
    int | None, Parameter(metavar="N", group=MODEL, help="average the weights of the last N validations")
]
Precision = Annotated[
    str,
    one_of_these(
        "fp32", "bf16", "int8", group=MODEL, help="faster but less exact: bf16 on a GPU, int8 (gpt, llama) on a CPU"
    ),
]
Device = Annotated[str, Parameter(metavar="{auto,cpu,cuda}", group=MODEL, help="auto selects a GPU if there is one")]
Json = Annotated[bool, Parameter(group=OUTPUT, help="print JSON")]
JsonLines = Annotated[bool, Parameter(group=OUTPUT, help="print one JSON object per line")]
Listing = Annotated[bool, Parameter(name="--list", group=OUTPUT)]


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
    """Reject a misspelled system before anything heavy is loaded; recipes and user code are checked later."""
    from regard.systems.catalogue import find
    from regard.systems.own.code import is_own

    for name in names:
        if os.path.isfile(os.path.join(name, "run.json")):
            raise RegardError(
                f"{name} is a run, not a system: `regard resume {name}` continues it, and `regard train "
                f"{os.path.join(name, 'recipe.toml')}` trains it again."
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
