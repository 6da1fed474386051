"""The seeds of one experiment side by side, each in a process of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from typing import TypeVar

import torch

from regard.claims.claim import Trial

Measured = TypeVar("Measured")


def each_seed(trial: Trial, measure: Callable[..., Measured], parts: Sequence[str] = ()) -> list[Measured]:
    """`measure(trial, seed)` for each seed, `trial.jobs` at a time; it must be a function of a module.

    With `parts`: `measure(trial, seed, part)`, the first part with every seed, then the next.
    """
    units: Sequence[tuple[int, ...] | tuple[int, str]]
    units = [(seed, part) for part in parts for seed in trial.seeds] or [(seed,) for seed in trial.seeds]
    jobs = min(trial.jobs, len(units))
    if jobs == 1:
        return [measure(trial, *unit) for unit in units]
    alone, results = replace(trial, jobs=1, step=_silent), []
    spawn = get_context("spawn")
    with ProcessPoolExecutor(jobs, spawn, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        for unit, result in zip(units, pool.map(measure, *zip(*((alone, *unit) for unit in units)))):
            results.append(result)
            trial.step(f"seed {', '.join(map(str, unit))}")
    return results


def _silent(note: str) -> None:
    pass
