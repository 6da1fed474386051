"""Lens, ablation, patching, contrast and head scores: they obey the equations they are defined by, for every system."""

import json
import re

import numpy as np
import pytest
import torch

from regard.base.errors import RegardError
from regard.corpora.phrasebook import make_pairs
from regard.insight.interventions import head_scores as scoring
from regard.insight.interventions.ablation import KINDS, ablate
from regard.insight.interventions.changing import Place, intervene
from regard.insight.interventions.contrast import contrast
from regard.insight.interventions.head_scores import describe, head_scores, uniform
from regard.insight.interventions.lens import lens
from regard.insight.interventions.patching import patch
from regard.insight.interventions.questions import CauseQuestion
from regard.insight.interventions.reading import read_text
from regard.insight.tracing import trace_language
from regard.laws.registry import builder, stirred
from regard.systems.catalogue import SYSTEMS
from regard.systems.gpt import GPT, Settings
from regard.text.tokenizers.tokenizer import Tokenizer

WORDS = Tokenizer.of_tokens(["<eos>", "<unk>", *"abcdefghijklmno"], "word")
TEXT, OTHER, TARGET = "c a f e b a d", "c a g e b a d", "b a d"
LANGUAGE = [system.name for system in SYSTEMS if system.task == "language model"]
NEURAL = [name for name in LANGUAGE if name != "ngram"]
TRANSLATION = [system.name for system in SYSTEMS if system.task == "translation"]
STACKS = ["gpt", "llama", "lstm", "rnn", "gru", "linear-attention", "mingru", "transformer", "seq2seq"]


def reading(system, text=TEXT, target=TARGET):
    torch.manual_seed(0)
    model = stirred(builder(system))
    both = {"target": target, "source_tokenizer": WORDS} if system in TRANSLATION else {}
    return read_text(model, WORDS, text, **both)


def kinds_in(one):
    """By the names of the parts alone."""
    names = list(one.parts())
    ends = {name.rpartition("/")[2] for name in names}
    found = {kind for kind in ("heads", "attention", "feedforward") if kind in ends}
    found |= {"words"} if "embedding" in ends else set()
    found |= {"orders"} if any(name.startswith("order/") for name in names) else set()
    found |= {"layers"} if any(name.startswith("layer/") for name in names) else set()
    return found | ({"gates"} if ends & {"forget", "reset", "store", "output", "update"} else set())


def test_a_reading_scores_what_the_model_computes():
    for system in (*LANGUAGE, *TRANSLATION):
        one = reading(system)
        state = None if one.source is None else one.model.begin(one.source)
        with torch.no_grad():
            logits = one.model(one.tokens, state)[0].log_softmax(-1)[0]
        expected = [float(logits[step, one.targets[step]]) for step in one.known]
        np.testing.assert_allclose(one.scores()[0].tolist(), expected, atol=1e-9)


@pytest.mark.parametrize("system", STACKS)
def test_the_last_layer_of_the_lens_is_the_prediction(system):
    found = lens(reading(system))
    last, final = found.layers[-2:]
    assert final.name == "prediction"
    np.testing.assert_allclose(last.divergence, 0, atol=1e-9)
    assert final.divergence == (0.0,) * len(found.words)
    assert last.rank == final.rank
    assert [len(layer.top) for layer in found.layers] == [len(found.words)] * len(found.layers)
    json.dumps(found.as_json(), allow_nan=False)


@pytest.mark.parametrize("system", ["bahdanau", "ngram"])
def test_a_layer_that_cannot_be_read_is_refused_in_one_sentence(system):
    with pytest.raises(RegardError, match=r"alone|no layers"):
        lens(reading(system))


@pytest.mark.parametrize("system", [*LANGUAGE, *TRANSLATION])
@pytest.mark.parametrize("kind", KINDS)
def test_an_ablation_is_what_removing_the_part_by_hand_gives(system, kind):
    one = reading(system)
    if kind not in kinds_in(one):
        with pytest.raises(RegardError, match=f"has no {kind}"):
            ablate([one], kind)
        return
    found = ablate([one], kind)
    before = one.scores()[0]
    for effect in found.effects:
        place = effect.name.split(" ")[0]
        with intervene(one.model, place, lambda value: torch.zeros_like(value)):
            state = None if one.source is None else one.model.begin(one.source)
            logits = one.model(one.tokens, state)[0][0].log_softmax(-1)
        after = torch.stack([logits[step, one.targets[step]] for step in one.known])
        assert effect.effect == pytest.approx(float((after - before).detach().mean()), abs=1e-8)


def test_the_control_removes_as_much_at_random_and_several_texts_have_an_interval():
    lines = ["a b c d", "d c b a", "e f g a"]
    readings = [reading("gpt", line) for line in lines]
    for way in ("zero", "mean", "resampled"):
        found = ablate(readings, "heads", way)
        for one in found.effects:
            assert one.interval[0] < one.effect < one.interval[1]
            assert one.control_interval[0] <= one.control <= one.control_interval[1]
    assert ablate(readings, "heads").effects == ablate(readings, "heads").effects
    with pytest.raises(RegardError, match="at least two lines"):
        ablate(readings[:1], "heads", "mean")


@pytest.mark.parametrize("system", [*NEURAL, *TRANSLATION])
def test_the_word_that_differs_carries_the_whole_difference(system):
    first, second = reading(system), reading(system, OTHER)
    grid = patch(first, second, answers=(3, 4))
    assert grid.rows[0].endswith("embedding")
    np.testing.assert_allclose(grid.returned[0, 3 - (first.source is not None)], 1, atol=1e-6)
    others = np.delete(grid.returned[0], 3 - (first.source is not None))
    np.testing.assert_allclose(others, 0, atol=1e-6)  # the other words are the same
    assert grid.returned.shape == (len(grid.rows), len(grid.columns))


@pytest.mark.parametrize(
    ("other", "said"), [("c a", "equal lengths"), (TEXT, "the same"), ("", "equal lengths")]
)  # fmt: skip
def test_texts_that_cannot_be_patched_are_refused(other, said):
    with pytest.raises(RegardError, match=said):
        patch(reading("gpt"), reading("gpt", other))


@pytest.mark.parametrize("system", [*NEURAL, *TRANSLATION])
def test_integrated_gradients_add_up(system):
    found = contrast(reading(system), 3, 4)
    total = found.methods["integrated gradients"].sum()
    ends = found.curves["ablation"][0] - found.curves["ablation"][-1]
    if system not in TRANSLATION:  # all words are deleted at the end of the curve
        assert abs(total - ends) == pytest.approx(found.completeness_error, abs=1e-9)
    assert found.completeness_error < 0.05 * max(1, abs(ends))
    for curve in found.curves.values():
        assert curve[0] == pytest.approx(found.difference)
    json.dumps(found.as_json(), allow_nan=False)


@pytest.mark.parametrize("system", ["gpt", "lstm", "transformer"])
def test_what_a_word_is_worth_is_what_is_missing_where_it_is_the_mean_of_all(system):
    one, name = reading(system), "encoder/embedding" if system == "transformer" else "embedding"
    found, vectors = (
        contrast(one, 3, 4),
        one.parts()["encoder/embedding" if system == "transformer" else "embedding"][0],
    )
    for word, worth in enumerate(found.methods["ablation"]):
        entered = vectors.clone()
        entered[word] = vectors.mean(0)
        with torch.no_grad():
            logits = one.logits([(Place(name), entered[None])], 1)[0, found.step]
        assert found.difference - float(logits[3] - logits[4]) == pytest.approx(worth, abs=1e-9)


def test_a_model_without_word_vectors_has_no_gradients():
    with pytest.raises(RegardError, match="no word vectors"):
        contrast(reading("ngram"), 3, 4)


def test_a_head_is_described_by_where_it_looks():
    before = torch.diag(torch.ones(8), -1)
    copies = torch.zeros(9, 9)
    copies[torch.arange(5, 9), torch.arange(2, 6)] = 1
    one = describe("head", before, copies)
    assert (one.previous, one.distance, one.induction, one.duplicate) == (1.0, 1, 1.0, 0.0)
    assert describe("chance", uniform(2), uniform(3)).previous == pytest.approx(0.5)
    found = head_scores(reading("gpt"))
    assert all(0 <= head.induction <= 1 for head in found.heads)
    with pytest.raises(RegardError, match="no causal attention"):
        head_scores(reading("lstm"))


def test_a_trace_can_be_made_of_a_changed_model():
    one = reading("gpt")
    with intervene(one.model, "self/0[0]", 0.0):
        changed = trace_language(one.model, WORDS, TEXT)
    plain = trace_language(one.model, WORDS, TEXT)
    assert not np.array_equal(changed.hidden["layer/0"], plain.hidden["layer/0"])
    assert np.array_equal(changed.hidden["embedding"], plain.hidden["embedding"])


def test_blocks_nest():
    one = reading("gpt")
    both = one.scores([(Place("layer/0/heads", index=0), 0.0), (Place("layer/0/heads", index=1), 0.0)])
    with intervene(one.model, "self/0[0]", 0.0):
        with intervene(one.model, "self/0[1]", 0.0):
            nested = one.scores()
        single = one.scores()
    assert torch.equal(nested, both)
    assert not torch.equal(single, both)


@pytest.mark.parametrize(
    ("question", "said"),
    [
        (CauseQuestion(lens=True, ablate="heads"), "one at a time"),
        (CauseQuestion(why="a"), "give both"),
        (CauseQuestion(lens=True, removed="mean"), "--ablate"),
        (CauseQuestion(patch_parts="heads"), "--patch"),
    ],
)
def test_options_that_do_not_belong_together_are_refused(question, said):
    with pytest.raises(RegardError, match=said):
        question.check()


@pytest.mark.parametrize(
    ("question", "said"),
    [
        (CauseQuestion(ablate="tails"), "heads"),
        (CauseQuestion(ablate="heads", removed="nothing"), "zero"),
        (CauseQuestion(patch="c a g e b a d", patch_parts="tails"), "layers"),
        (CauseQuestion(why="z", rather="a"), "'z' is not a word"),
        (CauseQuestion(why="a", rather="a"), "same token"),
    ],
)
def test_a_wrong_value_is_refused_in_one_sentence(question, said):
    one = reading("gpt")
    with pytest.raises(RegardError, match=said):
        question.answer(one.model, WORDS, TEXT, None, None)


def test_the_syntactic_score_of_uniform_attention_is_chance(monkeypatch):
    words = sorted({w for pair in make_pairs(400, shortest=4) for w in re.findall(r"\w+|[^\w\s]", pair.source)})
    tokenizer = Tokenizer.of_tokens(["<eos>", "<unk>", *words], "word")
    torch.manual_seed(0)
    model = GPT(len(tokenizer.tokens), Settings(layers=1, width=8, heads=2, context=64, dropout=0.0)).eval()
    one = read_text(model, tokenizer, "She sings .")
    links = [link for _, links in scoring.known_sentences(one, 0) for link in links]
    assert len(links) >= scoring.MIN_LINKS
    model.context = 7
    assert {len(ids) for ids, _ in scoring.known_sentences(one, 0)} == {6, 7}  # longer ones it cannot read
    model.context = 64
    assert all(max(subject) < verb - 1 for verb, subject in links)
    found = head_scores(one)
    assert 0.02 < found.chance.syntactic < 0.3
    assert all(0 < head.syntactic < 1 for head in found.heads)
    for weights, expected in ((uniform, found.chance.syntactic), (torch.eye, 0.0)):
        parts = lambda tokens, weights=weights: {"a": weights(tokens.size(1)).expand(len(tokens), 1, -1, -1)}  # noqa: E731
        monkeypatch.setattr(scoring, "record", lambda model, tokens, parts=parts: (None, parts(tokens)))
        assert scoring.syntax(one, ["a"], 0)[0] == {("a", 0): pytest.approx(expected, abs=1e-6)}
    monkeypatch.undo()
    assert head_scores(reading("gpt")).chance.syntactic is None  # it knows none of these words
