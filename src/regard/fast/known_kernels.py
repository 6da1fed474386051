"""The fastest kernel for each product, cached on disk by GPU and versions.

Trying all kernels of one shape takes a GPU some ten milliseconds, and a training on sentence pairs has hundreds of
shapes. A kernel also serves up to `SHARED` times as many rows, or as few. Callers check the first result of a
cached kernel. Choices between a kernel and PyTorch's own call are cached in the same way, as one byte.
"""

from __future__ import annotations

import atexit
import hashlib
import json
from contextlib import suppress
from pathlib import Path

import torch

from regard.base.cache import cache_folder, read_cached, write_cached
from regard.base.errors import RegardError

SHARED = 2.0
DRIVER = Path("/proc/driver/nvidia/version")

Kernels = dict[str, dict[int, bytes]]  # kind of product → rows → the kernel


class KnownKernels:
    """`path`: the file in the cache; None = remembered by this object alone."""

    def __init__(self, path: Path | None = None) -> None:
        self.path, self.found, self.changed = path, read_kernels(path), False
        if path is not None:
            atexit.register(self.save)

    def near(self, kind: str, rows: int) -> bytes | None:
        """The kernel for this number of rows, or for the nearest number that may share one."""
        known = self.found.get(kind, {})
        close = [other for other in known if rows <= SHARED * other and other <= SHARED * rows]
        return known[min(close, key=lambda other: abs(other - rows))] if close else None

    def add(self, kind: str, rows: int, kernel: bytes) -> None:
        self.found.setdefault(kind, {})[rows] = kernel
        self.changed = True

    def save(self) -> None:
        """Writes what was added, beside what other processes have written meanwhile."""
        if self.path is None or not self.changed:
            return
        merged = read_kernels(self.path)
        for kind, kernels in self.found.items():
            merged.setdefault(kind, {}).update(kernels)
        with suppress(OSError, RegardError):  # a cache that cannot be written is done without
            written = {kind: {n: kernel.hex() for n, kernel in kernels.items()} for kind, kernels in merged.items()}
            write_cached(self.path, json.dumps(written).encode())
            self.changed = False


def file_for(device: torch.device, *versions: object) -> Path:
    """The file of a GPU and its driver with these versions of libraries."""
    driver = DRIVER.read_text(encoding="utf-8", errors="replace") if DRIVER.is_file() else ""
    chip = torch.cuda.get_device_properties(device)
    told = [chip.name, chip.major, chip.minor, chip.multi_processor_count, torch.version.cuda, *versions, driver]
    name = hashlib.blake2b("\0".join(map(str, told)).encode(), digest_size=16).hexdigest()
    return cache_folder() / "kernels" / f"{name}.json"


def read_kernels(path: Path | None) -> Kernels:
    """The kernels in the file; none if it is missing or damaged."""
    if path is None:
        return {}
    with suppress(OSError, ValueError, TypeError, AttributeError, RecursionError, RegardError):
        tree = json.loads(read_cached(path))
        return {
            kind: {int(rows): bytes.fromhex(kernel) for rows, kernel in kernels.items()}
            for kind, kernels in tree.items()
        }
    return {}
