"""From the command to its end, as a person waits for it, beside `python -c "import torch"`.

One token of a GPT, one sentence of a Transformer, and a training of one step, with what earlier commands left in the
caches (warm) or with empty ones (cold): Regard's, Triton's and the PyTorch compiler's. Every call is a process of its
own, unless a resident process answers (REGARD_RESIDENT). On a CPU the models are tiny, on a GPU medium.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory

from regard.bench.contenders import BenchPlace, BenchRow, Contender

UNIT = "starts/s"  # printed as seconds
REGARD = ("-m", "regard")
CACHES = ("REGARD_CACHE", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR")


def one_step(place: BenchPlace) -> tuple[str, ...]:
    size = "medium" if place.device.type == "cuda" else "tiny"
    return ("--size", size, "--data", "phrasebook", "--training.steps", "1", "--training.device", place.device.type)


class TimedCommand:
    """Python with these words; `cold`: with empty caches. A training gets a new folder each time."""

    parameters = 0

    def __init__(
        self, words: Sequence[str], said: str = "", *, cold: bool = False, trains: bool = False, resident: bool = False
    ) -> None:
        self.words, self.said, self.cold, self.trains = words, said, cold, trains
        self.minutes = "1" if resident else "0"

    def __call__(self) -> int:
        with TemporaryDirectory() as folder:
            cached = folder if self.cold else str(Path(work().name, "cache"))
            words = [*self.words, *(["--run", str(Path(folder, "run"))] if self.trains else [])]
            environment = os.environ | {name: str(Path(cached, name.lower())) for name in CACHES}
            environment["REGARD_RESIDENT"] = self.minutes
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
def trained(system: str, place: BenchPlace) -> str:
    folder = Path(work().name, system)
    TimedCommand([*REGARD, "train", system, *one_step(place), "--run", str(folder)])()
    return str(folder)


def generate(place: BenchPlace, resident: bool) -> TimedCommand:
    words = [*REGARD, "generate", trained("gpt", place), "--max-tokens", "1", "--device", place.device.type]
    return TimedCommand(words, resident=resident)


def translate(place: BenchPlace, resident: bool) -> TimedCommand:
    words = [*REGARD, "translate", trained("transformer", place), "--device", place.device.type]
    return TimedCommand(words, "They are watching.\n", resident=resident)


def train(system: str, cold: bool, place: BenchPlace) -> TimedCommand:
    return TimedCommand([*REGARD, "train", system, *one_step(place)], cold=cold, trains=True)


def rows(place: BenchPlace) -> list[BenchRow]:
    if place.size == "quick":
        return [row("startup version", place, lambda: TimedCommand([*REGARD, "--version"]), "pass")]
    return [
        *(
            row(f"startup {verb.__name__}{' resident' * resident}", place, partial(verb, place, resident))
            for verb in (generate, translate)
            for resident in (False, True)
        ),
        *(
            row(f"startup train {system} {heat}", place, partial(train, system, heat == "cold", place))
            for system in ("gpt", "transformer")
            for heat in ("cold", "warm")
        ),
    ]


def row(name: str, place: BenchPlace, command: Callable[[], TimedCommand], beside: str = "import torch") -> BenchRow:
    ours = Contender("Regard", command)
    peer = Contender(f'python -c "{beside}"', lambda: TimedCommand(["-c", beside]))
    return BenchRow(
        name, place, "a command from its start to its end", [ours, peer], None, warm_up=1, calls=1, unit=UNIT
    )
