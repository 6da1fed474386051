"""The claims about what attention is: the hull, symmetry, sets, kernels. All are cheap, so all are run."""

import math

import numpy as np
import pytest
import torch

from regard.base.errors import RegardError
from regard.claims import gaussian_dot, hull, kernels, set_to_set, symmetry
from regard.claims.verdict import HOLDS, judge

CLAIMS = {module.CLAIM.name: module.CLAIM for module in (hull, symmetry, gaussian_dot, kernels, set_to_set)}


@pytest.fixture(scope="module")
def judged():
    evidence = {name: claim.measure(claim.trial(quick=True)) for name, claim in CLAIMS.items()}
    return {name: (CLAIMS[name], found, judge(CLAIMS[name], found)) for name, found in evidence.items()}


@pytest.mark.parametrize("name", CLAIMS)
def test_the_statement_holds_and_its_control_comes_out_the_other_way(judged, name):
    _, evidence, judgement = judged[name]
    assert judgement.verdict == HOLDS
    assert judgement.controlled
    assert all(finding.verdict == HOLDS for finding in judgement.besides)
    assert evidence.figures


@pytest.mark.parametrize("name", ["hull", "symmetry", "set-to-set"])
def test_the_worked_examples_agree_digit_for_digit(name):
    examples = CLAIMS[name].worked()
    assert examples
    assert all(example.agrees for example in examples)


@pytest.mark.parametrize("name", ["hull", "gaussian-dot", "kernels"])
def test_at_both_ends_of_a_knob_everything_is_a_number(name):
    claim = CLAIMS[name]
    (knob,) = claim.knobs
    for value in claim.limits[knob]:
        evidence = claim.measure(claim.trial(quick=True, **{knob: value}))
        assert all(math.isfinite(number) for found in evidence.measured.values() for number in found)
    for value in (0.0, math.nan, "x"):
        with pytest.raises(RegardError, match=f"{knob} of {name} must be a number from"):
            claim.trial(**{knob: value})


# -- hull ------------------------------------------------------------------------------------------------------------


def test_coordinates_of_a_point_are_those_of_a_known_triangle():
    corners = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    inside = hull.coordinates(torch.tensor([0.25, 0.25], dtype=torch.float64), corners)
    torch.testing.assert_close(inside, torch.tensor([0.5, 0.25, 0.25], dtype=torch.float64))
    outside = hull.coordinates(torch.tensor([1.0, 1.0], dtype=torch.float64), corners)
    torch.testing.assert_close(outside, torch.tensor([-1.0, 1.0, 1.0], dtype=torch.float64))


# -- symmetry --------------------------------------------------------------------------------------------------------


def test_the_law_of_three_is_kolmogorovs_criterion():
    """A random walk along weighted edges is reversible, and one that goes round in a ring is not."""
    edges = np.array([[1.0, 2.0, 5.0], [2.0, 1.0, 3.0], [5.0, 3.0, 4.0]])
    assert symmetry.around(edges / edges.sum(axis=1, keepdims=True)) < 1e-12
    ring = np.array([[0.2, 0.7, 0.1], [0.1, 0.2, 0.7], [0.7, 0.1, 0.2]])
    assert symmetry.around(ring) == pytest.approx(3 * math.log(7))


def test_the_notes_table_comes_from_symmetric_scores():
    x = symmetry.sentence()
    np.testing.assert_array_equal(x @ x.T, (x @ x.T).T)
    expected = [[0.75, 0.25, 0, 0, 0], [0.5, 0.5, 0, 0, 0], [0, 0, 1, 0, 0], [0, 0, 0, 0.75, 0.25], [0, 0, 0, 0, 1]]
    np.testing.assert_allclose(symmetry.table(), expected, atol=1e-12)


# -- gaussian and dot ------------------------------------------------------------------------------------------------


def test_two_keys_differ_by_what_their_lengths_say():
    query, keys = np.array([[0.3, -1.0]]), np.array([[2.0, 0.5], [-0.4, 1.0]])
    gap = query @ (keys[0] - keys[1])
    longer = ((keys[0] ** 2).sum() - (keys[1] ** 2).sum()) / 2
    dot, gaussian = 1 / (1 + math.exp(-gap[0])), 1 / (1 + math.exp(-(gap[0] - longer)))
    assert gaussian_dot.differ(query, keys, "dot", 1.0) == pytest.approx(abs(dot - gaussian), rel=1e-12)


def test_another_bandwidth_refutes_the_equality():
    claim = gaussian_dot.CLAIM
    judgement = judge(claim, claim.measure(claim.trial(quick=True, bandwidth=2.0)))
    assert judgement.verdict == "fails"


# -- kernels ---------------------------------------------------------------------------------------------------------


def test_each_kernel_has_its_written_height():
    found = [kernels.one(name, 0.5) for name in ("gaussian", "boxcar", "triangular", "epanechnikov")]
    assert found == pytest.approx([math.exp(-0.125), 1.0, 0.5, 0.75], rel=1e-12)


def test_a_bandwidth_as_wide_as_the_world_is_no_local_average():
    claim = kernels.CLAIM
    judgement = judge(claim, claim.measure(claim.trial(quick=True, bandwidth=100.0)))
    assert judgement.verdict != HOLDS


# -- sets ------------------------------------------------------------------------------------------------------------


def test_torchs_own_encoder_maps_sets_to_sets_by_the_same_measure():
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True).double().eval()
    x, order = torch.randn(6, 8, dtype=torch.float64), set_to_set.shuffled(6)
    with torch.no_grad():
        here, there = layer(x[None])[0], layer(x[order][None])[0]
    assert set_to_set.unlike(there, here[order]) < 1e-10
    assert set_to_set.unlike(there, here) > 0.01


def test_an_order_is_never_the_one_it_was():
    torch.manual_seed(0)
    assert not any(torch.equal(set_to_set.shuffled(2), torch.arange(2)) for _ in range(20))
