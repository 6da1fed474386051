"""CUDA graphs: work that is recorded once, and then repeated by one launch.

A graph knows its tensors by their addresses, so the work must read and write tensors that stay where they are, and must
ask nothing of the device. Before a recording the work runs a few times on the same stream, as CUDA requires: libraries
choose their kernels and make their buffers then.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any
from warnings import catch_warnings, simplefilter

import torch


class Recorder:
    """Records on one stream; all its graphs share their memory, since one replays at a time."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    @cached_property
    def stream(self) -> torch.cuda.Stream:
        return torch.cuda.Stream(self.device)

    @cached_property
    def pool(self) -> Any:
        return torch.cuda.graph_pool_handle()

    def aside(self, work: Callable[[], Any]) -> Any:
        """The work as it is, on the stream that will record."""
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            found = work()
        torch.cuda.current_stream().wait_stream(self.stream)
        return found

    def record(self, work: Callable[[], Any]) -> torch.cuda.CUDAGraph:
        """The work as a graph; recording computes nothing yet. Other threads may use the device meanwhile."""
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, self.pool, self.stream, capture_error_mode="thread_local"):
            work()
        return graph


def recorded(work: Callable[[], Any], *, warm_up: int = 2, device: torch.device | None = None) -> torch.cuda.CUDAGraph:
    """The work as a graph of its own, after it was done a few times."""
    recorder = Recorder(device or torch.device("cuda"))
    for _ in range(warm_up):
        recorder.aside(work)
    return recorder.record(work)


def asks(work: Callable[[], object]) -> bool:
    """Does the work make the host wait for the device? PyTorch does not survive a recording of work that does, so it
    is tried out before. The first time does not count: things are set up then."""
    work()
    before = torch.cuda.get_sync_debug_mode()
    with catch_warnings():
        simplefilter("ignore")  # that not every way to wait is noticed
        torch.cuda.set_sync_debug_mode("error")
        try:
            work()
        except RuntimeError:
            return True
        finally:
            torch.cuda.set_sync_debug_mode(before)
    return False
