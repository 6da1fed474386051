"""Seeds side by side give what they give one after the other, and C30's classes of length."""

import os

import numpy as np
import torch

from regard.claims import long_sentences
from regard.claims.claim import Trial
from regard.claims.each_seed import each_seed
from regard.decoding.beam import GREEDY_BEAM


def drawn(trial, seed):
    """What depends on the seed and the trial alone, and the process."""
    torch.manual_seed(seed)
    return float(torch.randn(())) * trial.knob("gain"), os.getpid()


def test_seeds_side_by_side_give_the_same_in_their_order():
    noted = []
    trial = Trial((5, 3, 4), knobs={"gain": 2.0}, step=noted.append)
    alone, together = (each_seed(one, drawn) for one in (trial, Trial(**{**vars(trial), "jobs": 2})))
    assert [value for value, _ in alone] == [value for value, _ in together]
    assert {process for _, process in alone} == {os.getpid()}
    assert os.getpid() not in {process for _, process in together}
    assert noted == ["seed 5", "seed 3", "seed 4"]


class Best:
    def __init__(self, text):
        self.text = text


class Forgets:
    """Knows every translation, of which it writes only so many words."""

    def __init__(self, most):
        self.most, self.known = most, dict(long_sentences.sentences()["test"])

    def translations(self, sources, beam):
        assert beam is GREEDY_BEAM
        return [(Best(" ".join(self.known[source].split()[: self.most])),) for source in sources]


def test_each_length_is_scored_by_itself():
    test, train = (long_sentences.sentences()[split] for split in ("test", "train"))
    assert not {source for source, _ in test} & {source for source, _ in train}
    assert max(len(source.split()) for source, _ in test) == long_sentences.LONGEST
    assert np.allclose(long_sentences.bleu_by_length(Forgets(1000)), 100)
    falling = long_sentences.bleu_by_length(Forgets(10))
    assert falling[0] > 99
    assert falling == sorted(falling, reverse=True)
    assert falling[-1] < 50
