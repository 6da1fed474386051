"""The machine's limits, measured in the same run, and a contender's peak memory.

Matmul rate: a product of square matrices. Copy rate: a copy of a block far larger than any cache, each byte read once
and written once. The best of all turns counts, since it is a limit.
"""

from __future__ import annotations

import ctypes
import gc
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from regard.base.device import device_name, process_memory
from regard.bench.contenders import BenchSetup


class Machine:
    def __init__(self, place: BenchSetup) -> None:
        self.place = place
        self.matmul_rate = 0.0  # floating-point operations per second
        self.copy_rate = 0.0  # bytes read and written per second
        side, block = place.of(8192, 1024, 256), 2 ** place.of(29, 28, 22)
        self._left, self._right, self._product = torch.randn(3, side, side, device=place.device).to(place.dtype)
        self._source, self._target = torch.zeros(2, block, dtype=torch.uint8, device=place.device)
        for _ in range(3):
            self.take_turn()

    def take_turn(self) -> None:
        matmul = self._seconds(lambda: torch.mm(self._left, self._right, out=self._product))
        copy = self._seconds(lambda: self._target.copy_(self._source))
        self.matmul_rate = max(self.matmul_rate, 2.0 * len(self._left) ** 3 / matmul)
        self.copy_rate = max(self.copy_rate, 2.0 * len(self._source) / copy)

    def _seconds(self, work: Callable[[], object]) -> float:
        """Seconds of one call, averaged over a few."""
        calls = self.place.of(20, 1, 1)
        wait(self.place.device)
        began = time.perf_counter()
        for _ in range(calls):
            work()
        wait(self.place.device)
        return (time.perf_counter() - began) / calls

    def as_json(self) -> dict[str, Any]:
        return {
            "device": device_name(self.place.device),
            "precision": self.place.precision,
            "threads": torch.get_num_threads(),
            "torch": torch.__version__,
            "matmul_rate": self.matmul_rate,
            "copy_rate": self.copy_rate,
        }


def wait(device: torch.device) -> None:
    """Waits for the device, since GPU calls are asynchronous."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


# -- memory ----------------------------------------------------------------------------------------------------------


class PeakMemory:
    """The peak memory since `start`, minus that at `start`: GPU tensors, or the whole process."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def start(self) -> None:
        gc.collect()
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)
            self.before = torch.cuda.memory_allocated(self.device)
        elif sys.platform == "linux":
            _give_back()
            _forget_peak()
            self.before = process_memory("VmRSS")

    def peak(self) -> int | None:
        """None where the system does not count it."""
        if self.device.type == "cuda":
            return torch.cuda.max_memory_allocated(self.device) - self.before
        return max(process_memory("VmHWM") - self.before, 0) if sys.platform == "linux" else None


def _give_back() -> None:
    """Returns freed memory to the system, or it would hide what the next contender needs."""
    with suppress(AttributeError):  # not glibc
        ctypes.CDLL(None).malloc_trim(0)


def _forget_peak() -> None:
    """Resets the kernel's peak memory counter."""
    with suppress(OSError):  # if not permitted, the peak may be too high
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
