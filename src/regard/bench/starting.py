"""From the command to its end, as a person waits for it, beside `python -c "import torch"`.

One token of a small GPT, one sentence of a small Transformer, and a training of one step, with what earlier commands
left in the cache (warm) or with an empty one (cold). Every call is a process of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from regard.bench.contenders import Contender, Place, Row

UNIT = "starts/s"  # printed as seconds
REGARD = ("-m", "regard")
TINY = ("--size", "tiny", "--data", "phrasebook", "--training.steps", "1", "--training.device", "cpu")


class Command:
    """Python with these words; `cold`: in an empty cache. A training gets a new folder each time."""

    parameters = 0

    def __init__(self, words: Sequence[str], said: str = "", *, cold: bool = False, trains: bool = False) -> None:
        self.words, self.said, self.cold, self.trains = words, said, cold, trains

    def __call__(self) -> int:
        with TemporaryDirectory() as folder:
            cached = folder if self.cold else str(Path(work().name, "cache"))
            words = [*self.words, *(["--run", str(Path(folder, "run"))] if self.trains else [])]
            environment = os.environ | {"REGARD_CACHE": cached}
            subprocess.run(
                [sys.executable, "-P", *words],
                input=self.said,
                text=True,
                env=environment,
                check=True,
                capture_output=True,
            )
        return 1


@cache
def work() -> TemporaryDirectory[str]:
    """The folder for the cache and the two runs."""
    return TemporaryDirectory()


@cache
def trained(system: str) -> str:
    folder = Path(work().name, system)
    Command([*REGARD, "train", system, *TINY, "--run", str(folder)])()
    return str(folder)


def generate() -> Command:
    return Command([*REGARD, "generate", trained("gpt"), "--max-tokens", "1", "--device", "cpu"])


def translate() -> Command:
    return Command([*REGARD, "translate", trained("transformer"), "--device", "cpu"], "They are watching.\n")


def train(system: str, cold: bool) -> Command:
    return Command([*REGARD, "train", system, *TINY], cold=cold, trains=True)


def rows(place: Place) -> list[Row]:
    if place.size == "quick":
        return [row("startup version", lambda: Command([*REGARD, "--version"]), "pass")]
    return [
        row("startup generate", generate),
        row("startup translate", translate),
        *(
            row(f"startup train {system} {heat}", partial(train, system, heat == "cold"))
            for system in ("gpt", "transformer")
            for heat in ("cold", "warm")
        ),
    ]


def row(name: str, command: Callable[[], Command], beside: str = "import torch") -> Row:
    ours = Contender("Regard", command)
    peer = Contender(f'python -c "{beside}"', lambda: Command(["-c", beside]))
    here = Place(torch.device("cpu"), "small")
    return Row(name, here, "a command from its start to its end", [ours, peer], None, warm_up=1, calls=1, unit=UNIT)
