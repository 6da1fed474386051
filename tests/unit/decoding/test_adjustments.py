"""Penalties, biases and min_p: Hugging Face's processors are the oracle, and the engine equals the plain loop."""

from collections import Counter

import numpy as np
import pytest
import torch
from transformers.generation import (
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    SequenceBiasLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

import regard
from regard.base.errors import RegardError
from regard.decoding.adjustments import Adjustment
from regard.decoding.engine import Engine
from regard.decoding.generate import generate
from regard.decoding.sampling import Sampling, sampling_probabilities
from regard.systems import gpt

WORDS = 40


def some_logits(seed, rows=1):
    return torch.from_numpy(np.random.default_rng(seed).normal(scale=2, size=(rows, WORDS))).float()


def adjusted(logits, sampling, prompt=(), text=()):
    made = Adjustment(sampling, prompt)
    for token in text:
        made.add(token)
    return made(logits[0])[None]


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("sampling", [{"min_p": 0.05}, {"min_p": 0.3, "top_k": 6}, {"min_p": 0.1, "top_p": 0.8}])
def test_min_p_is_hugging_faces(temperature, sampling):
    logits = some_logits(1, rows=20)
    theirs = TemperatureLogitsWarper(temperature)(None, logits)
    if "top_k" in sampling:
        theirs = TopKLogitsWarper(sampling["top_k"])(None, theirs)
    if "top_p" in sampling:
        theirs = TopPLogitsWarper(sampling["top_p"])(None, theirs)
    theirs = MinPLogitsWarper(sampling["min_p"])(None, theirs).double().softmax(-1)
    ours = sampling_probabilities(logits, Sampling(temperature, **sampling))
    assert torch.allclose(ours, theirs, atol=1e-6)
    assert (ours == 0).any()


@pytest.mark.parametrize("seed", range(5))
def test_bias_and_repetition_penalty_are_hugging_faces_in_its_order(seed):
    logits, draw = some_logits(seed), np.random.default_rng(seed)
    prompt, text = (draw.integers(0, WORDS, size).tolist() for size in (5, 7))
    bias = {int(token): float(value) for token, value in zip(draw.choice(WORDS, 6, False), draw.normal(size=6))}
    ids = torch.tensor([prompt + text])
    theirs = SequenceBiasLogitsProcessor({(token,): value for token, value in bias.items()})(ids, logits)
    theirs = RepetitionPenaltyLogitsProcessor(1.3)(ids, theirs)
    ours = adjusted(logits, Sampling(repetition_penalty=1.3, logit_bias=bias), prompt, text)
    assert torch.allclose(ours, theirs, atol=1e-6)
    assert not torch.allclose(ours, logits)


def test_presence_and_frequency_penalties_follow_openais_formula_and_count_the_text_alone():
    logits, text = some_logits(3), [4, 4, 4, 9]
    ours = adjusted(logits, Sampling(presence_penalty=0.5, frequency_penalty=-0.25), [7, 4], text)[0]
    counts = Counter(text)
    for token in range(WORDS):
        expected = logits[0, token] - counts[token] * -0.25 - (counts[token] > 0) * 0.5
        assert float(ours[token]) == pytest.approx(float(expected), abs=1e-6)


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return gpt.GPT(WORDS, gpt.Settings(layers=1, width=16, heads=2, context=16)).double().eval()


ADJUSTED = [
    Sampling(repetition_penalty=1.5, temperature=0.3), Sampling(0.0, frequency_penalty=1.0),
    Sampling(min_p=0.2, presence_penalty=2.0), Sampling(logit_bias={3: 4.0, 0: -100.0}),
]  # fmt: skip


@pytest.mark.parametrize("sampling", ADJUSTED)
def test_the_engine_writes_what_the_plain_loop_writes_whatever_else_is_in_the_batch(model, sampling):
    prompts = [[0, 5, 6], [0], [0, 8, 8, 8, 2]]
    engine = Engine(model, eos=0, sampling=sampling, rows=2)
    together = list(engine.texts(prompts, max_tokens=24, seed=3))  # longer than the context
    steps = list(generate(model, prompts, max_tokens=24, eos=0, sampling=sampling, seed=3))
    assert together == [[step[row] for step in steps] for row in range(len(prompts))]
    alone = [next(Engine(model, eos=0, sampling=sampling).texts([prompt], max_tokens=24, seed=3, first=number))
             for number, prompt in enumerate(prompts)]  # fmt: skip
    assert alone == together


def test_penalties_and_biases_change_what_is_written(model):
    def written(**how):
        return next(Engine(model, eos=0, sampling=Sampling(0.0, **how)).texts([[0, 5]], max_tokens=12))

    plain = written()
    assert len(set(written(frequency_penalty=2.0))) > len(set(plain))
    assert written(logit_bias={7: 100.0}) == [7] * 12
    assert plain[0] not in written(logit_bias={plain[0]: -100.0})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("min_p", -0.1), ("min_p", 1.1), ("min_p", float("nan")), ("repetition_penalty", 0.0),
        ("repetition_penalty", 1e9),
        ("presence_penalty", 2.5), ("frequency_penalty", float("inf")), ("logit_bias", {3: 101.0}),
        ("logit_bias", {3: float("nan")}), ("logit_bias", "x"), ("choices", "ab"), ("regex", 3),
    ],
)  # fmt: skip
def test_a_wrong_value_is_refused_in_one_sentence(field, value):
    with pytest.raises(RegardError) as error:
        regard.Sampling(**{field: value})
    assert "\n" not in str(error.value)


def test_a_text_has_one_constraint():
    with pytest.raises(RegardError, match="one constraint"):
        Sampling(regex="a", choices=("b",))
