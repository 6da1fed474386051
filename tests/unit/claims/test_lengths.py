"""Claims about lengths and widths (C5, C12, C15): what is counted against closed forms, and the clock at toy size."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from regard.base.errors import RegardError
from regard.claims import parameters, scaling, waiting
from regard.claims.all_claims import get_claim
from regard.claims.at_work import weights_at_work
from regard.claims.chains import longest_chain
from regard.claims.verdict import judge
from regard.systems.catalogue import load_class, load_module


def judged(name, **changed):
    claim = get_claim(name)
    evidence = claim.measure(replace(claim.trial(quick=True), **changed))
    return evidence, judge(claim, evidence)


def test_the_chain_is_the_longest_way_and_not_the_shortest():
    x = torch.ones(3, requires_grad=True)
    short = x * 2
    assert longest_chain(short) == 2  # the product, and x itself
    assert longest_chain(short + (x.exp().sin().tanh())) == 5


def test_a_chain_of_thousands_of_operations_is_counted():
    x = torch.ones(1, requires_grad=True)
    y = x
    for _ in range(5000):
        y = y + x
    assert longest_chain(y) == 5001


@pytest.mark.parametrize("name", ["rnn", "lstm", "gru", "gpt, 2 layers"])
def test_the_counted_chain_is_that_of_the_layer_that_reads(name):
    stack = waiting.layers()[name]
    lengths = [longest_chain(waiting.reads(stack, words)) for words in (3, 4, 5)]
    added = np.diff(lengths)
    assert added[0] == added[1]
    assert (added[0] > 0) == (name in waiting.RECURRENT)


def test_waiting_holds_and_times_every_task_at_toy_size(monkeypatch):
    monkeypatch.setitem(waiting.MAX_WORDS, ("cpu", True), (64, 64))
    monkeypatch.setattr(waiting, "REPETITIONS", 2)
    evidence, judgement = judged("waiting")
    assert judgement.verdict == "holds"
    assert judgement.controlled
    seconds = [row for row in evidence.table if "seconds" in row["longest chain, or seconds"].split(", ")]
    assert len(seconds) == 4
    assert all(row["32"] > 0 and row["64"] > 0 for row in seconds)
    assert len(evidence.figures) == 2
    assert len(evidence.remarks) == 2


def test_the_exponent_is_that_of_the_longer_texts():
    lengths = [2**power for power in range(5, 12)]
    timed = {key: {length: [1.0 + 1e-3 * length**2] * 3 for length in lengths} for key in waiting.QUANTITIES}
    for found in waiting.exponents(timed).values():
        assert len(found) == 3
        assert found == pytest.approx([2.0] * 3, abs=0.02)


def test_a_text_that_takes_long_is_timed_once_and_a_short_one_at_every_repetition(monkeypatch):
    monkeypatch.setitem(waiting.MAX_WORDS, ("cpu", True), (128, 64))
    monkeypatch.setattr(waiting, "measure", lambda task, model, length: length / 16)  # 2, 4 and 8 seconds
    timed, _ = waiting.timing(get_claim("waiting").trial(quick=True))
    assert {length: len(seconds) for length, seconds in timed["gpt", "train"].items()} == {32: 3, 64: 2, 128: 1}


def test_an_exponent_uses_no_time_twice_and_needs_three_lengths():
    times = {64: [9.0] * 5, 128: [1.0, 8.0, 3.0, 4.0], 256: [2.0, 32.0, 5.0], 512: [4.0, 128.0], 1024: [8.0, 512.0]}
    found = waiting.exponents(dict.fromkeys(waiting.QUANTITIES, times))
    assert all(values == pytest.approx([1.0, 2.0]) for values in found.values())  # 256 on, twice: of the third too few


def test_waiting_alone_computes_where_it_is_told_to():
    assert get_claim("waiting").on_device
    assert not get_claim("scaling").on_device


def test_parameters_holds_with_its_controls():
    _, judgement = judged("parameters")
    assert judgement.verdict == "holds"
    assert judgement.controlled
    assert all(finding.verdict == "holds" for finding in judgement.besides)


def test_an_rnn_has_the_parameters_of_its_equation():
    words, width = parameters.VOCABULARY, parameters.WIDTH
    recurrence = 2 * width * width + 2 * width  # W_x, W_h and the two biases of the kernel
    torch.manual_seed(1)
    assert parameters.at_work(parameters.reader("rnn", 99), 99) == recurrence + words * width + words


class OwnWeights(torch.nn.Module):
    """What an rnn would be that did not share: a matrix for each place of the text."""

    def __init__(self, longest=20, width=4, words=5):
        super().__init__()
        self.embedding = torch.nn.Module()
        self.embedding.table = torch.nn.Embedding(words, width)
        self.recurrent = torch.nn.Parameter(torch.randn(longest, width, width))
        self.silent = torch.nn.Parameter(torch.randn(7))

    def forward(self, tokens):
        hidden = torch.zeros(len(tokens), 4)
        for place, word in enumerate(tokens.T):
            hidden = torch.tanh(hidden @ self.recurrent[place] + self.embedding.table(word))
        return hidden


def test_weights_that_belong_to_a_place_are_at_work_only_where_the_text_reaches_it():
    torch.manual_seed(1)
    model = OwnWeights()
    found = [weights_at_work(model, model(torch.randint(5, (3, length)))) for length in (1, 2, 5, 9)]
    assert found == [0, 16, 4 * 16, 8 * 16]  # at the first place there is no h before, and nothing asks the silent ones


def test_a_model_that_cannot_see_the_first_word_gets_no_gradient_there():
    torch.manual_seed(1)
    assert parameters.first_word(parameters.reader("nnlm", 9), 10) == 0.0
    assert parameters.first_word(parameters.reader("nnlm", 10), 10) > 0.0


def test_scaling_holds_and_breaks_where_it_should(monkeypatch):
    monkeypatch.setattr(scaling, "WIDTHS", (16,))
    _, judgement = judged("scaling", knobs={"width": 512.0})
    assert judgement.verdict == "holds"
    assert judgement.controlled
    assert all(finding.verdict == "holds" for finding in judgement.besides)


def test_the_entropy_of_equal_scores_is_log_n_and_of_unit_ones_about_half_a_nat_less():
    torch.manual_seed(1)
    keys = torch.randn(200, 64, 256)
    assert scaling.entropy("dot", torch.zeros_like(keys), keys) == pytest.approx(math.log(64), abs=1e-4)
    assert scaling.entropy("scaled-dot", torch.randn_like(keys), keys) == pytest.approx(math.log(64) - 0.5, abs=0.05)


def test_the_trained_gpt_is_trained_on_the_cpu_and_asked_where_it_is(monkeypatch):
    asked = {}

    def trained(kind, system, data, *, settings, **other):
        asked.update(settings["training"])
        raise InterruptedError

    monkeypatch.setattr(scaling, "trained", trained)
    with pytest.raises(InterruptedError):
        scaling.in_a_model(get_claim("scaling").trial())
    assert asked["device"] == "cpu"


@pytest.mark.parametrize("width", [0.5, 8, 1e6, "wide"])
def test_a_width_the_claim_does_not_speak_of_is_refused(width):
    with pytest.raises(RegardError, match="from 512 to 2048"):
        get_claim("scaling").trial(width=width)


def test_a_gpt_at_its_initialisation_looks_at_everything_alike():
    settings = load_module("gpt").Settings(layers=2, width=32, heads=4, context=24, dropout=0.0)
    torch.manual_seed(1)
    rows = scaling.heads(load_class("gpt")(40, settings).eval(), torch.randint(40, (1, 20)))
    assert [(row["layer"], row["head"]) for row in rows] == [(layer, head) for layer in (1, 2) for head in (1, 2, 3, 4)]
    assert all(row["entropy / log n"] > 0.99 and 0 < row["variance of qᵀk/√d"] < 0.05 for row in rows)
