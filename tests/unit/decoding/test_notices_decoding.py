"""What a result alone does not show: the edge of a draw, what a search is watched by, how much is read at once."""

import numpy as np
import pytest
import torch
from test_beam import Table, start

from regard.base.errors import RegardError
from regard.decoding import sampling
from regard.decoding.adjustments import Adjustment
from regard.decoding.beam import GREEDY_BEAM, Beam, beam_search
from regard.decoding.beam_engine import BeamBatch, BeamEngine
from regard.decoding.beam_slots import BeamConfig
from regard.decoding.constraints import Constraints, Unwritable
from regard.decoding.engine import Engine, Prompt, Text
from regard.decoding.generate import generate
from regard.decoding.sampling import Sampling, inverse_cdf, random_stream
from regard.decoding.translate import translate
from regard.decoding.writer import Writer
from regard.systems import lstm, seq2seq
from regard.text.tokenizers.tokenizer import Tokenizer

EOS, V = 0, 17


@pytest.fixture(scope="module")
def language():
    torch.manual_seed(0)
    return lstm.LSTMModel(V, lstm.Settings(layers=1, width=8)).double().eval()


@pytest.fixture(scope="module")
def translator():
    torch.manual_seed(0)
    return seq2seq.Seq2Seq(V, seq2seq.Settings(layers=1, width=8, embedding=6)).double().eval()


# -- sampling --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("block", [2, 4, 1000])
def test_at_the_edge_between_two_words_the_second_is_drawn_and_none_of_weight_zero(monkeypatch, block):
    """NumPy's search is the oracle; with whole weights every sum is exact, so that edges are met."""
    monkeypatch.setattr(sampling, "BLOCK", block)
    for weights in ([0, 0, 0, 0, 1, 2, 0, 1], [1, 1, 2, 0, 0, 4], [0, 3, 1], [4, 0, 0, 0, 0]):
        edges = [number / 16 for number in range(16)]
        found = inverse_cdf(torch.tensor(weights).double().expand(16, -1), torch.tensor(edges).double())
        up_to = np.cumsum(weights)
        assert found.tolist() == [np.searchsorted(up_to, u * up_to[-1], side="right") for u in edges]


def test_a_seed_writes_the_same_text_in_every_version():
    assert random_stream(5, 3).random(2) == pytest.approx([0.7515727286, 0.4115104648])
    assert random_stream(5, 3, 2).random(2) == pytest.approx([0.7685872465, 0.4151068981])


def test_a_seed_is_a_number_of_63_bits():
    for seed in (0, 2**63 - 1):
        assert 0 <= random_stream(seed, 0).random() < 1
    for seed in (-1, 2**63):
        with pytest.raises(RegardError, match=f"--seed must be at least 0 and below 2\\^63, not {seed}"):
            random_stream(seed, 0)


def test_choices_are_the_same_however_they_are_given():
    listed, tupled = (Sampling(choices=kind(["yes", "no"])) for kind in (list, tuple))
    assert listed == tupled
    assert hash(listed) == hash(tupled)


def test_a_bias_reaches_the_first_and_the_last_token_and_no_token_that_is_not_there():
    bias = {0: 1.0, V - 1: 2.0, -1: 4.0, V: 8.0}
    found = Adjustment(Sampling(logit_bias=bias), [])(torch.zeros(V))
    assert found.nonzero().flatten().tolist() == [0, V - 1]
    assert found[[0, V - 1]].tolist() == [1.0, 2.0]


def test_a_text_without_a_number_or_a_seed_is_the_first_of_seed_zero(language):
    engine = Engine(language, eos=EOS, sampling=Sampling(), rows=1)
    text = engine.submit([EOS, 3], max_tokens=12)
    while not text.done:
        engine.step()
    steps = generate(language, [[EOS, 3]], max_tokens=12, eos=EOS, sampling=Sampling(), seed=0)
    assert text.take() == [step[0] for step in steps]


@pytest.mark.parametrize("steps", [1, 4])
def test_no_step_is_taken_for_a_text_that_is_complete(language, monkeypatch, steps):
    """The first token comes with the reading of the prompt, each other with one step."""
    taken, plain = [], Writer.run_steps
    monkeypatch.setattr(Writer, "run_steps", lambda writer, steps: (taken.append(steps), plain(writer, steps))[1])
    engine = Engine(language, eos=EOS, rows=1, steps=steps)
    text = engine.submit([EOS], max_tokens=9)
    while not text.done:
        assert text.going
        engine.step()
    assert not text.going
    assert sum(taken) == 8


@pytest.mark.parametrize(("launched", "done", "going"), [(2, False, True), (2, True, False), (3, False, False)])
def test_a_text_of_which_all_is_launched_gets_no_more_steps_though_nothing_has_arrived(launched, done, going):
    """As on a GPU, whose tokens arrive later."""
    text = Text(0, Prompt([EOS]), [EOS], random_stream(0, 0), most=3, lines=0, launched=launched, done=done)
    assert text.going == going


def test_a_constraint_that_failed_says_why_and_nothing_of_the_matchers_state():
    pytest.importorskip("llguidance")
    tokenizer = Tokenizer.train(["yes no"], "byte", normalise="none")
    guide = Constraints(tokenizer).begin(Sampling(choices=["yes"]))
    guide.add(tokenizer.encode("no")[0])
    with pytest.raises(Unwritable) as caught:
        guide.allowed()
    assert "doesn't satisfy the grammar" in str(caught.value)
    assert "<state>" not in str(caught.value)


# -- beam search -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [1, 2, 4])
def test_who_watches_a_search_sees_every_candidate_of_every_step(width):
    """From what was watched, the hypotheses can be put together again."""
    model, seen = Table(vocabulary=13, seed=3), []
    asked = {"width": width, "max_tokens": 5, "eos": EOS, "length_penalty": 1.0}
    found = beam_search(model, *start(model), watch=seen.append, **asked)[0]
    plain = beam_search(model, *start(model), **asked)[0]
    assert [h.tokens for h in found] == [h.tokens for h in plain]
    open_texts, ended = [[]], {}
    for step in seen:
        assert step.total.shape == (1, 3 * width)
        assert step.total[0].tolist() == sorted(step.total[0].tolist(), reverse=True)
        texts = [[*open_texts[parent], token] for parent, token in zip(step.parents[0], step.tokens[0].tolist())]
        for text, total, kept, live in zip(texts, step.total[0].tolist(), step.kept[0], step.live[0]):
            if kept and not live:
                ended[tuple(text)] = total
        open_texts = [text for text, live in zip(texts, step.live[0]) if live]
        assert int(step.kept.sum()) <= width
    for hypothesis in found:
        assert ended[tuple(hypothesis.tokens)] == pytest.approx(hypothesis.log_probability)


def test_an_engine_begins_with_what_may_take_longest(translator, monkeypatch):
    """Of equally long sources the one that may be longest is begun first: no step is added at the end for it alone."""
    steps, plain = [], BeamBatch.step
    monkeypatch.setattr(BeamBatch, "step", lambda batch: (steps.append(batch), plain(batch)))
    engine = BeamEngine(translator, batch_tokens=16)  # two places
    engine.search([[3, 4, EOS]] * 4, [2, 2, 2, 9], BeamConfig(1, EOS, 1, forbidden=(EOS,)))
    assert len(steps) == 9


@pytest.mark.parametrize(("sources", "places"), [(1, 1), (2, 2), (3, 4), (5, 8), (8, 8), (9, 8)])
def test_an_engine_has_places_for_few_sources_in_a_power_of_two_and_for_many_up_to_the_budget(
    translator, sources, places
):
    engine = BeamEngine(translator, batch_tokens=8 * 8 * 2)
    engine.search([[3, EOS]] * sources, [2] * sources, BeamConfig(2, EOS, 1))
    assert [key[1] for key in engine.batches] == [places]


# -- how much at once ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("how", "samples", "each"), [(Beam(4), 1, 4), (Sampling(), 3, 3), (Sampling(0.0), 3, 1)])
def test_as_many_sources_are_read_at_once_as_the_budget_allows(translator, monkeypatch, how, samples, each):
    read, plain = [], translator.begin
    monkeypatch.setattr(translator, "begin", lambda tokens, *more: (read.append(tokens.shape), plain(tokens, *more))[1])
    sources = [[5] * (1 + n % 7) for n in range(40)]
    found = list(translate(translator, sources, eos=EOS, beam=how, samples=samples, batch_tokens=96, max_tokens=2))
    assert len(found) == 40
    assert sum(rows for rows, _ in read) == 40
    for rows, columns in read[:-1]:
        assert rows * columns * each <= 96 < (rows + 1) * columns * each


@pytest.mark.parametrize(("ahead", "taken"), [(0, 1), (1, 1), (3, 3)])
def test_no_more_sources_are_taken_than_are_asked_for_ahead(translator, ahead, taken):
    sources = iter([[3]] * 9)
    next(translate(translator, sources, eos=EOS, beam=Beam(1), max_tokens=2, ahead=ahead))
    assert len(list(sources)) == 9 - taken


def test_a_search_of_which_nothing_is_said_is_five_wide_and_scores_by_the_mean():
    """As docs/guides say; a score is log P / length^1."""
    assert Beam() == Beam(width=5, length_penalty=1.0, n_best=1)
    assert Beam(width=1, length_penalty=0.0) == GREEDY_BEAM
