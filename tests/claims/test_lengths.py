"""Claims about lengths and widths (C5, C12, C15): what is counted against closed forms, and the clock at toy size."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from regard.claims import parameters, scaling, waiting
from regard.claims.register import get_claim
from regard.claims.verdict import judge
from regard.systems.catalogue import load_class, load_module


def judged(name, **changed):
    claim = get_claim(name)
    evidence = claim.measure(replace(claim.trial(quick=True), **changed))
    return evidence, judge(claim, evidence)


def test_the_chain_is_the_longest_way_and_not_the_shortest():
    x = torch.ones(3, requires_grad=True)
    short = x * 2
    assert waiting.chain(short) == 2  # the product, and x itself
    assert waiting.chain(short + (x.exp().sin().tanh())) == 5


def test_a_chain_of_thousands_of_operations_is_counted():
    x = torch.ones(1, requires_grad=True)
    y = x
    for _ in range(5000):
        y = y + x
    assert waiting.chain(y) == 5001


@pytest.mark.parametrize("name", ["rnn", "lstm", "gru", "gpt, 2 layers"])
def test_the_counted_chain_is_that_of_the_layer_that_reads(name):
    stack = waiting.layers()[name]
    lengths = [waiting.chain(waiting.reads(stack, words)) for words in (3, 4, 5)]
    added = np.diff(lengths)
    assert added[0] == added[1]
    assert (added[0] > 0) == (name in waiting.RECURRENT)


def test_waiting_holds_and_times_every_task_at_toy_size(monkeypatch):
    monkeypatch.setitem(waiting.LONGEST, ("cpu", True), (64, 64))
    evidence, judgement = judged("waiting", seeds=(1, 2))
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


def test_parameters_holds_with_its_controls():
    _, judgement = judged("parameters")
    assert judgement.verdict == "holds"
    assert judgement.controlled
    assert all(finding.verdict == "holds" for finding in judgement.besides)


def test_an_rnn_has_the_parameters_of_its_equation():
    words, width = parameters.VOCABULARY, parameters.WIDTH
    recurrence = 2 * width * width + 2 * width  # W_x, W_h and the two biases of the kernel
    assert parameters.count(parameters.reader("rnn", 99)) == words * width + recurrence + words * width + words


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


def test_a_gpt_at_its_initialisation_looks_at_everything_alike():
    settings = load_module("gpt").Settings(layers=2, width=32, heads=4, context=24, dropout=0.0)
    torch.manual_seed(1)
    rows = scaling.heads(load_class("gpt")(40, settings).eval(), torch.randint(40, (1, 20)))
    assert [(row["layer"], row["head"]) for row in rows] == [(layer, head) for layer in (1, 2) for head in (1, 2, 3, 4)]
    assert all(row["entropy / log n"] > 0.99 and 0 < row["variance of qᵀk/√d"] < 0.05 for row in rows)
