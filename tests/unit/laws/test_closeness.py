"""How far apart two results of the laws may be: by the order of a sum in fp64, and by nothing else."""

import pytest
import torch

from regard.laws.closeness import Broken, RandomCase, close, equal, leaves, real, same_gradients, same_state

ONE = torch.tensor([[1.0, -3.0, 0.0]], dtype=torch.float64)


def differs(compare, one, other, *more):
    try:
        compare(one, other, "it changes", "why", *more)
    except Broken as error:
        return str(error)
    return ""


@pytest.mark.parametrize("scale", [1.0, 1e6])
def test_the_order_of_a_sum_is_forgiven_and_a_billionth_is_not(scale):
    numbers = torch.randn(1000, dtype=torch.float64)
    shuffled = numbers[torch.randperm(1000)]
    assert not differs(close, numbers.sum() * scale, shuffled.sum() * scale)
    assert not differs(close, ONE * scale, ONE * scale * (1 + 1e-12))
    assert differs(close, ONE * scale, ONE * scale * (1 + 1e-9))


def test_beside_zero_a_billionth_is_not_forgiven_either():
    assert not differs(close, torch.zeros(2, dtype=torch.float64), torch.full((2,), 1e-12, dtype=torch.float64))
    said = differs(close, torch.zeros(1, 2, dtype=torch.float64), torch.tensor([[0.0, 1e-9]], dtype=torch.float64),
                   ("", "position"))  # fmt: skip
    assert said == "it changes by 1e-09 at position 1: why"


@pytest.mark.parametrize("compare", [close, equal])
@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_what_is_not_finite_and_another_shape_differ(compare, bad):
    assert "not finite" in differs(compare, ONE * bad, ONE)
    assert "from shape [1, 3] to [3]" in differs(compare, ONE[0], ONE)


def test_equal_means_to_the_last_bit():
    assert not differs(equal, ONE, ONE.clone())
    assert differs(equal, torch.nextafter(ONE, ONE + 1), ONE)


def test_states_and_gradients_have_the_same_names_and_numbers():
    state, near, far = ({"past": {"hidden": ONE * factor}} for factor in (1, 1 + 1e-12, 1 + 1e-9))
    assert not differs(same_state, near, state)
    assert "past.hidden" in differs(same_state, far, state)
    assert differs(same_state, {"past": {"cell": ONE}}, state)
    assert not differs(same_gradients, near["past"], state["past"])
    assert "of hidden" in differs(same_gradients, far["past"], state["past"])


def test_a_state_is_nothing_but_tensors_in_dicts():
    assert [name for name, _ in leaves({"a": {"b": ONE}, "c": ONE})] == ["a.b", "c"]
    for wrong in ({"a": 1}, {"a": [ONE]}):
        with pytest.raises(Broken, match="only tensors and dicts"):
            list(leaves(wrong))
    with pytest.raises(Broken, match="the state has a list at its top: use a dict there"):
        list(leaves([ONE]))


@pytest.mark.parametrize("seed", range(20))
def test_of_ragged_rows_one_is_full_and_one_is_empty(seed):
    draw = RandomCase(seed, 4, 5)
    lengths = draw.lengths()
    assert lengths.max() == 5
    assert lengths.min() == 0
    assert torch.equal(lengths, draw.lengths())
    assert len(real(torch.rand(4, 5, 2), lengths)) == lengths.sum()
    pieces = draw.pieces(torch.arange(20).view(4, 5))
    assert torch.equal(torch.cat(pieces, dim=1), torch.arange(20).view(4, 5))


def test_ragged_rows_have_every_length():
    lengths = torch.cat([RandomCase(seed, 6, 5).lengths() for seed in range(50)])
    assert lengths.unique().tolist() == [0, 1, 2, 3, 4, 5]
    assert (lengths == 5).sum() > 50  # more than the one full row of each case


def test_of_two_ragged_rows_the_other_may_have_any_length_and_one_row_alone_is_full():
    two = torch.stack([RandomCase(seed, 2, 5).lengths() for seed in range(50)])
    assert (two.max(dim=1).values == 5).all()
    assert two.min(dim=1).values.unique().tolist() == [0, 1, 2, 3, 4, 5]
    three = torch.stack([RandomCase(seed, 3, 5).lengths() for seed in range(20)])
    assert ((three == 0).any(dim=1) & (three == 5).any(dim=1)).all()
    assert RandomCase(0, 1, 5).lengths().tolist() == [5]
    assert RandomCase(0, 3, 5).lengths("other", columns=9).max() == 9
