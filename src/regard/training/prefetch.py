"""Batches made ahead: while a GPU works on one step, a thread makes the batches of the next ones.

A batch is a function of the step number, so neither the order of batches nor a resume depends on who makes it, or when.
The training itself pins a batch and sends it off, without waiting: that costs a few microseconds, and a thread that
speaks to the GPU would have to be kept quiet while a CUDA graph is recorded. On a CPU nothing is made ahead: the thread
would take the cores that compute.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

import torch

from regard.text.batches import Batch
from regard.text.pair_batches import PairBatch

AHEAD = 4  # batches that are ready before they are asked for


class Batches(Protocol):
    steps_per_epoch: int

    def batch(self, step: int) -> Batch | PairBatch: ...


class Feed:
    """The batch of any step; asked for one after the other on a GPU, they are ready before."""

    def __init__(self, batches: Batches, device: torch.device, ahead: int | None = None) -> None:
        self.batches = batches
        self.ahead = (AHEAD if device.type == "cuda" else 0) if ahead is None else ahead
        self.waiting: deque[tuple[int, Future[Batch | PairBatch]]] = deque()
        self.thread: ThreadPoolExecutor | None = None

    def __call__(self, step: int) -> Batch | PairBatch:
        if not self.ahead:
            return self.batches.batch(step)
        if self.waiting and self.waiting[0][0] != step:  # the training stands elsewhere than it did
            self.close()
        if self.thread is None:
            self.thread = ThreadPoolExecutor(1, "batches")
        while len(self.waiting) <= self.ahead:
            following = step + len(self.waiting)
            self.waiting.append((following, self.thread.submit(self.batches.batch, following)))
        return self.waiting.popleft()[1].result()  # what went wrong in the thread is raised here

    def close(self) -> None:
        """Let the thread end; a next call starts another."""
        if self.thread is not None:
            self.thread.shutdown(cancel_futures=True)
        self.thread = None
        self.waiting.clear()
