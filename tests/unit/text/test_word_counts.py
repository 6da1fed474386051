"""Words per line, Zipf's curve and coverage, counted by hand."""

from itertools import pairwise

import numpy as np
import pytest

from regard.text.tokenizers import word_counts
from regard.text.tokenizers.word_counts import SplitCounts, _bins, _places, count_words

TRAIN = ["the cat sat", "the dog, the cat", "", "  ", "<unk> sat"]
VALID = ["the bird", "cat"]


def test_a_small_text_by_hand():
    found = count_words({"train": TRAIN, "valid": VALID})
    assert found.splits["train"] == SplitCounts(
        lines=3, characters=36, words=9, vocabulary=5, once=2, lengths=[(0, 0, 0), (1, 1, 0), (2, 2, 1), (3, 3, 1),
        (4, 4, 1)], whole=True,
    )  # fmt: skip
    assert found.splits["valid"] == SplitCounts(2, 11, 3, 3, 3, [(0, 0, 0), (1, 1, 1), (2, 2, 1)], True)
    assert found.words == ["the", "cat", "sat", "<unk>", "dog"]
    assert found.counts == [3, 2, 2, 1, 1]
    assert found.ranks == found.sizes == [1, 2, 3, 4, 5]
    assert found.coverage["train"] == pytest.approx([3 / 9, 5 / 9, 7 / 9, 8 / 9, 1.0])
    assert found.coverage["valid"] == pytest.approx([1 / 3, 2 / 3, 2 / 3, 2 / 3, 2 / 3])


def test_of_a_large_split_the_beginning_is_counted(monkeypatch):
    assert word_counts.MAX_CHARACTERS == 40_000_000
    monkeypatch.setattr(word_counts, "MAX_CHARACTERS", 10)
    for lines, count, whole in ((["12345", "67890"], 2, True), (["12345", "678901", "x"], 2, False)):
        found = count_words({"train": lines}).splits["train"]
        assert (found.lines, found.whole) == (count, whole)


def test_a_split_of_one_word_is_covered_or_not():
    found = count_words({"train": ["a b"], "valid": ["b"], "test": ["c"]})
    assert (found.coverage["valid"], found.coverage["test"]) == ([0.0, 1.0], [0.0, 0.0])


def test_nothing_has_no_curve():
    found = count_words({"train": [], "valid": ["a"]})
    assert (found.ranks, found.words, found.coverage) == ([], [], {"train": [], "valid": []})
    assert found.splits["train"] == SplitCounts(0, 0, 0, 0, 0, [], True)
    assert _bins([]) == []
    assert _places(0) == []


def test_ranks_begin_one_by_one_and_are_evenly_spaced_in_their_logarithm_later():
    places = _places(100_000)
    assert places[:5] == [1, 2, 3, 4, 5]
    assert places[-1] == 100_000
    assert len(places) <= 122
    steps = np.diff(np.log(_places(10**9)[-50:]))
    assert steps == pytest.approx(np.full(49, np.log(10**9) / 119), rel=1e-4)
    assert _places(1) == [1]


def test_lengths_are_in_at_most_forty_bins_and_the_last_has_the_longest():
    lengths = [*range(400), 10_000]
    found = _bins(lengths)
    assert len(found) <= 40
    assert sum(count for *_, count in found) == 401
    assert found[0] == (0, 9, 10)
    assert found[1] == (10, 19, 10)
    assert found[-1] == (390, 10_000, 11)
    assert all(end + 1 == start for (_, end, _), (start, *_) in pairwise(found))
    rare = _bins([1] * 1000 + [70])
    assert rare == [(0, 0, 0), (1, 70, 1001)]
    assert _bins([39]) == [(n, n, 0) for n in range(39)] + [(39, 39, 1)]
    assert _bins([40])[:2] == [(0, 1, 0), (2, 3, 0)]


def test_long_pieces_are_counted_too():
    long = "x" * 60
    found = count_words({"train": [f"{long} {long}", f"{'y' * 39} {'y' * 40} {'y' * 39}"]})
    assert dict(zip(found.words, found.counts)) == {long: 2, "y" * 39: 2, "y" * 40: 1}
