"""Pairs as ids: nothing is lost silently, and any text comes back."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.text.pairs import PairCorpus, Pairs
from regard.text.tokenizers.pair_tokenizers import train_tokenizers, why_this_vocabulary
from regard.text.tokenizers.pair_tokens import encode_pairs, gather, offsets_of
from regard.text.tokenizers.tokenizer import Tokenizer

law = settings(derandomize=True, deadline=None, max_examples=50)
TEXT = Pairs(
    ["the cat sees the dog", "a dog", "the cats"] * 20, ["le chat voit le chien", "un chien", "les chats"] * 20
)
CORPUS = PairCorpus("pets", {"train": TEXT, "valid": TEXT.take(range(3))})
lines = st.text(st.characters(codec="utf-8", exclude_characters="\n"), max_size=12)
many = st.lists(st.tuples(lines, lines), max_size=12)


def as_pairs(rows):
    return Pairs([source for source, _ in rows], [target for _, target in rows])


@law
@given(
    rows=many, longest=st.integers(1, 15), truncate=st.booleans(), kind=st.sampled_from(["bpe", "byte", "char", "word"])
)
def test_every_pair_is_kept_or_counted_and_kept_as_the_tokenizer_says(rows, longest, truncate, kind):
    source, target = train_tokenizers(CORPUS, kind, joint=False)
    encoded = encode_pairs(as_pairs(rows), source, target, longest=longest, truncate=truncate)
    assert len(encoded) + sum(encoded.dropped.values()) == len(rows)
    assert all(encoded.dropped.values())
    cut = 0
    for index, which in enumerate(encoded.kept):
        ids = source.encode(rows[which][0]), target.encode(rows[which][1])
        assert encoded.source_of(index).tolist() == [*ids[0][:longest], source.eos]
        assert encoded.target_of(index).tolist() == [*ids[1][:longest], target.eos]
        cut += max(map(len, ids)) > longest
    assert encoded.truncated == cut
    assert truncate or not cut
    for which in set(range(len(rows))) - set(encoded.kept.tolist()):
        one, other = rows[which]
        long = max(len(source.encode(one)), len(target.encode(other))) > longest
        assert not one.strip() or not other.strip() or (long and not truncate)
    assert encoded.characters == sum(len(target.normalise(rows[which][1])) + 1 for which in encoded.kept)
    assert len(encoded.sentences) == bool(encoded.dropped) + bool(cut)


def test_each_reason_is_said():
    tokenizer = train_tokenizers(CORPUS, "word")[0]
    rows = [("", "le"), ("the", " "), ("the " * 9, "le"), ("the", "le " * 9), ("the " * 9, "le " * 9), ("the", "le")]
    encoded = encode_pairs(as_pairs(rows), tokenizer, tokenizer, longest=8)
    assert encoded.dropped == {"empty source": 1, "empty target": 1, "long source": 2, "long target": 1}
    assert encoded.sentences == [
        "5 of 6 pairs dropped: 1 with an empty source, 1 with an empty target, 2 whose source has more than 8 "
        "tokens, 1 whose target has more than 8 tokens."
    ]
    assert encode_pairs(as_pairs(rows), tokenizer, tokenizer, longest=9).dropped.keys() == {
        "empty source",
        "empty target",
    }


def test_ids_take_two_bytes():
    encoded = encode_pairs(TEXT, *train_tokenizers(CORPUS))
    assert encoded.source.dtype == encoded.target.dtype == np.uint16


@law
@given(text=st.text(st.characters(codec="utf-8", exclude_characters="\n"), max_size=40))
def test_byte_pairs_lack_no_character_of_any_script(text):
    tokenizer = train_tokenizers(CORPUS, "bpe", normalise="none")[0]
    encoded = encode_pairs(Pairs([f"a{text}"], ["b"]), tokenizer, tokenizer, longest=1000)
    assert tokenizer.decode(encoded.source_of(0)[:-1]) == f"a{text}"


def test_a_joint_vocabulary_is_one_object_and_separate_ones_know_their_side():
    one, other = train_tokenizers(CORPUS, "word")
    assert one is other
    assert {"cat", "chat"} <= set(one.tokens)
    one, other = train_tokenizers(CORPUS, "word", joint=False)
    assert "cat" in one.tokens
    assert "cat" not in other.tokens
    assert "chat" in other.tokens


def test_the_vocabulary_follows_the_size_of_the_corpus_and_says_why():
    words = [f"{chr(97 + a)}{chr(97 + b)}{chr(97 + c)}" for a in range(20) for b in range(20) for c in range(10)]
    sizes = []
    for count in (200, 2000):
        side = [" ".join(words[(7 * k + j * j) % len(words)] for j in range(8)) for k in range(count)]
        corpus = PairCorpus("made", {"train": Pairs(side, side)})
        tokenizers = train_tokenizers(corpus)
        characters = 2 * sum(len(line) + 1 for line in side)
        assert tokenizers[0].vocabulary <= 257 + characters // 200
        assert f"{tokenizers[0].vocabulary:,} byte pairs for both sides: one per 200" in why_this_vocabulary(
            corpus, tokenizers
        )
        sizes.append(tokenizers[0].vocabulary)
    assert sizes[0] < sizes[1]
    asked = train_tokenizers(CORPUS, "bpe", 270)
    assert why_this_vocabulary(CORPUS, asked, 270).endswith("as requested.")
    assert "for the source" in why_this_vocabulary(CORPUS, train_tokenizers(CORPUS, "word", joint=False))


def test_toy_symbols_are_kept_as_they_are():
    corpus = PairCorpus("toy", {"train": Pairs(["A B |"], ["B"])}, suggested_tokenizer="word", pretokenised=True)
    assert train_tokenizers(corpus)[0].tokens == ["<eos>", "<unk>", "B", "A", "|"]


def test_a_line_end_within_a_side_is_no_pair():
    tokenizer = Tokenizer.train(["a"], "byte")
    with pytest.raises(ValueError, match="line break"):
        encode_pairs(Pairs(["a\nb"], ["c"]), tokenizer, tokenizer)


def test_what_was_dropped_or_cut_is_said_in_numbers():
    words = Tokenizer.of_tokens(["<eos>", "<unk>", "a"], "word")
    rows = [("a a", "a"), ("a", "x a x"), ("", "a")]
    cut = encode_pairs(as_pairs(rows), words, words, longest=1, truncate=True)
    assert cut.sentences == ["1 of 3 pairs dropped: 1 with an empty source.", "2 of 3 pairs cut off at 1 tokens."]
    assert (cut.unknown, cut.characters, cut.truncated) == (1, 8, 2)
    assert (len(cut), cut.longest, cut.source_lengths.tolist(), cut.target_lengths.tolist()) == (2, 1, [2, 2], [2, 2])
    assert encode_pairs(as_pairs(rows), words, words).longest == 256
    bytes_only = Tokenizer.train(["a"], "byte")
    assert encode_pairs(as_pairs(rows), bytes_only, bytes_only).unknown == 0


def test_ranges_are_gathered_in_any_order():
    ids = np.arange(10)
    assert gather(ids, np.array([7, 0, 3]), np.array([2, 0, 3])).tolist() == [7, 8, 3, 4, 5]
    assert gather(ids, np.array([], int), np.array([], int)).tolist() == []
    assert offsets_of(np.array([2, 0, 3])).tolist() == [0, 2, 2, 5]


def test_why_a_vocabulary_has_its_size():
    def why(kind, asked=0, joint=True, pretokenised=False):
        corpus = PairCorpus("pets", {"train": TEXT}, pretokenised=pretokenised)
        return why_this_vocabulary(corpus, train_tokenizers(corpus, kind, asked, joint=joint), asked)

    assert why("word").endswith(" words for both sides, all that occur in the training pairs at least twice.")
    assert why("word", pretokenised=True).endswith("all that occur in the training pairs.")
    assert why("char").endswith(" characters for both sides, all that occur in the training pairs.")
    assert why("byte").startswith("Vocabulary: 257 bytes for both sides, all")
    assert why("word", joint=False).startswith("Vocabulary: 8 words for the source, 9 for the target")
    characters = sum(len(text) + 1 for side in (TEXT.sources, TEXT.targets) for text in side)
    assert why("bpe").endswith(
        f": one per 200 characters of the 60 pairs ({characters} characters) and every character itself, at most 8000, "
        "so that each is seen often enough to be learned."
    )
    assert why("bpe", 258).endswith("258 byte pairs for both sides, as requested.")
