"""CUDA graphs: record a sequence of kernels once, then replay it with one launch.

A graph stores addresses, so the recorded work must read and write tensors that stay where they are, and must not make
the host wait for the device. Before capture the work runs a few times on the same stream, as CUDA graphs require:
libraries choose their kernels and allocate their workspaces then.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any
from warnings import catch_warnings, simplefilter

import torch


class Recorder:
    """Records graphs on one stream. They share one memory pool, because only one replays at a time."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    @cached_property
    def stream(self) -> torch.cuda.Stream:
        return torch.cuda.Stream(self.device)

    @cached_property
    def pool(self) -> Any:
        return torch.cuda.graph_pool_handle()

    def warm_up(self, work: Callable[[], Any]) -> Any:
        """Runs the work on the stream that will record it."""
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            found = work()
        torch.cuda.current_stream().wait_stream(self.stream)
        return found

    def record(self, work: Callable[[], Any]) -> torch.cuda.CUDAGraph:
        """Captures the work in a graph, without computing it. Other threads may use the device meanwhile."""
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, self.pool, self.stream, capture_error_mode="thread_local"):
            work()
        return graph


def recorded(work: Callable[[], Any]) -> torch.cuda.CUDAGraph:
    """Captures the work in a graph with a memory pool of its own, after two warm-up runs."""
    recorder = Recorder(torch.device("cuda"))
    for _ in range(2):
        recorder.warm_up(work)
    return recorder.record(work)


def synchronizes(work: Callable[[], object]) -> bool:
    """True if the work makes the host wait for the device. Capturing such work would leave PyTorch unusable, so it is
    tested first. The work runs once before the test, because a first run may synchronize for setup."""
    work()
    before = torch.cuda.get_sync_debug_mode()
    with catch_warnings():
        simplefilter("ignore")  # PyTorch warns that this mode does not detect every synchronization
        torch.cuda.set_sync_debug_mode("error")
        try:
            work()
        except RuntimeError:
            return True
        finally:
            torch.cuda.set_sync_debug_mode(before)
    return False
