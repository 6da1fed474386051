"""Trained models for claims: trained once, cached, and shared by all claims with the same training.

The cache key is the recipe and the code that trains. Two claims that need a model at the same time wait for each other.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch

from regard.base.cache import cache_folder
from regard.base.locks import lock
from regard.claims.source_digest import digest
from regard.report.progress import hushed
from regard.runs.compose import compose_recipe
from regard.runs.load import load
from regard.runs.resume import resume
from regard.runs.run import Run
from regard.runs.train import train_recipe
from regard.text.corpus import open_corpus

Kind = TypeVar("Kind", bound=Run)


def trained(
    kind: type[Kind],
    system: str,
    data: str,
    *,
    seed: int = 1,
    size: str | None = None,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    store: Path | None = None,
) -> Kind:
    """The run of this training; trained now if it is not in the cache. Give `training.steps` in the settings."""
    recipe = compose_recipe(system, data=data, size=size, seed=seed, settings=settings)
    read = open_corpus(data).checksum() if data == "pyref" else ""  # differs between Python versions
    made_of = f"{recipe.toml()}\n{digest('regard.runs.resume')}\n{torch.__version__}\n{read}"
    name = f"{system}-{hashlib.sha256(made_of.encode()).hexdigest()[:16]}"
    folder = (store or claims_cache()) / "models" / name
    with lock(folder.with_name(f".{folder.name}.lock")):
        if (folder / "done.json").exists():
            return load(folder, kind, device="cpu")
        with hushed():
            run = resume(folder) if (folder / "run.json").exists() else train_recipe(recipe, folder)
        assert isinstance(run, kind)
        (folder / "done.json").write_text(json.dumps({"system": system, "data": data, "seed": seed}) + "\n")
        return run


def claims_cache() -> Path:
    """The folder of cached results and models of claims."""
    return cache_folder() / "claims"
