"""A model whose weights are read from a file is built without drawing random ones."""

from types import SimpleNamespace

import pytest
import torch

from regard.runs.recipe import compose
from regard.runs.store.folder import Tokenizers, build_model, has_source
from regard.systems.catalogue import SYSTEMS

NEURAL = [system.name for system in SYSTEMS if system.trained != "counting"]


@pytest.mark.parametrize("system", NEURAL)
def test_a_model_that_is_given_its_weights_draws_none_and_is_the_same(system):
    recipe = compose(system, "tiny")
    target, source = SimpleNamespace(vocabulary=11), SimpleNamespace(vocabulary=13)
    tokenizers = Tokenizers(target, source if has_source(recipe) else None)
    drawn = build_model(recipe, tokenizers).eval()
    generator = torch.get_rng_state()
    undrawn = build_model(recipe, tokenizers, drawn=False).eval()
    assert torch.equal(torch.get_rng_state(), generator)
    undrawn.load_state_dict(drawn.state_dict())
    expected, found = (dict(model.named_buffers()) for model in (drawn, undrawn))  # also those that no file holds
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    assert [weight.requires_grad for weight in undrawn.parameters()] == [w.requires_grad for w in drawn.parameters()]


def test_code_of_ones_own_may_draw_more_than_weights(monkeypatch):
    class Own(torch.nn.Module):
        def __init__(self, vocabulary, settings):
            super().__init__()
            self.fixed = torch.empty(vocabulary).uniform_(1, 2)

    monkeypatch.setattr("regard.runs.store.folder.load_class", lambda name: Own)
    monkeypatch.setattr("regard.runs.store.folder.is_own", lambda name: True)
    model = build_model(compose("gpt", "tiny"), Tokenizers(SimpleNamespace(vocabulary=11)), drawn=False)
    assert (model.fixed >= 1).all()


def test_after_the_model_is_built_numbers_are_drawn_as_ever():
    build_model(compose("gpt", "tiny"), Tokenizers(SimpleNamespace(vocabulary=11)), drawn=False)
    assert len(set(torch.zeros(20).uniform_(1, 2).tolist())) > 1
