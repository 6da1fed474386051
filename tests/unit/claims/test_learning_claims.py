"""The claims any-b, cheating and criteria. What takes long is tried by its parts."""

import math

import pytest
import torch
from torch import nn

from regard.base.errors import RegardError
from regard.claims import any_b, cheating, criteria, same_answer
from regard.claims.chains import longest_chain
from regard.claims.verdict import FAILS, HOLDS, find, judge
from regard.systems.catalogue import SYSTEMS
from regard.systems.model import Model

# -- any-b -----------------------------------------------------------------------------------------------------------


def test_all_numbers_of_the_notes_come_out_digit_for_digit():
    examples = {example.what: example for example in any_b.worked()}
    assert len(examples) >= 10
    assert all(example.agrees for example in examples.values())
    assert examples["AABA, q = (0, 1), e = 3: weights"].found == "1/6 1/6 1/2 1/6"
    assert examples["AABA, DAN"].found == "3/4 1/4"


def test_the_b_gets_what_the_formula_says():
    true_e = any_b.look("AABA", (0, 1)).output
    assert true_e.tolist() == pytest.approx([3 / (3 + math.e), math.e / (3 + math.e)], rel=1e-12)
    assert any_b.look("AABA", (0, 10)).weights[2] == pytest.approx(0.99986, abs=5e-6)
    assert any_b.first_below_half(10.0) == math.floor(math.exp(10) + 1) + 1  # e¹⁰ / (e¹⁰ + n − 1) < ½


@pytest.mark.parametrize("knobs", [{}, {"q": 3.0}, {"base": 3.0, "q": 1.0}, {"q": 0.0}, {"q": 100.0, "base": 100.0}])
def test_the_identities_hold_wherever_the_knobs_stand(knobs):
    measured = any_b.identities(any_b.CLAIM.trial(quick=True, **knobs))
    expectations = [expect for expect in any_b.CLAIM.everything if expect.quantity in measured]
    assert len(expectations) == 6
    assert all(find(expect, measured[expect.quantity]).verdict == HOLDS for expect in expectations)


@pytest.mark.parametrize(("claim", "knobs"), [(any_b, {"q": 800.0}), (any_b, {"base": 0.5}), (cheating, {"V": 1})])
def test_a_knob_turned_too_far_is_refused(claim, knobs):
    with pytest.raises(RegardError, match="must be a number from"):
        claim.CLAIM.trial(**knobs)


def test_near_both_learn_and_far_only_attention_does():
    assert any_b.learns("rnn", any_b.NEAR, seed=1, steps=100)
    assert any_b.learns("self-attention", any_b.FAR, seed=1, steps=100)
    assert not any_b.learns("rnn", any_b.FAR, seed=1, steps=100)
    assert any_b.first_gradient("rnn", any_b.VERY_FAR, seed=1) == 0.0
    assert any_b.first_gradient("self-attention", any_b.VERY_FAR, seed=1) > 1e-8


def test_an_untrained_rnn_is_not_right_at_length_1000_and_a_trained_one_is():
    assert not any_b.right_at_length_1000("rnn", seed=1, steps=0)
    assert any_b.right_at_length_1000("rnn", seed=1, steps=300)


# -- cheating --------------------------------------------------------------------------------------------------------


def test_every_system_of_the_lectures_that_predicts_a_next_word_is_tried_for_leaks():
    assert set(cheating.SMALL) == {
        system.name for system in SYSTEMS if system.task != "classification" and system.year <= 2018
    }


def test_only_the_mask_is_gone():
    torch.manual_seed(0)
    honest = cheating.make("gpt", 8)
    torch.manual_seed(0)
    cheater = cheating.cheater(8)
    for (name, one), (_, other) in zip(honest.named_parameters(), cheater.named_parameters(), strict=True):
        assert torch.equal(one, other), name
    words = torch.randint(8, (1, 6))
    changed = words.clone()
    changed[0, -1] = (changed[0, -1] + 1) % 8
    for model, leaks in ((honest, False), (cheater, True)):
        assert (not torch.equal(model(words)[0][:, :-1], model(changed)[0][:, :-1])) == leaks


def test_the_cheater_falls_below_log_v_and_the_honest_one_does_not():
    torch.manual_seed(1)
    assert cheating.settled(cheating.losses(cheating.cheater(8), 150)) < 0.5 * math.log(8)
    assert cheating.settled(cheating.losses(cheating.make("gpt", 8), 100)) == pytest.approx(math.log(8), rel=0.01)
    assert cheating.settled(cheating.losses(cheating.make("ngram", 8), 100)) >= 0.99 * math.log(8)


def test_the_floor_without_order_is_what_counting_all_texts_gives():
    """Of two words, by enumeration: how often the next word is k of the 15 others that are alike."""
    exact = 0.0
    others = cheating.WORDS - 1
    for alike in range(others + 1):
        weight = math.comb(others, alike) / 2**others
        probability = (alike + 0.5) / cheating.WORDS
        # the next word is one of the others, or in the last column a new one
        share = (others / cheating.WORDS) * (alike / others) + 0.5 / cheating.WORDS
        exact -= weight * (share * math.log(probability) + (1 - share) * math.log(1 - probability))
    torch.manual_seed(0)
    assert cheating.floor_without_places(2) == pytest.approx(exact, abs=0.005)


class Guess(Model):
    """Every word is as likely as any other, whatever came before."""

    vocabulary = 8

    def __init__(self):
        super().__init__()
        self.nothing = nn.Parameter(torch.zeros(1))

    def initial_past(self, rows, *, capacity, device, dtype):
        return {}

    def hidden_states(self, tokens, state, span):
        return self.nothing.expand(*tokens.shape, 1), {}

    def predict(self, hidden):
        return hidden.expand(*hidden.shape[:-1], self.vocabulary)


def test_guessing_costs_log_v_where_the_next_word_cannot_be_seen():
    assert cheating.unseen_loss(Guess()) == pytest.approx(math.log(8), rel=1e-6)


def test_the_notes_vectors_have_one_two_and_three_entries():
    assert all(example.agrees for example in cheating.worked())


# -- same answer -----------------------------------------------------------------------------------------------------


def test_the_same_answer_is_given_and_without_the_mask_a_whole_gpt_gives_another():
    claim = same_answer.CLAIM
    judgement = judge(claim, claim.measure(claim.trial(quick=True)))
    assert judgement.verdict == HOLDS
    assert judgement.controlled
    assert same_answer.CHEATED in {finding.expect.quantity for finding in judgement.control}


def test_of_one_word_even_the_cheater_gives_the_same_answer():
    torch.manual_seed(1)
    cheater = same_answer.large(cheating.cheater(8))
    assert same_answer.difference(cheater, torch.randint(8, (4, 1))) < 1e-12
    assert same_answer.difference(cheater, torch.randint(8, (4, 2))) > 1e-3


# -- criteria --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def table():
    claim = criteria.CLAIM
    evidence = claim.measure(claim.trial(quick=True))
    return evidence, judge(claim, evidence)


def test_the_criteria_hold_and_the_probes_can_say_both(table):
    evidence, judgement = table
    assert judgement.verdict == HOLDS
    assert judgement.controlled
    for probe in criteria.PROBES:
        assert {row[probe] for row in evidence.table} == {"yes", "no"}


def test_what_the_notes_say_of_dense_nets_is_shown_to_be_false(table):
    _, judgement = table
    assert [finding.verdict for finding in judgement.besides] == [FAILS] * 3


def test_every_system_of_the_lectures_has_a_row(table):
    assert {subject.system for subject in criteria.SUBJECTS} == {
        system.name for system in SYSTEMS if system.year <= 2018
    }
    assert [row["system"] for row in table[0].table] == [subject.name for subject in criteria.SUBJECTS]


def test_the_longest_chain_counts_operations_one_after_the_other():
    x = torch.ones(3, requires_grad=True)
    for steps in (1, 5, 50):
        deep = x
        for _ in range(steps):
            deep = deep.tanh()
        assert longest_chain(deep + x.sin()) == steps + 2  # the sum, the chain, and the leaf


def test_an_n_gram_and_a_window_feel_only_the_words_within_their_order():
    torch.manual_seed(0)
    for subject in criteria.SUBJECTS[:2]:
        order = subject.settings["order"]
        moved = criteria.influences(criteria.make(subject), criteria.text())
        assert (moved[: len(moved) - order + 2] == 0).all()
        assert (moved[len(moved) - order + 2 :] > 0).all()


def test_what_sees_more_words_by_a_window_or_a_table_of_places_needs_more_weights():
    torch.manual_seed(0)
    by_name = {subject.name: subject for subject in criteria.SUBJECTS}
    few, twice = criteria.FEW, criteria.TWICE
    for name, for_each in (("nnlm", 16 * 16), ("gpt", 16), ("gpt, rotary", 0), ("rnn", 0), ("transformer", 0)):
        needed = [criteria.weights_to_see(by_name[name], words) for words in (few, twice)]
        assert needed[1] - needed[0] == for_each * (twice - few), name
        assert criteria.shared_parameters(by_name[name]) == (for_each == 0)


def test_a_system_made_to_see_so_many_words_sees_the_first_of_them():
    torch.manual_seed(0)
    for subject in criteria.SUBJECTS[1:]:  # what an n-gram has not counted it cannot feel
        for words in (criteria.FEW, criteria.TWICE):
            moved = criteria.influences(criteria.make(subject, seeing=words), criteria.text(words))
            assert moved[0] > 0, subject.name
