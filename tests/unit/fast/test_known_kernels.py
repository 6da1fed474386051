"""Kernels that were found once are not searched again, and never trusted without a look at their result. cuBLASLt is
played by an object that computes on the CPU: which of its kernels is asked for, and how often, is what is tested."""

import ctypes
from types import SimpleNamespace

import pytest
import torch

from regard.base.cache import write_cached
from regard.fast import known_kernels
from regard.fast.kernels import epilogue
from regard.fast.kernels.epilogue import CANDIDATE_BYTES, KERNEL_BYTES, Epilogues
from regard.fast.known_kernels import KnownKernels, file_for, read_kernels

KERNELS = [bytes([number + 1]) * KERNEL_BYTES for number in range(4)]
BEST = KERNELS[2]


class Library:
    """Proposes four kernels for every product; `refused` and `wrong` name some that do not work."""

    def __init__(self):
        self.searches, self.asked, self.refused, self.wrong = 0, [], set(), set()
        self.right = None  # the matrix that a product must give
        self.left_out = ""  # of it, by kernels that were not searched

    def cublasLtMatmulAlgoGetHeuristic(self, *given):
        *_, candidates, found = given
        self.searches += 1
        for number, kernel in enumerate(KERNELS):
            ctypes.memmove(ctypes.byref(candidates, number * CANDIDATE_BYTES), kernel, KERNEL_BYTES)
        ctypes.cast(found, ctypes.POINTER(ctypes.c_int))[0] = len(KERNELS)
        return 0

    def cublasLtMatmul(self, *given):
        kernel, out = ctypes.string_at(given[12], KERNEL_BYTES), given[10]
        self.asked.append(kernel)
        if kernel in self.refused or kernel not in KERNELS:
            return 15
        made = self.right if kernel not in self.wrong else self.right + 1
        if self.left_out and not self.searches:
            held = ctypes.cast(out, ctypes.POINTER(ctypes.c_uint16 * made.numel())).contents
            made, right = torch.frombuffer(held, dtype=torch.bfloat16).view(made.shape).clone(), made
            if self.left_out == "last rows":
                made[:-100] = right[:-100]
            elif self.left_out == "a column":
                made = right.index_fill(1, torch.tensor([5]), 0.0)
        ctypes.memmove(out, made.contiguous().data_ptr(), made.nbytes)
        return 0

    def __getattr__(self, name):  # everything that only describes a product
        assert name.startswith("cublasLt"), name
        return lambda *given: 0


@pytest.fixture
def library(monkeypatch):
    """It, and what else of CUDA is asked for; `BEST` is its fastest kernel."""
    made = Library()
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: type("Stream", (), {"cuda_stream": 0}))
    monkeypatch.setattr(epilogue, "ALIGNED", 1)

    def milliseconds(way):
        return float("inf") if way() is None else 1.0 + (made.asked[-1] != BEST)

    monkeypatch.setattr(epilogue, "milliseconds", milliseconds)
    return made


def product(library, rows, known):
    """dy W by a new object for the library, as a new process has."""
    torch.manual_seed(rows)
    dy, weight = torch.randn(rows, 16).bfloat16(), torch.randn(16, 24).bfloat16()
    library.right = (dy.float() @ weight.float()).bfloat16()
    library.asked.clear()
    found = Epilogues(library, torch.device("cpu"), known).back(dy, weight)
    return None if found is None else torch.equal(found, library.right)


def test_the_fastest_kernel_is_taken_and_found_again_in_the_cache(library, tmp_path):
    path = tmp_path / "kernels" / "some.json"
    known = KnownKernels(path)
    assert product(library, 64, known)
    assert library.searches == 1
    assert set(library.asked) == set(KERNELS)
    known.save()
    assert product(library, 64, KnownKernels(path))  # another process
    assert library.searches == 1
    assert set(library.asked) == {BEST}


@pytest.mark.parametrize("rows, searches", [(64, 1), (65, 1), (128, 1), (32, 1), (129, 2), (31, 2)])
def test_a_kernel_serves_up_to_twice_as_many_rows_and_half_as_many(library, rows, searches):
    known = KnownKernels()
    product(library, 64, known)
    assert product(library, rows, known)
    assert library.searches == searches


def test_the_nearest_number_of_rows_decides():
    known = KnownKernels()
    for rows, kernel in ((64, KERNELS[0]), (100, KERNELS[1])):
        known.add("back", rows, kernel)
    assert [known.near("back", rows) for rows in (64, 80, 84, 200)] == [*KERNELS[:1] * 2, *KERNELS[1:2] * 2]
    assert known.near("gradient", 64) is None


def test_where_a_known_kernel_fails_another_is_searched(library):
    known = KnownKernels()
    product(library, 64, known)
    library.refused.add(BEST)
    assert product(library, 64, known)
    assert library.searches == 2
    assert library.asked[0] == BEST
    assert known.near(*only_kind(known)) in set(KERNELS) - {BEST}


def test_a_known_kernel_with_a_wrong_result_is_never_used(library):
    known = KnownKernels()
    product(library, 64, known)
    library.wrong.add(BEST)  # it is still the fastest, so PyTorch must make this product
    assert product(library, 64, known) is None
    assert library.searches == 2


def only_kind(known):
    ((kind, kernels),) = known.found.items()
    return kind, next(iter(kernels))


def test_other_products_have_other_kernels(library):
    """Only products that differ in nothing but their rows share one."""
    known = KnownKernels()
    torch.manual_seed(0)
    dy, weight, x = torch.randn(64, 16).bfloat16(), torch.randn(16, 24).bfloat16(), torch.randn(64, 24).bfloat16()
    one = Epilogues(library, torch.device("cpu"), known)
    library.right = (dy.float() @ weight.float()).bfloat16()
    assert one.back(dy, weight) is not None
    library.right = dy.float().t() @ x.float()
    assert one.gradient(dy, x) is not None
    library.right = (dy.float() @ weight.float()).bfloat16()
    assert one.add(None, dy, weight.t().contiguous(), None) is not None
    assert library.searches == len(known.found) == 3


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"[" * 100_000, id="nested"),
        b"[]",
        b"{",
        b'{"kind": 3}',
        b'{"kind": {"x": "00"}}',
        b'{"kind": {"64": "zz"}}',
    ],
)
def test_a_file_that_is_not_one_of_ours_counts_as_none(content, tmp_path):
    write_cached(tmp_path / "some.json", content)
    assert read_kernels(tmp_path / "some.json") == {}
    (tmp_path / "some.json").write_bytes(content)  # without its digest
    assert read_kernels(tmp_path / "some.json") == {}


def test_a_kernel_of_another_length_is_not_given_to_the_library(library):
    known = KnownKernels()
    product(library, 64, known)
    known.add(*only_kind(known), BEST * 100)
    assert product(library, 64, known)
    assert library.searches == 2


def test_two_processes_keep_what_both_found(tmp_path):
    one, two = (KnownKernels(tmp_path / "some.json") for _ in range(2))
    one.add("back", 64, KERNELS[0])
    two.add("back", 500, KERNELS[1])
    one.save()
    two.save()
    assert read_kernels(tmp_path / "some.json") == {"back": {64: KERNELS[0], 500: KERNELS[1]}}


def test_a_cache_that_cannot_be_written_is_done_without(tmp_path):
    (tmp_path / "kernels").write_text("a file where the folder should be", encoding="utf-8")
    known = KnownKernels(tmp_path / "kernels" / "some.json")
    known.add("back", 64, BEST)
    known.save()
    assert known.near("back", 64) == BEST


def test_every_gpu_driver_and_version_has_a_file_of_its_own(monkeypatch, tmp_path):
    chips = [("H200", 132), ("H100", 132), ("H200", 132), ("H200", 66), ("H200", 132)]
    of = iter(SimpleNamespace(name=name, major=9, minor=0, multi_processor_count=count) for name, count in chips)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: next(of))
    files = [file_for(torch.device("cpu"), version) for version in (130000, 130000, 130100, 130000)]
    monkeypatch.setattr(known_kernels, "DRIVER", tmp_path / "version")
    (tmp_path / "version").write_text("another driver", encoding="utf-8")
    files.append(file_for(torch.device("cpu"), 130000))
    assert len(set(files)) == 5


@pytest.mark.parametrize("left_out", ["everything", "last rows", "a column"])
def test_a_known_kernel_that_leaves_something_out_is_noticed(library, left_out):
    library.left_out, known = left_out, KnownKernels()
    torch.manual_seed(0)
    dy, weight = torch.randn(612, 16).bfloat16(), torch.randn(16, 1024).bfloat16()
    library.right = dy @ weight
    known.add(*epilogue.Product(epilogue.PLAIN, weight, dy, library.right, epilogue.NEITHER).kind, BEST)
    freed = library.right.clone()  # the right result, in memory that may be given out again
    del freed
    found = Epilogues(library, torch.device("cpu"), known).back(dy, weight)
    assert library.searches == 1
    assert torch.equal(found, library.right)


def test_a_kernel_that_was_right_once_is_not_checked_for_other_rows(library):
    one = Epilogues(library, torch.device("cpu"), KnownKernels())
    weight = torch.randn(16, 24).bfloat16()
    for rows, asked in ((64, len(KERNELS) + 1), (100, 1), (100, 1)):  # tried and checked; used
        dy = torch.randn(rows, 16).bfloat16()
        library.right = (dy.float() @ weight.float()).bfloat16()
        library.asked.clear()
        assert torch.equal(one.back(dy, weight), library.right)
        assert len([*dict.fromkeys(library.asked)]) == min(asked, len(KERNELS))
        assert (len(library.asked) == 1) == (asked == 1)


def test_the_quickest_way_is_chosen_once_for_about_as_many_rows_and_kept(library, monkeypatch, tmp_path):
    timed = []

    def milliseconds(way):
        timed.append(way)
        return {"plain": 2.0, "fused": 1.0}[way()]

    monkeypatch.setattr(epilogue, "milliseconds", milliseconds)
    for process in ("first", "second"):
        known = KnownKernels(tmp_path / "some.json")
        one = Epilogues(library, torch.device("cpu"), known)
        for rows in (64, 100, 128, 1000):
            assert one.quickest("add", rows, lambda: "plain", lambda: "fused") == "fused"
        assert len(timed) == 4, process  # two ways, for about 64 rows and for 1000
        known.save()


@pytest.mark.parametrize("kept", [b"", b"\x07", b"\x01\x01"])
def test_a_kept_choice_that_is_none_of_the_ways_is_made_again(library, monkeypatch, kept):
    known = KnownKernels()
    known.add("choice add", 64, kept)
    monkeypatch.setattr(epilogue, "milliseconds", lambda way: {"plain": 2.0, "fused": 1.0}[way()])
    one = Epilogues(library, torch.device("cpu"), known)
    assert one.quickest("add", 64, lambda: "plain", lambda: "fused") == "fused"


def test_nothing_is_chosen_while_numbers_have_no_meaning(library, monkeypatch):
    monkeypatch.setattr(epilogue, "milliseconds", lambda way: pytest.fail("timed"))
    one = Epilogues(library, torch.device("cpu"), KnownKernels())
    one.choosing = False
    assert one.quickest("add", 64, lambda: "plain", lambda: "fused") == "plain"
    assert one.back(torch.randn(64, 16).bfloat16(), torch.randn(16, 24).bfloat16()) is None
    assert not one.plans


def test_what_was_found_is_written_when_the_process_ends_if_there_is_a_file(monkeypatch, tmp_path):
    at_the_end = []
    monkeypatch.setattr(known_kernels.atexit, "register", at_the_end.append)
    KnownKernels()
    assert not at_the_end
    known = KnownKernels(tmp_path / "kernels")
    known.add("product", 8, BEST)
    (save,) = at_the_end
    save()
    assert read_kernels(tmp_path / "kernels") == {"product": {8: BEST}}
