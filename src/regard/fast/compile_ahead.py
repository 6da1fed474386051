"""A short way to the first step: Triton's kernels are compiled side by side, and while other work is done.

Triton compiles a kernel when it is launched for the first time, one after the other; a training step has some twenty.
`compile_ahead(work)` does the work once without launching any of them, and compiles each in its own thread. The
results of the work are then meaningless, so it must store nothing. `start_compiling` does not wait for the threads.
Triton caches its binaries in a folder; a file there lists the work done, so that it is done once, and the kernels of a
model. `get_ready` loads the libraries, the compiler and these kernels while a corpus or weights are read. All of this
only saves time: if a kernel does not compile here, its launch compiles it again and reports the error.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from threading import Lock, Thread, get_ident
from typing import Any

import torch
import torch.nn.functional as F

from regard import __version__
from regard.fast.kernels.epilogue import epilogues
from regard.fast.kernels.nvrtc import CompiledKernel
from regard.fast.known_kernels import KnownKernels, file_for
from regard.fast.table import needs_triton, rows
from regard.systems.model import Model
from regard.training.eager import AdamW

THREADS = 16  # the most kernels at once
MAX_LOADED = 128  # kernels of a model that are loaded ahead
SWITCHING, OFTEN = sys.getswitchinterval(), 5e-4  # seconds that a thread may keep Python's lock from others
ALIGNED = 16  # bytes; Triton compiles kernels for addresses that are multiples of it
ONE_AT_A_TIME = Lock()
_getting_ready: list[Thread] = []


def get_ready(device: torch.device, settings: object = None) -> None:
    """Starts a GPU's context, this package's modules and Triton's compiler in a thread, for which a process waits
    before it ends. To train a model with these `settings`, also the libraries of a step and the model's kernels."""
    if device.type == "cuda":
        thread = Thread(target=_ready, args=(device, settings), name="get ready")
        _getting_ready[:] = [thread]
        thread.start()


def _ready(device: torch.device, settings: object) -> None:
    sys.setswitchinterval(OFTEN)  # PyTorch gives the lock away at each operation, so the other work would wait as often
    try:
        with suppress(Exception):
            torch.cuda.init()
            torch.empty(1, device=device)
            if settings is None:
                torch.backends.cuda.enable_cudnn_sdp(False)  # it needs a second to plan for each new shape
            else:
                _load_libraries(device)
            rows()
            if needs_triton(device) is None:
                _load_compiler()
                if settings is not None:
                    _load_kernels(device, settings)
    finally:
        sys.setswitchinterval(SWITCHING)


@cache
def _load_libraries(device: torch.device) -> None:
    """Takes a small step with products, a loss and AdamW: the first of a process loads their libraries."""
    x = torch.ones(64, 64, device=device, requires_grad=True)
    with torch.autocast(device.type, torch.bfloat16):
        y = F.gelu(F.layer_norm(F.linear(x, x, x[0]), (64,)))
        F.cross_entropy(y, x.new_zeros(64, dtype=torch.int64)).backward()
    AdamW([x], lr=torch.zeros((), device=device), fused=True, capturable=True).step()


@cache
def _load_compiler() -> None:
    from triton.runtime import driver
    from triton.runtime.cache import triton_key

    driver.active.utils  # noqa: B018  # builds or loads Triton's helper for the driver
    triton_key()  # reads and hashes the whole compiler, once per process


def _load_kernels(device: torch.device, settings: object) -> None:
    """Loads the kernels that an earlier process compiled for a model with these settings."""
    from triton.runtime.jit import MockTensor

    def real(value: Any) -> Any:
        if isinstance(value, dict):
            return MockTensor(getattr(torch, value["tensor"]))
        return tuple(map(real, value)) if isinstance(value, list) else value

    torch.cuda.set_device(device)
    for module, name, arguments, options in _kernels_of(device, settings):
        with suppress(Exception):  # changed since
            kernel = getattr(import_module(module), name)
            given = {key: real(value) for key, value in options.items()}
            kernel.run(*map(real, arguments), grid=None, warmup=True, **given).run  # noqa: B018  # as in `make`


def _kernels_of(device: torch.device, settings: object) -> list[Any]:
    found = compiled(device).near(_name_of_kernels(settings), 1)
    return list(json.loads(found)) if found else []


def _name_of_kernels(settings: object) -> str:
    """Dropout is decided later than other settings, and decides little."""
    fixed = {name: value for name, value in vars(settings).items() if "dropout" not in name}
    return _name("kernels", type(settings).__module__, fixed)


def describe_launch(kernel: Any, arguments: Sequence[Any], options: dict[str, Any]) -> list[Any]:
    """A launch for `_load_kernels`, as JSON: numbers as they are, a tensor by its dtype. Others raise TypeError."""

    def told(value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.data_ptr() % ALIGNED == 0:
            return {"tensor": str(value.dtype).removeprefix("torch.")}
        if isinstance(value, tuple):
            return [told(part) for part in value]
        if value is None or isinstance(value, bool | int | float | str):
            return value
        raise TypeError

    return [
        kernel.fn.__module__,
        kernel.fn.__qualname__,
        [told(value) for value in arguments],
        {name: told(value) for name, value in options.items()},
    ]


def describe(model: Model) -> tuple[object, ...]:
    """The facts about a model that its kernels depend on."""
    weights = [(tuple(weight.shape), weight.dtype) for weight in model.parameters()]
    return type(model).__name__, getattr(model, "settings", None), weights


def size_class(number: int) -> tuple[int, bool]:
    """Numbers of one class need the same kernels: tiles are powers of two, and addresses multiples of 16 or not."""
    return (number - 1).bit_length(), number % 16 == 0


class Compiling:
    """Kernels that threads compile; `then` is called once, when they are done."""

    def __init__(self, kernels: Sequence[Future[None]] = (), then: Callable[[], None] = lambda: None) -> None:
        self.kernels, self.then = kernels, then

    def is_done(self) -> bool:
        if not all(kernel.done() for kernel in self.kernels):
            return False
        then, self.then = self.then, lambda: None
        then()
        return True

    def wait(self) -> None:
        wait(self.kernels)
        self.is_done()


def compile_ahead(work: Callable[[], object], device: torch.device, *told: object, backward: bool = False) -> None:
    """Compiles the kernels of the work, which draws no random numbers by this. `told`: all that decides which kernels
    these are; without it, they are compiled ahead each time. Other threads launch their kernels as ever, unless the
    work has a `backward` pass, which PyTorch does in a thread of its own: then none may use the device meanwhile."""
    start_compiling(work, device, *told, backward=backward).wait()


def start_compiling(
    work: Callable[[], object], device: torch.device, *told: object, backward: bool = False, settings: object = None
) -> Compiling:
    """`compile_ahead`, but it returns when the work has been done, and the kernels are still compiled. `settings` of a
    model: `get_ready` loads its kernels in later processes."""
    if is_compiled(device, *told):
        return Compiling()
    with ONE_AT_A_TIME:
        kernels, launches = _compile(work, device, None if backward else get_ident())

    def remember() -> None:
        if told:
            compiled(device).add(_name(*told), 1, b"")
        if settings is not None:
            known = _kernels_of(device, settings)
            known += [launch for launch in launches if launch not in known]
            compiled(device).add(_name_of_kernels(settings), 1, json.dumps(known[-MAX_LOADED:]).encode())

    return Compiling(kernels, remember)


def is_compiled(device: torch.device, *told: object) -> bool:
    """True if nothing is left to be compiled for this work."""
    for thread in _getting_ready:
        thread.join()
    return needs_triton(device) is not None or (bool(told) and compiled(device).near(_name(*told), 1) is not None)


def _name(*told: object) -> str:
    return hashlib.blake2b(repr(told).encode(), digest_size=16).hexdigest()


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


def _compile(
    work: Callable[[], object], device: torch.device, thread: int | None
) -> tuple[list[Future[None]], list[list[Any]]]:
    """Starts to compile the kernels of the work; returns them, and their launches as `describe_launch`."""
    generators = torch.get_rng_state(), torch.cuda.get_rng_state(device)
    library = epilogues(device)
    with _not_launched(device, thread) as (compiling, launches):
        if library is not None:
            library.choosing = False
        try:
            work()
        finally:
            torch.set_rng_state(generators[0])
            torch.cuda.set_rng_state(generators[1], device)
            if library is not None:
                library.choosing = True
    return compiling, launches


@contextmanager
def _not_launched(device: torch.device, thread: int | None) -> Iterator[tuple[list[Future[None]], list[list[Any]]]]:
    """Meanwhile a kernel that this thread launches, or any if None, is not run but compiled, by one of several."""
    from triton.runtime.jit import JITFunction

    launch, seen, compiling, launches = JITFunction.run, set(), [], []
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
                launches.append(describe_launch(kernel, arguments, options))
        return None

    before = CompiledKernel.is_held
    JITFunction.run, CompiledKernel.is_held = (
        run,
        held,
    )  # a persistent kernel would wait for numbers that are never written
    try:
        yield compiling, launches
    finally:
        JITFunction.run, CompiledKernel.is_held = launch, before
        threads.shutdown(wait=False)
