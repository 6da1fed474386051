"""Timing in alternating turns, A B A B …, so that disturbances affect both sides; warm-up is not timed.

rate = tokens of a turn / its seconds          ratio = median over turns of (Regard's rate / the peer's)
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from statistics import median
from typing import Any

import torch

from regard.bench.contenders import BenchPlace, BenchRow, Contender, Workload
from regard.bench.machine import Machine, PeakMemory, wait


@dataclass
class TimedContender:
    """A contender and its measurements; `why`: the reason if it could not run."""

    contender: Contender
    work: Workload | None = None
    why: str = ""
    parameters: int = 0
    amount: int = 0  # tokens of a call
    memory: int | None = None  # bytes
    rates: list[float] = field(default_factory=list)

    @property
    def running(self) -> bool:
        return self.work is not None

    def leave(self, why: str) -> None:
        self.work, self.rates, self.why = None, [], why
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


@dataclass(frozen=True)
class BenchResult:
    row: BenchRow
    machine: Machine
    entries: list[TimedContender]  # Regard first

    @property
    def limit(self) -> tuple[float, str] | None:
        cost = self.row.cost
        return None if cost is None else cost.bound(self.machine.matmul_rate, self.machine.copy_rate)

    def ratio(self, peer: TimedContender) -> float | None:
        ours = self.entries[0].rates
        return median(a / b for a, b in zip(ours, peer.rates)) if ours and peer.rates else None

    def share(self, entry: TimedContender) -> float | None:
        return median(entry.rates) / self.limit[0] if entry.rates and self.limit else None

    def as_json(self) -> dict[str, Any]:
        row, limit = self.row, self.limit
        return {
            "name": row.name,
            "work": row.work,
            "unit": row.unit,
            "size": row.place.size,
            "warm_up_calls": row.warm_up,
            "calls_per_repeat": row.calls,
            "machine": self.machine.as_json(),
            "limit": limit and {"rate": limit[0], "bound_by": limit[1], **asdict(row.cost)},  # type: ignore[arg-type]
            "contenders": [self._contender(entry) for entry in self.entries],
        }

    def _contender(self, entry: TimedContender) -> dict[str, Any]:
        return {
            "name": entry.contender.name,
            "parameters": entry.parameters or None,
            "tokens_per_call": entry.amount or None,
            "rates": entry.rates,
            "median": median(entry.rates) if entry.rates else None,
            "spread": spread(entry.rates),
            "ratio_of_regard": None if entry is self.entries[0] else self.ratio(entry),
            "share_of_limit": self.share(entry),
            "peak_memory_bytes": entry.memory,
            "could_not_run": entry.why or None,
        }


def spread(rates: list[float]) -> float | None:
    """Half the range between the slowest and the fastest turn, as a share of the median."""
    return (max(rates) - min(rates)) / 2 / median(rates) if rates else None


def take_turns(row: BenchRow, machine: Machine, repeats: int) -> BenchResult:
    entries = [TimedContender(contender, why=absent(contender, row.place)) for contender in row.contenders]
    for entry in entries:
        if not entry.why:
            attempt(warm_up, entry, row)
    ours = entries[0]
    for peer in entries[1:]:
        if ours.running and peer.running and peer.amount != ours.amount:
            peer.leave(f"It wrote or read {peer.amount} tokens instead of {ours.amount}, so it is not comparable.")
    for _ in range(repeats):
        machine.take_turn()
        for entry in entries:
            if entry.running:
                attempt(turn, entry, row)
    for entry in entries:
        entry.work = None
    return BenchResult(row, machine, entries)


def absent(contender: Contender, place: BenchPlace) -> str:
    for package in contender.needs:
        if find_spec(package) is None:
            return f"The package {package} is not installed here: pip install {package}."
    if contender.needs_gpu and place.device.type != "cuda":
        return "It needs an NVIDIA GPU, but this run is on a CPU."
    return ""


def warm_up(entry: TimedContender, row: BenchRow) -> None:
    device = row.place.device
    if device.type == "cpu":
        entry.contender.open()()  # first load libraries and kernels, so that they do not count as a contender's memory
    memory = PeakMemory(device)
    memory.start()
    entry.work = entry.contender.open()
    entry.parameters = entry.work.parameters
    for _ in range(row.warm_up):
        entry.amount = entry.work()
    wait(device)
    entry.memory = memory.peak()


def turn(entry: TimedContender, row: BenchRow) -> None:
    """Tokens per second of one turn."""
    assert entry.work is not None
    wait(row.place.device)
    began, amount = time.perf_counter(), 0
    for _ in range(row.calls):
        amount += entry.work()
    wait(row.place.device)
    entry.rates.append(amount / (time.perf_counter() - began))


def attempt(do: Callable[[TimedContender, BenchRow], None], entry: TimedContender, row: BenchRow) -> None:
    """Runs a turn; running out of memory, or any error of a peer, removes that contender with a reason."""
    why = ""
    try:
        do(entry, row)
    except Exception as error:
        if isinstance(error, MemoryError) or re.search("out of memory|can't allocate|allocate memory", str(error)):
            why = f"There is not enough memory on {row.place.device}."
        elif entry.contender.name == "Regard":
            raise
        else:
            why = sentence(error)
    if why:  # only now is the error, with its tensors, released
        entry.leave(why)


def sentence(error: Exception) -> str:
    first = (str(error).strip().splitlines() or [""])[0]
    return f"It failed with {type(error).__name__}: {first[:120]}"
