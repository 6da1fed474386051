"""Every system there is, oldest first: what it is, whose idea it was, and where its code stands.

Nothing here imports torch, so that listing systems is instant. A new system is one more entry and one more file.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

from regard.errors import RegardError
from regard.settings import meant


@dataclass(frozen=True)
class System:
    name: str
    year: int
    title: str  # what it is, in a few words
    paper: str
    target: str  # module:Class
    task: str = "language model"
    trained: str = "gradient"  # or "counting"


SYSTEMS: tuple[System, ...] = (
    System(
        name="ngram",
        year=1948,
        title="counts of the last n − 1 words and the next",
        paper="Shannon 1948; smoothing: Kneser & Ney 1995, Chen & Goodman 1999",
        target="regard.systems.ngram:NGram",
        trained="counting",
    ),
    System(
        name="lstm",
        year=1997,
        title="a recurrent network whose gates guard a memory cell",
        paper="Hochreiter & Schmidhuber 1997; forget gate: Gers et al. 2000; language model: Merity et al. 2018",
        target="regard.systems.lstm:LSTMModel",
    ),
    System(
        name="gpt",
        year=2018,
        title="a decoder-only Transformer",
        paper="Radford et al. 2018, 2019; Transformer: Vaswani et al. 2017",
        target="regard.systems.gpt:GPT",
    ),
)


def find(name: str) -> System:
    """The entry of a system by its name."""
    for system in SYSTEMS:
        if system.name == name:
            return system
    raise RegardError(f"There is no system {name!r}{meant(name, [system.name for system in SYSTEMS])}")


def load_class(name: str) -> Any:
    """The class of a system; its file, and with it torch, is imported only now."""
    module, _, attribute = find(name).target.partition(":")
    return getattr(import_module(module), attribute)
