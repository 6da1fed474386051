"""Small real things that several tests share."""

import gc
import os
import random
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path

import hypothesis
import pytest
from hypothesis.internal.conjecture import providers

# What passes once passes again: always the same examples, so that more of them would find nothing new the next time.
hypothesis.settings.register_profile(
    "regard",
    derandomize=True,
    deadline=None,
    max_examples=40,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],  # which says how busy the machine is
)
hypothesis.settings.load_profile("regard")
if "REGARD_FUZZ_SECONDS" not in os.environ:  # else new examples are wanted
    # Hypothesis also draws constants of the modules that are imported by then: those of the files tested before.
    pytest.MonkeyPatch().setattr(providers, "is_local_module_file", lambda path: False, raising=False)

LIMIT, SLOW_LIMIT = 120, 600  # seconds of a test, with the fixtures that it is the first to ask for

os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("RAYON_NUM_THREADS", "1")  # of the tokenizers: as many threads as cores take memory, too
for name in list(os.environ):  # how the caller's terminal and network are set up changes no test
    if (
        name in ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR")
        or name.startswith("TTY_")
        or name.lower().endswith("_proxy")
    ):
        del os.environ[name]


@pytest.fixture(autouse=True, scope="session")
def shared_cache(tmp_path_factory):
    """Tests never read or write the user's cache. All processes of `make test` share the phrasebooks, which take long
    to draw."""
    cache = tmp_path_factory.getbasetemp() / "cache"
    cache.mkdir()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = cache.parents[1] / "phrasebook"
        shared.mkdir(exist_ok=True)
        with suppress(OSError):  # on Windows not everyone may link
            (cache / "phrasebook").symlink_to(shared)
    os.environ["REGARD_CACHE"] = str(cache)
    return cache


@pytest.fixture(autouse=True)
def _own_cache(shared_cache, monkeypatch):
    monkeypatch.setenv("REGARD_CACHE", str(shared_cache))


@pytest.fixture(scope="session")
def warm():
    """The path of a `python` that need not import PyTorch; the usual one where it cannot be had."""
    if sys.platform != "linux":
        yield sys.executable
        return
    from warm_python import warm_python

    with warm_python() as program:
        yield program


@pytest.fixture
def warm_processes(warm, monkeypatch):
    """What this process starts by `sys.executable` need not import PyTorch."""
    monkeypatch.setattr(sys, "executable", warm)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item, nextitem):
    """Ends a test that hangs. What is only slow on a busy machine is no failure: the limit grows with the load."""
    if item.get_closest_marker("timeout") is None:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        busy = os.getloadavg()[0] / cores if hasattr(os, "getloadavg") else 1.0
        limit = SLOW_LIMIT if item.get_closest_marker("slow") else LIMIT
        item.add_marker(pytest.mark.timeout(limit * max(1.0, busy)))
    try:
        return (yield)
    finally:
        if nextitem is None or nextitem.path != item.path:  # what is left now (imports, caches) stays, too
            gc.collect()
            gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup():
    """A test draws the same numbers whatever ran before it, and so do the fixtures that it is the first to ask for."""
    random.seed(0)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(0)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection():
    """What is imported and collected stays: half of a process's time could go into looking for garbage in it."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


LONG = {  # files of few tests that take long, or whose fixtures do: as how many tests they count
    "browser/test_accessibility.py": 400, "browser/test_model_page.py": 400, "browser/test_site.py": 350,
    "cli/test_bench.py": 100, "cli/test_compare.py": 250, "cli/test_elsewhere.py": 150, "cli/test_exercise.py": 200,
    "cli/test_fault_injection.py": 700, "cli/test_lecture.py": 250, "cli/test_own_layer.py": 300,
    "cli/test_readme.py": 400, "cli/test_resident.py": 300, "cli/test_shown_outputs.py": 900,
    "unit/bench/test_bench_work.py": 250, "unit/claims/test_gradients.py": 200,
    "unit/claims/test_toy_experiments.py": 200, "unit/exchange/test_page.py": 700, "unit/fast/test_persistent.py": 300,
    "unit/test_typed_docs.py": 250, "unit/training/test_memory.py": 400,
}  # fmt: skip


def pytest_collection_modifyitems(items):
    """The longest files first, so that all processes of `make test` end together: a slow test counts as fifty."""
    tests = Path(__file__).parent
    weight = Counter({tests / name: count for name, count in LONG.items()})
    for item in items:
        weight[item.path] += 50 if item.get_closest_marker("slow") else 1
    items.sort(key=lambda item: -weight[item.path])
