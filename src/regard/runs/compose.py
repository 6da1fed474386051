"""Compose one recipe from the arguments of `train`: system, data, size, budget, recipe file, settings, parent run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from regard.base.errors import RegardError
from regard.base.numbers import with_article
from regard.runs.recipe import Recipe, Start, compose, read_in, read_recipe
from regard.runs.resolve import BY_FILE, is_small_file
from regard.runs.store.folder import is_counted, open_recipe
from regard.runs.store.gallery import find_run
from regard.systems.catalogue import find
from regard.systems.own.code import is_own, locate, require_trusted, trust_code


def compose_recipe(
    system: str | None,
    *,
    data: str | None = None,
    size: str | None = None,
    seed: int | None = None,
    budget: str | None = None,
    start: str | Path | None = None,
    recipe: str | Path | None = None,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
) -> Recipe:
    """One recipe; a particular setting overrides a general one."""
    trees: list[Mapping[str, Any]] = []
    if "from" in (settings or {}):
        raise RegardError("Name the run to start from with --from RUN, or in Python with start=.")
    known: Start | None = None
    if system is not None and is_own(system):
        system = trust_code(system).name
    if recipe is not None:
        is_of_run = (Path(recipe).parent / "run.json").is_file() and Path(recipe).name == "recipe.toml"
        tree = read_in(Path(recipe).parent) if is_of_run else read_recipe(Path(recipe))
        if system is None and is_own(str(tree["system"])):
            require_trusted(locate(str(tree["system"])), recipe)
        system = system or str(tree["system"])
        trees.append(tree)
        known = Start.of(tree)
        if known is not None and start is None:
            start = known.run
            if not (Path(start) / "run.json").is_file():
                raise RegardError(
                    f"{recipe} starts from the run {start}, which is missing: restore it, or give its new path with "
                    "--from."
                )
    if start is not None:
        start = find_run(Path(start))
        before = open_recipe(Path(start))
        check_start(before, Path(start), system, size, settings or {})
        system, size = before.system, before.size
        trees.insert(0 if known else len(trees), {"model": before.tree()["model"]})  # its own settings come after
    if system is None:
        raise RegardError("Name a system (`regard systems` lists them) or a recipe file.")
    small = size is None and not any("size" in tree for tree in trees) and is_small_file(data)
    short: dict[str, dict[str, Any]] = {"data": {}, "training": {}}
    if data is not None:
        short["data"] |= {"corpus": data, "header": "auto"}  # another file than the recipe's
    if seed is not None:
        short["training"]["seed"] = seed
    if budget is not None:
        short["training"]["budget"] = budget
    made = compose(system, "tiny" if small else size, *trees, short, settings or {})
    if start is not None:
        made = replace(made, start=Start(str(Path(start).resolve()), known.weights if known else ""))
    return replace(made, given=made.given | {BY_FILE}) if small else made


def check_start(
    before: Recipe, start: Path, system: str | None, size: str | None, settings: Mapping[str, Mapping[str, Any]]
) -> None:
    """Refuse settings that a fine-tuned run takes from the run it starts from."""
    if is_counted(before):
        raise RegardError(
            f"{start} is {with_article(before.system)}, which is trained by counting, so it cannot be "
            "fine-tuned: train a new one on both texts together."
        )
    if system is not None and find(system).name != before.system:
        raise RegardError(
            f"{start} is {with_article(before.system)}: {with_article(system)} cannot start from its weights."
        )
    if size is not None and size != before.size:
        kept = f"its size{f', {before.size}' * bool(before.size)}"
        raise RegardError(f"A run that starts from {start} keeps {kept}: leave out --size.")
    for key in ("tokenizer", "vocabulary", "normalise", "joint"):
        if key in settings.get("data", {}):
            raise RegardError(f"A run that starts from {start} keeps its tokenizer: leave out --data.{key}.")
