"""How long a translation may be: never longer than the model has positions, and as long as that if nothing ends it."""

import pytest
import torch

from regard.base.errors import RegardError
from regard.decoding.beam import GREEDY_BEAM, Beam
from regard.decoding.beam_engine import BeamEngine
from regard.decoding.sampling import Sampling
from regard.decoding.translate import longest_translation, translate
from regard.systems.seq2seq import Seq2Seq
from regard.systems.seq2seq import Settings as RecurrentSettings
from regard.systems.transformer import Settings, Transformer

V, EOS, CONTEXT = 11, 0, 9
SOURCES = [[3, 4, 5, 6, 7, 8], [9, 2], []]  # twice the first and ten more are beyond the context
SEARCHES = {"greedy": GREEDY_BEAM, "beam": Beam(3, n_best=3), "sampling": Sampling(1.0)}


def build(position):
    torch.manual_seed(0)
    settings = Settings(layers=1, width=16, heads=2, context=CONTEXT, position=position, dropout=0.0)
    return Transformer(V, settings).eval()


def lengths(model, how, **options):
    """Of every hypothesis; none of them can end by itself."""
    found = translate(model, SOURCES, eos=EOS, beam=how, forbidden=[EOS], **options)
    return [{len(one.tokens) for one in hypotheses} for hypotheses in found]


@pytest.mark.parametrize("how", SEARCHES.values(), ids=SEARCHES)
@pytest.mark.parametrize("position", ["learned", "one-hot"])
def test_a_translation_ends_where_the_positions_of_the_model_end(position, how):
    model = build(position)
    assert model.context == CONTEXT
    assert lengths(model, how) == [{CONTEXT}] * 3
    assert lengths(model, how, max_tokens=1000) == [{CONTEXT}] * 3
    assert lengths(model, how, max_tokens=CONTEXT + 1) == [{CONTEXT}] * 3
    assert lengths(model, how, max_tokens=CONTEXT - 1) == [{CONTEXT - 1}] * 3


@pytest.mark.parametrize("how", ["greedy", "beam"])
def test_the_engine_ends_there_too(how):
    model = build("learned")
    assert lengths(model, SEARCHES[how], engine=BeamEngine(model)) == [{CONTEXT}] * 3


def test_more_tokens_than_there_are_positions_cannot_be_demanded():
    model = build("learned")
    assert lengths(model, GREEDY_BEAM, min_tokens=CONTEXT) == [{CONTEXT}] * 3
    with pytest.raises(RegardError, match=rf"--min-tokens \({CONTEXT + 1}\) exceeds the limit of {CONTEXT} tokens"):
        lengths(model, GREEDY_BEAM, min_tokens=CONTEXT + 1)
    with pytest.raises(RegardError, match=r"--min-tokens \(4\) exceeds the limit of 3 tokens"):
        lengths(model, GREEDY_BEAM, min_tokens=4, max_tokens=3)


def test_a_source_with_more_tokens_than_positions_is_refused_by_its_line():
    model = build("learned")
    assert list(translate(model, [[1] * (CONTEXT - 1)], eos=EOS))  # <eos> is one more
    with pytest.raises(RegardError, match=rf"Sentence 2 has {CONTEXT + 1} tokens including <eos>.*at most {CONTEXT};"):
        list(translate(model, [[1], [1] * CONTEXT], eos=EOS))


@pytest.mark.parametrize("how", SEARCHES.values(), ids=SEARCHES)
def test_without_positions_that_end_the_source_decides(how):
    torch.manual_seed(0)
    recurrent = Seq2Seq(V, RecurrentSettings(width=8, embedding=8, layers=1, dropout=0.0)).eval()
    for model in (recurrent, build("sinusoid"), build("rotary")):
        assert model.context is None
        assert lengths(model, how) == [{longest_translation(len(source))} for source in SOURCES]
