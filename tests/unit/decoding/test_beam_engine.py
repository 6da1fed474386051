"""The engine of fixed shapes finds what the plain search finds: here on a CPU, where its steps run as they stand."""

import pytest
import torch

from regard.base.errors import RegardError
from regard.decoding import beam_engine
from regard.decoding.beam import Beam
from regard.decoding.beam_engine import FEW_SOURCES, BeamEngine, GradualEngine, bucket
from regard.decoding.beam_slots import BeamConfig
from regard.decoding.translate import closed, longest_translation, translate
from regard.systems.catalogue import load_class, load_module
from regard.systems.sizes import sizes_of

EOS = 0
TRANSLATORS = ["seq2seq", "bahdanau", "transformer"]
SEARCHES = [
    (Beam(1), {}),
    (Beam(3, 0.7, 3), {"forbidden": (3,), "min_tokens": 2}),
    (Beam(4, 0.0, 1), {"max_tokens": 6}),
    (Beam(2, -0.5, 2), {"min_tokens": 4, "max_tokens": 5}),
]


def small(name, vocabulary=19, **settings):
    torch.manual_seed(0)
    parts, kind = load_module(name), load_class(name)
    sizes = sizes_of(name).of("tiny") | {"width": 16} | settings
    return kind(vocabulary, parts.Settings(**sizes)).double().eval()


def sentences(count, vocabulary=19):
    return [[1 + (n * k) % (vocabulary - 1) for k in range(1, n % 11 + 1)] for n in range(count)]


def searched(model, sources, how, *, forbidden=(), min_tokens=0, max_tokens=None, engine=None):
    engine = engine or BeamEngine(model, batch_tokens=how.width * 60)  # a few places, so that sources come and go
    terms = BeamConfig(how.width, EOS, how.n_best, how.length_penalty, min_tokens, forbidden)
    limits = [max_tokens or longest_translation(len(source)) for source in sources]
    return engine.search([closed(source, EOS) for source in sources], limits, terms)


def assert_same(found, expected):
    assert [[h.tokens for h in best] for best in found] == [[h.tokens for h in best] for best in expected]
    for best, reference in zip(found, expected, strict=True):
        assert [h.finished for h in best] == [h.finished for h in reference]
        for what in ("score", "log_probability"):
            assert [getattr(h, what) for h in best] == pytest.approx([getattr(h, what) for h in reference], abs=1e-9)


@pytest.mark.parametrize("name", TRANSLATORS)
@pytest.mark.parametrize("how, bounds", SEARCHES, ids=str)
def test_it_finds_what_the_plain_search_finds(name, how, bounds):
    model, sources = small(name), sentences(17)
    assert_same(searched(model, sources, how, **bounds), list(translate(model, sources, eos=EOS, beam=how, **bounds)))


def test_looking_seldom_changes_nothing(monkeypatch):
    model, sources, how = small("seq2seq"), sentences(30), Beam(3, 0.5, 2)
    often = searched(model, sources, how)
    monkeypatch.setitem(beam_engine.STEPS_BETWEEN_LOOKS, "cpu", 7)
    assert_same(searched(model, sources, how), often)


def test_the_order_and_the_company_of_sources_change_nothing():
    model, sources, how = small("bahdanau"), sentences(20), Beam(3, 1.0, 3)
    alone = [searched(model, [source], how)[0] for source in sources]
    assert_same(searched(model, sources, how), alone)
    assert_same(searched(model, sources[::-1], how)[::-1], alone)


def test_what_was_recorded_serves_again_until_the_weights_move():
    model, sources, how = small("seq2seq"), sentences(9), Beam(2)
    engine = BeamEngine(model, batch_tokens=10_000)
    first = searched(model, sources, how, engine=engine)
    (batch,) = engine.batches.values()
    assert_same(searched(model, sources, how, engine=engine), first)
    assert [*engine.batches.values()] == [batch]
    with torch.no_grad():
        for weight in model.parameters():
            weight.data = 1.5 * weight
    moved = searched(model, sources, how, engine=engine)
    assert [*engine.batches.values()] != [batch]
    assert_same(moved, list(translate(model, sources, eos=EOS, beam=how)))
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(0.5)  # where they lie: no need to record again
    assert_same(searched(model, sources, how, engine=engine), list(translate(model, sources, eos=EOS, beam=how)))


def test_it_keeps_few_shapes():
    engine = BeamEngine(small("seq2seq"))
    for count in (1, 2, 4, 8, 16, 32):
        searched(engine.model, [[1, 2]] * count, Beam(2), max_tokens=2, engine=engine)
    assert len(engine.batches) == beam_engine.KEPT


def test_padding_is_at_most_a_half_and_shapes_are_few():
    sizes = [bucket(n) for n in range(1, 1025)]
    assert all(size >= n for n, size in enumerate(sizes, start=1))
    assert all(size <= 1.5 * n for n, size in enumerate(sizes, start=1) if n > 8)
    assert sorted(set(sizes))[:6] == [8, 12, 16, 24, 32, 48]
    assert len(set(sizes)) == 15


def test_a_source_as_long_as_the_model_reads_is_padded_no_further():
    model = small("transformer", position="learned", context=13)
    sources = [[5] * 12, [4] * 3]
    how, bounds = Beam(2), {"max_tokens": 6}
    assert_same(searched(model, sources, how, **bounds), list(translate(model, sources, eos=EOS, beam=how, **bounds)))


def test_damaged_weights_are_said():
    model = small("transformer")
    with torch.no_grad():
        model.embedding.table.weight.fill_(torch.nan)
    with pytest.raises(RegardError, match="damaged"):
        searched(model, [[1, 2]], Beam(3))


def test_translate_uses_the_engine_it_is_given():
    model, sources, how = small("transformer"), sentences(12), Beam(3, 0.6, 2)
    engine = BeamEngine(model, batch_tokens=300)
    found = list(translate(model, sources, eos=EOS, beam=how, engine=engine, ahead=5))
    assert engine.batches
    assert_same(found, list(translate(model, sources, eos=EOS, beam=how)))


def test_faster_code_is_installed_once_there_are_more_than_a_few_sources():
    model, how, installed = small("transformer"), Beam(3, 0.5, 2), []
    engine = GradualEngine(model, install=lambda thing, **fields: installed.append(type(thing).__name__))
    sources = sentences(FEW_SOURCES + 5)
    found = [searched(model, [source], how, engine=engine)[0] for source in sources[:FEW_SOURCES]]
    assert not installed
    first = engine.engine
    found += searched(model, sources[FEW_SOURCES:], how, engine=engine)
    assert installed[0] == "BeamEngine"
    assert engine.engine is not first
    assert_same(found, searched(model, sources, how))
    again = engine.engine
    searched(model, sources, how, engine=engine)
    assert engine.engine is again


def test_many_sources_at_once_are_not_begun_as_written():
    installed = []
    engine = GradualEngine(small("seq2seq"), install=lambda thing, **fields: installed.append(thing))
    searched(engine.model, sentences(FEW_SOURCES + 1), Beam(1), engine=engine)
    assert installed
