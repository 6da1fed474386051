"""The parts of a benchmark: a place to run, the work, and the contenders.

The first contender of a row is Regard, the others are its peers; all do the same amount of the same work. The limit of
a row is the work's arithmetic over what the machine was measured to do:

    least seconds per token = max( operations / matmul rate,  bytes / copy rate )
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import torch

Found = TypeVar("Found")
SIZES = ("full", "small", "quick")  # for a GPU; for a CPU, in seconds; a smoke test


@dataclass(frozen=True)
class BenchPlace:
    """The device, and the size of the work."""

    device: torch.device
    size: str

    @property
    def dtype(self) -> torch.dtype:
        """The precision of products, on both sides."""
        return torch.bfloat16 if self.device.type == "cuda" else torch.float32

    @property
    def precision(self) -> str:
        return "bf16" if self.dtype == torch.bfloat16 else "fp32"

    def of(self, full: Found, small: Found, quick: Found) -> Found:
        """The one for the current size."""
        return {"full": full, "small": small, "quick": quick}[self.size]


class Workload(Protocol):
    """A contender that is ready: each call does the work once and returns how many tokens that was."""

    parameters: int

    def __call__(self) -> int: ...


@dataclass(frozen=True)
class Contender:
    """`open` builds it. It cannot run without the packages, or the GPU, that it `needs`."""

    name: str
    open: Callable[[], Workload]
    needs: Sequence[str] = ()
    needs_gpu: bool = False


@dataclass(frozen=True)
class Cost:
    """The least cost of one token."""

    operations: float = 0.0  # floating-point, in products
    bytes: float = 0.0  # read from or written to memory

    def bound(self, matmul_rate: float, copy_rate: float) -> tuple[float, str]:
        """The most tokens per second, and which of the two bounds them."""
        arithmetic, memory = self.operations / matmul_rate, self.bytes / copy_rate
        return 1 / max(arithmetic, memory), "operations" if arithmetic >= memory else "bytes"


@dataclass(frozen=True)
class BenchRow:
    name: str
    place: BenchPlace
    work: str  # shapes and precision, in a few words
    contenders: Sequence[Contender]
    cost: Cost | None  # None: nothing simple bounds it
    warm_up: int  # calls before anything is timed
    calls: int  # calls in each timed turn
    unit: str = "tokens/s"
