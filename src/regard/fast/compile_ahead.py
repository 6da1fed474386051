"""A short way to the first step: Triton's kernels are compiled side by side, and while other work is done.

Triton compiles a kernel when it is launched for the first time, one after the other; a training step has some twenty.
`compile_ahead(work)` does the work once without launching any of them, and compiles each in its own thread. The
results of the work are then meaningless, so it must store nothing. Triton caches its binaries in a folder; a file there
lists the work done, so that it is done once. `get_ready` loads the compiler while a corpus or weights are read. Both
only save time: if a kernel does not compile here, its launch compiles it again and reports the error.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from threading import Lock, Thread, get_ident
from typing import Any

import torch

from regard import __version__
from regard.fast.kernels.epilogue import epilogues
from regard.fast.kernels.nvrtc import CompiledKernel
from regard.fast.known_kernels import KnownKernels, file_for
from regard.fast.table import needs_triton, rows
from regard.systems.model import Model

THREADS = 16  # the most kernels at once
ONE_AT_A_TIME = Lock()


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


def describe(model: Model) -> tuple[object, ...]:
    """The facts about a model that its kernels depend on."""
    weights = [(tuple(weight.shape), weight.dtype) for weight in model.parameters()]
    return type(model).__name__, getattr(model, "settings", None), weights


def size_class(number: int) -> tuple[int, bool]:
    """Numbers of one class need the same kernels: tiles are powers of two, and addresses multiples of 16 or not."""
    return (number - 1).bit_length(), number % 16 == 0


def compile_ahead(work: Callable[[], object], device: torch.device, *told: object, backward: bool = False) -> None:
    """Compiles the kernels of the work, which draws no random numbers by this. `told`: all that decides which kernels
    these are; without it, they are compiled ahead each time. Other threads launch their kernels as ever, unless the
    work has a `backward` pass, which PyTorch does in a thread of its own: then none may use the device."""
    if needs_triton(device) is not None:
        return
    name = hashlib.blake2b(repr(told).encode(), digest_size=16).hexdigest() if told else ""
    if name and compiled(device).near(name, 1) is not None:
        return
    with ONE_AT_A_TIME:
        _compile(work, device, None if backward else get_ident())
    if name:
        compiled(device).add(name, 1, b"")


@cache
def compiled(device: torch.device) -> KnownKernels:
    """The works whose kernels Triton has in its folder; kept there, so that whoever empties it empties this too."""
    try:
        folder = os.environ.get("TRITON_CACHE_DIR")
        home = Path(os.environ.get("TRITON_HOME") or Path.home()) if not folder else Path()
        name = file_for(device, __version__, torch.__version__, import_module("triton").__version__).name
        return KnownKernels(Path(folder or home / ".triton" / "cache") / f"regard-{name}")
    except Exception:  # no home, or another Triton: remembered by this process alone
        return KnownKernels()


def _compile(work: Callable[[], object], device: torch.device, thread: int | None) -> None:
    generators = torch.get_rng_state(), torch.cuda.get_rng_state(device)
    library = epilogues(device)
    with _not_launched(device, thread) as compiling:
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
def _not_launched(device: torch.device, thread: int | None) -> Iterator[list[Future[None]]]:
    """Meanwhile a kernel that this thread launches, or any if None, is not run but compiled, by one of several."""
    from triton.runtime.jit import JITFunction

    launch, seen, compiling = JITFunction.run, set(), []
    threads = ThreadPoolExecutor(min(THREADS, os.cpu_count() or 1), "compile")

    def make(kernel: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
        torch.cuda.set_device(device)
        made = launch(kernel, *arguments, grid=None, warmup=True, **options)
        try:
            made.run  # noqa: B018  # builds its launcher and loads it
        except Exception:
            made._run = None  # half loaded: the launch loads it again, and says what is wrong
            raise

    def held() -> bool:
        return thread in (None, get_ident())

    def run(kernel: Any, *arguments: Any, grid: Any, warmup: bool, **options: Any) -> Any:
        if not held():
            return launch(kernel, *arguments, grid=grid, warmup=warmup, **options)
        with suppress(Exception):  # another version of Triton: compiled at its launch
            binder = kernel.device_caches[torch.cuda.current_device()][-1]
            _, special, chosen = binder(*arguments, **options)
            what = id(kernel), str(special), str(chosen)
            if what not in seen:
                seen.add(what)
                kernel.cache_key  # noqa: B018  # in the order of the launches: in threads it would differ at each start
                compiling.append(threads.submit(make, kernel, arguments, options))
        return None

    before = CompiledKernel.is_held
    JITFunction.run, CompiledKernel.is_held = (
        run,
        held,
    )  # a persistent kernel would wait for numbers that are never written
    try:
        yield compiling
    finally:
        JITFunction.run, CompiledKernel.is_held = launch, before
        threads.shutdown()
