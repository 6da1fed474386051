"""Write the files of a new run. run.json is written last: a folder that contains it is a run."""

from __future__ import annotations

import datetime
import json
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

import regard
from regard.base.device import device_name
from regard.base.digests import file_digest, with_digest
from regard.base.writing import write_text, writing
from regard.runs.ancestors import NONE, Ancestors
from regard.runs.recipe import Recipe, written_in
from regard.runs.store.facts import BEGINNING, FORMAT
from regard.runs.store.folder import TOKENIZER_FILES, Tokenizers, count_parameters
from regard.systems.model import Model
from regard.systems.own.code import in_use, is_own
from regard.text.chat_template import FILE as CHAT_TEMPLATE


def write_folder(
    folder: Path, recipe: Recipe, tokenizers: Tokenizers, ancestors: Ancestors = NONE, chat_template: str = ""
) -> None:
    write_text(folder / "recipe.toml", written_in(recipe, folder))
    tokenizers.save(folder)
    ancestors.save(folder)
    if chat_template:
        write_text(folder / CHAT_TEMPLATE, chat_template)


def write_facts(
    folder: Path,
    recipe: Recipe,
    model: Model,
    origin: Mapping[str, Any],
    processes: int = 1,
    seconds: float | None = None,
    ancestors: Ancestors = NONE,
) -> None:
    """Write run.json, last: a folder that contains it is a run. `origin` describes the training text; `seconds` is the
    training time of a model without a checkpoint (an n-gram).
    """
    facts = {
        "format": FORMAT,
        "regard": regard.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "device": device_name(model.device),
        "threads": recipe.training.threads,
        **({"processes": processes} if processes > 1 else {}),
        "seed": recipe.training.seed,
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "parameters": count_parameters(model),
        **({} if seconds is None else {"seconds": seconds}),
        "corpus": dict(origin),
        **({"ancestors": ancestors.runs} if ancestors.runs else {}),
        "recipe": recipe.tree(),
        "files": {name: file_digest(folder / name) for name in TOKENIZER_FILES if (folder / name).exists()},
    }
    if is_own(recipe.system):
        code = in_use(recipe.system)
        facts["code"] = {"file": code.file.name, "sha256": code.digest}
        with writing(folder / code.file.name) as stream:
            stream.write(code.source)
    write_text(folder / "run.json", json.dumps(with_digest(facts), indent=2, ensure_ascii=False) + "\n")
    (folder / BEGINNING).unlink(missing_ok=True)
