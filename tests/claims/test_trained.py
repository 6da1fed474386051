"""The parts of the claims that need trained models: what they are trained on, and what is read off them."""

from __future__ import annotations

import math
from collections import Counter
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch

from regard.claims import (
    alignment,
    bottleneck,
    classification,
    corpora,
    embeddings,
    heads,
    teacher_forcing,
)
from regard.claims import (
    language_models as reading,
)
from regard.claims.claim import Trial
from regard.corpora.phrasebook import Pair, make_pairs
from regard.evaluation.alignment_error import alignment_error_rate, diagonal_links

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


def test_shuffling_keeps_words_and_line_lengths_and_nothing_else():
    splits = {"train": ["a b c d e f", "g h", "i j k l"], "test": ["m n o p q r s t"]}
    mixed = corpora.shuffled(splits)
    for split, lines in splits.items():
        assert [len(line.split()) for line in mixed[split]] == [len(line.split()) for line in lines]
        assert Counter(" ".join(mixed[split]).split()) == Counter(" ".join(lines).split())
        assert mixed[split] != lines
    assert corpora.shuffled(splits) == mixed


def test_a_corpus_is_found_again_by_what_is_in_it(tmp_path: Path):
    one = corpora.keep("toy", {"train": ["a\tb"], "test": ["c\td"]}, "tsv", tmp_path)
    assert corpora.keep("toy", {"test": ["c\td"], "train": ["a\tb"]}, "tsv", tmp_path) == one
    assert corpora.keep("toy", {"train": ["a\tb"], "test": ["c\te"]}, "tsv", tmp_path) != one
    assert (Path(one) / "train.tsv").read_text(encoding="utf-8") == "a\tb\n"


def test_labels_say_which_sentences_were_shuffled():
    sentences = {line for lines in reading.spoken().values() for line in lines}
    for line in classification.labelled()["test"]:
        text, label = line.split("\t")
        assert label == "shuffled" or text in sentences
    labels = Counter(line.split("\t")[1] for line in classification.labelled()["train"])
    assert abs(labels["sentence"] / labels.total() - 0.5) < 0.05


# -- bottleneck ------------------------------------------------------------------------------------------------------


def test_the_knee_lies_where_half_is_right():
    falling = {3: 1.0, 4: 0.8, 5: 0.6, 6: 0.2, 7: 0.1}
    assert bottleneck.knee(falling) == pytest.approx(5.25)
    assert bottleneck.knee({3: 0.4, 4: 0.3}) == 3
    assert bottleneck.knee({3: 1.0, 4: 0.9}) == 4
    assert bottleneck.fall({length: 1 - 0.1 * n for n, length in enumerate(range(3, 11))}) == pytest.approx(0.6)
    assert bottleneck.right(list("abcd"), list("abxd")) == 0.75
    assert bottleneck.right(list("abcd"), list("ab")) == 0.5


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


# -- teacher-forcing -------------------------------------------------------------------------------------------------


def test_the_chain_depends_on_what_was_written_and_the_other_task_does_not():
    assert teacher_forcing.chain(list("mabma")) == ["m", "A", "b", "m", "A"]
    assert teacher_forcing.alone(list("mabma")) == ["m", "A", "B", "m", "A"]
    for string in product("ap", repeat=4):
        written = teacher_forcing.chain(string)
        capital = [letter.isupper() for letter in written]
        assert all(
            now == (before != (letter == "a")) for before, now, letter in zip([False, *capital], capital, string)
        )


def test_a_perfect_decoder_of_the_chain_is_right_as_often_as_the_formula_says():
    """Against a simulation: it reads what is legible, guesses the rest, and goes on from its own guesses."""
    q, places, random = 0.15, teacher_forcing.PLACES, np.random.default_rng(0)
    right_truth, right_own = np.zeros(places), np.zeros(places)
    trials = 10_000
    for _ in range(trials):
        letters = random.integers(16, size=places)
        smudged = random.random(places) < q
        guesses = np.where(smudged, random.integers(16, size=places), letters)
        truth = np.cumsum(letters < 8) % 2
        own = np.cumsum(guesses < 8) % 2
        forced = (np.concatenate([[0], truth[:-1]]) + (guesses < 8)) % 2
        right_truth += (guesses == letters) & (forced == truth)
        right_own += (guesses == letters) & (own == truth)
    expected = teacher_forcing.expected_of_a_perfect_decoder(q)
    assert right_truth / trials == pytest.approx(expected.given_truth, abs=0.02)
    assert right_own / trials == pytest.approx(expected.given_own, abs=0.02)
    assert expected.growth > 0.2  # twice what is asked for


def test_as_many_letters_are_smudged_as_asked_for_and_targets_know_them():
    pairs = {"train": [("a b c d e f g h", "A B C D E F G H")] * 500}
    read = teacher_forcing.smudge(pairs, 0.15)["train"]
    assert {target for _, target in read} == {"A B C D E F G H"}
    share = np.mean([symbol == teacher_forcing.SMUDGED for source, _ in read for symbol in source.split()])
    assert share == pytest.approx(0.15, abs=0.02)


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
    for (source, target), found in zip(sides, alignment.links(run, sides)):
        assert sorted(place for _, place in found) == list(range(len(target)))
        assert all(0 <= word < len(source) for word, _ in found)
    assert 0 <= classification.words_right(run) <= 1
    forced = teacher_forcing.follow(run, " ".join(sides[0][0]), " ".join(sides[0][1]))
    assert len(forced) == len(sides[0][1])


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
    assert classification.in_place(["je", "vois"], ["je", "vois"]) == 1
    assert classification.in_place(["je"], ["je", "vois"]) == 0.5
    assert classification.in_place(["vois", "je"], ["je", "vois"]) == 0
