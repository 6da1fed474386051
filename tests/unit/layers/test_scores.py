"""The family of scores: the written formulas, checked against NumPy, and the statements the notes make about them."""

import math

import numpy as np
import pytest
import torch

from regard.layers.attention import SelfAttention
from regard.layers.scores import KERNELS, SCORES, Bounded, named_score
from regard.layers.state import Span

BOUNDED = ("boxcar", "triangular", "epanechnikov")


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def everything(queries: int, keys: int) -> torch.Tensor:
    return torch.ones(1, queries, keys, dtype=torch.bool)


def made(name: str, *widths: int, bandwidth: float = 1.0):
    torch.manual_seed(0)
    return named_score(name, *widths, bandwidth=bandwidth).double()


def by_hand(name, score, query, keys, visible, bandwidth):
    """M3 for one query and its keys, in NumPy, one key after the other."""
    answers = []
    weights = {key: value.detach().numpy() for key, value in score.named_parameters()}
    for key in keys:
        u = np.sqrt(((query - key) ** 2).sum()) / bandwidth if len(query) == len(key) else math.nan
        if name == "bilinear":
            answers.append(np.exp(query @ weights["matrix"] @ key))
        elif name == "additive":
            both = weights["query.weight"] @ query + weights["key.weight"] @ key
            answers.append(np.exp(weights["judge.weight"][0] @ np.tanh(both)))
        else:
            answers.append(
                {
                    "dot": lambda key=key: np.exp(query @ key),
                    "scaled-dot": lambda key=key: np.exp(query @ key / np.sqrt(len(query))),
                    "gaussian": lambda u=u: np.exp(-(u**2) / 2),
                    "boxcar": lambda u=u: float(u <= 1),
                    "triangular": lambda u=u: max(0.0, 1 - u),
                    "epanechnikov": lambda u=u: max(0.0, 1 - u**2),
                }[name]()
            )
    answers = np.array(answers) * visible
    return answers / answers.sum() if answers.sum() else visible / visible.sum()


# -- the formulas ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SCORES)
@pytest.mark.parametrize("bandwidth", [0.3, 1.0, 2.5])
def test_weights_are_the_written_formulas(name, bandwidth):
    score, query, keys = made(name, 3, bandwidth=bandwidth), draw(2, 5, 3), draw(2, 6, 3, seed=1)
    visible = torch.rand(2, 5, 6, generator=torch.Generator().manual_seed(2)) < 0.6
    visible[..., 0] = True
    weights = score(query, keys, visible).detach().numpy()
    for row in range(2):
        for at in range(5):
            arrays = query[row, at].numpy(), keys[row].numpy(), visible[row, at].numpy()
            expected = by_hand(name, score, *arrays, bandwidth)
            np.testing.assert_allclose(weights[row, at], expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", ["bilinear", "additive"])
def test_queries_and_keys_may_differ_in_width(name):
    score, query, keys = made(name, 3, 5), draw(4, 3), draw(6, 5, seed=1)
    weights = score(query, keys, everything(4, 6)[0]).detach().numpy()
    for at in range(4):
        expected = by_hand(name, score, query[at].numpy(), keys.numpy(), np.ones(6), 1.0)
        np.testing.assert_allclose(weights[at], expected, rtol=1e-12)


@pytest.mark.parametrize("name", [name for name in SCORES if name not in ("bilinear", "additive")])
def test_where_widths_must_agree_it_says_so(name):
    with pytest.raises(ValueError, match="width 3"):
        named_score(name, 3, 5)


def test_nothing_scales_silently():
    query, keys = draw(1, 4, 16), draw(1, 4, 16, seed=1)
    plain = made("dot", 16).explain(query, keys, everything(4, 4))["scores"]
    scaled = made("scaled-dot", 16).explain(query, keys, everything(4, 4))["scores"]
    torch.testing.assert_close(plain, query @ keys.transpose(1, 2))
    torch.testing.assert_close(scaled, plain / 4)


@pytest.mark.parametrize("name", SCORES)
def test_weights_lie_on_the_simplex_and_off_what_is_hidden(name):
    visible = torch.ones(5, 5, dtype=torch.bool).tril()
    weights = made(name, 3, bandwidth=0.7)(draw(2, 5, 3), draw(2, 5, 3, seed=1), visible)
    assert (weights >= 0).all()
    assert (weights[:, ~visible] == 0).all()
    torch.testing.assert_close(weights.sum(dim=-1), torch.ones(2, 5, dtype=torch.float64))


# -- kernels ---------------------------------------------------------------------------------------------------------


def test_boxcar_gives_query_and_key_no_gradient():
    """C22: exactly 0, while every other score teaches both."""
    for name in SCORES:
        query, keys = draw(1, 4, 3).requires_grad_(), draw(1, 6, 3, seed=1).requires_grad_()
        weights = made(name, 3, bandwidth=3.0)(query, keys, everything(4, 6))
        loss = (weights @ draw(6, 2, seed=2) + 0.0 * query.sum() + 0.0 * keys.sum()).square().sum()
        found = torch.autograd.grad(loss, [query, keys])
        assert all(gradient.isfinite().all() for gradient in found)
        assert [bool(gradient.any()) for gradient in found] == [name != "boxcar"] * 2


@pytest.mark.parametrize("name", BOUNDED)
def test_an_empty_window_is_uniform_over_what_may_be_seen_and_is_counted(name):
    query = torch.tensor([[[0.0, 0.0], [100.0, 0.0]]], dtype=torch.float64, requires_grad=True)
    keys = torch.tensor([[[0.1, 0.0], [0.0, 0.2], [5.0, 5.0]]], dtype=torch.float64, requires_grad=True)
    visible = torch.tensor([[[True, True, True], [True, False, True]]])
    parts = made(name, 2).explain(query, keys, visible)
    assert parts["empty"].tolist() == [[False, True]]
    assert parts["weights"][0, 1].tolist() == [0.5, 0.0, 0.5]
    assert parts["weights"][0, 0, 2] == 0.0  # beyond the bandwidth
    loss = (parts["weights"] * draw(1, 2, 3)).sum() + 0.0 * (query.sum() + keys.sum())
    assert all(gradient.isfinite().all() for gradient in torch.autograd.grad(loss, [query, keys]))


def test_the_gaussian_is_never_empty_however_far_the_keys_are():
    query, keys = torch.zeros(1, 1, 2), torch.tensor([[[1e4, 0.0], [1e4 + 1e-1, 0.0]]])
    parts = named_score("gaussian", 2).explain(query, keys, everything(1, 2))
    assert "empty" not in parts  # exp(−u²/2) itself would be 0/0 here
    assert parts["weights"].tolist() == [[[1.0, 0.0]]]


@pytest.mark.parametrize("name", KERNELS)
def test_where_query_and_key_are_the_same_gradients_are_finite(name):
    same = draw(1, 4, 3).float().requires_grad_()
    weights = made(name, 3).float()(same, same, everything(4, 4))
    (weights.square().sum() + 0.0 * same.sum()).backward()
    assert same.grad is not None
    assert same.grad.isfinite().all()


@pytest.mark.parametrize("name", KERNELS)
def test_bandwidth_goes_from_the_nearest_key_to_the_mean(name):
    """C16: h → ∞ is the mean; a small h leaves the nearest alone."""
    query, keys = torch.zeros(1, 1, 2, dtype=torch.float64), draw(1, 5, 2)
    nearest = keys.norm(dim=-1).argmin()
    wide = made(name, 2, bandwidth=1e6)(query, keys, everything(1, 5))
    torch.testing.assert_close(wide, torch.full((1, 1, 5), 0.2, dtype=torch.float64), atol=1e-5, rtol=0.0)
    distance = keys.norm(dim=-1).sort().values[0]
    bandwidth = float(distance[:2].mean()) if name != "gaussian" else float(distance[1] - distance[0]) / 10
    narrow = made(name, 2, bandwidth=bandwidth)(query, keys, everything(1, 5))
    assert narrow[0, 0, nearest] == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize("name", KERNELS)
def test_distances_of_near_keys_keep_their_digits_in_fp32(name):
    """Through ‖q‖² − 2qᵀk + ‖k‖² a distance of 0.01 at 1000 from the origin would be lost."""
    query, keys = torch.full((1, 1, 2), 1000.0), torch.tensor([[[1000.0, 1000.0078125], [1000.0, 1000.015625]]])
    score = named_score(name, 2, bandwidth=0.03125)
    u = score.distance(query, keys)
    assert u.tolist() == [[[0.25, 0.5]]]
    assert not isinstance(score, Bounded) or not score.explain(query, keys, everything(1, 2))["empty"].any()


# -- what the notes say ----------------------------------------------------------------------------------------------


def test_gaussian_weights_are_dot_weights_when_key_norms_are_equal():
    """C14: bandwidth 1 is the unscaled dot product, h² = √d the scaled one; the query's norm never matters."""
    query, keys = draw(1, 4, 9) * torch.tensor([[[0.1], [1.0], [3.0], [9.0]]]), draw(1, 6, 9, seed=1)
    level = 2.0 * keys / keys.norm(dim=-1, keepdim=True)
    see = everything(4, 6)
    torch.testing.assert_close(made("gaussian", 9)(query, level, see), made("dot", 9)(query, level, see))
    scaled = made("gaussian", 9, bandwidth=9**0.25)(query, level, see)
    torch.testing.assert_close(scaled, made("scaled-dot", 9)(query, level, see))
    uneven = (made("gaussian", 9)(query, keys, see), made("dot", 9)(query, keys, see))
    assert not torch.allclose(*uneven, atol=1e-3)


@pytest.mark.parametrize("name", ["dot", "scaled-dot", "bilinear"])
def test_a_query_of_zero_is_exactly_the_average(name):
    """C10: attention with q = 0 is the deep averaging network's average."""
    query, keys = torch.zeros(1, 1, 2, dtype=torch.float64), draw(1, 8, 2)
    assert made(name, 2)(query, keys, everything(1, 8)).tolist() == [[[0.125] * 8]]


def test_the_notes_query_finds_the_b():
    """C10, 002:27–57: AABA and q = (0, 1): (1/2, 1/2) with base 3, (0.525, 0.475) with e; q = (0, 10): 0.99986."""
    words = torch.tensor([[[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]], dtype=torch.float64)

    def seen(strength: float) -> list[float]:
        query = torch.tensor([[[0.0, strength]]], dtype=torch.float64)
        return (made("dot", 2)(query, words, everything(1, 4)) @ words)[0, 0].tolist()

    assert seen(math.log(3)) == pytest.approx([0.5, 0.5])
    assert seen(1.0) == pytest.approx([0.525, 0.475], abs=5e-4)
    assert seen(10.0)[1] == pytest.approx(math.exp(10) / (math.exp(10) + 3), abs=1e-15)
    assert seen(10.0)[1] == pytest.approx(0.99986, abs=5e-6)


def test_without_projections_a_word_is_its_own_query_key_and_value():
    """001:120–136: y_i = Σ_j softmax(x_iᵀ x_j) x_j, over j ≤ i."""
    layer, x = SelfAttention(4, score="dot", projections=False).double(), draw(1, 6, 4)
    state = layer.begin(1, device="cpu", dtype=torch.float64)
    span = Span(torch.zeros(1, dtype=torch.int64))
    expected = []
    for i in range(6):
        weights = np.exp([x[0, i].numpy() @ x[0, j].numpy() for j in range(i + 1)])
        expected.append(sum(w * x[0, j].numpy() for j, w in enumerate(weights / weights.sum())))
    for y in (layer(x, state, span)[0], layer.explain(x, state, span)[0]):
        np.testing.assert_allclose(y[0].numpy(), expected, rtol=1e-12)
    assert not list(layer.parameters())
