"""Every experiment that trains models, at a size that teaches them nothing: it measures all that its claim declares."""

from dataclasses import replace

import pytest

from regard.claims import alignment, any_b, bottleneck, classification, embeddings, heads, language_models
from regard.claims import teacher_forcing as forcing

TOY = {
    alignment: {"MADE": 6000, "QUICK_COMMON": 251, "HELD_OUT": 60, "DOUBLED": 8, "PROBED": 5, "QUICK_STEPS": 2},
    language_models: {"QUICK_STEPS": 2},
    classification: {"QUICK_STEPS": 2, "DRAWN": 10, "DRAWS": 2},
    bottleneck: {"QUICK_MOST": 2, "QUICK_LENGTH": 4, "SENTENCES": 400},
    forcing: {"QUICK_STEPS": 2, "TESTED": 40},
    any_b: {"VERY_FAR": 12, "STEPS": 8},
    heads: {"ROWS": 4},
}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return tmp_path_factory.mktemp("claims")


@pytest.mark.parametrize("module", [alignment, any_b, bottleneck, classification, embeddings, forcing, heads])
def test_everything_that_is_declared_is_measured(monkeypatch, store, module):
    for other, constants in TOY.items():
        for name, value in constants.items():
            monkeypatch.setattr(other, name, value)
    claim = module.CLAIM
    evidence = claim.measure(replace(claim.trial(quick=True), seeds=(1,), store=store))
    assert evidence.figures
    for expect in claim.everything:
        assert len(evidence.measured[expect.quantity]) >= 1
    bottleneck.sentences.cache_clear()
