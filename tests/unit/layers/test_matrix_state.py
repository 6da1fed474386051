"""Linear attention: the form in chunks, the recurrent form and the plain sum over all pairs are one function."""

from itertools import product

import pytest
import torch

from regard.layers import matrix_state
from regard.layers.matrix_state import DECAYS, FEATURES, RULES, LinearAttention
from regard.layers.state import Span

ALL = list(product(FEATURES, DECAYS, RULES))


def make(feature="elu", decay="none", rule="sum", **options):
    torch.manual_seed(0)
    return LinearAttention(16, 2, feature=feature, decay=decay, rule=rule, **options).double()


def begin(layer, rows=2):
    weight = layer.output.weight
    return layer.begin(rows, device=weight.device, dtype=weight.dtype), Span(torch.zeros(rows, dtype=torch.int64))


def gradients(layer, y, x):
    weigh = torch.randn(y.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return torch.autograd.grad((y.double() * weigh).sum(), [x, *layer.parameters()])


@pytest.mark.parametrize("feature, decay, rule", ALL)
def test_chunks_are_the_recurrence_values_gradients_and_state(feature, decay, rule, monkeypatch):
    monkeypatch.setattr(matrix_state, "CHUNK", 8)
    layer = make(feature, decay, rule)
    x = torch.randn(2, 29, 16, dtype=torch.float64, requires_grad=True)
    parallel, after = layer(x, *begin(layer))
    recurrent, same, _ = layer.explain(x, *begin(layer))
    torch.testing.assert_close(parallel, recurrent, atol=1e-10, rtol=0)
    for name in after:
        torch.testing.assert_close(after[name], same[name], atol=1e-10, rtol=0)
    for one, other in zip(gradients(layer, parallel, x), gradients(layer, recurrent, x), strict=True):
        torch.testing.assert_close(one, other, atol=1e-9, rtol=0)


@pytest.mark.parametrize("feature", FEATURES)
def test_it_is_the_weighted_average_of_all_values_so_far(feature):
    """Nadaraya and Watson: weights by the kernel, divided by their sum."""
    layer, x = make(feature), torch.randn(2, 70, 16, dtype=torch.float64)
    query, key, value = layer.queries_keys_values(x, torch.arange(70)[None].expand(2, -1))
    kernel = (layer.map_features(query, of_query=True) @ layer.map_features(key).mT).tril()
    weights = (kernel / kernel.sum(-1, keepdim=True)).nan_to_num(0.0)  # with relu a query may match no key
    y, _ = layer(x, *begin(layer))
    torch.testing.assert_close(y, layer.join_heads(weights @ value))
    *_, parts = layer.explain(x, *begin(layer))
    torch.testing.assert_close(parts["weights"], weights)


def test_random_features_estimate_the_gaussian_kernel():
    torch.manual_seed(1)
    layer = LinearAttention(8, 1, feature="gaussian", features=200_000).double()
    query, key = (0.5 * torch.randn(1, 1, size, 8, dtype=torch.float64) for size in (3, 4))
    found = layer.map_features(query) @ layer.map_features(key).mT
    apart = torch.cdist(query, key) * 8**-0.25
    torch.testing.assert_close(found, (-0.5 * apart.square()).exp(), atol=0.02, rtol=0.02)


@pytest.mark.parametrize("rule", RULES)
def test_a_gate_that_forgets_everything_overflows_nothing(rule):
    layer = make(decay="gated", rule=rule).float()
    with torch.no_grad():
        layer.forget.bias.fill_(-4000.0)  # λ = exp(−250)
    x = torch.randn(2, 200, 16, requires_grad=True)
    y, _ = layer(x, *begin(layer))
    alone, _ = layer(x[:, 150:151], *begin(layer))
    torch.testing.assert_close(y[:, 150:151], alone, atol=1e-5, rtol=0)  # the past is gone
    assert all(part.isfinite().all() for part in gradients(layer, y, x))


def test_the_delta_rule_replaces_what_a_key_had_stored():
    """The same key with another value: a sum keeps both, the delta rule the last."""
    one = torch.eye(4, dtype=torch.float64)[None, None, [0, 1, 0]]  # keys: first, second, first again
    value = torch.tensor([[1.0, 0.0], [0.0, 1.0], [5.0, 5.0]], dtype=torch.float64)[None, None]
    still, always = torch.zeros(1, 1, 3, dtype=torch.float64), torch.ones(1, 1, 3, dtype=torch.float64)
    start = torch.zeros(1, 1, 4, 2, dtype=torch.float64)
    for write, wanted in ((always, [5.0, 5.0]), (None, [6.0, 5.0])):
        read, _ = matrix_state.read_chunks(one, one, value, still, write, start)
        assert read[0, 0, 2].tolist() == wanted


def test_under_autocast_sums_stay_in_full_precision():
    layer, x = make(decay="fixed").float(), torch.randn(2, 130, 16)
    exact, _ = layer(x, *begin(layer))
    with torch.autocast("cpu", torch.bfloat16):
        y, state = layer(x, *begin(layer))
    assert state["matrix"].dtype == state["normaliser"].dtype == torch.float32
    torch.testing.assert_close(y.float(), exact, atol=0.03, rtol=0.03)


def test_the_state_has_one_size_however_much_was_read():
    layer = make(decay="gated")
    sizes = {
        words: [leaf.shape for leaf in layer(torch.randn(2, words, 16).double(), *begin(layer))[1].values()]
        for words in (1, 64, 65, 300)
    }
    assert len({str(shapes) for shapes in sizes.values()}) == 1


def test_a_head_forgets_as_its_equation_says():
    """1 − 2^(−5−h) in head h; or the 16th root of a gate, which first keeps 96 %."""
    x = torch.randn(1, 3, 16, dtype=torch.float64)
    for decay, wanted in (("none", [1.0, 1.0]), ("fixed", [1 - 2**-5, 1 - 2**-6]), ("gated", [0.5 ** (1 / 16)] * 2)):
        layer = make(decay=decay)
        if decay == "gated":
            torch.nn.init.zeros_(layer.forget.weight)
            torch.nn.init.zeros_(layer.forget.bias)
        *_, parts = layer.explain(x, *begin(layer, 1))
        assert parts["decay"].shape == (1, 3, 2)
        torch.testing.assert_close(parts["decay"], torch.tensor(wanted, dtype=torch.float64).expand(1, 3, 2))


def test_what_matches_no_key_is_divided_by_a_millionth():
    layer = make(feature="relu")
    read = torch.tensor([[[[2e-7, 4e-7, 1e-7], [2e-6, 4e-6, 2e-6], [0.0, 0.0, 0.0]]]], dtype=torch.float64)
    assert layer.divide(read)[0, 0].flatten().tolist() == pytest.approx([0.2, 0.4, 1.0, 2.0, 0.0, 0.0])
    assert torch.equal(make(rule="delta").divide(read), read)


def test_a_gaussian_feature_is_of_a_size_that_does_not_depend_on_how_many_there_are():
    for features, wanted in ((0, 8), (3, 3)):
        layer = make(feature="gaussian", features=features)
        assert layer.directions.shape == (2, 8, wanted)
        assert layer.begin(1, device="cpu", dtype=torch.float32)["matrix"].shape == (1, 2, wanted, 8)
        key = torch.zeros(1, 2, 1, 8, dtype=torch.float64)  # φ(0) = 1 / √m
        assert layer.map_features(key).flatten().tolist() == pytest.approx([wanted**-0.5] * 2 * wanted)
    assert make(feature="relu", features=3).features == 8  # only random features can be of any number
