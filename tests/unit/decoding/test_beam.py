"""Searching against plain oracles: every sequence there is, and beam search as one would write it down."""

from itertools import product

import pytest
import torch
from torch import nn

from regard.base.errors import RegardError
from regard.decoding import beam as module
from regard.decoding.beam import Beam, beam_search, largest
from regard.decoding.generate import read_prompts
from regard.decoding.sampling import Sampling
from regard.decoding.translate import batches, longest_translation, translate
from regard.systems import gpt, lstm
from regard.systems.catalogue import load_class, load_module
from regard.systems.model import Model
from regard.systems.sizes import sizes_of

EOS = 0


class Table(Model):
    """The next word depends on the number of words, the last one and the source's first: a table one can enumerate."""

    source_context = None

    def __init__(self, vocabulary=3, seed=0, places=12):
        super().__init__()
        self.vocabulary = vocabulary
        random = torch.Generator().manual_seed(seed)
        self.table = nn.Parameter(2 * torch.randn(places, vocabulary, vocabulary, generator=random).double())

    def begin(self, source=None, lengths=None, *, rows=None, width=1, capacity=None):
        rows = (len(source) if source is not None else rows or 1) * width
        first = torch.zeros(rows, dtype=torch.int64) if source is None else source[:, 0]
        return {"seen": torch.zeros(rows, dtype=torch.int64), "past": {}, "source": {"first": first}}

    def hidden_states(self, tokens, state, span):
        first = state["source"]["first"]
        shift = first.repeat_interleave(len(tokens) // len(first))  # row r reads source r // width
        place = (span.positions(tokens.size(1)) + shift[:, None]) % len(self.table)
        return self.table[place, tokens], {}

    def predict(self, hidden):
        return hidden


def start(model, rows=1, **options):
    state = model.begin(rows=rows, **options)
    hidden, state = model.read(torch.zeros(rows, 1, dtype=torch.int64), state)
    return model.predict(hidden[:, 0]), state


def log_probability(model, words):
    tokens = torch.tensor([[EOS, *words]])
    nll, _ = model.loss(tokens[:, :-1], tokens[:, 1:], model.begin(rows=1))
    return -float(nll.detach().sum())


def everything(model, most, penalty):
    """All sequences that end within `most` words, best first, then all that do not."""
    words = range(model.vocabulary)
    inner = [w for w in words if w != EOS]
    ended = [(*rest, EOS) for length in range(most) for rest in product(inner, repeat=length)]
    ranked = []
    for finished, sequences in ((True, ended), (False, list(product(inner, repeat=most)))):
        scored = [(log_probability(model, s) / len(s) ** penalty, s, finished) for s in sequences]
        ranked += sorted(scored, reverse=True)
    return ranked


@pytest.mark.parametrize("penalty", [0.0, 0.6, 1.0, -0.5])
@pytest.mark.parametrize("seed", range(4))
def test_a_beam_as_wide_as_everything_finds_everything_in_order(seed, penalty):
    model, most = Table(seed=seed), 4
    truth = everything(model, most, penalty)
    found = beam_search(model, *start(model), width=3**4, max_tokens=most, eos=EOS, length_penalty=penalty)[0]
    assert [tuple(h.tokens) for h in found] == [sequence for _, sequence, _ in truth]
    assert [h.score for h in found] == pytest.approx([score for score, _, _ in truth])
    assert [h.finished for h in found] == [finished for _, _, finished in truth]
    best = beam_search(model, *start(model), width=3**4, max_tokens=most, eos=EOS, length_penalty=penalty, n_best=3)[0]
    assert [h.tokens for h in best] == [h.tokens for h in found[:3]]
    narrower = beam_search(model, *start(model), width=2, max_tokens=most, eos=EOS, length_penalty=penalty)[0]
    assert narrower[0].score <= found[0].score + 1e-12 or not narrower[0].finished


def written_down(model, width, most, penalty, min_tokens=0, forbidden=()):
    """Beam search for one source, in words: slots, candidates, the finished keep their slots."""
    live, ended = [(0.0, [])], []
    for length in range(1, most + 1):
        candidates = []
        for total, words in live:
            logits = model(torch.tensor([[EOS, *words]]), model.begin(rows=1))[0][0, -1].detach()
            step = torch.log_softmax(logits, -1)
            allowed = [w for w in range(model.vocabulary) if w not in forbidden and (w != EOS or length >= min_tokens)]
            candidates += [(total + float(step[w]), [*words, w]) for w in allowed]
        candidates.sort(key=lambda candidate: -candidate[0])
        live = []
        for total, words in candidates[: width - len(ended)]:
            (ended if words[-1] == EOS or length == most else live).append((total, words))
        if not live:
            break
    ended.sort(key=lambda pair: (pair[1][-1] != EOS, -pair[0] / len(pair[1]) ** penalty))
    return [words for _, words in ended]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(
    "options", [{}, {"min_tokens": 3}, {"forbidden": [2]}, {"min_tokens": 2, "forbidden": [1, 4]}], ids=str
)
@pytest.mark.parametrize("width,penalty", [(1, 0.0), (2, 1.0), (4, 0.0), (5, 0.7)])
def test_it_is_the_beam_search_one_would_write_down(seed, width, penalty, options):
    model = Table(vocabulary=6, seed=seed)
    found = beam_search(model, *start(model), width=width, max_tokens=7, eos=EOS, length_penalty=penalty, **options)[0]
    assert [h.tokens for h in found] == written_down(model, width, 7, penalty, **options)


@pytest.mark.parametrize("between", [1, 3, 8])
def test_looking_seldom_changes_nothing(monkeypatch, between):
    """A GPU is asked only now and then who is done; sources that are done then stay a little longer."""
    model = Table(vocabulary=6, seed=3)
    sources = [[n % 6] * (n % 9 + 1) for n in range(40)]
    usual = list(translate(model, sources, eos=EOS, beam=Beam(4, 0.5, 3)))
    monkeypatch.setitem(module.STEPS_BETWEEN_LOOKS, "cpu", between)
    assert list(translate(model, sources, eos=EOS, beam=Beam(4, 0.5, 3))) == usual


def test_each_row_has_its_own_limit():
    model = Table(vocabulary=6, seed=5)
    limits = torch.tensor([1, 4, 2, 7])
    found = beam_search(model, *start(model, rows=4), width=3, max_tokens=limits, eos=EOS, length_penalty=1.0)
    for limit, best in zip(limits.tolist(), found):
        assert [h.tokens for h in best] == written_down(model, 3, limit, 1.0)


def test_equals_keep_the_order_of_argmax():
    class Indifferent(Table):
        def predict(self, hidden):
            return torch.zeros_like(hidden)

    model = Indifferent(vocabulary=5)
    (found,) = beam_search(model, *start(model), width=3, max_tokens=2, eos=EOS)
    assert [h.tokens for h in found] == [[0], [1, 0], [1, 1]]
    assert [h.finished for h in found] == [True, True, False]


@pytest.mark.parametrize("count", [1, 2, 5, 9])
def test_the_largest_are_those_of_a_stable_sort(count):
    random = torch.Generator().manual_seed(0)
    for logits in (
        torch.randn(20, 9, generator=random),
        torch.randint(0, 3, (200, 9), generator=random).float(),
        torch.zeros(2, 9),
    ):
        order = logits.sort(dim=-1, descending=True, stable=True).indices
        assert torch.equal(largest(logits, count), order[:, :count])


def test_what_a_counted_model_calls_impossible_is_never_written():
    class Counted(Table):
        def predict(self, hidden):
            return hidden.index_fill(-1, torch.tensor([1, 3]), -1e35)

    (found,) = beam_search(Counted(5), *start(Counted(5)), width=4, max_tokens=3, eos=EOS)
    assert not {1, 3} & {token for h in found for token in h.tokens}

    class Edge(Table):
        def predict(self, hidden):
            return torch.full_like(hidden, -1.001e30).index_fill(-1, torch.tensor([0]), 0.0).index_fill(
                -1, torch.tensor([2]), -0.999e30)  # fmt: skip

    (found,) = beam_search(Edge(5), *start(Edge(5)), width=4, max_tokens=1, eos=EOS)
    assert [h.tokens for h in found] == [[0], [2]]


def test_damaged_weights_are_said():
    model = Table()
    with torch.no_grad():
        model.table.fill_(torch.nan)
    for beam in (Beam(1), Beam(3), Sampling()):
        with pytest.raises(RegardError, match="damaged"):
            list(translate(model, [[1]], eos=EOS, beam=beam))


@pytest.mark.parametrize("system", [gpt, lstm])
def test_a_fixed_state_gives_the_same_beams_as_a_growing_one(system):
    torch.manual_seed(0)
    kind = {gpt: "GPT", lstm: "LSTMModel"}[system]
    tiny = sizes_of({gpt: "gpt", lstm: "lstm"}[system]).of("tiny")
    model = getattr(system, kind)(13, system.Settings(**tiny)).double().eval()
    prompts = [[0, 4, 5], [0], [0, 9, 9, 2, 1]]
    with torch.no_grad():
        for capacity in (None, 5 + 10):
            logits, state = read_prompts(model, prompts, capacity)
            found = beam_search(model, logits, state, width=3, max_tokens=10, eos=EOS, length_penalty=0.5)
            tokens = [[h.tokens for h in best] for best in found]
            if capacity is None:
                growing = tokens
    assert tokens == growing


def test_a_file_without_end_is_translated_as_it_comes():
    def endless():
        while True:
            yield [1, 2]

    stream = translate(Table(), endless(), eos=EOS, ahead=4)
    assert len({tuple(next(stream)[0].tokens) for _ in range(10)}) == 1


def test_an_empty_source_and_one_with_its_eos_are_translated():
    bare, closed = translate(Table(), [[], [EOS]], eos=EOS)
    assert bare == closed
    assert list(translate(Table(), [], eos=EOS)) == []


def test_a_source_may_be_longer_than_a_batch():
    assert list(batches([50, 3, 4], 10)) == [[0], [2, 1]]
    assert [len(best) for best in translate(Table(), [[1] * 50, [2]], eos=EOS, batch_tokens=10)] == [1, 1]


def test_the_default_limit_is_stated():
    assert longest_translation(0) == 10
    assert longest_translation(20) == 50


def test_a_sentence_that_the_model_cannot_read_is_named():
    model = Table()
    model.source_context = 4
    with pytest.raises(RegardError, match="Sentence 2 has 6 tokens"):
        list(translate(model, [[1], [1] * 5], eos=EOS))


@pytest.mark.parametrize(
    "wrong", [{"width": 0}, {"n_best": 0}, {"width": 2, "n_best": 3}, {"length_penalty": float("nan")}], ids=str
)
def test_a_wrong_beam_is_refused(wrong):
    with pytest.raises(RegardError):
        Beam(**wrong)


@pytest.mark.parametrize("wrong", [{"max_tokens": 0}, {"max_tokens": 2, "min_tokens": 3}], ids=str)
def test_impossible_lengths_are_refused(wrong):
    with pytest.raises(RegardError, match="exceeds"):
        list(translate(Table(), [[1]], eos=EOS, **wrong))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("name", ["seq2seq", "bahdanau", "transformer"])
@pytest.mark.parametrize("beam", [Beam(1), Beam(5, 0.7, 5), Sampling(1.2, top_k=8)], ids=str)
def test_a_gpu_finds_what_a_cpu_finds(name, beam):
    torch.manual_seed(0)
    parts, kind = load_module(name), load_class(name)
    tiny = sizes_of(name).of("tiny")
    model = kind(31, parts.Settings(**tiny)).double().eval()
    sources = [[1 + (n * k) % 30 for k in range(n % 13)] for n in range(50)]
    options = {"eos": EOS, "beam": beam, "forbidden": [3], "min_tokens": 2}
    expected = list(translate(model, sources, **options))
    found = list(translate(model.cuda(), sources, **options))
    assert [[h.tokens for h in best] for best in found] == [[h.tokens for h in best] for best in expected]
    for one, other in zip(found, expected):
        assert [h.score for h in one] == pytest.approx([h.score for h in other], abs=1e-9)
