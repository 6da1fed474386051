"""Products, and what is done at their end, on a GPU."""

import pytest
import torch

from regard.fast.compile_ahead import compile_ahead
from regard.fast.kernels.epilogue import Epilogues, epilogues


def fresh_epilogues():
    library = epilogues(torch.device("cuda", torch.cuda.current_device()))
    return pytest.skip("cuBLASLt is not loaded here") if library is None else Epilogues(library.library, library.device)


def halves(*shape):
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


def assert_near(found, expected, most=4e-3):
    assert found is not None
    assert (found - expected).norm() < most * expected.norm()


@pytest.mark.parametrize("biased", [True, False])
def test_a_product_that_ends_in_a_sum_is_a_product_and_a_sum(biased):
    torch.manual_seed(0)
    s, x, weight, bias = halves(300, 128), halves(300, 64), halves(128, 64), halves(128) if biased else None
    before = s.clone()
    exact = s.double() + x.double() @ weight.double().t() + (bias.double() if biased else 0.0)
    assert_near(fresh_epilogues().add(s, x, weight, bias), exact)
    assert torch.equal(s, before)


def test_the_quickest_way_is_found_once_and_one_that_finds_nothing_is_never_taken():
    library, asked = fresh_epilogues(), []

    def way(name, products):
        x = halves(512, 512)

        def found():
            asked.append(name)
            for _ in range(products):
                x @ x
            return name

        return found

    slow, quick = way("slow", 200), way("quick", 1)
    assert library.quickest("a", 64, slow, quick, lambda: None) == "quick"
    asked.clear()
    assert library.quickest("a", 64, slow, quick, lambda: None) == "quick"
    assert asked == ["quick"]
    asked.clear()
    assert library.quickest("a", 100, slow, quick, lambda: None) == "quick"  # about as many rows
    assert asked == ["quick"]
    assert library.quickest("b", 64, quick, slow) == "quick"


def test_products_that_were_tried_are_products():
    torch.manual_seed(0)
    library, dy, weight, x = fresh_epilogues(), halves(300, 64), halves(64, 128), halves(300, 96)
    for _ in range(2):  # tried, and used
        assert_near(library.add(None, dy, weight.t().contiguous(), None), dy.double() @ weight.double())
        assert_near(library.back(dy, weight), dy.double() @ weight.double())
        gradient = library.gradient(dy, x)
        assert gradient.dtype == torch.float32
        assert_near(gradient, dy.double().t() @ x.double(), 1e-5)


def test_a_kernel_that_computes_something_else_is_not_used(monkeypatch):
    library, wrong = fresh_epilogues(), fresh_epilogues()
    s, x, weight = halves(300, 128), halves(300, 64), halves(128, 64)
    assert library.add(s, x, weight, None) is not None
    monkeypatch.setattr(
        "regard.fast.kernels.epilogue.linear", lambda x, weight, bias: 1.1 * x.float() @ weight.float().t()
    )
    assert library.add(s, x, weight, None) is not None  # it was found right
    assert wrong.add(s, x, weight, None) is None


def test_what_does_not_lie_as_the_library_wants_it_is_left_to_others():
    library, s, x, weight = fresh_epilogues(), halves(300, 128), halves(300, 64), halves(128, 64)
    assert library.add(s[:, :120], x, weight[:120], None) is None  # with gaps between its rows
    assert library.add(halves(300 * 128 + 8)[8:].view(300, 128), x, weight, None) is None
    assert library.add(s, x.float(), weight.float(), None) is None
    assert library.quickest("a kind", 64, lambda: 1, lambda: None) == 1


@pytest.mark.parametrize("biased", [True, False])
def test_a_product_that_ends_in_a_gelu_is_a_product_and_a_gelu(biased):
    torch.manual_seed(0)
    library = epilogues(torch.device("cuda", torch.cuda.current_device()))
    if library is None:
        pytest.skip("cuBLASLt is not loaded here")
    kind = {"device": "cuda", "dtype": torch.bfloat16}
    x, weight, bias = torch.randn(300, 64, **kind), torch.randn(128, 64, **kind) * 0.2, torch.randn(128, **kind)
    y, u = library.gelu(x, weight, bias if biased else None)
    exact = torch.nn.functional.linear(x.double(), weight.double(), bias.double() if biased else None)
    exact.requires_grad_()
    active = torch.nn.functional.gelu(exact, approximate="tanh")
    assert (u - exact).norm() < 4e-3 * exact.norm()
    assert (y - active).norm() < 4e-3 * active.norm()
    dy, back = torch.randn(300, 64, **kind), torch.randn(64, 128, **kind) * 0.2
    (expected,) = torch.autograd.grad(active, exact, dy.double() @ back.double())
    assert (library.slope(dy, back, u) - expected).norm() < 1e-2 * expected.norm()


def test_kernels_are_compiled_ahead_without_being_launched():
    pytest.importorskip("triton")
    from regard.fast.kernels import block_norm
    from regard.fast.kernels.block_norm import sum_rows

    x, device = halves(72, 88), torch.device("cuda", torch.cuda.current_device())
    kernels = [each for each in vars(block_norm).values() if hasattr(each, "device_caches")]

    def compiled():
        return sum(len(each.device_caches[device.index][0]) for each in kernels)

    before, torn = compiled(), []
    compile_ahead(lambda: torn.append(sum_rows(x)), device)
    made = compiled()
    assert made > before
    found = sum_rows(x)
    assert compiled() == made  # the launch compiles nothing
    assert_near(found, x.double().sum(0))
