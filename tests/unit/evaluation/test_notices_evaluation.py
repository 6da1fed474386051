"""Boundaries of two kinds, lines of a neural model, power at few seeds, and dictionaries that are installed."""

import math

import numpy as np
import pytest
import torch

from regard.evaluation import perplexity, scripts
from regard.evaluation.intervals import detectable, student_quantile
from regard.evaluation.perplexity import Method, token_losses
from regard.evaluation.scoring import text_losses
from regard.runs.recipe import compose
from regard.systems.catalogue import load_class

VOCABULARY, EOS, BEGIN = 11, 0, 7
TEXT = np.random.default_rng(3).integers(0, VOCABULARY, 41)


@pytest.fixture(scope="module")
def lstm():
    torch.manual_seed(1)
    model = load_class("lstm")(VOCABULARY, compose("lstm", "tiny", {"model": {"layers": 1, "width": 8}}).model)
    return model.double().eval()


@torch.no_grad()
def one_by_one(model, read, written):
    state, found = None, []
    for token, following in zip(read, written, strict=True):
        logits, state = model(torch.tensor([[token]]), state)
        found.append(-float(logits[0, 0].log_softmax(-1)[following]))
    return found


@pytest.mark.parametrize("begin", [None, BEGIN])
@pytest.mark.parametrize("chunk", [6, 100])
def test_a_boundary_is_predicted_as_eos_and_read_as_begin_in_a_stream(lstm, monkeypatch, begin, chunk):
    monkeypatch.setattr(perplexity, "STREAM_CHUNK", chunk)
    assert (TEXT == EOS).sum() > 2
    text = TEXT.tolist()
    edge = EOS if begin is None else begin
    read = [edge, *(edge if token == EOS else token for token in text[:-1])]
    found = np.concatenate([*token_losses(lstm, TEXT, Method.of(lstm, stream=True), eos=EOS, begin=begin)])
    assert found.tolist() == pytest.approx(one_by_one(lstm, read, text), abs=1e-9)
    whole = np.concatenate([*token_losses(lstm, TEXT, Method.of(lstm, 100, 0), eos=EOS, begin=begin)])
    assert whole.tolist() == pytest.approx(found.tolist(), abs=1e-9)  # one segment is the same row


def test_each_line_of_a_text_is_read_on_its_own(lstm):
    lines = [[3, 1, EOS], [EOS], [5, 5, 2, 9, EOS], [4, EOS]]
    found = text_losses(lstm, np.concatenate(lines), np.cumsum([len(line) for line in lines]), EOS)
    expected = [loss for line in lines for loss in one_by_one(lstm, [EOS, *line[:-1]], line)]
    assert found.tolist() == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(("documents", "seeds"), [(0.0, 2.0), (0.01, 0.3), (0.5, 0.002)])
def test_what_can_be_detected_is_by_satterthwaites_degrees_of_freedom_and_by_one_of_a_single_seed(documents, seeds):
    for count in (1, 2, 3, 10):
        variance = documents + seeds / count  # each of two systems has half of the variance between seeds
        freedom = max(1.0, variance**2 / (2 * (seeds / 2 / count) ** 2 / (count - 1))) if count > 1 else 1.0
        reach = sum(student_quantile(probability, min(freedom, 1e4)) for probability in (0.975, 0.8))
        assert detectable(documents, seeds, count) == pytest.approx(reach * math.sqrt(variance), rel=1e-12)
    normal = (1.959964 + 0.841621) * math.sqrt(0.25)
    assert detectable(0.25, 0.0, 1) == detectable(0.25, 0.0, 9) == pytest.approx(normal, rel=1e-3)


def test_a_dictionary_that_is_installed_is_used_and_may_be_asked_for(monkeypatch):
    assert scripts.is_installed.__wrapped__("char") is True
    monkeypatch.setattr(scripts, "is_installed", lambda tokenizer: True)
    for text, script, tokenizer in (("私は行きます", "Japanese", "ja-mecab"), ("서울에 갑니다", "Korean", "ko-mecab")):
        cut = scripts.bleu_cut([text])
        assert (cut.tokenizer, cut.why) == (tokenizer, f"{tokenizer}, because the references are {script}")
        asked = scripts.bleu_cut([text], tokenizer)
        assert (asked.tokenizer, asked.why) == (tokenizer, f"{tokenizer}, as requested")
