"""The measurements of C28 and C29: where an induction head would look, and what closing a gate removes."""

import pytest
import torch

from regard.claims import forget_gate, induction


@pytest.mark.parametrize("mixed", [False, True])
def test_a_repeat_has_the_words_of_the_string_in_its_order_or_in_its_own(mixed):
    torch.manual_seed(0)
    words, sizes = induction.texts(50, mixed)
    in_order = 0
    for row, size in zip(words.tolist(), sizes.tolist()):
        assert len(set(row[:size])) == size
        assert set(row[size : 2 * size]) <= set(row[:size])
        assert len(set(row[size : 2 * size])) == min(size, len(row) - size)
        in_order += row[size : 2 * size] == row[: min(size, len(row) - size)]
    assert in_order == (0 if mixed else 50)


def test_the_score_is_the_weight_on_what_followed_earlier():
    torch.manual_seed(0)
    words, size = induction.texts(4, mixed=False)
    after = torch.zeros(4, 1, induction.LENGTH, induction.LENGTH)
    for row, length in enumerate(size.tolist()):
        for step in range(length, induction.LENGTH):
            after[row, 0, step, step - length + 1] = 1
    assert float(induction.scores(after, words[:, :-1], size)) == 1
    assert float(induction.scores(after.roll(-1, dims=3), words[:, :-1], size)) == 0
    assert 0 < induction.chance() < 0.2


def test_the_score_is_measured_on_strings_that_are_repeated_in_their_order(monkeypatch):
    asked, texts = [], induction.texts
    monkeypatch.setattr(induction, "TESTED", 3)
    monkeypatch.setattr(induction, "texts", lambda rows, mixed: asked.append((rows, mixed)) or texts(rows, mixed))
    model, _ = induction.learn(2, True, seed=1, steps=1)
    assert asked == [(induction.ROWS, True)]
    induction.induction(model)
    induction.chance()
    induction.recall(model, mixed=True)
    assert asked[1:] == [(3, False), (3, False), (3, True)]


def test_a_closed_gate_and_no_hidden_state_leave_nothing_of_what_was_before():
    model = forget_gate.learn(seed=1, steps=2)
    words, _, _ = forget_gate.texts(2)
    words[1] = words[0]
    words[1, : forget_gate.CLOSED] = words[0, : forget_gate.CLOSED].flip(0)  # another beginning
    column = forget_gate.CLOSED
    gate = forget_gate.Place("layer/0/forget", column=column), 0.0
    hidden = forget_gate.Place("layer/0/hidden", column=column - 1), 0.0
    with torch.no_grad(), forget_gate.changing(model, [gate, hidden]):
        one, other = model(words)[0][:, -1]
    assert torch.equal(one, other)
    with torch.no_grad(), forget_gate.changing(model, [gate]):
        one, other = model(words)[0][:, -1]
    assert not torch.equal(one, other)  # h still knows
    assert sum(len(place.index) for place, _ in forget_gate.random_components()) == forget_gate.WIDTH
