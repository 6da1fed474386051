"""The measurement of C27: ranks are correlated, and the effect of a word is that of its removal."""

import numpy as np
import pytest
import torch

from regard.claims import importance


def test_ranks_are_correlated():
    rising = np.array([0.1, 0.2, 0.5, 0.9])
    assert importance.spearman(rising, rising**3) == pytest.approx(1)
    assert importance.spearman(rising, -rising) == pytest.approx(-1)


def test_a_model_whose_words_mix_by_attention_alone_is_measured_in_every_way():
    train, test = importance.encoded()
    assert int(train.max()) < importance.WORDS
    torch.manual_seed(0)
    for kind in importance.KINDS:
        model = importance.learned(kind, train, seed=1, steps=2)
        line = next(line for line in test if len(line) > importance.LEAST)
        found = importance.correlations(model, line, np.random.default_rng(0))
        assert all(-1 <= value <= 1 for value in found)
        assert found == importance.correlations(model, line, np.random.default_rng(0))
