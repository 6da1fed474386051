"""A short way to the first step: Triton's kernels are compiled side by side, and while other work is done.

Triton compiles a kernel when it is launched for the first time, one after the other; a training step has some twenty.
`compile_ahead(work)` does the work once without launching any of them, and compiles each in a thread of its own. What
the work computes is meaningless then, so it must keep nothing, and no other thread may use the device. `get_ready`
loads what every kernel needs beside the reading of a corpus or of weights. Both only save time: a kernel that does not
compile here is compiled again, and its error reported, where it is needed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cache
from threading import Thread
from typing import Any

import torch

from regard.fast.kernels.epilogue import epilogues
from regard.fast.kernels.nvrtc import Kernel
from regard.fast.row_table import needs_triton, rows

THREADS = 16  # the most kernels at once


def get_ready(device: torch.device) -> None:
    """Starts a GPU's context, this package's modules and Triton's compiler in a thread, for which a process waits
    before it ends."""
    if device.type == "cuda":
        Thread(target=_ready, args=(device,), name="get ready").start()


@cache
def _ready(device: torch.device) -> None:
    with suppress(Exception):
        torch.cuda.init()
        torch.empty(1, device=device)
        rows()
        if needs_triton(device) is None:
            from triton.runtime import driver
            from triton.runtime.cache import triton_key

            driver.active.utils  # noqa: B018  # builds or loads Triton's helper for the driver
            triton_key()  # reads and hashes the whole compiler, once per process


def compile_ahead(work: Callable[[], object], device: torch.device) -> None:
    """Compiles the kernels of the work, which draws no random numbers by this."""
    if needs_triton(device) is not None:
        return
    generators = torch.get_rng_state(), torch.cuda.get_rng_state(device)
    library = epilogues(device)
    with _not_launched(device) as compiling:
        if library is not None:
            library.choosing = False
        try:
            work()
        finally:
            torch.set_rng_state(generators[0])
            torch.cuda.set_rng_state(generators[1], device)
            if library is not None:
                library.choosing = True
            for each in compiling:
                with suppress(Exception):
                    each.result()


@contextmanager
def _not_launched(device: torch.device) -> Iterator[list[Future[None]]]:
    """Meanwhile a launched kernel is not run but compiled, by one of several threads."""
    from triton.runtime.jit import JITFunction

    launch, seen, compiling = JITFunction.run, set(), []
    threads = ThreadPoolExecutor(min(THREADS, os.cpu_count() or 1), "compile")

    def compiled(kernel: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
        torch.cuda.set_device(device)
        made = launch(kernel, *arguments, grid=None, warmup=True, **options)
        try:
            made.run  # noqa: B018  # builds its launcher and loads it
        except Exception:
            made._run = None  # half loaded: the launch loads it again, and says what is wrong
            raise

    def run(kernel: Any, *arguments: Any, grid: Any, warmup: bool, **options: Any) -> None:
        with suppress(Exception):  # another version of Triton: compiled at its launch
            binder = kernel.device_caches[torch.cuda.current_device()][-1]
            _, special, chosen = binder(*arguments, **options)
            what = id(kernel), str(special), str(chosen)
            if what not in seen:
                seen.add(what)
                kernel.cache_key  # noqa: B018  # in the order of the launches: in threads it would differ at each start
                compiling.append(threads.submit(compiled, kernel, arguments, options))

    JITFunction.run, Kernel.launches = run, False  # a persistent kernel would wait for numbers that are never written
    try:
        yield compiling
    finally:
        JITFunction.run, Kernel.launches = launch, True
        threads.shutdown()
