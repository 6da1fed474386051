"""The trained models that claims ask about: trained once, shared by all claims that name the same training, and kept.

A model is found again by what made it: its recipe and the code that trains. Two claims that want it at the same time
wait for each other.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import torch

import regard
from regard.base.files import waiting_for
from regard.corpora.fetch import cache_folder
from regard.report.progress import hushed
from regard.runs.language_run import AnyRun, load
from regard.runs.train import compose_recipe, resume, train_recipe
from regard.text.corpus import open_corpus

TRAINING_CODE = (
    "text", "layers", "systems", "decoding", "evaluation", "training", "settings.py", "recipe.py", "folder.py",
    "material.py", "fit.py",
)  # fmt: skip
CLAIM_CODE = (
    "claims/claim.py", "claims/models.py", "claims/verdict.py", "insight", "laws", "run.py", "translation.py",
    "classification.py",
)  # fmt: skip


def trained(
    system: str,
    data: str,
    *,
    seed: int = 1,
    size: str | None = None,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    store: Path | None = None,
) -> AnyRun:
    """The run of this training; trained now if it has not been yet. Give `training.steps` in the settings."""
    recipe = compose_recipe(system, data=data, size=size, seed=seed, settings=settings)
    read = open_corpus(data).checksum() if data == "pyref" else ""  # another with each Python
    made_of = f"{recipe.toml()}\n{digest(TRAINING_CODE)}\n{torch.__version__}\n{read}"
    name = f"{system}-{hashlib.sha256(made_of.encode()).hexdigest()[:16]}"
    folder = (store or kept()) / "models" / name
    with waiting_for(folder.with_name(f".{folder.name}.lock")):
        if (folder / "done.json").exists():
            return load(folder)
        with hushed():
            run = resume(folder) if (folder / "run.json").exists() else train_recipe(recipe, folder)
        (folder / "done.json").write_text(json.dumps({"system": system, "data": data, "seed": seed}) + "\n")
        return run


def kept() -> Path:
    """Where results and models of claims are kept between runs."""
    return cache_folder() / "claims"


@cache
def digest(parts: tuple[str, ...]) -> str:
    """Of the source of these files and packages of Regard: when it changes, what they made is made again."""
    home = Path(regard.__file__).parent
    seen = hashlib.sha256()
    for part in parts:
        path = home / part
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            if file.exists():
                seen.update(file.relative_to(home).as_posix().encode() + b"\0" + file.read_bytes())
    return seen.hexdigest()[:16]
