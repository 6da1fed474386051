"""The law of the split: no source and no target that is tested was trained on, whatever the pairs are."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.text.split import MAX_HELD_OUT, are_labels, count_pair_overlap, draw_pairs, normalize_for_comparison

law = settings(derandomize=True, deadline=None, max_examples=100)
words = st.sampled_from(["I see", "i see!", "we go", "We  go.", "é", "e\u0301", "?", "!", "", *"abcdefghijklmnop"])
pairs = st.lists(st.tuples(words, words), min_size=1, max_size=40)


def sides(pairs):
    return [source for source, _ in pairs], [target for _, target in pairs]


@law
@given(pairs)
def test_every_pair_is_in_one_split_and_no_two_splits_share_a_side(pairs):
    drawn = draw_pairs(*sides(pairs))
    assert sorted(np.concatenate(list(drawn.splits.values())).tolist()) == list(range(len(pairs)))
    assert len(drawn.splits["train"])
    if "labels" in drawn.origin:
        return
    for side in sides(pairs):
        texts = normalize_for_comparison(side)
        used = [{texts[index] for index in chosen} - {""} for chosen in drawn.splits.values()]
        assert sum(map(len, used)) == len(set().union(*used))


@law
@given(pairs, st.randoms(use_true_random=False))
def test_the_order_of_the_pairs_changes_no_split(pairs, random):
    shuffled = pairs[:]
    random.shuffle(shuffled)

    def content(rows):
        return {name: sorted(rows[i] for i in chosen) for name, chosen in draw_pairs(*sides(rows)).splits.items()}

    assert content(list(dict.fromkeys(pairs))) == content(list(dict.fromkeys(shuffled)))


def test_large_files_hold_out_two_thousand_and_small_ones_a_twentieth():
    for count, held in ((100_000, MAX_HELD_OUT), (4000, 200), (20, 1), (3, 1)):
        texts = [f"sentence {number}" for number in range(count)]
        splits = draw_pairs(texts, [text.upper() + " fr" for text in texts]).splits
        assert (len(splits["valid"]), len(splits["test"])) == (held, held)
        assert len(splits["train"]) == count - 2 * held


def test_the_first_held_out_pairs_of_a_sorted_file_are_a_sample_of_it():
    texts = [f"sentence {number}" for number in range(10_000)]
    valid = draw_pairs(texts, texts).splits["valid"]
    assert 4000 < np.mean(valid[:100]) < 6000


def test_two_pairs_give_a_validation_pair_and_one_group_gives_nothing():
    assert {name: len(chosen) for name, chosen in draw_pairs(["a", "b"], ["c", "d"]).splits.items()} == {
        "train": 1,
        "valid": 1,
    }
    assert list(draw_pairs(["a", "A!", "b"], ["x", "y", "Y"]).splits) == ["train"]


def test_a_giant_group_is_trained_on():
    chain = [(f"s{k // 2}", f"t{(k + 1) // 2}") for k in range(500)]  # each shares a side with the next
    alone = [(f"u{k}", f"v{k}") for k in range(500)]
    drawn = draw_pairs(*sides(chain + alone))
    assert set(range(500)) <= set(drawn.splits["train"].tolist())
    assert (len(drawn.splits["valid"]), len(drawn.splits["test"])) == (50, 50)
    assert "up to 500" in drawn.origin


def test_labels_are_in_every_split_and_their_sentences_in_one():
    sentences = [f"sentence {number % 300}" for number in range(600)]
    labels = [("good", "bad", "neutral")[number % 3] for number in range(600)]
    for columns in ((sentences, labels), (labels, sentences)):
        drawn = draw_pairs(*columns)
        assert "being labels" in drawn.origin
        held = {sentences[index] for index in np.concatenate([drawn.splits["valid"], drawn.splits["test"]])}
        assert len(held) >= 30
        assert not held & {sentences[index] for index in drawn.splits["train"]}
        assert {labels[index] for index in drawn.splits["valid"]} == {"good", "bad", "neutral"}


def test_a_text_that_grows_moves_no_pair_between_valid_and_test():
    texts = [f"sentence {number}" for number in range(3000)]
    before, after = (draw_pairs(texts[:size], texts[:size]).splits for size in (2000, 3000))
    assert not set(before["valid"].tolist()) & set(after["test"].tolist())
    assert not set(before["test"].tolist()) & set(after["valid"].tolist())


@pytest.mark.parametrize(
    ("one", "other"),
    [("I'm here!", "i M HERE"), ("Cafe\u0301 ?", "café"), ("« Oui »", "oui."), ("a  b", " a b"), ("STRASSE", "Straße")],
)
def test_case_punctuation_spaces_and_composition_make_no_difference(one, other):
    assert normalize_for_comparison([one]) == normalize_for_comparison([other])


def test_other_letters_and_marks_make_a_difference():
    assert len(set(normalize_for_comparison(["a", "b", "é", "e", "कि", "की", "?", "!", "1", "2"]))) == 10
    assert normalize_for_comparison([]) == []
    assert normalize_for_comparison(["", " "]) == ["", ""]


def test_overlap_is_counted_by_side_and_by_pair():
    train = (["a", "b", "", "c"], ["x", "y", "", "z"])
    valid = (["A!", "a", "q", ""], ["x.", "y", "z", ""])
    (overlap,) = count_pair_overlap({"train": train, "valid": valid})
    assert (overlap.pairs, overlap.sources, overlap.targets, overlap.both) == (4, 2, 3, 1)
    assert "2 (50.0 %) have a source" in overlap.sentence
    (none,) = count_pair_overlap({"train": train, "test": (["n"], ["n"])})
    assert none.sentence == "No source or target of test also occurs in train."


def grouped(size, alone):
    """A group of so many pairs with one target, and others that share nothing."""
    return [(f"s{k}", "same") for k in range(size)] + [(f"u{k}", f"v{k}") for k in range(alone)]


@pytest.mark.parametrize("size, large", [(5, False), (6, True)])
def test_a_group_is_large_if_it_has_more_than_a_tenth_of_what_is_held_out(size, large):
    drawn = draw_pairs(*sides(grouped(size, 1000 - size)))  # 50 for valid
    assert ("1 large group of such pairs (up to 6) is trained on." in drawn.origin) is large
    assert drawn.origin.endswith("trained on.") is large


def test_large_groups_that_are_held_out_are_not_said_to_be_trained_on():
    pairs = [(f"s{k}", f"t{k // 2}") for k in range(60)]  # thirty groups of two
    drawn = draw_pairs(*sides(pairs))
    trained = {pairs[pair][1] for pair in drawn.splits["train"]}
    assert len(trained) < 30
    assert f"; {len(trained)} large groups of such pairs (up to 2) are trained on." in drawn.origin


@pytest.mark.parametrize("size, large", [(1, False), (2, True)])
def test_of_a_small_file_every_group_of_two_is_large(size, large):
    drawn = draw_pairs(*sides(grouped(size, 58)))
    assert drawn.origin.endswith("; 1 large group of such pairs (up to 2) is trained on.") is large
    assert "large" in drawn.origin or not large


def test_a_text_is_a_label_if_it_stands_in_five_pairs():
    assert are_labels(["good"] * 5 + ["bad"] * 5)
    assert not are_labels(["good"] * 5 + ["bad"] * 4)


def test_repetitions_on_both_sides_are_no_labels():
    """Thirty pairs, five times each: whichever side was taken for labels, it would be trained on and tested."""
    pairs = [(f"s{k % 30}", f"t{k % 30}") for k in range(150)]
    drawn = draw_pairs(*sides(pairs))
    assert "pairs that share a source or a target, ignoring case" in drawn.origin
    assert "labels" not in drawn.origin
    held = {pairs[index] for index in drawn.splits["valid"]}
    assert held
    assert not held & {pairs[index] for index in drawn.splits["train"]}


def test_of_no_pairs_nothing_is_drawn():
    assert {name: chosen.tolist() for name, chosen in draw_pairs([], []).splits.items()} == {"train": []}
