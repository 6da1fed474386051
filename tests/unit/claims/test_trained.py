"""The parts of the claims that need trained models: what they are trained on, and what is read off them."""

from __future__ import annotations

import math
from collections import Counter
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from regard.base.errors import RegardError
from regard.claims import (
    alignment,
    bottleneck,
    classification,
    corpora,
    embeddings,
    heads,
    known_grammar,
    teacher_forcing,
)
from regard.claims.claim import Trial
from regard.claims.through_time import opening
from regard.claims.word_judgements import JUDGED
from regard.corpora.phrasebook import Pair, make_pairs
from regard.evaluation.alignment_error import alignment_error_rate, diagonal_links
from regard.layers.attention import CausalSelfAttention
from regard.runs.speed import install
from regard.systems.catalogue import load_class, load_module

# -- what they are trained on ----------------------------------------------------------------------------------------


def test_no_string_is_trained_on_and_tested():
    pairs = corpora.strings(lambda string: string[::-1], longest=8, count=500)
    sources = {split: {source for source, _ in given} for split, given in pairs.items()}
    assert not sources["train"] & (sources["test"] | sources["valid"])
    assert not sources["test"] & sources["valid"]
    lengths = Counter(len(source.split()) for source, _ in pairs["test"])
    assert lengths == dict.fromkeys(range(3, 9), corpora.EACH)
    assert all(source.split()[::-1] == target.split() for given in pairs.values() for source, target in given)


def test_more_strings_than_there_are_cannot_be_asked_for():
    with pytest.raises(ValueError, match="too few strings of 3 symbols"):
        corpora.strings(lambda string: string, longest=3, count=100, alphabet="ab")


def test_shuffled_lines_keep_their_words_and_end_without_memory():
    splits = {"train": ["a b c d e f"] * 2000, "test": ["m n o p q r s t"]}
    mixed = corpora.shuffled(splits)
    for split, lines in splits.items():
        assert Counter(" ".join(mixed[split]).split()) == Counter(" ".join(lines).split())
        assert mixed[split] != lines
    assert corpora.shuffled(splits) == mixed
    lengths = np.array([len(line.split()) for line in mixed["train"]])
    assert lengths.mean() == pytest.approx(6, rel=0.1)
    for so_far in (1, 3, 6, 10):  # however long a line is already, it ends with the same probability
        assert np.mean(lengths[lengths >= so_far] == so_far) == pytest.approx(1 / 6, abs=0.05)


def test_a_corpus_is_found_again_by_what_is_in_it(tmp_path: Path):
    one = corpora.keep("toy", {"train": ["a\tb"], "test": ["c\td"]}, "tsv", tmp_path)
    assert corpora.keep("toy", {"test": ["c\td"], "train": ["a\tb"]}, "tsv", tmp_path) == one
    assert corpora.keep("toy", {"train": ["a\tb"], "test": ["c\te"]}, "tsv", tmp_path) != one
    assert (Path(one) / "train.tsv").read_text(encoding="utf-8") == "a\tb\n"


def test_the_grammar_is_a_distribution_and_reads_what_it_makes():
    seen, waiting = {known_grammar.START}, [known_grammar.START]
    while waiting:
        found = known_grammar.next_words(waiting.pop())
        assert sum(chance for chance, _ in found.values()) == pytest.approx(1)
        new = {then for _, then in found.values() if then.place != "over"} - seen
        seen |= new
        waiting += new
    lines = known_grammar.sentences()["test"]
    assert all(known_grammar.log_probability(line.split()) > -math.inf for line in lines)
    for wrong in ("these dog sees", "this dog see", "this dog behind some trees see", "this dog", "dogs"):
        assert known_grammar.log_probability(wrong.split()) == -math.inf
    assert known_grammar.log_probability(["this", "dog", "behind", "some", "trees", "sees"]) > -math.inf
    assert classification.shuffled_share() < 0.05


def test_a_model_that_knows_the_grammar_loses_nothing_and_one_that_guesses_does():
    class Knows:
        def score(self, lines):
            return (Scored(known_grammar.log_probability(line.split())) for line in lines)

    class Guesses:
        def score(self, lines):
            return (Scored(-(len(line.split()) + 1) * math.log(105)) for line in lines)

    class Scored:
        def __init__(self, log_probability):
            self.log_probability = log_probability

    assert classification.above_entropy(Knows()) == pytest.approx(0)
    assert classification.above_entropy(Guesses()) > 1


def test_labels_say_whether_the_verb_agrees_and_pairs_of_words_tell_it_only_in_part():
    rows = known_grammar.agreement()
    for row in rows["test"]:
        text, label = row.split("\t")
        assert (label == "right") == (known_grammar.log_probability(text.split()) > -math.inf)
    labels = Counter(row.split("\t")[1] for row in rows["train"])
    assert abs(labels["right"] / labels.total() - 0.5) < 0.05
    assert 0.6 < classification.naive_bayes(rows) < 0.85
    told = {split: [f"{'x' if row.endswith('right') else 'y'}\t{row.split(chr(9))[1]}" for row in given]
            for split, given in rows.items()}  # fmt: skip
    assert classification.naive_bayes(told) == 1


# -- bottleneck ------------------------------------------------------------------------------------------------------


def test_the_knee_lies_where_half_is_right():
    falling = {3: 1.0, 4: 0.8, 5: 0.6, 6: 0.2, 7: 0.1}
    assert bottleneck.knee(falling) == pytest.approx(5.25)
    assert bottleneck.knee({3: 0.4, 4: 0.3}) == 3
    assert bottleneck.knee({3: 1.0, 4: 0.9}) == 4
    assert bottleneck.fall({length: 1 - 0.1 * n for n, length in enumerate(range(3, 11))}) == pytest.approx(0.6)


class Copies:
    """Copies what it read, all but the third symbol."""

    vocabulary, device = 17, "cpu"

    def eval(self):
        return self

    def begin(self, source):
        return {"text": source, "place": 0}

    def __call__(self, last, state):
        symbols = state["text"][:, state["place"]] if state["place"] != 2 else 16 + 0 * last[:, 0]
        logits = torch.nn.functional.one_hot(symbols, 17).double()[:, None]
        return logits, {**state, "place": state["place"] + 1}


def test_a_place_is_right_when_it_has_the_symbol_that_was_read_there():
    task = bottleneck.strings(6)
    found = bottleneck.right_by_length(Copies(), task)
    assert list(found) == [3, 4, 5, 6]
    wrong = {length: float((texts[:, 2] != 0).double().mean()) for length, texts in task.test.items()}  # it says 0
    assert found == pytest.approx({length: 1 - wrong[length] / length for length in found})


def test_sentences_to_copy_are_in_one_split_and_of_the_lengths_asked_for(monkeypatch):
    monkeypatch.setattr(bottleneck, "SENTENCES", 400)
    task = bottleneck.sentences.__wrapped__(6)
    batch = task.draw(torch.Generator().manual_seed(0))
    assert batch.shape[0] == bottleneck.TEXTS
    assert 3 <= batch.shape[1] <= 6
    assert set(task.test) <= {3, 4, 5, 6}
    assert int(batch.max()) < task.vocabulary


def test_training_ends_by_its_rule_and_says_whether_it_did(monkeypatch):
    monkeypatch.setattr(bottleneck, "BLOCK", 1)
    task = bottleneck.strings(4)
    losses = iter([4.0, 3.0, 2.99, 2.98, 2.0, 2.0, 2.0, 2.0, 2.0])
    monkeypatch.setattr(bottleneck, "held_out_loss", lambda model, task: next(losses))
    ended = bottleneck.fit(bottleneck.make("seq2seq", 16, 4), task, seed=1, most=50)
    assert (ended.steps, ended.converged) == (9, True)  # halved at looks 4 and 7; it ends at the ninth
    losses = iter([1 / step for step in range(1, 9)])
    ended = bottleneck.fit(bottleneck.make("bahdanau", 16, 4), task, seed=1, most=8)
    assert (ended.steps, ended.converged) == (8, False)


# -- heads -----------------------------------------------------------------------------------------------------------


def test_a_head_that_looks_d_words_back_has_distance_d():
    words, weights = 12, torch.zeros(2, 3, 12, 12)
    for head, back in enumerate((0, 1, 4)):
        for t in range(words):
            weights[:, head, t, max(t - back, 0)] = 1
    found = heads.attended(weights)
    exact = [sum(min(back, t) for t in range(1, words)) / (words - 1) for back in (0, 1, 4)]
    assert torch.allclose(found, torch.tensor(exact))


def test_a_head_that_looks_everywhere_alike_has_half_the_distance_to_the_first_word():
    words = 32
    weights = torch.tril(torch.ones(words, words)) / torch.arange(1, words + 1)[:, None]
    found = heads.attended(weights.expand(1, 1, words, words))
    assert float(found) == pytest.approx(np.mean([t / 2 for t in range(1, words)]), rel=1e-6)


def test_the_spread_of_heads_that_are_drawn_alike_does_not_grow_with_their_number():
    """Which is why it is compared, and not the largest difference."""
    torch.manual_seed(0)
    few, many = torch.randn(4000, 2), torch.randn(4000, 16)
    squares = [float(draws.std(dim=1, correction=1).square().mean()) for draws in (few, many)]
    assert squares == pytest.approx([1.0, 1.0], abs=0.1)
    assert heads.spread(torch.tensor([[1.0, 3.0], [2.0, 2.0]])) == pytest.approx(math.sqrt(2) / 2)


@pytest.mark.parametrize(("count", "across"), [(1, [0.75]), (2, [0.75, 1.25]), (3, [0.75, 1.0, 1.25])])
def test_heads_stand_side_by_side_around_the_number_of_their_kind(count, across):
    figure = heads.figure({"one": [torch.arange(count) + 1.0], "other": [torch.ones(1, 2), torch.ones(1, 1)]})
    assert figure.lines[0].points == tuple(zip(across, [1.0, 2.0, 3.0]))
    assert [x for x, _ in figure.lines[1].points] == [1.75, 2.0, 2.25]
    assert figure.x == "1 = one · 2 = other"


def test_a_blind_head_sees_what_it_is_left_and_the_others_everything():
    torch.manual_seed(1)
    attention = CausalSelfAttention(8, 2).double().eval()
    x, before = torch.randn(1, 9, 8, dtype=torch.float64), None
    for words in ("far", "near"):
        plain = attention.explain(x, *opening(attention, x))[2]["weights"][0]
        with heads.blind(attention, 1, words):
            seen = attention.explain(x, *opening(attention, x))[2]["weights"][0]
        assert torch.equal(seen[0], plain[0])
        back = torch.arange(9)[:, None] - torch.arange(9)
        hidden = back > heads.NEAR if words == "far" else (back >= 1) & (back <= heads.NEAR)
        assert not seen[1][hidden].any()
        assert torch.allclose(seen[1].sum(-1), torch.ones(9, dtype=torch.float64))
        assert before is None or torch.equal(plain, before)  # it sees again
        before = plain


def test_a_head_is_blind_in_a_model_with_fast_code_too():
    torch.manual_seed(1)
    model = load_class("gpt")(20, load_module("gpt").Settings(layers=2, width=16, heads=2, context=24, dropout=0.0))
    for weight in model.parameters():
        weight.data.normal_()
    install(model.eval())
    text = torch.randint(20, (2, 13))

    def loss():
        return float(F.cross_entropy(model(text[:, :-1])[0].flatten(0, 1), text[:, 1:].flatten()))

    whole, cases = loss(), list(product((0, 1), (0, 1), ("far", "near")))
    without = [heads.loss_without(model, text, *case) for case in cases]
    assert len({round(one, 4) for one in [whole, *without]}) == 1 + len(cases)
    assert loss() == whole


# -- embeddings ------------------------------------------------------------------------------------------------------

WORDS = {"dog": "animals", "cat": "animals", "cow": "animals", "tea": "drinks", "milk": "drinks", "wine": "drinks"}
COUNTS = {"dog": 10, "cat": 20, "cow": 30, "tea": 11, "milk": 21, "wine": 29}


def test_rivals_are_of_another_class_and_as_frequent_as_the_mate():
    names = list(WORDS)
    nearest = {"dog": "tea", "cat": "milk", "cow": "wine", "tea": "dog", "milk": "cat", "wine": "cow"}
    compared = embeddings.comparisons(WORDS, COUNTS)
    assert len(compared) == 2 * 3 * 2
    for word, mate, rival in compared.tolist():
        assert WORDS[names[word]] == WORDS[names[mate]] != WORDS[names[rival]]
        assert names[rival] == nearest[names[mate]]


def test_vectors_of_classes_apart_have_auc_one_and_random_ones_a_half():
    compared = embeddings.comparisons(WORDS, COUNTS)
    apart = torch.tensor(
        [[1.0, 0.1 * n] if kind == "animals" else [-1.0, 0.1 * n] for n, kind in enumerate(WORDS.values())]
    )
    assert embeddings.auc(apart, compared) == 1.0
    generator = torch.Generator().manual_seed(0)
    drawn = [embeddings.auc(torch.randn(6, 8, generator=generator), compared) for _ in range(2000)]
    assert np.mean(drawn) == pytest.approx(0.5, abs=0.02)
    assert embeddings.auc(torch.zeros(6, 8), compared) == 0.5  # nothing is nearer than anything else
    assert torch.allclose(
        torch.pdist(torch.eye(6, dtype=torch.float64)), torch.tensor(math.sqrt(2), dtype=torch.float64)
    )


def test_happy_and_sad_are_of_one_class_as_in_the_notes_figure():
    classes = embeddings.classes()
    assert classes["happy"] == classes["sad"] == "adjectives"
    assert classes["dog"] == classes["cat"] == "animals"


def test_ranks_correlate_as_ranks_do():
    assert embeddings.spearman([1, 2, 3, 10], [5, 6, 7, 8]) == pytest.approx(1)
    assert embeddings.spearman([1, 2, 3], [3, 2, 1]) == pytest.approx(-1)
    assert embeddings.ranks([3, 1, 3, 2]).tolist() == [3.5, 1, 3.5, 2]


def test_the_interval_of_a_correlation_contains_the_spread_over_pairs_and_over_trainings():
    random = np.random.default_rng(1)
    said = random.normal(size=60)
    one = said + random.normal(size=60)
    other = said + 3 * random.normal(size=60)
    alike, unlike = embeddings.over_pairs([one, one], said), embeddings.over_pairs([one, other], said)
    ones, others = embeddings.spearman(one, said), embeddings.spearman(other, said)
    assert np.mean(alike) == pytest.approx(ones)
    assert np.mean(unlike) == pytest.approx((ones + others) / 2)
    # 1.06 is Fieller's variance of Fisher's z for ranks
    assert np.std(alike) / 60**0.5 == pytest.approx((1 - ones**2) * (1.06 / 57) ** 0.5, rel=0.25)
    assert np.var(unlike, ddof=1) / 60 > np.var([ones, others], ddof=1) / 2


def test_a_text_that_lacks_the_judged_words_is_refused_and_a_claim_without_text_takes_none(tmp_path: Path):
    text = tmp_path / "short.txt"
    text.write_text("".join(f"nothing of the kind {n}\n" for n in range(40)), encoding="utf-8")
    with pytest.raises(RegardError, match="0 of the 73 judged word pairs"):
        embeddings.judgements(Trial((1,), data=str(text)))
    with pytest.raises(RegardError, match="does not read a text"):
        heads.CLAIM.trial(data="pyref")
    assert len(JUDGED) == len({frozenset(pair) for pair in JUDGED}) == 73


# -- teacher-forcing -------------------------------------------------------------------------------------------------


def test_the_chain_depends_on_what_was_written_and_the_other_task_does_not():
    random = torch.Generator().manual_seed(0)
    for task in ("chain", "alone"):
        strings = teacher_forcing.draw(200, task, 0.0, random)
        for row in range(200):
            capital = False
            for read, written in zip(strings.source[row, :-1].tolist(), strings.target[row].tolist()):
                turns = read < teacher_forcing.TURNING
                capital = capital ^ turns if task == "chain" else turns
                assert written == read + 16 * capital


@pytest.mark.parametrize("q", [0.0, 0.15, 0.5])
def test_the_oracle_errs_as_often_as_its_formula_says_and_one_that_is_lost_more(q):
    random = torch.Generator().manual_seed(1)
    strings = teacher_forcing.draw(20_000, "chain", q, random)
    expected = teacher_forcing.unavoidable(strings, "chain")
    oracle = teacher_forcing.error_by_place(teacher_forcing.follow(strings, random), strings)
    lost = teacher_forcing.error_by_place(teacher_forcing.follow(strings, random, lost=True), strings)
    assert oracle == pytest.approx(expected, abs=0.02)
    if q:
        assert teacher_forcing.DecoderErrors(lost, expected).excess > 2 * teacher_forcing.MIN_EFFECT
    else:
        assert not lost.any()


def test_as_many_letters_are_smudged_as_asked_for_and_targets_know_them():
    strings = teacher_forcing.draw(2000, "alone", 0.15, torch.Generator().manual_seed(2))
    letters, illegible = strings.source[:, :-1], strings.source[:, :-1] == teacher_forcing.SMUDGED
    assert float(illegible.double().mean()) == pytest.approx(0.15, abs=0.01)
    assert torch.equal(strings.target[~illegible] % 16, letters[~illegible])
    assert len(strings.target[illegible].unique()) == 16


def test_both_ways_of_training_begin_alike_and_a_decoder_that_writes_the_truth_is_forced_by_itself():
    strings = teacher_forcing.draw(8, "alone", 0.0, torch.Generator().manual_seed(3))
    forced, free = (teacher_forcing.learn("alone", how, seed=1, steps=2, q=0.0) for how in (True, False))
    torch.testing.assert_close(forced.embedding.table.weight, free.embedding.table.weight, atol=0.05, rtol=0)
    own = teacher_forcing.given_own(forced, strings.source)
    again = teacher_forcing.Strings(strings.source, own.argmax(-1))
    torch.testing.assert_close(teacher_forcing.given_truth(forced, again), own)


# -- alignment -------------------------------------------------------------------------------------------------------


def test_links_cross_where_words_change_places():
    assert alignment.crosses(Pair("a b", "B A", ((0, 1), (1, 0))))
    assert not alignment.crosses(Pair("a b c", "A C", ((0, 0), (1, 1), (2, 1))))


def test_the_notes_pairs_come_out_as_they_say():
    worked = alignment.worked()
    assert all(one.agrees for one in worked)
    assert worked[1].found == "0.75"  # by hand: one of 3 + 5 links is right, 1 − 2/8
    meant = {(2, 0), (0, 1), (1, 1), (3, 2), (4, 2)}
    assert alignment_error_rate([meant], [diagonal_links(5, 3)]) == 0.75


def test_every_target_word_gets_one_link_into_its_source(tmp_path: Path):
    pairs = list(make_pairs(600, longest=6))
    trial = Trial((1,), quick=True, store=tmp_path)
    before, alignment.QUICK_STEPS = alignment.QUICK_STEPS, 2
    try:
        run = alignment.learn(trial, pairs, seed=1)
    finally:
        alignment.QUICK_STEPS = before
    sides = [(alignment.cut(pair.source), alignment.cut(pair.target)) for pair in pairs[:40]]
    looked = alignment.looks(run, sides)
    for (source, target), found in zip(sides, alignment.links(looked)):
        assert sorted(place for _, place in found) == list(range(len(target)))
        assert all(0 <= word < len(source) for word, _ in found)
    assert 0 <= classification.words_right(run) <= 1
    every = [{(s, t) for s in range(len(source)) for t in range(len(target))} for source, target in sides]
    ends = [1 - float(weights[:, -1].mean()) for weights in looked[:1]]
    assert alignment.focus(looked, every, [0]) == pytest.approx(ends[0], rel=1e-5)  # all but what <eos> gets
    assert abs(alignment.relevance(run, sides, alignment.links(looked), range(5))) < 0.2  # it has learned nothing yet


def test_words_that_stand_twice_are_found():
    source = ["the", "dog", "sees", "the", "cat"]
    assert alignment.repeated(source, {(n, n) for n in range(5)}) == [0, 3]
    assert alignment.repeated(source, {(0, 0), (3, 0), (1, 1), (3, 2)}) == [2]  # of two sources neither is the one


def test_of_equally_probable_words_the_one_nearest_to_the_diagonal_is_linked():
    table = {("as", "aussi"): 0.5, ("as", "que"): 0.5, ("old", "vieux"): 1.0}
    source, target = ["as", "old", "as"], ["aussi", "vieux", "que"]
    assert alignment.near_diagonal(table, source, target) == {(0, 0), (1, 1), (2, 2)}
    assert alignment.near_diagonal(table, source, ["que", "vieux", "que"]) == {(0, 0), (1, 1), (2, 2)}
    assert alignment.near_diagonal({}, source, target) == {(n, n) for n in range(3)}  # nothing known: the diagonal


def test_word_by_word_learns_what_stands_at_the_same_place_and_not_what_comes_later(monkeypatch):
    monkeypatch.setattr(alignment, "HELD_OUT", 1)
    monkeypatch.setattr(alignment, "DOUBLED", 1)
    words = "abcdefgh"
    straight = [Pair(f"{a} {b}", f"{a.upper()} {b.upper()}", ()) for a in words for b in words if a != b]
    right = alignment.word_by_word(straight, seed=1, steps=150)
    assert right(["a", "c"], ["a", "c"]) == 1  # targets are cut in small letters
    turned = [Pair(pair.source, " ".join(reversed(pair.target.split())), ()) for pair in straight]
    wrong = alignment.word_by_word(turned, seed=1, steps=150)
    assert np.mean([wrong(list(p.source.split()), p.target.lower().split()) for p in turned]) < 0.7


# -- classification --------------------------------------------------------------------------------------------------


def test_only_both_directions_see_both_sides():
    before, after = classification.reach("forward RNN", 1)
    assert float(before[1]) > 0
    assert not after[1:].any()
    before, after = classification.reach("bidirectional RNN", 1)
    assert min(float(before[1]), float(after[1])) > 0


def test_an_influence_is_the_derivative():
    """Against finite differences."""
    torch.manual_seed(3)
    encoder = classification.PROBES["bidirectional RNN"]().double().eval()
    text = torch.randn(1, classification.WORDS, classification.WIDTH, dtype=torch.float64)
    middle, step, squares = classification.WORDS // 2, 1e-6, 0.0
    with torch.no_grad():
        for component in range(classification.WIDTH):
            nudge = torch.zeros_like(text)
            nudge[0, middle - 1, component] = step
            squares += float(
                (((encoder(text + nudge, None)[0] - encoder(text - nudge, None)[0])[0, middle] / (2 * step)) ** 2).sum()
            )
    before, _ = classification.reach("bidirectional RNN", 3)
    assert float(before[1]) == pytest.approx(math.sqrt(squares), rel=1e-6)


def test_a_place_is_right_when_it_has_the_right_word():
    assert alignment.in_place(["je", "vois"], ["je", "vois"]) == 1
    assert alignment.in_place(["je"], ["je", "vois"]) == 0.5
    assert alignment.in_place(["vois", "je"], ["je", "vois"]) == 0
