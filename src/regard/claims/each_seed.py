"""The seeds of one experiment side by side, each in a process of its own."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from typing import TypeVar

import torch

from regard.claims.claim import Trial

Measured = TypeVar("Measured")


def each_seed(trial: Trial, measure: Callable[[Trial, int], Measured]) -> list[Measured]:
    """`measure(trial, seed)` for each seed, `trial.jobs` at a time; it must be a function of a module."""
    jobs = min(trial.jobs, len(trial.seeds))
    if jobs == 1:
        return [measure(trial, seed) for seed in trial.seeds]
    alone, results = replace(trial, jobs=1, step=_silent), []
    spawn = get_context("spawn")
    with ProcessPoolExecutor(jobs, spawn, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        for seed, result in zip(trial.seeds, pool.map(measure, [alone] * len(trial.seeds), trial.seeds)):
            results.append(result)
            trial.step(f"seed {seed}")
    return results


def _silent(note: str) -> None:
    pass
