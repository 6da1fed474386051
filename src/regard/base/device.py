"""The machine: device, cores and memory. torch is imported on use: commands without a model never load it."""

from __future__ import annotations

import math
import os
import platform
import sys
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

from regard.base.errors import RegardError

if TYPE_CHECKING:
    import torch


def start_driver() -> None:
    """Initializes the driver of NVIDIA GPUs, if there is one, in a thread, while torch is imported."""

    def start() -> None:
        with suppress(OSError, AttributeError):
            import ctypes

            ctypes.CDLL("libcuda.so.1").cuInit(0)

    if sys.platform == "linux" and os.path.exists("/dev/nvidiactl"):
        Thread(target=start, name="driver", daemon=True).start()


def pick_device(name: str) -> torch.device:
    """`auto` is the GPU if there is one."""
    import torch

    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError):
        device = torch.device("meta")
    if device.type not in ("cpu", "cuda"):
        raise RegardError(f"The device {name!r} is not available on this machine; use cpu, cuda or auto.")
    return device


def device_name(device: torch.device) -> str:
    import torch

    return torch.cuda.get_device_name(device) if device.type == "cuda" else f"{device} ({platform.machine()})"


def device_memory(device: torch.device) -> float:
    """The device's memory in bytes; infinite if the system does not report it."""
    import torch

    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory
    if not hasattr(os, "sysconf"):
        return math.inf
    limit = Path("/sys/fs/cgroup/memory.max")  # of a container
    text = limit.read_text(encoding="ascii").strip() if limit.is_file() else "max"
    return min(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), math.inf if text == "max" else int(text))


def peak_memory(device: torch.device) -> int:
    """Peak bytes so far: of tensors on a GPU, or of this whole process."""
    import torch

    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    if sys.platform == "linux":  # getrusage would count what a parent held when it started this process
        return process_memory("VmHWM")
    if sys.platform == "win32":
        return 0  # Windows keeps no such count for a process
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def process_memory(entry: str) -> int:
    """Bytes of this process on Linux: `VmRSS` now, `VmHWM` at its peak."""
    lines = Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{entry}:")) * 1024


def cores() -> int:
    """The CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
