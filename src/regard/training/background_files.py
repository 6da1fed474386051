"""Files written during training: the current tensors are copied, and a thread writes them while steps continue.

On a GPU a copy to the host takes milliseconds; a digest and a file take a hundred times as long. There is one copy of
each kind (the weights of a validation, the checkpoint), and the next waits until the files of the one before are
written, so memory is bounded. The thread never calls CUDA, because that could break the capture of a CUDA graph. On a
CPU files are written at once: a copy would take memory, the thread would compete for the cores, and steps are slow.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor

import torch
from torch import Tensor

BESIDE = ("cuda",)  # the devices whose files are written beside the training


class FileWriter:
    """Does jobs one after the other, in order. After a failed job it does no other, so a checkpoint never refers to
    weights that are missing; the next call of `copy`, `submit`, `check` or `wait` raises.
    """

    def __init__(self, device: torch.device) -> None:
        self.device, self.beside = device, device.type in BESIDE
        self.thread: ThreadPoolExecutor | None = None
        self.copies: dict[str, dict[str, Tensor]] = {}  # by kind
        self.last: dict[str, Future[None]] = {}  # the last job that reads the copy of this kind
        self.failure: Exception | None = None
        self.took: dict[str, float] = {}  # seconds of the jobs with the copy of this kind
        self.before: dict[str, float] = {}  # … with the copy before it

    def copy(self, kind: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Copies the tensors for jobs of this kind; the next copy of the same kind overwrites it."""
        if not self.beside:
            return dict(tensors)
        if kind in self.last:
            self.last.pop(kind).result()
        self.check()
        self.before[kind], self.took[kind] = self.took.get(kind, 0.0), 0.0
        held = self.copies.setdefault(kind, {})
        for name, tensor in tensors.items():
            if name not in held or (held[name].shape, held[name].dtype) != (tensor.shape, tensor.dtype):
                held[name] = self._host(tensor)
            held[name].copy_(tensor.detach(), non_blocking=True)
        if self.device.type == "cuda":
            torch.cuda.current_stream(self.device).synchronize()
        return {name: held[name] for name in tensors}

    def _host(self, tensor: Tensor) -> Tensor:
        try:
            return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=self.device.type == "cuda")
        except RuntimeError:  # no more memory can be page-locked (WSL: about 1 GB), so the copy is slower
            return torch.empty(tensor.shape, dtype=tensor.dtype)

    def submit(self, kind: str, job: Callable[[], None]) -> None:
        """Does the job, which may read the copy of this kind."""
        if not self.beside:
            job()
            return
        self.check()
        if self.thread is None:
            self.thread = ThreadPoolExecutor(1, "files")
        self.last[kind] = self.thread.submit(self._do, kind, job)

    def _do(self, kind: str, job: Callable[[], None]) -> None:
        began = time.perf_counter()
        try:
            if self.failure is None:
                job()
        except Exception as error:
            self.failure = error
        self.took[kind] += time.perf_counter() - began

    def is_busy(self, kind: str) -> bool:
        """True while files of this kind are being written."""
        return kind in self.last and not self.last[kind].done()

    def check(self) -> None:
        if self.failure is not None:
            raise self.failure

    def wait(self) -> None:
        """Blocks until all pending writes are on disk."""
        for job in self.last.values():
            job.result()
        self.check()

    def close(self) -> None:
        """Waits, also after an error, and stops the thread; a later job starts another."""
        if self.thread is not None:
            self.thread.shutdown()
        self.thread = None

    @property
    def seconds(self) -> float:
        """Seconds to write the last files of each kind: how long the end of a training will wait."""
        return sum(max(self.before.get(kind, 0.0), took) for kind, took in list(self.took.items()))

    @property
    def host_bytes(self) -> int:
        """Host bytes held by the copies; pinned blocks are rounded up to a power of two."""
        sizes = [tensor.nbytes for held in self.copies.values() for tensor in held.values()]
        return sum(1 << (size - 1).bit_length() if self.device.type == "cuda" else size for size in sizes)
