"""The laws of decoding, for every system: what is written does not depend on how it was computed."""

import pytest
import torch
from subjects import CONTEXT, SUBJECTS, VOCABULARY, build, title

from regard.decoding.beam import beam_search
from regard.decoding.generate import generate, read_prompts
from regard.decoding.sampling import GREEDY, Sampling

EOS = 0
PROMPTS = [[0, 3, 5], [0], [0, 7, 7, 2, 9, 1]]


def written(model, prompts, **options):
    options = {"max_tokens": 8, "eos": EOS, "sampling": GREEDY, **options}
    rows = list(zip(*generate(model, prompts, **options)))
    return [[token for token in row if token is not None] for row in rows]


def best_beam(model, prompt, width, max_tokens=8, **options):
    logits, state = read_prompts(model, [prompt], None)
    return beam_search(model, logits, state, width=width, max_tokens=max_tokens, eos=EOS, **options)[0]


@pytest.mark.parametrize("subject", SUBJECTS, ids=title)
def test_law_7_beam_1_is_greedy(subject):
    model = build(subject)
    greedy = written(model, PROMPTS, lines=1)
    for prompt, line in zip(PROMPTS, greedy):
        assert best_beam(model, prompt, width=1)[0].tokens == line


@pytest.mark.parametrize("subject", SUBJECTS, ids=title)
def test_a_row_is_written_as_if_it_were_alone(subject):
    """Law 3, lived: ragged prompts, batch-mates that have ended, and seeded sampling."""
    model = build(subject)
    for sampling in (GREEDY, Sampling(temperature=1.3, top_k=9)):
        together = written(model, PROMPTS[:2], sampling=sampling, seed=4, lines=2)
        alone = written(model, PROMPTS[:1], sampling=sampling, seed=4, lines=2)
        assert together[0] == alone[0]


@pytest.mark.parametrize("subject", SUBJECTS, ids=title)
def test_greedy_writes_what_rereading_everything_predicts(subject):
    model = build(subject)
    (line,) = written(model, PROMPTS[:1])
    text = list(PROMPTS[0])
    for token in line:
        logits, _ = model(torch.tensor([text]))
        assert token == int(logits[0, -1].argmax())
        text.append(token)


@pytest.mark.parametrize("subject", SUBJECTS, ids=title)
def test_a_beams_score_is_the_log_probability_of_what_it_wrote(subject):
    model = build(subject)
    for hypothesis in best_beam(model, PROMPTS[0], width=4, max_tokens=5):
        text = torch.tensor([[*PROMPTS[0], *hypothesis.tokens]])
        nll, _ = model.loss(text[:, :-1], text[:, 1:])
        written_part = nll[0, len(PROMPTS[0]) - 1 :].sum()
        assert hypothesis.log_probability == pytest.approx(-float(written_part.detach()), abs=1e-9)


@pytest.mark.parametrize("subject", [s for s in SUBJECTS if s[0] == "lstm"][:1], ids=title)
def test_a_wide_enough_beam_finds_the_most_probable_sequence(subject):
    model = build(subject)
    pairs = torch.cartesian_prod(torch.arange(VOCABULARY), torch.arange(VOCABULARY))
    texts = torch.cat([torch.tensor([PROMPTS[0]]).expand(len(pairs), -1), pairs], 1)
    nll, _ = model.loss(texts[:, :-1], texts[:, 1:])
    totals = nll[:, -2:].sum(-1)
    totals[(pairs[:, 0] == EOS)] = torch.inf  # such a sequence has ended after one token
    best = pairs[int(totals.argmin())].tolist()
    found = best_beam(model, PROMPTS[0], width=VOCABULARY, max_tokens=2)
    two_long = [h for h in found if len(h.tokens) == 2]
    assert two_long[0].tokens == best


@pytest.mark.parametrize("subject", SUBJECTS, ids=title)
def test_forbidden_tokens_are_never_written_and_a_full_context_is_reread(subject):
    model = build(subject)
    told = []
    (line,) = written(
        model, PROMPTS[:1], max_tokens=2 * CONTEXT, sampling=Sampling(), seed=2, forbidden=[1, 3], on_reread=told.append
    )
    assert len(line) == 2 * CONTEXT
    assert not {1, 3} & set(line)
    assert bool(told) == (model.context is not None)
