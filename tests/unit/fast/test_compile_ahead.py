"""Kernels are compiled before the work that launches them, and nothing of that is left. Triton is played by a module
that notes what it is asked for; tests/cuda has the real one."""

import shutil
import sys
import threading
from types import ModuleType, SimpleNamespace

import pytest
import torch

from regard.fast import compile_ahead as ahead
from regard.fast.kernels import nvrtc
from regard.fast.known_kernels import KnownKernels

CUDA = torch.device("cuda", 0)


def source():
    """What kernels are made of."""


class Kernel:
    """`jit` is what Triton's is called, `run` what a launch becomes."""

    fn = source

    made: list[tuple]

    def __init__(self, fails=False):
        self.fails, self.made, self.launched, self.cache_key = fails, [], [], "of its source"
        self.device_caches = {0: ({}, {}, "target", "backend", lambda *given, **options: ({}, given, options))}

    def run(self, *given, grid, warmup, **options):
        if not warmup:
            self.launched.append(given)
            return None
        if self.fails:
            raise RuntimeError("does not compile")
        self.made.append((given, threading.current_thread().name))
        return SimpleNamespace(run=None)


@pytest.fixture
def library(monkeypatch):
    made = SimpleNamespace(choosing=True)
    jit, runtime = ModuleType("triton.runtime.jit"), ModuleType("triton.runtime")
    jit.JITFunction, jit.MockTensor = Kernel, lambda dtype: ("any tensor", dtype)
    for name, module in {"triton": ModuleType("triton"), "triton.runtime": runtime, "triton.runtime.jit": jit}.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(ahead, "needs_triton", lambda device: None)
    monkeypatch.setattr(ahead, "epilogues", lambda device: made)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    state = [torch.tensor([7])]
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda device: state[0])
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda new, device: state.__setitem__(0, new))
    made.state = state
    known = KnownKernels()
    monkeypatch.setattr(ahead, "compiled", lambda device: known)
    return made


def test_every_kernel_is_compiled_once_by_a_thread_and_none_is_launched(library):
    kernel = Kernel()

    def work():
        assert not library.choosing  # no product is timed on numbers without meaning
        for size in (16, 32, 16, 16):
            kernel.run(size, grid=(1,), warmup=False)

    ahead.compile_ahead(work, CUDA)
    assert sorted(given for given, _ in kernel.made) == [(16,), (32,)]
    assert all(name.startswith("compile") for _, name in kernel.made)
    assert not kernel.launched
    kernel.run(16, grid=(1,), warmup=False)
    assert kernel.launched == [(16,)]
    assert library.choosing


def test_random_numbers_are_drawn_as_if_it_had_not_been(library):
    torch.manual_seed(3)
    expected, before = torch.rand(4), library.state[0]
    torch.manual_seed(3)

    def work():
        torch.rand(9)
        library.state[0] = torch.tensor([8])

    ahead.compile_ahead(work, CUDA)
    assert torch.equal(torch.rand(4), expected)
    assert library.state[0] is before


def test_what_does_not_compile_is_left_to_the_launch(library):
    kernel = Kernel(fails=True)
    ahead.compile_ahead(lambda: kernel.run(16, grid=(1,), warmup=False), CUDA)
    assert not kernel.made
    strange = Kernel()
    strange.device_caches = None  # as in another version of Triton
    ahead.compile_ahead(lambda: strange.run(16, grid=(1,), warmup=False), CUDA)
    assert strange.launched == strange.made == []


def test_kernels_in_cuda_are_not_launched_either(library):
    """A persistent one waits for what a kernel of Triton's was to write."""
    made, ran = object.__new__(nvrtc.CompiledKernel), []
    ahead.compile_ahead(lambda: ran.append(made(132)), CUDA)
    assert ran == [None]
    with pytest.raises(AttributeError):  # a launch needs a device
        made(132)


def test_an_error_of_the_work_is_raised_and_leaves_nothing_behind(library):
    def work():
        raise RuntimeError("out of memory")

    written = Kernel.run
    with pytest.raises(RuntimeError, match="out of memory"):
        ahead.compile_ahead(work, CUDA)
    assert library.choosing
    assert Kernel.run is written


def test_what_was_compiled_for_the_same_work_is_not_compiled_ahead_again(library):
    done = []
    for told in [("step", 16), ("step", 16), ("step", 32), (), ()]:
        ahead.compile_ahead(lambda told=told: done.append(told), CUDA, *told)
    assert done == [("step", 16), ("step", 32), (), ()]


def test_compiling_goes_on_while_other_work_is_done(library, monkeypatch):
    kernel, go_on, at_once = Kernel(), threading.Event(), Kernel.run

    def slowly(self, *given, grid, warmup, **options):
        if warmup:
            go_on.wait()
        return at_once(self, *given, grid=grid, warmup=warmup, **options)

    monkeypatch.setattr(Kernel, "run", slowly)
    compiling = ahead.start_compiling(lambda: kernel.run(16, grid=(1,), warmup=False), CUDA, "step")
    assert not compiling.is_done()
    assert not ahead.is_compiled(CUDA, "step")
    kernel.run(32, grid=(1,), warmup=False)
    assert kernel.launched == [(32,)]
    go_on.set()
    compiling.wait()
    assert [given for given, _ in kernel.made] == [(16,)]
    assert compiling.is_done()
    assert ahead.is_compiled(CUDA, "step")
    assert ahead.start_compiling(lambda: pytest.fail("done"), CUDA, "step").is_done()


def test_a_later_process_loads_the_kernels_of_a_model_before_it_is_built(library, monkeypatch):
    kernel = Kernel()
    monkeypatch.setattr(sys.modules[__name__], "source", kernel)  # where its name leads to
    vectors = torch.zeros(8, dtype=torch.bfloat16)

    def work():
        kernel.run(vectors, 8, 0.5, grid=(1,), warmup=False, tile=16)
        kernel.run(vectors[1:], 8, 0.5, grid=(1,), warmup=False, tile=16)  # at an address that Triton knows apart
        kernel.run(object(), grid=(1,), warmup=False)

    settings = SimpleNamespace(width=8, dropout=0.1)
    for number in range(2):  # the second step has the same kernel, and another
        more = [lambda: kernel.run((vectors, None), 1, ((2, 0.5),), grid=(1,), warmup=False)] * number
        ahead.start_compiling(lambda more=more: [do() for do in (work, *more)], CUDA, number, settings=settings).wait()
    kernel.made.clear()
    ahead._load_kernels(CUDA, SimpleNamespace(width=9, dropout=0.1))
    assert not kernel.made
    ahead._load_kernels(CUDA, SimpleNamespace(width=8, dropout=0.2))  # decided later
    tensor = "any tensor", torch.bfloat16
    assert [given for given, _ in kernel.made] == [(tensor, 8, 0.5), ((tensor, None), 1, ((2, 0.5),))]
    assert kernel.launched == []


def test_work_that_failed_is_compiled_ahead_again(library):
    def work():
        raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError):
        ahead.compile_ahead(work, CUDA, "step")
    done = []
    ahead.compile_ahead(lambda: done.append(1), CUDA, "step")
    assert done == [1]


@pytest.mark.parametrize("backward", [False, True])
def test_another_thread_launches_as_ever_unless_the_work_has_a_backward_pass(library, backward):
    own, other = Kernel(), Kernel()

    def work():
        own.run(16, grid=(1,), warmup=False)
        thread = threading.Thread(target=lambda: other.run(32, grid=(1,), warmup=False))
        thread.start()
        thread.join()

    ahead.compile_ahead(work, CUDA, backward=backward)
    assert (own.launched, [given for given, _ in own.made]) == ([], [(16,)])
    assert (other.launched, [given for given, _ in other.made]) == (([], [(32,)]) if backward else ([(32,)], []))


def test_two_threads_compile_one_after_the_other(library):
    kernel, began, later = Kernel(), threading.Event(), []

    def second():
        began.wait()
        ahead.compile_ahead(lambda: later.append(kernel.run(32, grid=(1,), warmup=False)), CUDA)

    thread = threading.Thread(target=second)
    thread.start()

    def first():
        began.set()
        kernel.run(16, grid=(1,), warmup=False)
        assert not later

    written = Kernel.run
    ahead.compile_ahead(first, CUDA)
    thread.join()
    assert sorted(given for given, _ in kernel.made) == [(16,), (32,)]
    assert not kernel.launched
    assert Kernel.run is written


def test_what_was_compiled_is_remembered_in_tritons_folder_and_forgotten_with_it(tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    chip = SimpleNamespace(name="a GPU", major=9, minor=0, multi_processor_count=132)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: chip)
    monkeypatch.setattr(ahead, "import_module", lambda name: SimpleNamespace(__version__="3.6.0"))
    for _ in range(2):
        known = ahead.compiled.__wrapped__(CUDA)
        assert not known.found
        known.add("a step", 1, b"")
        known.save()
        assert ahead.compiled.__wrapped__(CUDA).near("a step", 1) == b""
        shutil.rmtree(tmp_path / "triton")


def test_without_a_home_or_with_another_triton_it_is_remembered_by_the_process(monkeypatch):
    def absent(name):
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(ahead, "import_module", absent)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: None)
    known = ahead.compiled.__wrapped__(CUDA)
    assert known.path is None
    known.add("a step", 1, b"")
    assert known.near("a step", 1) == b""


def test_sizes_of_one_class_have_the_same_tiles_and_alignment():
    assert len({ahead.size_class(number) for number in (33, 40, 63)}) == 1
    assert len({ahead.size_class(number) for number in (1, 2, 8, 16, 24, 32, 40, 48)}) == 8


def test_where_there_is_no_triton_nothing_is_done_before():
    ahead.compile_ahead(lambda: pytest.fail("done"), torch.device("cpu"))
    ahead.get_ready(torch.device("cpu"))
    assert "get ready" not in {thread.name for thread in threading.enumerate()}
