"""What a prediction says of itself: probabilities, and its entropy in bits."""

import math

import numpy as np
import pytest
import torch

from regard.base.errors import RegardError
from regard.runs.prediction import Prediction
from regard.text.tokenizers.tokenizer import Tokenizer

TOKENIZER = Tokenizer.train(["abcdefghijklmnop"], "char")
V = TOKENIZER.vocabulary


def prediction(probabilities):
    logits = torch.full((V,), -math.inf)
    logits[: len(probabilities)] = torch.tensor(probabilities).log()
    return Prediction(logits + 3.0, TOKENIZER)  # logits are known up to a constant


@pytest.mark.parametrize(
    ("probabilities", "bits"),
    [([1.0], 0), ([0.5, 0.5], 1), ([0.25] * 4, 2), ([0.5, 0.25, 0.125, 0.125], 1.75), ([1 / V] * V, math.log2(V))],
)
def test_entropy_is_in_bits(probabilities, bits):
    assert prediction(probabilities).entropy == pytest.approx(bits, abs=1e-6)


def test_probabilities_are_those_of_a_softmax_and_the_best_come_first():
    torch.manual_seed(0)
    logits = torch.randn(V)
    found = Prediction(logits, TOKENIZER)
    wanted = logits.double().softmax(-1).numpy()
    np.testing.assert_allclose(found.probabilities, wanted, rtol=1e-9)
    order = np.argsort(-wanted)[:3]
    assert found.top(3) == [(TOKENIZER.token(int(n)), pytest.approx(wanted[n])) for n in order]
    assert found.probability("c") == pytest.approx(wanted[TOKENIZER.encode("c")[0]])
    assert found.probability("<eos>") == pytest.approx(wanted[TOKENIZER.eos])


def test_as_many_are_shown_as_asked_for_and_five_if_no_one_asks():
    found = prediction([2.0**-n for n in range(1, V)])
    assert [len(found.top(count)) for count in (0, 1, V, 10**6)] == [0, 1, V, V]
    assert found.top() == found.top(5)
    assert repr(found) == f"Prediction({', '.join(f'{token!r} {p:.3f}' for token, p in found.top(3))}, …)"
    with pytest.raises(RegardError, match="count must be at least 0, not -1"):
        found.top(-1)
    for text, tokens in (("ab", 2), ("", 0), ("abc", 3)):
        with pytest.raises(RegardError, match=f"{text!r} is {tokens} tokens for this model; give one token at a time"):
            found.probability(text)
