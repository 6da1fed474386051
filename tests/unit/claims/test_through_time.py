"""Gradients through time, against matrix powers, PyTorch's own Jacobian and closed forms."""

import numpy as np
import pytest
import torch

from regard.claims.through_time import (
    EXACT,
    Linear,
    influence,
    jacobians,
    log_slope,
    mean_curve,
    orthogonal,
    radius,
    reading,
    with_radius,
    without,
)
from regard.layers.attention import SelfAttention
from regard.layers.recurrent import GRU, LSTM, Elman

WIDTH, STEPS = 5, 7


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(3)


@pytest.mark.parametrize("kind", [Elman, LSTM, GRU])
def test_jacobians_by_distance_are_those_of_pytorch(kind):
    layer, words = kind(WIDTH, WIDTH).double(), torch.randn(STEPS, WIDTH, dtype=EXACT)
    found = jacobians(reading(layer), words, WIDTH)
    oracle = torch.autograd.functional.jacobian(lambda x: reading(layer)(x[None])[0, -1], words)  # [H, T, D]
    for distance in range(STEPS):
        assert torch.allclose(found[distance], oracle[:, STEPS - 1 - distance], atol=1e-14)


def test_attention_is_measured_the_same_way():
    layer, words = SelfAttention(WIDTH).double(), torch.randn(STEPS, WIDTH, dtype=EXACT)
    found = jacobians(reading(layer), words, WIDTH)
    oracle = torch.autograd.functional.jacobian(lambda x: reading(layer)(x[None])[0, -1], words)
    assert torch.allclose(found[STEPS - 1], oracle[:, 0], atol=1e-14)


def test_the_jacobians_of_a_linear_recurrence_are_powers_of_its_matrix():
    recurrent, inputs = torch.randn(2, WIDTH, WIDTH, dtype=EXACT)
    found = jacobians(reading(Linear(recurrent, inputs)), torch.randn(STEPS, WIDTH, dtype=EXACT), WIDTH)
    for distance in range(STEPS):
        assert torch.allclose(found[distance], torch.linalg.matrix_power(recurrent, distance) @ inputs)


@pytest.mark.parametrize("way", ["hidden", "cell"])
def test_cutting_a_way_through_time_changes_gradients_and_no_value(way):
    layer, words = LSTM(WIDTH, WIDTH).double(), torch.randn(STEPS, WIDTH, dtype=EXACT)
    assert torch.allclose(without(way, layer)(words[None]), reading(layer)(words[None]), atol=1e-14)
    whole, cut = (influence(read, words, WIDTH) for read in (reading(layer), without(way, layer)))
    assert whole[0] == pytest.approx(cut[0])  # at distance 0 nothing goes through time
    assert np.abs(whole[1:] / cut[1:] - 1).min() > 1e-3


def test_with_both_ways_cut_no_word_but_the_last_has_influence():
    layer, words = LSTM(WIDTH, WIDTH).double(), torch.randn(STEPS, WIDTH, dtype=EXACT)

    class Cut(LSTM):
        def step(self, x, state):
            return super().step(x, {**state, "cell": state["cell"].detach()})

    layer.__class__ = Cut
    sizes = influence(without("hidden", layer), words, WIDTH)
    assert sizes[0] > 0
    assert (sizes[1:] == 0).all()


def test_the_slope_of_an_exponential_is_its_exponent():
    distance = np.arange(30)
    assert log_slope(3 * np.exp(-0.25 * distance)) == pytest.approx(-0.25)
    assert log_slope(np.r_[np.ones(10), np.exp(-0.5 * distance)], first=10) == pytest.approx(-0.5)


def test_a_matrix_is_scaled_to_its_spectral_radius():
    matrix = with_radius(torch.randn(6, 6, dtype=EXACT), 0.7)
    assert np.abs(np.linalg.eigvals(matrix.numpy())).max() == pytest.approx(0.7)
    assert radius(orthogonal(6)) == pytest.approx(1.0)


def test_the_mean_curve_is_geometric_and_begins_at_one():
    line = mean_curve("a", [np.array([1.0, 1e-4]), np.array([2.0, 2e-2])])
    assert line.points == ((0.0, 1.0), (1.0, pytest.approx(1e-3)))
    assert line.band[1] == (pytest.approx(1e-4), pytest.approx(1e-2))
