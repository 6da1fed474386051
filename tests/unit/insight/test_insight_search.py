"""The tree of a search is the search: what it keeps, finishes and ranks is what `beam_search` returns."""

from dataclasses import replace

import pytest
import torch

from regard.decoding.beam import STEPS_BETWEEN_LOOKS, WATCHED, Beam, beam_search
from regard.decoding.translate import translate
from regard.insight.arithmetic.beam import search_sections
from regard.insight.arithmetic.calculation import calculate_translation
from regard.insight.search import search_tree
from regard.insight.trace import Branch
from regard.insight.tracing import trace_language, trace_translation
from regard.insight.words import branch_labels, labels
from regard.laws.registry import builder, stirred
from regard.systems.catalogue import SYSTEMS
from regard.text.tokenizers.tokenizer import Tokenizer

WORDS = Tokenizer.of_tokens(["<eos>", "<unk>", *"abcdefghijklmno"], "word")
TRANSLATION = [system.name for system in SYSTEMS if system.task == "translation"]
SOURCES = ["d e a f b", "a", "o n m l k j"]
LONGEST = 7


def model_of(system):
    torch.manual_seed(0)
    return stirred(builder(system))


@torch.no_grad()
def start(model, source):
    ids = torch.tensor([[*WORDS.encode(source), WORDS.eos]])
    hidden, state = model.read(torch.tensor([[WORDS.eos]]), model.begin(ids))
    return model.predict(hidden[:, 0]), state


def path(branches, place):
    """The tokens from the root to a branch."""
    words = []
    while place >= 0:
        words.append(branches[place].token)
        place = branches[place].parent
    return words[::-1]


@pytest.fixture(scope="module", params=TRANSLATION)
def model(request):
    return model_of(request.param)


@pytest.mark.parametrize("how", [Beam(1, 0.0), Beam(2, 1.0), Beam(4, 1.0, 4), Beam(5, 0.0, 3)], ids=str)
def test_what_is_ranked_in_the_tree_is_what_the_search_returns(model, how):
    for source in SOURCES:
        logits, state = start(model, source)
        options = {"width": how.width, "length_penalty": how.length_penalty, "n_best": how.n_best}
        (expected,) = beam_search(model, logits, state, max_tokens=LONGEST, eos=0, forbidden=[1], **options)
        found, branches = search_tree(model, logits, state, WORDS, how=how, max_tokens=LONGEST, forbidden=[1])
        assert found == expected
        ranked = sorted((b.rank, place) for place, b in enumerate(branches) if b.rank)
        assert [rank for rank, _ in ranked] == list(range(1, len(expected) + 1))
        for (_, place), hypothesis in zip(ranked, expected, strict=True):
            branch = branches[place]
            assert path(branches, place) == [WORDS.token(n) for n in hypothesis.tokens]
            assert (branch.log_probability, branch.score) == (hypothesis.log_probability, hypothesis.score)
            assert (branch.finished, branch.kept) == (hypothesis.finished, True)


def test_a_step_keeps_the_best_for_which_there_is_room_and_prunes_the_rest(model):
    width = 3
    for source in SOURCES:
        _, branches = search_tree(
            model, *start(model, source), WORDS, how=Beam(width, 1.0, width), max_tokens=LONGEST, forbidden=[1]
        )
        finished = 0
        for step in range(1, max(branch.step for branch in branches) + 1):
            here = [branch for branch in branches if branch.step == step]
            scores = [branch.log_probability for branch in here]
            room = width - finished
            assert len(here) <= WATCHED * width
            assert scores == sorted(scores, reverse=True)
            assert [branch.kept for branch in here] == [True] * min(room, len(here)) + [False] * (len(here) - room)
            finished += sum(branch.finished for branch in here)


def test_a_branch_is_as_probable_as_the_model_says_and_continues_one_that_was_open(model):
    source = SOURCES[0]
    _, branches = search_tree(model, *start(model, source), WORDS, how=Beam(3), max_tokens=LONGEST, forbidden=[1])
    ids = torch.tensor([[*WORDS.encode(source), WORDS.eos]])
    for place, branch in enumerate(branches):
        words = path(branches, place)
        written = [WORDS.tokens.index(word) for word in words]
        tokens = torch.tensor([[WORDS.eos, *written]])
        with torch.no_grad():
            nll, _ = model.loss(tokens[:, :-1], tokens[:, 1:], model.begin(ids))
        assert branch.log_probability == pytest.approx(-float(nll.sum()), abs=1e-9)
        assert len(words) == branch.step
        if branch.parent >= 0:
            parent = branches[branch.parent]
            assert parent.kept
            assert not parent.finished
            assert parent.step == branch.step - 1


def test_a_traced_translation_is_the_one_that_translate_finds(model):
    for source in SOURCES:
        ((best, *_),) = translate(model, [WORDS.encode(source)], eos=WORDS.eos, beam=Beam(4), forbidden=[1])
        trace = trace_translation(model, WORDS, WORDS, source, beam=4, forbidden=[1])
        assert trace.targets == tuple(WORDS.token(n) for n in best.tokens)
        (first,) = (place for place, branch in enumerate(trace.beam) if branch.rank == 1)
        assert path(trace.beam, first) == list(trace.targets)
        assert trace.beam[first].score == pytest.approx(best.score, abs=1e-9)


def test_a_search_that_rarely_asks_who_is_done_grows_the_same_tree(model, monkeypatch):
    """As on a GPU, where closed slots stay as padding until the next look."""
    how = {"how": Beam(3, 1.0, 2), "max_tokens": LONGEST, "forbidden": [1]}
    often = [search_tree(model, *start(model, source), WORDS, **how)[1] for source in SOURCES]
    monkeypatch.setitem(STEPS_BETWEEN_LOOKS, "cpu", 8)
    rarely = [search_tree(model, *start(model, source), WORDS, **how)[1] for source in SOURCES]
    for one, other in zip(sum(often, ()), sum(rarely, ()), strict=True):
        same = replace(other, log_probability=one.log_probability, score=one.score)  # sums in another order
        assert one == same
        assert one.log_probability == pytest.approx(other.log_probability, abs=1e-9)


@pytest.mark.parametrize("system", ["ngram", "lstm", "gpt"])
def test_a_language_models_tree_finds_how_the_line_goes_on(system):
    model, text = model_of(system), "a b c"
    ids = torch.tensor([[WORDS.eos, *WORDS.encode(text)]])
    with torch.no_grad():
        hidden, state = model.read(ids)
        (expected,) = beam_search(
            model, model.predict(hidden[:, -1]), state, width=3, max_tokens=LONGEST, eos=0, forbidden=[1]
        )
    branches = trace_language(model, WORDS, text, beam=3, max_tokens=LONGEST, forbidden=[1]).beam
    ranked = sorted((branch.rank, place) for place, branch in enumerate(branches) if branch.rank)
    assert [path(branches, place) for _, place in ranked] == [[WORDS.token(n) for n in h.tokens] for h in expected]
    assert trace_language(model, WORDS, text).beam == ()


def test_a_search_stays_within_what_the_model_can_hold():
    model = model_of("gpt")
    text = " ".join("a" * (model.context - 2))
    assert max(branch.step for branch in trace_language(model, WORDS, text, beam=2, forbidden=[0, 1]).beam) == 2


def test_a_given_target_needs_no_search(model):
    assert trace_translation(model, WORDS, WORDS, SOURCES[0], "a b").beam == ()


@pytest.mark.parametrize("system", TRANSLATION)
@pytest.mark.parametrize("prefix", ["", "c"])
def test_arithmetic_after_a_trace_is_that_of_a_search_of_its_own(system, prefix, monkeypatch):
    model = model_of(system)
    how = {"prefix": prefix, "beam": 3, "system": system}
    alone = calculate_translation(model, WORDS, WORDS, SOURCES[0], **how)
    trace = trace_translation(model, WORDS, WORDS, SOURCES[0], **how)
    monkeypatch.setattr("regard.insight.arithmetic.calculation.target_of", None)  # nothing is searched again
    after = calculate_translation(model, WORDS, WORDS, SOURCES[0], trace=trace, **how)
    for step in range(len(alone.then)):
        assert after.at(step).as_json() == alone.at(step).as_json()


def test_the_bytes_of_a_character_are_spelled_alike_in_a_tree_and_in_a_text():
    tokens = ["a", "<0xC3>", "<0xA9>", "b"]
    branches = [Branch(place - 1, place + 1, token, -1.0 - place, kept=True) for place, token in enumerate(tokens)]
    assert labels(tokens) == ("a", "é 1/2", "é 2/2", "b")
    assert branch_labels(branches) == ["a", "<0xC3>", "é 2/2", "b"]  # what a first byte begins is not known yet
    named = [section.lines for section in search_sections(branches, 2, 1.0)]
    assert named[0][0].name == "kept: a é 1/2 é 2/2"
