"""Laws of BPE-dropout: the text stays, p = 0 is the plain encoding, and an epoch is a function of its number."""

from collections import Counter
from itertools import pairwise
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.base.errors import RegardError
from regard.text.pairs import Pairs, open_pairs
from regard.text.tokenizers.bpe_dropout import DropoutPairs, Segmentations, merge
from regard.text.tokenizers.pair_tokens import encode_pairs
from regard.text.tokenizers.tokenizer import Tokenizer

law = settings(derandomize=True, deadline=None, max_examples=50)
WORDS = "they are watching the watchers watch; she watched it, l'été n'est pas fini, don't wait."
TOKENIZER = Tokenizer.train([WORDS] * 5, "bpe", 320)
texts = st.lists(
    st.one_of(
        st.text(st.characters(codec="utf-8", exclude_characters="\n"), max_size=20), st.sampled_from([WORDS, ""])
    ),
    min_size=1,
    max_size=6,
)


def rows(encoded):
    ids, offsets = encoded
    return [ids[start:stop].tolist() for start, stop in pairwise(offsets)]


@law
@given(lines=texts, dropout=st.floats(0, 1), seed=st.integers(0, 2**64 - 1), epoch=st.integers(0, 2**32))
def test_every_segmentation_says_the_text(lines, dropout, seed, epoch):
    for line, ids in zip(lines, rows(Segmentations(lines, TOKENIZER, dropout, seed).epoch(epoch))):
        assert ids[-1] == TOKENIZER.eos
        assert TOKENIZER.decode(ids[:-1]) == TOKENIZER.normalise(line)


@law
@given(lines=texts, epoch=st.integers(0, 10))
def test_no_dropout_is_the_plain_encoding(lines, epoch):
    plain = [[*ids.tolist(), TOKENIZER.eos] for ids in TOKENIZER.encode_lines(lines)]
    assert rows(Segmentations(lines, TOKENIZER, 0.0, 1).epoch(epoch)) == plain


def test_full_dropout_is_bytes():
    (ids,) = rows(Segmentations([WORDS], TOKENIZER, 1.0, 1).epoch(0))
    assert len(ids) - 1 == len(WORDS.encode())


@law
@given(lines=texts, epochs=st.lists(st.integers(0, 20), max_size=5))
def test_an_epoch_depends_on_its_number_alone(lines, epochs):
    walked = Segmentations(lines, TOKENIZER, 0.3, 5)
    for epoch in epochs:
        assert rows(walked.epoch(epoch)) == rows(Segmentations(lines, TOKENIZER, 0.3, 5).epoch(epoch))


def test_epochs_seeds_and_occurrences_differ():
    lines = [WORDS] * 4
    one, other = (Segmentations(lines, TOKENIZER, 0.2, seed) for seed in (1, 2))
    assert rows(one.epoch(0)) != rows(one.epoch(1))
    assert rows(one.epoch(0)) != rows(other.epoch(0))
    assert len({tuple(row) for row in rows(one.epoch(0))}) > 1
    one, other = (Segmentations(lines, TOKENIZER, 0.2, seed, variants=1) for seed in (1, 2))
    assert rows(one.epoch(0)) != rows(other.epoch(0))  # the segmentations themselves, not only which is taken


def test_merges_are_left_out_as_often_as_asked():
    """A word of two bytes has one merge, which happens unless it is left out."""
    tokenizer = Tokenizer.train(["ab"] * 9, "bpe", 258)
    (word,) = tokenizer.byte_words("ab")
    lengths = Counter(len(merge(word, tokenizer, 0.1, Random(f"{seed}"))) for seed in range(5000))
    assert lengths[2] / 5000 == pytest.approx(0.1, abs=0.02)


def test_pairs_that_would_become_too_long_stay_as_they_were():
    pairs = Pairs([WORDS, "watch"] * 20, ["watching", WORDS] * 20)
    plain = encode_pairs(pairs, TOKENIZER, TOKENIZER, longest=len(TOKENIZER.encode(WORDS)))
    sampled = DropoutPairs(pairs, plain, TOKENIZER, TOKENIZER, 0.5, 3).epoch(2)
    assert max(sampled.source_lengths.max(), sampled.target_lengths.max()) <= plain.longest + 1
    assert len(sampled) == len(plain) == 40
    for index in range(40):
        assert TOKENIZER.decode(sampled.source_of(index)[:-1]) == pairs.sources[index]
        assert TOKENIZER.decode(sampled.target_of(index)[:-1]) == pairs.targets[index]
    roomy = encode_pairs(pairs, TOKENIZER, TOKENIZER)
    sampled = DropoutPairs(pairs, roomy, TOKENIZER, TOKENIZER, 0.5, 3).epoch(2)
    assert len(sampled.source) > len(roomy.source)


def test_dropped_pairs_stay_dropped():
    pairs = Pairs(["", "watch", "watching"], ["x", "", "watched"])
    plain = encode_pairs(pairs, TOKENIZER, TOKENIZER)
    sampled = DropoutPairs(pairs, plain, TOKENIZER, TOKENIZER, 0.5, 3).epoch(0)
    assert len(sampled) == 1
    assert TOKENIZER.decode(sampled.source_of(0)) == "watching\n"


def test_only_byte_pairs_have_merges():
    with pytest.raises(RegardError, match="needs a bpe tokenizer, not word"):
        Segmentations(["a b"], Tokenizer.train(["a b"], "word"), 0.1, 0)


def test_multi30k_without_dropout_is_the_plain_encoding(machine_data):
    pairs = open_pairs("multi30k").splits["train"].take(range(3000))
    tokenizer = Tokenizer.train([*pairs.sources, *pairs.targets], "bpe", 4000)
    plain = encode_pairs(pairs, tokenizer, tokenizer)
    same = DropoutPairs(pairs, plain, tokenizer, tokenizer, 0.0, 0).epoch(1)
    assert np.array_equal(same.source, plain.source)
    assert np.array_equal(same.target_offsets, plain.target_offsets)


def test_a_word_has_sixteen_segmentations_in_all_epochs_together():
    """A long word, so that no two of them are alike by chance."""
    word = "theyarewatchingthewatcherswatchingthewatch"
    words = Segmentations([word] * 100, TOKENIZER, 0.8, 4)
    found = {tuple(row) for epoch in range(10) for row in rows(words.epoch(epoch))}
    assert len(found) == 16
