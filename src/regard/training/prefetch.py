"""Prefetching: while a GPU computes one step, a thread prepares the batches of the next ones.

A batch is a function of the step number, so prefetching changes neither the order of batches nor a resume. The training
thread pins and copies a batch asynchronously, which takes a few microseconds; the prefetching thread never calls CUDA,
because that could break the capture of a CUDA graph. On a CPU there is no prefetching: the thread would compete for the
cores.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

import torch

from regard.text.batches.pair_batches import PairBatch
from regard.text.batches.text_batches import Batch

AHEAD = 4  # batches to prefetch


class Batches(Protocol):
    steps_per_epoch: int

    def batch(self, step: int) -> Batch | PairBatch: ...


class PrefetchingLoader:
    """Returns the batch of any step; on a GPU the following ones are prefetched."""

    def __init__(self, batches: Batches, device: torch.device, ahead: int | None = None) -> None:
        self.batches = batches
        self.ahead = (AHEAD if device.type == "cuda" else 0) if ahead is None else ahead
        self.waiting: deque[tuple[int, Future[Batch | PairBatch]]] = deque()
        self.thread: ThreadPoolExecutor | None = None

    def __call__(self, step: int) -> Batch | PairBatch:
        if not self.ahead:
            return self.batches.batch(step)
        if self.waiting and self.waiting[0][0] != step:  # the step number jumped
            self.close()
        if self.thread is None:
            self.thread = ThreadPoolExecutor(1, "batches")
        while len(self.waiting) <= self.ahead:
            following = step + len(self.waiting)
            self.waiting.append((following, self.thread.submit(self.batches.batch, following)))
        return self.waiting.popleft()[1].result()  # raises what failed in the thread

    def close(self) -> None:
        """Stops the thread; a later call starts another."""
        if self.thread is not None:
            self.thread.shutdown(cancel_futures=True)
        self.thread = None
        self.waiting.clear()
