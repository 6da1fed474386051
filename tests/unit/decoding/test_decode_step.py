"""Which models the fused decoding step takes, and how it cuts their products; its numbers: test_cuda.py."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.fast.decoding import decode_step
from regard.fast.table import needs_triton
from regard.systems import gpt, lstm, self_attention


def power_of_two(number):
    return number & (number - 1) == 0


def a_gpt(**settings):
    return gpt.GPT(50, gpt.Settings(layers=2, width=32, heads=2, context=16, **settings)).eval()


@pytest.fixture
def anywhere(monkeypatch):
    """As if the model lay on a GPU, so that only its parts decide."""
    monkeypatch.setattr(decode_step, "_placed", lambda model: True)


def test_on_a_cpu_the_plain_step_is_used():
    assert needs_triton(torch.device("cpu"))


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"position": "rotary"},
        {"position": "none"},
        {"bias": False},
        {"tied": False, "activation": "relu", "feedforward": 48},
    ],
)
def test_the_kernels_know_these_models(anywhere, settings):
    assert decode_step.is_known(a_gpt(**settings))


@pytest.mark.parametrize(
    "settings",
    [{"norm": "post"}, {"position": "sinusoid"}, {"position": "learned", "combine": "concatenate", "tied": False}],
)
def test_what_the_kernels_do_not_know_is_left_to_the_model(anywhere, settings):
    assert not decode_step.is_known(a_gpt(**settings))


def test_other_systems_are_left_to_themselves(anywhere):
    for model in (
        lstm.LSTMModel(50, lstm.Settings(width=32)),
        self_attention.SelfAttentionModel(50, self_attention.Settings(width=32, context=16)),
    ):
        assert not decode_step.is_known(model.eval())


def test_a_model_that_drops_out_is_left_to_itself(anywhere):
    assert not decode_step.is_known(a_gpt().train())


def test_weights_of_two_precisions_are_left_to_the_model(monkeypatch):
    monkeypatch.setattr(decode_step, "INTERPRETED", True)
    monkeypatch.setattr(decode_step, "has_triton", lambda: True)
    model = a_gpt()
    assert decode_step._placed(model)
    model.finish.double()
    assert not decode_step._placed(model)
    assert not decode_step._placed(a_gpt().double())


sizes = {"columns": st.integers(1, 60_000), "inner": st.integers(1, decode_step.WIDEST)}


@given(rows=st.integers(1, decode_step.FEW), **sizes)
def test_a_warp_can_hold_the_rows_of_a_matrix_it_is_given(rows, columns, inner):
    warps, each = decode_step.few_rows_tile(rows, columns, inner)
    assert power_of_two(warps)
    assert power_of_two(each)
    assert each * decode_step.power_of_two(inner) // 32 <= 512  # a lane's, of which two share a register


@given(held=st.sampled_from([2, 4]), **sizes)
def test_tiles_are_what_tensor_cores_take(columns, inner, held):
    for block, deep in (decode_step.many_rows_tile(columns, inner)[:2], decode_step.split_k_tile(columns, inner, held)):
        assert min(block, deep) >= 16
        assert power_of_two(block)
        assert power_of_two(deep)


@given(number=st.integers(1, 2**20))
def test_the_next_power_of_two_holds_the_number_and_half_of_it_would_not(number):
    found = decode_step.power_of_two(number)
    assert power_of_two(found)
    assert found // 2 < number <= found
