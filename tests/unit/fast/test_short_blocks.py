"""What a Transformer's fused stacks rest on, where no GPU is needed; tests/cuda/ has the kernels."""

import pytest
import torch
from torch import nn

from regard.fast.attention import short_blocks
from regard.fast.attention.short_attention import is_short
from regard.fast.attention.short_blocks import are_known, are_short
from regard.fast.training.half_products import Halves, JoinedProduct
from regard.layers.blocks import FeedForward
from regard.systems.transformer import Settings, Transformer


@pytest.mark.parametrize("bias", [False, True])
def test_a_product_of_halves_is_the_maps_own_values_and_gradients(bias):
    torch.manual_seed(0)
    maps = [nn.Linear(6, 4).double(), nn.Linear(4, 3).double()]
    weights = [weight for each in maps for weight in (each.weight, *([each.bias] if bias else []))]
    halves = Halves(maps, torch.float64)

    def plain(x):
        for each in maps:
            x = nn.functional.linear(x, each.weight, each.bias if bias else None)
        return x

    assert_alike(plain, lambda x: halves(maps[1], halves(maps[0], x, bias=bias), bias=bias), weights)


def test_rectified_products_of_halves_are_the_maps_own_values_and_gradients():
    torch.manual_seed(0)
    expand, contract = nn.Linear(6, 8).double(), nn.Linear(8, 3).double()
    halves = Halves([expand, contract], torch.float64)
    plain = lambda x: expand(x).relu() @ contract.weight.t()  # noqa: E731
    assert_alike(plain, lambda x: halves.rectified(expand, contract, x), [*expand.parameters(), contract.weight])


def test_joined_products_are_the_maps_own_values_and_gradients_but_those_of_biases():
    torch.manual_seed(0)
    maps = [nn.Linear(6, 3).double() for _ in range(4)]
    weights, biases = [each.weight for each in maps], [each.bias for each in maps]
    plain = lambda x: torch.cat([each(x) for each in maps], dim=-1).sin()[..., :3]  # noqa: E731
    assert_alike(plain, lambda x: JoinedProduct.apply(x, biases, *weights).sin()[..., :3], weights)


def assert_alike(one, other, weights):
    """Same values, and same gradients of what is read and of the weights."""
    x = torch.randn(2, 5, 6, dtype=torch.float64, requires_grad=True)
    wanted, answers = torch.randn(2, 5, 3, dtype=torch.float64), []
    for way in (one, other):
        found = way(x)
        answers.append([found, *torch.autograd.grad((found * wanted).sum(), [x, *weights])])
    for one, other in zip(*answers, strict=True):
        torch.testing.assert_close(one, other, rtol=0.0, atol=1e-12)


def test_gradients_of_halves_come_in_the_weights_own_precision():
    each = nn.Linear(6, 4)
    found = Halves([each], torch.bfloat16)(each, torch.randn(3, 6))
    assert found.dtype == torch.bfloat16
    found.float().sum().backward()
    assert each.weight.grad.dtype == each.bias.grad.dtype == torch.float32


def test_on_a_cpu_the_blocks_are_called_one_after_the_other():
    x = torch.zeros(2, 8, 64, dtype=torch.bfloat16)
    assert not is_short(x, 8, 8, 16)
    model = Transformer(20, Settings(width=64, layers=2)).train()
    assert are_known(list(model.layers))
    assert not are_short(list(model.layers), x, 8, 8)
    assert not are_known([])


@pytest.mark.parametrize("position", ["rotary", "alibi"])
def test_blocks_with_positions_inside_attention_are_not_known(position):
    model = Transformer(20, Settings(width=16, layers=2, position=position))
    assert not are_known(list(model.layers))
    assert not are_known(list(model.encoder.blocks))


class Own(FeedForward):
    pass


def test_blocks_with_parts_of_ones_own_are_not_known():
    model = Transformer(20, Settings(width=16, layers=2))
    model.layers[1].feedforward = Own(16, 64)
    assert not are_known(list(model.layers))


@pytest.mark.parametrize(("columns", "keys", "short"), [(5, 5, True), (5, 50, False), (50, 5, False), (50, 50, False)])
def test_both_sides_must_be_short(monkeypatch, columns, keys, short):
    """For each, whatever a GPU would say of the rest."""
    monkeypatch.setattr(short_blocks, "is_short", lambda like, queries, keys, depth: max(queries, keys) <= 10)
    model = Transformer(11, Settings(layers=1, width=8, heads=2)).train()
    assert are_short(list(model.layers), torch.zeros(1), columns, keys) == short
    assert not are_short(list(model.eval().layers), torch.zeros(1), columns, keys)


def test_under_autocast_a_product_stays_in_its_own_precision():
    each = nn.Linear(6, 4)
    with torch.autocast("cpu", torch.bfloat16):
        assert Halves([each], torch.float32)(each, torch.randn(2, 6), bias=False).dtype == torch.float32
