"""Perplexity and scores, against the model's own probabilities read one token at a time."""

import math
from itertools import count
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from regard.base.errors import RegardError
from regard.base.install import as_written
from regard.evaluation import documents, perplexity, scoring
from regard.evaluation.accuracy import label_log_probabilities
from regard.evaluation.documents import Documents
from regard.evaluation.perplexity import Likelihood, Method, likelihood, segment_losses, token_losses
from regard.evaluation.scoring import alone_by_default, line_losses, line_sums, pair_losses, text_losses
from regard.fast import install
from regard.runs.recipe import compose
from regard.runs.tasks.language.scores import LineScore, ScoredLines
from regard.systems.catalogue import load_class

VOCABULARY, EOS = 11, 0
TEXT = np.random.default_rng(3).integers(0, VOCABULARY, 61)
LINES = [[*np.random.default_rng(n).integers(1, VOCABULARY, n % 9).tolist(), EOS] for n in range(70)]


def build(system, **model):
    torch.manual_seed(1)
    return load_class(system)(VOCABULARY, compose(system, "tiny", {"model": model}).model).double().eval()


@pytest.fixture(scope="module")
def lstm():
    return build("lstm", layers=1, width=8)


@pytest.fixture(scope="module")
def gpt():
    return build("gpt", layers=1, width=8, heads=2, context=16)


@pytest.fixture(scope="module")
def translator():
    return build("seq2seq", width=8)


@torch.no_grad()
def one_by_one(model, before, text, source=None):
    """−log P of each token of `text` after `before`, by the call itself."""
    state = None if source is None else model.begin(torch.tensor([source]), torch.tensor([len(source)]))
    found, past = [], [*before]
    for token in past[:-1]:
        _, state = model(torch.tensor([[token]]), state)
    for last, token in zip([past[-1], *text[:-1]], text):
        logits, state = model(torch.tensor([[int(last)]]), state)
        found.append(-float(logits[0, 0].log_softmax(-1)[int(token)]))
    return found


def test_a_stream_reads_the_text_as_one_row(lstm, monkeypatch):
    monkeypatch.setattr(perplexity, "STREAM_CHUNK", 7)
    found = segment_losses(lstm, TEXT, Method.of(lstm, stream=True), EOS)
    assert found.tolist() == pytest.approx(one_by_one(lstm, [EOS], TEXT), abs=1e-9)


@pytest.mark.parametrize("rows", [1, 3, None])
@pytest.mark.parametrize("segment, overlap", [(8, 3), (8, 0), (16, 15), (100, 50)])
def test_each_segment_is_read_after_its_warm_up_and_every_token_counts_once(lstm, segment, overlap, rows):
    method = Method.of(lstm, segment, overlap)
    found = np.concatenate([*token_losses(lstm, TEXT, method, eos=EOS, rows=rows)])
    expected = []
    text = [EOS, *TEXT.tolist()]
    while len(expected) < len(TEXT):
        done = len(expected)
        new = segment if done == 0 else segment - overlap  # the first segment has nothing to warm up with
        begin = max(0, done - (overlap if done else 0))
        expected += one_by_one(lstm, text[begin : done + 1], TEXT[done : done + new])
    assert found.tolist() == pytest.approx(expected, abs=1e-9)


def test_a_batch_of_segments_is_bounded_by_rows_and_by_numbers(lstm, monkeypatch):
    def first(segment, overlap, fit):
        monkeypatch.setattr(perplexity, "NUMBERS_AT_ONCE", fit * segment * lstm.loss_width)
        text = np.ones(99, dtype=np.int64)
        return len(next(token_losses(lstm, text, Method.of(lstm, segment, overlap), eos=EOS)))

    assert 4 * perplexity.NUMBERS_AT_ONCE == 256 * 2**20  # bytes
    assert (first(8, 0, 3), first(8, 0, 0), first(1, 0, 99)) == (24, 8, 64)
    assert first(8, 4, 2) == 12  # the first segment counts all of its tokens, the second its new ones
    with pytest.raises(RegardError, match="--rows must be at least 1"):
        next(token_losses(lstm, TEXT, Method.of(lstm), eos=EOS, rows=0))


def test_a_model_whose_context_is_shorter_than_a_segment_is_read_within_it():
    limited, unlimited = (SimpleNamespace(context=of, settings=SimpleNamespace(context=64)) for of in (48, None))
    assert Method.of(limited) == Method(24, 24)
    assert Method.of(unlimited) == Method(32, 32)  # as far as it learned to read
    assert Method.of(SimpleNamespace(context=None)) == Method(128, 128)
    assert Method.of(unlimited, 300, 0) == Method(300, 0)
    assert Method.of(limited, 48, 0) == Method(48, 0)


@pytest.mark.parametrize("limited", [True, False])
def test_a_run_is_read_as_far_as_its_model_reads_and_curves_no_further_than_256(limited):
    def method(context):
        model = SimpleNamespace(context=context if limited else None, settings=SimpleNamespace(context=context))
        return Method.of(model), Method.in_training(model)

    assert method(512) == (Method(256, 256), Method(128, 128))
    assert method(64) == (Method(32, 32), Method(32, 32))
    assert method(2**17)[0] == Method(2048, 2048)  # attention over all of it would exhaust the memory


def test_more_warm_up_changes_the_numbers_and_none_is_the_sum_of_its_parts(lstm):
    plain = [*likelihood(lstm, TEXT, Method.of(lstm, 20, 0), eos=EOS, rows=2)]
    assert [each.tokens for each in plain] == [40, 61]
    parts = one_by_one(lstm, [EOS], TEXT[:20]) + one_by_one(lstm, [int(TEXT[19])], TEXT[20:40])
    assert plain[0].nats == pytest.approx(sum(parts), abs=1e-9)
    warm = [*likelihood(lstm, TEXT, Method.of(lstm, 20, 10), eos=EOS)][-1]
    assert (warm.tokens, type(warm.tokens), warm.impossible) == (61, int, 0)
    assert warm.nats != pytest.approx(plain[-1].nats, abs=1e-6)


def test_a_method_says_how_it_reads_and_refuses_what_cannot_be(lstm, gpt):
    assert Method.of(lstm) == Method(128, 128)
    assert Method.of(gpt) == Method(8, 8)
    assert Method.of(gpt, 16) == Method(8, 8)
    assert Method.of(lstm, 9) == Method(5, 4)
    assert Method.of(lstm, 1, 0) == Method(1, 0)
    assert Method.of(lstm, 300, 20).sentence.startswith("segments of 280 tokens, each after 20 tokens of warm-up")
    assert Method.of(lstm, 300, 0).sentence == "segments of 300 tokens, no warm-up"
    assert Method.of(lstm, stream=True).sentence.startswith("one row from end to end")
    for model, options in (
        (gpt, {"segment": 17}), (gpt, {"stream": True}), (lstm, {"segment": 0}), (lstm, {"segment": 8, "overlap": 8}),
        (lstm, {"segment": 8, "overlap": -1}),
    ):  # fmt: skip
        with pytest.raises(RegardError):
            Method.of(model, **options)


def test_a_perplexity_is_the_exponential_of_the_mean():
    one = Likelihood(0.0, 0).plus(np.array([1.0, 2.0])).plus(np.array([math.inf, 3.0, math.inf]))
    assert (one.tokens, one.impossible, one.nats) == (5, 2, math.inf)
    assert one.perplexity == math.inf
    assert Likelihood(6.0, 4).perplexity == pytest.approx(math.exp(1.5))
    assert Likelihood(0.0, 0).perplexity == 1.0
    assert Likelihood(700.0, 1).perplexity == pytest.approx(math.exp(700))  # beyond it no fp64 could say
    assert Likelihood(700.1, 1).perplexity == math.inf


@pytest.mark.parametrize("alone", [False, True])
def test_each_line_is_scored_on_its_own(lstm, alone):
    found = line_losses(lstm, LINES, EOS, alone=alone)
    for line, losses in zip(LINES, found, strict=True):
        assert losses.tolist() == pytest.approx(one_by_one(lstm, [EOS], line), abs=1e-9)


def test_a_line_beyond_the_context_is_read_in_segments_and_one_of_its_size_is_not(gpt):
    whole, longer = [*TEXT[:15].tolist(), EOS], [*TEXT[:16].tolist(), EOS]
    fits, over = line_losses(gpt, [whole, longer], EOS)
    assert fits.tolist() == pytest.approx(one_by_one(gpt, [EOS], whole), abs=1e-9)
    assert over.tolist() == pytest.approx(segment_losses(gpt, np.array(longer), Method.of(gpt), EOS).tolist(), abs=1e-9)


def test_a_long_line_without_a_context_is_read_as_a_stream(lstm, monkeypatch):
    monkeypatch.setattr(scoring, "LONG", 10)
    line = [*TEXT[:30].tolist(), EOS]
    assert line_losses(lstm, [line], EOS)[0].tolist() == pytest.approx(one_by_one(lstm, [EOS], line), abs=1e-9)


@pytest.mark.parametrize("alone", [False, True])
def test_a_target_is_scored_given_its_source_with_or_without_its_end(translator, alone):
    sources = [[*line[:-1]][:5] for line in LINES[:12]]
    targets = [line[:-1] for line in reversed(LINES[:12])]
    found = pair_losses(translator, sources, targets, EOS, alone=alone)
    ended = pair_losses(translator, [[*s, EOS] for s in sources], [[*t, EOS] for t in targets], EOS, alone=alone)
    for source, target, one, other in zip(sources, targets, found, ended, strict=True):
        expected = one_by_one(translator, [EOS], [*target, EOS], [*source, EOS])
        assert one.tolist() == pytest.approx(expected, abs=1e-9)
        assert other.tolist() == pytest.approx(expected, abs=1e-9)


@pytest.fixture
def read(monkeypatch):
    """The shapes of what a model's loss is asked for, and the widths of the sources before it: read(model)."""

    def watch(model):
        shapes, loss, begin = [], model.loss, model.begin

        def watched_loss(tokens, *rest):
            shapes.append(tuple(tokens.shape))
            return loss(tokens, *rest)

        def watched_begin(source=None, *rest, **more):
            shapes.extend([] if source is None else [source.shape[1]])
            return begin(source, *rest, **more) if source is not None else begin(*rest, **more)

        monkeypatch.setattr(model, "loss", watched_loss)
        monkeypatch.setattr(model, "begin", watched_begin)
        return shapes

    return watch


def test_lines_are_read_longest_first_one_by_one_if_alone_and_the_longest_in_single_segments(lstm, gpt, read):
    shapes = read(lstm)
    line_losses(lstm, LINES, EOS, alone=True)
    assert shapes == sorted(((1, len(line)) for line in LINES), reverse=True)
    shapes.clear()
    line_losses(lstm, LINES, EOS)
    assert shapes == [(64, 9), (6, 1)]
    shapes = read(gpt)
    line_losses(gpt, [[*TEXT.tolist(), EOS]], EOS)
    assert len(shapes) > 3
    assert {rows for rows, _ in shapes} == {1}


def test_pairs_are_read_by_their_targets_then_by_their_sources_longest_first(translator, read):
    shapes = read(translator)
    sources, targets = [[1] * n for n in (3, 1, 2, 4)], [[2] * n for n in (5, 7, 5, 1)]
    pair_losses(translator, sources, targets, EOS, alone=True)
    assert shapes == [2, (1, 8), 4, (1, 6), 3, (1, 6), 5, (1, 2)]
    shapes.clear()
    pair_losses(translator, sources, targets, EOS)
    assert shapes == [5, (4, 8)]


def test_no_dropout_is_left_while_something_is_measured(lstm, translator):
    for model, measure in (
        (lstm, lambda: [*token_losses(lstm, TEXT, Method.of(lstm), eos=EOS)]),
        (lstm, lambda: line_losses(lstm, LINES[:2], EOS)),
        (translator, lambda: pair_losses(translator, [[1]], [[2]], EOS)),
        (translator, lambda: [*label_log_probabilities(translator, [[1]], eos=EOS)]),
    ):
        model.train()
        measure()
        assert not model.training


@pytest.mark.parametrize(("ahead", "taken"), [(0, 1), (1, 1), (3, 3)])
def test_labels_of_an_endless_stream_come_after_the_next_few(translator, ahead, taken):
    asked = []
    endless = (asked.append(n) or [1 + n % 5] for n in count())
    first = next(label_log_probabilities(translator, endless, eos=EOS, forbidden=(3,), ahead=ahead))
    assert len(asked) == taken
    with torch.no_grad():
        state = translator.begin(torch.tensor([[1, EOS]]), torch.tensor([2]))
        logits = translator(torch.tensor([[EOS]]), state)[0][0, 0]
        logits[3] = -math.inf
    assert first.tolist() == pytest.approx(logits.log_softmax(-1).tolist(), abs=1e-9)


@pytest.mark.parametrize("chunk", [1, 7, 2**15])
def test_n_grams_score_lines_one_after_another_as_each_alone_to_the_last_bit(chunk, monkeypatch):
    ngram = build("ngram", order=4).float()
    ngram.count(np.array([token for line in LINES for token in line] * 2))
    ids, ends = np.concatenate(LINES), np.cumsum([len(line) for line in LINES])
    alone = line_losses(ngram, LINES, EOS, alone=True)
    monkeypatch.setattr(perplexity, "LOOKED_UP", chunk)
    for installed in (as_written, install):
        installed(ngram)
        assert text_losses(ngram, ids, ends, EOS).tolist() == np.concatenate(alone).tolist()


@settings(derandomize=True, deadline=None, max_examples=200)
@given(
    st.lists(
        st.lists(st.floats(-(2.0**100), 0, width=32) | st.floats(-50, 0, width=32) | st.just(-math.inf), min_size=1),
        min_size=1,
        max_size=9,
    )
)
@example([[-0.0]])
@example([[-(2.0**53), -1.0, -1.0]])  # not exact: the order of addition matters
@example([[-(2.0**52), -1.0, -1.0]])
@example([[-math.inf, -1.0], [-2.5]])
def test_the_sums_of_lines_are_those_of_python_to_the_last_bit(lines):
    numbers, ends = np.concatenate(lines), np.cumsum([*map(len, lines)])
    assert [*map(repr, line_sums(numbers, ends))] == [repr(float(sum(line))) for line in lines]


def test_a_lines_score_is_compared_and_shown_by_what_can_be_read_of_it():
    scored = ScoredLines(np.array([2, 0, 0]), np.array([2, 3]), np.array([-1.5, -0.25, -2.0]), ["<eos>", "<unk>", "a"])
    first, second = LineScore("a", scored, 0), LineScore("", scored, 1)
    assert (first.tokens, first.log_probabilities, first.log_probability) == (["a", "<eos>"], [-1.5, -0.25], -1.75)
    assert (second.tokens, second.log_probabilities, second.log_probability) == (["<eos>"], [-2.0], -2.0)
    assert repr(first) == "LineScore(text='a', log_probabilities=[-1.5, -0.25])"
    assert first == LineScore("a", scored, 0)
    assert first not in (second, LineScore("b", scored, 0), LineScore("a", scored, 1), "a")


def test_a_batch_is_bounded_by_rows_and_by_numbers(lstm, monkeypatch):
    monkeypatch.setattr(perplexity, "NUMBERS_AT_ONCE", 100 * lstm.loss_width)
    assert [perplexity.rows_at_once(lstm, longest) for longest in (1, 2, 30, 200)] == [64, 50, 3, 1]


def test_lines_are_scored_alone_on_a_cpu_unless_they_are_looked_up(lstm):
    assert alone_by_default(lstm)
    assert not alone_by_default(torch.nn.Module.__new__(Countless))
    on_a_gpu = SimpleNamespace(device=torch.device("cuda"), parameters=lstm.parameters)
    assert not alone_by_default(on_a_gpu)


class Countless(torch.nn.Module):
    device = torch.device("cpu")

    def parameters(self, recurse=True):
        return iter(())


# -- documents -------------------------------------------------------------------------------------------------------


def lines_of(length, count):
    return np.array(([1] * (length - 1) + [EOS]) * count)


@pytest.mark.parametrize(
    "tokens, count", [(30 * 100, 20), (30 * 400, 24), (30 * 333, 20), (30 * 350, 21), (30 * 4000, 200)]
)
def test_a_text_is_cut_into_20_to_200_documents_of_about_500_tokens(tokens, count):
    cut = Documents.cut(lines_of(30, tokens // 30), EOS)
    assert (len(cut), cut.whole_lines, int(cut.tokens.sum())) == (count, True, tokens)
    assert not (cut.bounds % 30).any()
    assert abs(cut.tokens - tokens / count).max() <= 30


def test_a_cut_is_at_the_nearest_line_end():
    ends = np.array([10, 20, 30])
    assert documents._nearest(ends, np.array([0, 14, 15, 16, 26, 99])).tolist() == [10, 10, 10, 20, 30, 30]
    assert documents._nearest(np.array([5]), np.array([0, 9])).tolist() == [5, 5]


@pytest.mark.parametrize("lines", [1, 2, 19])
def test_a_text_of_few_lines_is_cut_within_them(lines):
    cut = Documents.cut(lines_of(100, lines), EOS)
    assert (len(cut), cut.whole_lines) == (20, False)
    assert cut.bounds.tolist() == [lines * 100 * n // 20 for n in range(21)]


def test_a_tiny_text_has_a_document_for_each_token():
    assert Documents.cut(np.array([1, 2, EOS]), EOS).bounds.tolist() == [0, 1, 2, 3]
    assert len(Documents.cut(lines_of(1, 21), EOS)) == 20


def test_losses_are_added_to_the_document_they_lie_in():
    cut = Documents(np.array([0, 3, 5, 9]), True, np.zeros(3))
    cut.add(0, np.array([1.0, 2.0, 4.0, 8.0]))
    cut.add(4, np.array([16.0, 32.0, 64.0]))
    assert cut.nats.tolist() == [7.0, 24.0, 96.0]
    assert cut.tokens.tolist() == [3, 2, 4]
