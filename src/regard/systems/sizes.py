"""The sizes of each system and its default training: `recipes/sizes/NAME.toml`, which is data, not code."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

SIZES = ("tiny", "small", "medium", "large")
FOLDER = Path(__file__).parent.parent / "recipes" / "sizes"


@dataclass(frozen=True)
class Sizes:
    """`training` holds for every size; `by_size[size][section]` are the settings of one."""

    training: Mapping[str, Any] = field(default_factory=dict)
    by_size: Mapping[str, Mapping[str, Mapping[str, Any]]] = field(default_factory=dict)

    def of(self, size: str, section: str = "model") -> dict[str, Any]:
        """The settings of a section ("model", "data" or "training") at a size."""
        everywhere = self.training if section == "training" else {}
        return {**everywhere, **self.by_size.get(size, {}).get(section, {})}


@cache
def read_sizes(system: str) -> Sizes:
    """The sizes of a system that comes with Regard."""
    tree = tomllib.loads((FOLDER / f"{system}.toml").read_text(encoding="utf-8"))
    return Sizes(tree.get("training", {}), {size: tree[size] for size in SIZES})


def sizes_of(system: str) -> Sizes:
    """The sizes of any system, also of a user's own file."""
    from regard.systems.catalogue import load_module
    from regard.systems.own.code import is_own

    return load_module(system).sizes if is_own(system) else read_sizes(system)
