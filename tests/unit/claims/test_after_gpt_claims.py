"""The claims about the systems after GPT, at toy size: what is counted, what is timed, and what the tasks ask for."""

import pytest
import torch

from regard.claims import look_back, no_waiting, recall
from regard.claims.all_claims import get_claim
from regard.layers.attention import CausalSelfAttention
from regard.layers.matrix_state import LinearAttention


def test_no_waiting_holds_and_times_three_systems_at_toy_size(monkeypatch):
    monkeypatch.setitem(no_waiting.MAX_WORDS, ("cpu", True), 256)
    monkeypatch.setattr(no_waiting, "REPETITIONS", 2)
    monkeypatch.setattr(no_waiting, "COUNTED", (16, 32, 64, 128))
    monkeypatch.setattr(no_waiting, "FLAT", "not enough words here")
    claim = get_claim("no-waiting")
    evidence = claim.experiment(claim.trial(quick=True))
    for expect in (*claim.expected, *claim.control):
        if expect.quantity in evidence.measured:
            low, high = expect.range
            assert all(low <= value <= high for value in evidence.measured[expect.quantity]), expect.quantity
    assert {line.name for line in evidence.figures[1].lines} == {"gru", "gpt", "mingru"}
    assert all(len(evidence.measured[name]) == 2 for name in no_waiting.EXPONENTS.values())


def test_both_forms_of_linear_attention_agree_and_a_forgotten_state_shows():
    torch.manual_seed(0)
    layer = LinearAttention(recall.WIDTH, 2, decay="gated", rule="delta").double()
    assert recall.difference(layer, 70) < 1e-12
    assert recall.difference(layer, 70, forgets=True) > 1e-3
    assert recall.growth(layer, 10) == 0
    assert recall.growth(CausalSelfAttention(recall.WIDTH, 2).double(), 10) == 2 * recall.WIDTH


def test_a_text_to_recall_asks_for_values_that_it_told():
    torch.manual_seed(0)
    keys, values, wanted = recall.texts(5, 7)
    for row in range(5):
        told = dict(zip(keys[row, :7].tolist(), values[row, :7].tolist(), strict=True))
        assert len(told) == 7
        assert [told[key] for key in keys[row, 7:].tolist()] == wanted[row].tolist()
    assert (values[:, 7:] == recall.VALUES).all()


@pytest.mark.parametrize("kind", recall.KINDS)
def test_each_attention_learns_something_of_two_pairs(kind):
    assert recall.recalled(kind, 2, seed=1, steps=60) > 2 / recall.VALUES


def test_the_tasks_of_look_back_are_what_they_say():
    torch.manual_seed(0)
    text, answers = look_back.parity(4)
    assert answers[:, 5].tolist() == [int(row[:6].sum()) % 2 for row in text]
    text, answers = look_back.counting(4)
    assert answers[:, -1].tolist() == [int(row.sum()) % 3 for row in text]
    text, answers = look_back.latch(4)
    for row, said in zip(text.tolist(), answers.tolist(), strict=True):
        marked = [symbol for symbol in row if symbol >= 3]
        assert said[-1] == marked[-1] - 3
        assert said[0] == row[0] - 3


def test_a_minimal_gru_learns_the_latch_soon():
    assert float(look_back.right("latch", "mingru", seed=1, steps=120).mean()) > 0.9
