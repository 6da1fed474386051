"""The laws of decoding, for every system: what is written does not depend on how it was computed."""

import copy

import pytest
import torch

from regard.decoding.beam import Beam, beam_search
from regard.decoding.generate import generate, pad, read_prompts
from regard.decoding.sampling import GREEDY, Sampling
from regard.decoding.translate import explain_hypotheses, longest_translation, translate
from regard.evaluation.scoring import pair_losses
from subjects import CONTEXT, SUBJECTS, TRANSLATORS, VOCABULARY, build, title

EOS = 0
PROMPTS = [[0, 3, 5], [0], [0, 7, 7, 2, 9, 1]]
# Where a law is slow to try, one variant of each system; laws of its state are tried on all, in test_every_system.py.
ONE_EACH, TRANSLATOR_EACH = (
    [*{subject[0]: subject for subject in reversed(kind)}.values()] for kind in (SUBJECTS, TRANSLATORS)
)


def written(model, prompts, **options):
    options = {"max_tokens": 8, "eos": EOS, "sampling": GREEDY, **options}
    rows = list(zip(*generate(model, prompts, **options)))
    return [[token for token in row if token is not None] for row in rows]


def best_beam(model, prompt, width, max_tokens=8, **options):
    logits, state = read_prompts(model, [prompt], None)
    return beam_search(model, logits, state, width=width, max_tokens=max_tokens, eos=EOS, **options)[0]


@pytest.mark.parametrize("subject", ONE_EACH, ids=title)
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
        model, PROMPTS[:1], max_tokens=CONTEXT + 8, sampling=Sampling(), seed=2, forbidden=[1, 3], on_reread=told.append
    )
    assert len(line) == CONTEXT + 8
    assert not {1, 3} & set(line)
    assert bool(told) == (model.context is not None)


# -- translation: the same search, from a state that comes from a source -----------------------------------------------

SOURCES = [
    torch.randint(1, VOCABULARY, (length,), generator=torch.Generator().manual_seed(length)).tolist()
    for length in (4, 0, 7, 1, 3, 3, 9, 2)
]

BY_BEAM = [(subject, Beam(4, 1.0, 4)) for subject in TRANSLATORS]
BY_DRAWING = [(subject, Sampling(1.3, top_k=9)) for subject in TRANSLATOR_EACH]


def names(value):
    return title(value) if type(value) is tuple else str(value)


def translated(model, sources, **options):
    return list(translate(model, sources, **{"eos": EOS, "max_tokens": 8, **options}))


def same(one, other):
    """The same tokens and, to rounding, the same numbers."""
    assert [[found.tokens for found in best] for best in one] == [[found.tokens for found in best] for best in other]
    for a, b in zip(one, other):
        assert [x.log_probability for x in a] == pytest.approx([x.log_probability for x in b], abs=1e-9)
        assert [x.score for x in a] == pytest.approx([x.score for x in b], abs=1e-9)


@pytest.mark.parametrize(
    "subject, beam", BY_BEAM + BY_DRAWING, ids=lambda it: title(it) if type(it) is tuple else str(it)
)
def test_a_source_is_translated_as_if_it_were_alone(subject, beam):
    model = build(subject)
    together = translated(model, SOURCES, beam=beam, seed=3)
    same(together, translated(model, SOURCES, beam=beam, seed=3, batch_tokens=1))
    same(together, translated(model, SOURCES, beam=beam, seed=3, ahead=3))


@pytest.mark.parametrize("subject", TRANSLATOR_EACH, ids=title)
def test_the_batch_of_fifty_is_fifty_batches_of_one(subject):
    model = build(subject)
    random = torch.Generator().manual_seed(1)
    many = [torch.randint(1, VOCABULARY, (n % 11,), generator=random).tolist() for n in range(50)]
    options = {"beam": Beam(3, 0.7, 2)}
    same(translated(model, many, **options, batch_tokens=10**6), translated(model, many, **options, batch_tokens=1))


@pytest.mark.parametrize("subject", TRANSLATOR_EACH, ids=title)
def test_in_fp32_only_near_ties_depend_on_the_batch(subject):
    model = copy.deepcopy(build(subject)).float()
    random = torch.Generator().manual_seed(1)
    many = [torch.randint(1, VOCABULARY, (n % 11,), generator=random).tolist() for n in range(50)]
    together, alone = (translated(model, many, beam=Beam(4), batch_tokens=size) for size in (10**6, 1))
    for (one,), (other,) in zip(together, alone):
        assert one.tokens == other.tokens or abs(one.score - other.score) < 1e-4
        assert one.log_probability == pytest.approx(other.log_probability, abs=1e-3)


@pytest.mark.parametrize(
    "subject, beam", BY_BEAM + BY_DRAWING, ids=lambda it: title(it) if type(it) is tuple else str(it)
)
def test_a_translations_score_is_the_models_log_probability_of_its_tokens(subject, beam):
    """Also where tokens are forbidden and an early end is: the choice is narrowed, the probability is not."""
    model = build(subject)
    found = translated(model, SOURCES, beam=beam, forbidden=[3, 5], min_tokens=3)
    for source, best in zip(SOURCES, found):
        for hypothesis in best:
            state = model.begin(*pad([[*source, EOS]], model.device))
            tokens = torch.tensor([[EOS, *hypothesis.tokens]])
            nll, _ = model.loss(tokens[:, :-1], tokens[:, 1:], state)
            assert hypothesis.log_probability == pytest.approx(-float(nll.detach().sum()), abs=1e-9)
            assert not {3, 5} & set(hypothesis.tokens)
            assert 3 <= len(hypothesis.tokens) <= 8
            assert hypothesis.finished == (hypothesis.tokens[-1] == EOS)
            assert hypothesis.finished or len(hypothesis.tokens) == 8
            assert EOS not in hypothesis.text_tokens


@pytest.mark.parametrize("subject", TRANSLATOR_EACH, ids=title)
def test_n_best_are_distinct_and_sorted(subject):
    for best in translated(build(subject), SOURCES, beam=Beam(6, 0.8, 6)):
        assert len({tuple(hypothesis.tokens) for hypothesis in best}) == len(best) == 6
        for kind in (True, False):
            scores = [hypothesis.score for hypothesis in best if hypothesis.finished == kind]
            assert scores == sorted(scores, reverse=True)
        assert [hypothesis.finished for hypothesis in best] == sorted((h.finished for h in best), reverse=True)
        for hypothesis in best:
            expected = hypothesis.log_probability / len(hypothesis.tokens) ** 0.8
            assert hypothesis.score == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("subject", TRANSLATOR_EACH, ids=title)
@pytest.mark.parametrize("penalty", [-0.5, 0.0, 0.6, 1.0])
def test_stopping_early_loses_nothing(subject, penalty):
    """The one best of a search that stops when it is sure is the best of one that fills every slot."""
    model = build(subject)
    one = translated(model, SOURCES, beam=Beam(4, penalty, 1))
    all_of_them = translated(model, SOURCES, beam=Beam(4, penalty, 4))
    same(one, [best[:1] for best in all_of_them])


@pytest.mark.parametrize("subject", TRANSLATOR_EACH, ids=title)
def test_the_default_limit_follows_each_source(subject):
    model = build(subject)
    found = translated(model, SOURCES, beam=Beam(2, n_best=2), max_tokens=None)
    for source, best in zip(SOURCES, found):
        limit = min(longest_translation(len(source)), model.context or 10**9)
        assert all(len(hypothesis.tokens) <= limit for hypothesis in best)
        assert all(hypothesis.finished or len(hypothesis.tokens) == limit for hypothesis in best)


@pytest.mark.parametrize("subject", TRANSLATOR_EACH, ids=title)
def test_samples_of_a_line_depend_on_its_number_alone(subject):
    model = build(subject)
    one = translated(model, SOURCES, beam=Sampling(), samples=1, seed=5)
    three = translated(model, SOURCES, beam=Sampling(), samples=3, seed=5)
    same(one, [best[:1] for best in three])
    assert any(len({tuple(h.tokens) for h in best}) > 1 for best in three)
    assert one != translated(model, SOURCES, beam=Sampling(), samples=1, seed=6)


@pytest.mark.parametrize("beam", [Beam(2), GREEDY, Sampling()], ids=str)
@pytest.mark.parametrize("least", [0, 1, 2, 5])
def test_who_would_end_at_once_writes_exactly_the_fewest_tokens(beam, least):
    model = copy.deepcopy(build(TRANSLATORS[-1]))
    predict = model.predict
    model.predict = lambda hidden: predict(hidden) + 1e3 * (torch.arange(VOCABULARY) == EOS)
    for (only,) in translated(model, SOURCES, beam=beam, min_tokens=least):
        assert len(only.tokens) == max(least, 1)  # <eos> is one of them
        assert only.finished


@pytest.mark.parametrize("subject", TRANSLATORS, ids=title)
def test_losses_of_pairs_are_those_of_each_alone(subject):
    model = build(subject)
    targets = [[*source[::-1], 4] for source in SOURCES]
    for source, target, losses in zip(SOURCES, targets, pair_losses(model, SOURCES, targets, EOS)):
        tokens = torch.tensor([[EOS, *target, EOS]])
        nll, _ = model.loss(tokens[:, :-1], tokens[:, 1:], model.begin(torch.tensor([[*source, EOS]])))
        assert losses.tolist() == pytest.approx(nll[0].detach().tolist(), abs=1e-9)


@pytest.mark.parametrize("subject", TRANSLATORS, ids=title)
def test_attention_of_every_hypothesis_is_that_of_reading_it_alone(subject):
    model = build(subject)
    found = [best[0] for best in translated(model, SOURCES, beam=Beam(3))]
    for source, hypothesis, seen in zip(SOURCES, found, explain_hypotheses(model, SOURCES, found, eos=EOS)):
        state = model.begin(torch.tensor([[*source, EOS]]))
        _, _, parts = model.explain(torch.tensor([[EOS, *hypothesis.tokens[:-1]]]), state)
        alone = model.attention(parts)
        assert alone.keys() == seen.attention.keys()
        for name, weights in alone.items():
            assert seen.attention[name].shape == weights[0].shape
            assert abs(seen.attention[name] - weights[0].detach().numpy()).max() < 1e-9
        alignment = model.alignment(parts)
        assert (alignment is None) == (seen.alignment is None)
        if alignment is not None:
            assert seen.alignment.shape == (len(hypothesis.tokens), len(source) + 1)
            assert abs(seen.alignment - alignment[0].detach().numpy()).max() < 1e-9
            assert seen.alignment.sum(-1) == pytest.approx(1.0)
