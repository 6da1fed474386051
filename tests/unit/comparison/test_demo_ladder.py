"""What the demo's gpt begins with: weights from which a narrow model learns sooner, and no preference for a word."""

from math import log

import pytest
import torch

from regard.base.errors import RegardError
from regard.demo import LANGUAGE
from regard.layers.state import Span
from regard.systems.gpt import GPT, Settings

WORDS = 1780  # of the phrasebook's English
NARROW = {"layers": 2, "width": 64, "heads": 2, "context": 64, "dropout": 0.0}


def build(settings, seed=1):
    torch.manual_seed(seed)
    return GPT(WORDS, settings).eval()


def excess(settings, seed):
    """How far its untrained loss lies above log V."""
    model, tokens = build(settings, seed), torch.randint(WORDS, (40, 33))
    with torch.no_grad():
        return float(model.loss(tokens[:, :-1], tokens[:, 1:])[0].mean()) - log(WORDS)


@pytest.fixture(scope="module")
def demo_gpt():
    question = LANGUAGE.question("24s")
    return question.recipe(next(rung for rung in question.rungs() if rung.entry.name == "gpt")).model


@pytest.mark.parametrize("seed", range(5))
def test_untrained_the_demos_gpt_prefers_no_word(demo_gpt, seed):
    assert abs(excess(demo_gpt, seed)) < 0.05


def test_without_the_scale_it_would(demo_gpt):
    assert demo_gpt.initial > 0.02
    assert excess(Settings(**NARROW, initial=demo_gpt.initial), seed=1) > 0.1


def test_word_vectors_are_kept_smaller_by_the_scale_with_which_they_are_read():
    model = build(Settings(**NARROW, initial=0.07, scale=2.5))
    read = model.embedding(torch.arange(WORDS).view(-1, 1), Span(torch.zeros(WORDS, dtype=torch.int64)))
    places = model.embedding.position.table.weight[0]
    assert torch.allclose(read[:, 0], 2.5 * model.embedding.table.weight + places)
    sizes = {name: float(weight.detach().std()) for name, weight in model.named_parameters() if weight.dim() > 1}
    assert sizes["embedding.table.weight"] == pytest.approx(0.07 / 2.5, rel=0.02)
    assert sizes["layers.0.feedforward.expand.weight"] == pytest.approx(0.07, rel=0.05)
    assert sizes["layers.0.feedforward.output.weight"] == pytest.approx(0.07 / 2, rel=0.05)  # four share a sum


def test_as_it_comes_gpt_has_gpt_2s_first_weights():
    sizes = {name: float(weight.detach().std()) for name, weight in build(Settings(**NARROW)).named_parameters()}
    assert sizes["embedding.table.weight"] == pytest.approx(0.02, rel=0.02)
    assert sizes["layers.0.feedforward.expand.weight"] == pytest.approx(0.02, rel=0.05)
    assert sizes["layers.0.feedforward.output.weight"] == pytest.approx(0.01, rel=0.05)


@pytest.mark.parametrize(("name", "value"), [("initial", 0.0), ("initial", -0.02), ("scale", -1.0)])
def test_sizes_that_are_none_are_refused(name, value):
    with pytest.raises(RegardError, match=f"model.{name}"):
        Settings(**{name: value})
