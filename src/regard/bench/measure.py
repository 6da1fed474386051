"""All rows of the chosen benchmarks, one after the other in this process, with nothing else beside them."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence

import torch

from regard.bench.all_benchmarks import Bench
from regard.bench.contenders import BenchSetup
from regard.bench.machine import Machine
from regard.bench.turns import BenchResult, take_turns


def run_benches(
    benches: Sequence[Bench],
    place: BenchSetup,
    repeats: int,
    each: Callable[[BenchResult], object] = lambda result: None,
) -> list[BenchResult]:
    """`each` is called with every finished row. All rows of a device share one measurement of its limits."""
    machines: dict[torch.device, Machine] = {}
    results = []
    for bench in benches:
        for row in bench.rows(place):
            if row.place.device not in machines:
                machines[row.place.device] = Machine(row.place)
            results.append(take_turns(row, machines[row.place.device], repeats))
            each(results[-1])
            gc.collect()
            if row.place.device.type == "cuda":
                torch.cuda.empty_cache()
    return results
