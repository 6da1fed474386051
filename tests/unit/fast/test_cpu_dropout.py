"""Dropout with few random numbers: what it must share with the library's."""

import pytest
import torch

from regard.fast import install
from regard.fast.training.cpu_dropout import LEVELS
from regard.layers import dropout

MANY = 400_000
RATES = (0.1, 0.3, 0.5, 0.9)


def Dropout(rate):
    layer = dropout.Dropout(rate)
    assert install(layer)
    return layer


def dropped(rate, count=MANY, seed=0):
    torch.manual_seed(seed)
    return Dropout(rate)(torch.ones(count)) == 0


@pytest.mark.parametrize("rate", RATES)
def test_components_are_dropped_at_the_rate(rate):
    spread = (rate * (1 - rate) / MANY) ** 0.5
    assert abs(float(dropped(rate).double().mean()) - rate) < 5 * spread + 1 / LEVELS


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("apart", [1, 2, 3, 4])  # coins of one number, and of neighbouring ones
def test_two_coins_know_nothing_of_each_other(rate, apart):
    one = dropped(rate)
    both = float((one[apart:] & one[:-apart]).double().mean())
    spread = (rate**2 * (1 - rate**2) / MANY) ** 0.5
    assert abs(both - rate**2) < 8 * spread + 2 / LEVELS


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("shape", [(), (1,), (7,), (3, 5, 2), (0, 4)])
def test_what_stays_is_scaled_so_that_the_mean_stays(dtype, shape):
    x = torch.full(shape, 2.0, dtype=dtype)
    y = Dropout(0.5)(x)
    assert y.shape == x.shape
    assert y.dtype == dtype
    assert set(y.flatten().tolist()) <= {0.0, 4.0}


def test_the_gradient_passes_where_a_component_stayed_and_nowhere_else():
    x = torch.randn(50, 20).t().requires_grad_()  # also where memory is not in order
    y = Dropout(0.3)(x)
    y.sum().backward()
    torch.testing.assert_close(x.grad * x.detach(), y.detach())
    assert bool((x.grad == 0).any())
    assert bool((x.grad > 1).any())


def test_a_seed_decides_and_calls_differ():
    assert torch.equal(dropped(0.3, 1000, seed=1), dropped(0.3, 1000, seed=1))
    assert not torch.equal(dropped(0.3, 1000, seed=1), dropped(0.3, 1000, seed=2))
    layer, x = Dropout(0.3), torch.ones(1000)
    assert not torch.equal(layer(x), layer(x))


def test_nothing_is_dropped_in_eval_or_at_rate_0_and_everything_at_rate_1():
    x = torch.randn(10)
    assert Dropout(0.3).eval()(x) is x
    assert Dropout(0.0)(x) is x
    assert not Dropout(1.0)(x).any()
