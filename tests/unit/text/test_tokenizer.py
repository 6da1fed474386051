"""Laws of the tokenizers, with the `tokenizers` library's own encoding as the outside oracle."""

import json
import unicodedata
from collections import Counter
from contextlib import suppress
from hashlib import blake2b
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
import tokenizers
from hypothesis import example, given, settings
from hypothesis import strategies as st

from regard.base.errors import RegardError
from regard.text.tokenizers import tokenizer as tokenizer_module
from regard.text.tokenizers import vocabulary
from regard.text.tokenizers.engine import BYTE_SYMBOLS
from regard.text.tokenizers.piece_table import PieceTable, cut_spaced, cut_words
from regard.text.tokenizers.tokenizer import Tokenizer
from regard.text.tokenizers.vocabulary import blocks, valid_unicode

law = settings(derandomize=True, deadline=None, max_examples=50)
TEXT = [
    "The cat sat on the mat, didn't it? (It did.)",
    "l'eau est bien-connue: 3.14 or 1,000",
    "ça va, naïve Zoë — “q” …",
    "हिन्दी और 日本語のテキスト",
    "the the the cat cat  two  spaces\tand a tab",
    "<unk> and <eos> are words here",
    "",
]
KINDS = ["word", "char", "byte", "bpe"]
any_text = st.text(st.characters(exclude_categories=["Cs"]))
# Text with the things in it that cut text apart: spaces of all kinds, quotes, brackets, digits, marks, special symbols.
tricky = st.lists(
    st.sampled_from(
        [
            " ",
            "  ",
            "\t",
            "\x1c",
            "\x85",
            "\xa0",
            "\u3000",
            "\r",
            "'",
            "’",
            "-",
            ".",
            ",",
            "(",
            ")",
            "<eos>",
            "<unk>",
            "the",
            "cat",
            "3",
            "é",
            "e\u0301",
            "\u0301",
            "ﬁ",
            "日本",
            "हि",
            "\x00",
            "🙂",
            "�",
            "'s",
            "!!",
        ]
    ),
    max_size=12,
).map("".join)
line = st.one_of(tricky, any_text.map(lambda text: text.replace("\n", " ")))


@pytest.fixture(
    scope="module",
    params=[
        (kind, pretokenised) for kind in KINDS for pretokenised in (False, True) if kind == "word" or not pretokenised
    ],
    ids=str,
)
def tokenizer(request) -> Tokenizer:
    kind, pretokenised = request.param
    return Tokenizer.train(TEXT, kind, pretokenised=pretokenised)


@pytest.mark.parametrize("kind", ["byte", "bpe"])
@law
@given(text=st.one_of(any_text, tricky, st.lists(line).map("\n".join)))
@example("<eos>\n<unk>\r\n\x00")
def test_bytes_and_byte_pairs_lose_nothing(kind, text):
    tokenizer = Tokenizer.train(TEXT, kind, normalise="none")
    assert tokenizer.lossless
    assert tokenizer.decode(tokenizer.encode(text)) == text


@law
@given(text=tricky)
def test_characters_of_the_vocabulary_survive(text):
    tokenizer = Tokenizer.train([text, "x"], "char", normalise="none")
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.unk not in tokenizer.encode(text)


@law
@given(ids=st.lists(st.integers(2, 40), max_size=20))
def test_decoded_words_are_read_back_as_the_same_words(ids):
    tokenizer = Tokenizer.train(TEXT, "word")
    ids = [min(symbol, tokenizer.vocabulary - 1) for symbol in ids]
    assert tokenizer.encode(tokenizer.decode(ids)) == ids


@settings(law, max_examples=100)
@given(text=line)
def test_the_engine_that_others_load_gives_the_same_ids(tokenizer, text):
    engine = tokenizers.Tokenizer.from_str(tokenizer._engine.to_str())
    assert tokenizer.encode(text) == engine.encode(text).ids


@law
@given(lines=st.lists(line, min_size=1))
def test_a_text_is_its_lines_joined_by_eos(tokenizer, lines):
    by_line = tokenizer.encode_lines(lines)
    assert [ids.tolist() for ids in by_line] == [tokenizer.encode(line) for line in lines]
    joined = list(chain.from_iterable([*ids.tolist(), tokenizer.eos] for ids in by_line))
    assert tokenizer.encode("\n".join(lines)) == joined[:-1]


@law
@given(lines=st.lists(any_text, min_size=1, max_size=5))
@example(["", ""])
@example(["a\nb", "\n", "c"])
def test_lines_are_encoded_together_as_each_alone(tokenizer, lines):
    ids, ends = tokenizer.encode_text(lines)
    alone = [[*tokenizer.encode(line), tokenizer.eos] for line in lines]
    assert ids.tolist() == list(chain.from_iterable(alone))
    assert ends.tolist() == np.cumsum([len(line) for line in alone]).tolist()


@settings(law, max_examples=300)
@given(met=st.lists(line, max_size=5), lines=st.lists(st.one_of(line, any_text), min_size=1, max_size=5))
@example(
    ["a", "a\x00", "abcdefgh", "\x00" * 8],
    ["a\x00 a abcdefgh\x00", "\x00" * 8 + " " + "\x00" * 16, "abcdefgh" + "\x00" * 8],
)
@example(
    ["abcdefghijklmnop abcdefghijklmnopq"], ["abcdefghijklmnopq abcdefghijklmnop abcdefghijklmno abcdefghijklmnoq"]
)
@example(
    ["\u3000日本語\u3000 \u2028x\x85y\xa0"],
    ["日本語\u3000\u3000x\x85\x85 y", "\u200b \u180e \u2027 \ufeff", " \n\r\n\x1c"],
)
def test_pieces_found_by_their_bytes_have_the_ids_of_those_cut_as_strings(tokenizer, met, lines):
    """Whatever was met before and is in the table; also for bytes that look alike: NUL, prefixes, halves."""
    as_strings, as_bytes = (Tokenizer.from_json(tokenizer.json) for _ in range(2))
    as_bytes.encode_text([*met, ""])
    as_bytes._piece_table = PieceTable([*as_bytes._remembered])
    ids, ends = as_strings.encode_text(lines)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokenizer_module, "SHORT_TEXT", 0)
        for _ in range(3):  # the last time all are in the table
            found, found_ends = as_bytes.encode_text(lines)
            assert (found.tolist(), found_ends.tolist()) == (ids.tolist(), ends.tolist())
            assert found.dtype == ids.dtype


@pytest.mark.parametrize("kind", ["word", "bpe"])
def test_bytes_are_cut_at_the_white_space_of_strings(kind, monkeypatch):
    """At every character there is, after a piece and before one."""
    text = "".join(f"a{c}b" for c in map(chr, [*range(0xD800), *range(0xE000, 0x30000)]))
    tokenizer = Tokenizer.train(TEXT, kind)
    cut = {"word": cut_words, "bpe": cut_spaced}[kind](f"{text}\n".encode())
    assert cut.strings(np.arange(len(cut.starts))) == tokenizer._cut_strings(text)


def test_a_table_is_made_when_a_long_text_has_looked_up_as_many_pieces_as_it_holds(monkeypatch):
    monkeypatch.setattr(tokenizer_module, "SHORT_TEXT", 20)
    tokenizer = Tokenizer.train(TEXT, "word")
    for text, made in (
        ("a b c d e f g h i j k", False),
        ("a b c", False),
        ("k j i h g f e d c b a", True),
    ):
        tokenizer.encode(text)
        assert (tokenizer._piece_table is not None) == made
    tokenizer._looked_up = 0
    tokenizer.encode("a b c d e f g h i j x y")
    assert tokenizer._looked_up == 2  # the others were found by their bytes
    tokenizer._forget()
    assert tokenizer._piece_table is None


@pytest.mark.parametrize("kind", ["word", "bpe"])
@pytest.mark.parametrize("form", ["nfc", "nfkc"])
def test_pieces_that_are_cut_first_and_then_normalised_are_those_of_the_normalised_text(kind, form):
    """For every character that is white, combines, or changes when it is normalised."""
    characters = map(chr, [*range(0xD800), *range(0xE000, 0x110000)])
    odd = [
        c for c in characters if c.isspace() or unicodedata.combining(c) or unicodedata.normalize(form.upper(), c) != c
    ]
    text = " ".join(f"a{c}b {c}a e{c}\u0301 {c}" for c in odd) + "\n"
    tokenizer = Tokenizer.train([text[:2000], text[-2000:]], kind, normalise=form)
    ids = tokenizer.encode(text)
    assert ids == Tokenizer.from_json(tokenizer.json).encode_normalised(tokenizer.normalise(text))[0][:-1].tolist()


def test_an_interrupted_call_leaves_no_piece_without_its_ids():
    tokenizer = Tokenizer.train(TEXT, "word")
    engine, wanted = tokenizer._engine, [tokenizer.encode(text) for text in TEXT]
    tokenizer._forget()

    class Interrupted:
        def encode_batch_fast(self, *pieces, **options):
            raise KeyboardInterrupt

    for text, ids in zip(TEXT, wanted):
        tokenizer._engine = Interrupted()
        with suppress(KeyboardInterrupt):
            tokenizer.encode(text)
        tokenizer._engine = engine
        assert tokenizer.encode(text) == ids


@law
@given(text=any_text)
def test_ids_lie_in_the_vocabulary_and_words_never_contain_eos(tokenizer, text):
    ids = tokenizer.encode(text)
    assert all(0 <= symbol < tokenizer.vocabulary for symbol in ids)
    if tokenizer.kind != "word":
        assert ids.count(tokenizer.eos) == text.count("\n")


@law
@given(lines=st.lists(line, min_size=1), probe=line, normalise=st.sampled_from(["nfc", "nfkc", "none"]))
@pytest.mark.parametrize("kind", KINDS)
def test_saving_and_loading_changes_nothing(tmp_path_factory, kind, lines, probe, normalise):
    path = tmp_path_factory.mktemp("saved") / "new" / "tokenizer.json"
    before = Tokenizer.train(lines, kind, normalise=normalise, pretokenised=kind == "word")
    before.save(path)
    after = Tokenizer.load(path)
    for name in ("kind", "normalisation", "pretokenised", "vocabulary", "specials", "tokens", "digest", "lossless"):
        assert getattr(after, name) == getattr(before, name)
    assert after.encode(probe) == before.encode(probe)
    assert [entry.name for entry in path.parent.iterdir()] == ["tokenizer.json"]


@pytest.mark.parametrize("form", ["nfc", "nfkc", "none"])
@pytest.mark.parametrize("kind", KINDS)
def test_text_is_normalised_as_unicode_says(kind, form):
    text = "ﬁve ① cafe\u0301 Å ｆｕｌｌ 2⁵"
    expected = text if form == "none" else unicodedata.normalize(form.upper(), text)
    tokenizer = Tokenizer.train([text] * 3, kind, normalise=form)
    assert tokenizer.normalisation == form
    assert tokenizer.normalise(text) == expected
    assert tokenizer.normalise(f"né\n{text}\n\n{text}") == f"né\n{expected}\n\n{expected}"  # a line at a time
    assert tokenizer.encode(text) == tokenizer.encode(expected)
    if kind != "word":  # which does not keep its spaces
        assert tokenizer.decode(tokenizer.encode(text)) == expected


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_text_gives_the_same_tokenizer(kind):
    assert Tokenizer.train(iter(TEXT), kind).digest == Tokenizer.train(TEXT, kind).digest


def test_the_digest_is_16_bytes_of_blake2b():
    """Prepared text is found again by it: with another one, all would be tokenised anew."""
    tokenizer = Tokenizer.train(TEXT, "word")
    assert tokenizer.digest == blake2b(tokenizer.json.encode(), digest_size=16).hexdigest()


def test_words_stay_whole_and_punctuation_stands_alone():
    words = Tokenizer.train(["Don't drink l'eau, it's well-known (3.14 हिन्दी)."], "word")
    text = "Don't drink l'eau, it's well-known (3.14 हिन्दी)."
    assert [words.token(symbol) for symbol in words.encode(text)] == [
        "Don't",
        "drink",
        "l'eau",
        ",",
        "it's",
        "well-known",
        "(",
        "3.14",
        "हिन्दी",
        ")",
        ".",
    ]
    assert words.decode(words.encode(text)) == text


def test_pretokenised_text_is_cut_at_white_space_only():
    words = Tokenizer.train(["( N.Y. @-@ based ) <unk>"], "word", pretokenised=True)
    assert [words.token(symbol) for symbol in words.encode(" ( N.Y. @-@ based )  <unk> new ")] == [
        "(",
        "N.Y.",
        "@-@",
        "based",
        ")",
        "<unk>",
        "<unk>",
    ]


@law
@given(words=st.lists(st.sampled_from("abcdefgh"), min_size=6), size=st.integers(3, 8))
def test_a_limited_vocabulary_keeps_the_most_frequent_words(words, size):
    tokenizer = Tokenizer.train([" ".join(words)], "word", size)
    counts = Counter(words)
    kept, dropped = set(tokenizer.tokens[2:]), counts.keys() - set(tokenizer.tokens)
    assert tokenizer.vocabulary == min(size, 2 + len(counts))
    assert not dropped or max(counts[word] for word in dropped) <= min(counts[word] for word in kept)
    assert tokenizer.encode(" ".join(dropped)) == [tokenizer.unk] * len(dropped)


@pytest.mark.parametrize("size", [257, 260, 300])
def test_a_smaller_byte_pair_vocabulary_is_the_beginning_of_a_larger_one(size):
    lines = [line for line in TEXT * 3 if line.isascii()]  # others take half of a small vocabulary
    large, small = Tokenizer.train(lines, "bpe", 400), Tokenizer.train(lines, "bpe", size)
    assert small.tokens == large.tokens[:size]


def test_byte_pairs_without_a_size_suit_the_length_of_the_text():
    text = [f"{word} {other}" for word in ("alpha", "beta", "gamma", "delta") for other in ("one", "two", "three")] * 20
    chosen = Tokenizer.train(text, "bpe")
    assert chosen.vocabulary == 257 + sum(len(line) + 1 for line in text) // 200
    assert chosen.digest == Tokenizer.train(text, "bpe", chosen.vocabulary).digest


def test_byte_pairs_of_a_long_text_are_learned_from_a_sample_of_its_lines(monkeypatch):
    """With all its characters, from both of two kinds of lines that alternate, and the same at every training."""
    text = [line for n in range(4000) for line in (f"abcd {n}", f"wxyz {n}")] + ["ж"]
    size = sum(len(line.encode()) + 1 for line in text)
    whole = Tokenizer.train(text, "bpe", 300)
    monkeypatch.setattr(vocabulary, "MAX_BPE_BYTES", size)
    assert Tokenizer.train(text, "bpe", 300).json == whole.json
    monkeypatch.setattr(vocabulary, "MAX_BPE_BYTES", size // 100)
    sampled = Tokenizer.train(text, "bpe", 300)
    assert sampled.json != whole.json
    assert {"abcd", "wxyz", "ж"} <= {*sampled.tokens}
    assert Tokenizer.train(text, "bpe", 300).json == sampled.json


def test_composed_and_decomposed_letters_are_the_same_after_normalisation():
    for kind in KINDS:
        nfc, none = Tokenizer.train(["é"], kind), Tokenizer.train(["é"], kind, normalise="none")
        assert nfc.encode("e\u0301") == nfc.encode("é")
        assert none.encode("e\u0301") != none.encode("é")


def test_symbols_are_readable_and_distinct(tokenizer):
    assert len(set(tokenizer.tokens)) == tokenizer.vocabulary
    assert tokenizer.tokens[tokenizer.eos] == "<eos>"
    assert all(isinstance(token, str) and token for token in tokenizer.tokens)


def test_only_words_and_characters_can_be_unknown():
    assert [Tokenizer.train(TEXT, kind).unk for kind in KINDS] == [1, 1, None, None]
    assert [Tokenizer.train(TEXT, kind).specials for kind in KINDS] == [(0, 1), (0, 1), (0,), (0,)]


def test_remembered_pieces_are_forgotten_in_time(monkeypatch):
    monkeypatch.setattr("regard.text.tokenizers.tokenizer.CACHED_CHARACTERS", 10)
    tokenizer, fresh = Tokenizer.train(TEXT, "bpe"), Tokenizer.train(TEXT, "bpe")
    for text in TEXT * 3:
        assert tokenizer.encode(text) == fresh._engine.encode(text).ids
    assert len(tokenizer._remembered) < 20


def test_no_lines_give_no_arrays(tokenizer):
    assert tokenizer.encode_lines([]) == []
    assert tokenizer.encode("") == []
    assert tokenizer.decode(np.array([], np.int64)) == ""


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("syllable",), "word, char, byte, bpe"),
        (("bpe", 200), "at least 257"),
        (("word", 2), "at least 3"),
        (("byte", 100), "257"),
    ],
)
def test_wrong_wishes_are_refused_with_the_right_ones(arguments, says):
    with pytest.raises(RegardError, match=says):
        Tokenizer.train(TEXT, *arguments)


def test_an_unknown_normalisation_is_refused():
    with pytest.raises(RegardError, match="nfc, nfkc, none"):
        Tokenizer.train(TEXT, "word", normalise="nfd")


def test_half_a_surrogate_pair_is_refused(tokenizer):
    for text in ("caf\udce9", "a b c " * 10_000 + "caf\udce9"):
        tokenizer.encode(text[:-1])
        with pytest.raises(RegardError, match="surrogate"):
            tokenizer.encode(text)


def test_files_that_are_no_tokenizer_are_refused(tmp_path: Path):
    foreign = tmp_path / "foreign.json"
    foreign.write_text(tokenizers.Tokenizer(tokenizers.models.BPE()).to_str())
    broken = tmp_path / "broken.json"
    broken.write_text('{"version": "1.0", "trunc')
    with pytest.raises(RegardError, match="not written by Regard"):
        Tokenizer.load(foreign)
    with pytest.raises(RegardError, match="damaged"):
        Tokenizer.load(broken)
    with pytest.raises(RegardError, match="no file"):
        Tokenizer.load(tmp_path / "absent.json")


def test_a_file_that_is_too_large_for_a_tokenizer_is_not_read(tmp_path, monkeypatch):
    assert tokenizer_module.MAX_FILE_BYTES == 256 << 20
    monkeypatch.setattr(tokenizer_module, "MAX_FILE_BYTES", 1 << 20)
    path = tmp_path / "tokenizer.json"
    path.write_bytes(bytes((1 << 20) + 1))
    with pytest.raises(RegardError, match="is larger than 1 MiB"):
        Tokenizer.load(path)


@pytest.mark.parametrize("kind", ["word", "char", "byte", "bpe"])
@pytest.mark.parametrize("change, said", [
    ({"truncation": {"direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0}}, "truncation"),
    ({"padding": {"strategy": {"Fixed": 9}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0,
                  "pad_type_id": 0, "pad_token": "<eos>"}}, "padding"),
    ({"added_tokens": [{"id": 1, "content": "cat", "single_word": False, "lstrip": False, "rstrip": False,
                        "normalized": False, "special": True}]}, ""),
    ({"post_processor": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}},
     "post_processor"),
    ({"model.dropout": 0.5}, "dropout"), ({"model.unk_token": "a"}, "unk_token"),
    ({"model.continuing_subword_prefix": "a"}, ""), ({"model.ignore_merges": True}, "ignore_merges"),
    ({"model.vocab.q": 70000}, ""), ({"model.vocab.zebra": "V"}, ""),
])  # fmt: skip
def test_a_part_that_would_change_the_tokens_is_refused(tmp_path, kind, change, said):
    made = Tokenizer.train(["the cat sat on a mat", "the cat sat"] * 3, kind)
    tree = json.loads(made.json)
    for path, value in change.items():
        *parents, name = path.split(".")
        branch = tree
        for parent in parents:
            branch = branch[parent]
        if kind in ("word", "char") and name in ("dropout", "continuing_subword_prefix", "ignore_merges"):
            pytest.skip("a look-up has none")
        if kind in ("word", "bpe") and name == "zebra":
            pytest.skip("a symbol like any other")
        branch[name] = made.vocabulary if value == "V" else value
    (tmp_path / "tokenizer.json").write_text(json.dumps(tree), encoding="utf-8")
    with pytest.raises(RegardError, match=said or None):
        Tokenizer.load(tmp_path / "tokenizer.json")
    made.save(tmp_path / "tokenizer.json")
    assert Tokenizer.load(tmp_path / "tokenizer.json").json == made.json


# -- details ---------------------------------------------------------------------------------------------------------


def test_blocks_are_of_the_asked_size_or_a_line_more():
    assert list(blocks(["ab", "cd", "e", "", "fghij"], 6)) == [("ab\ncd", 2), ("e\n\nfghij", 3)]
    assert [count for _, count in blocks(["abcd"] * 6, 6)] == [2, 2, 2]
    assert list(blocks(["ab", "cd", "e"], 7)) == [("ab\ncd\ne", 3)]
    assert list(blocks(["abcdefgh", "i"], 3)) == [("abcdefgh", 1), ("i", 1)]
    assert list(blocks([], 3)) == []
    assert [count for _, count in blocks(["x" * (1 << 18)] * 9)] == [4, 4, 1]


def test_half_a_surrogate_pair_is_shown_with_what_stands_before_it():
    words = Tokenizer.train(["é"], "word")
    for text, piece in (("0123456789abc\udce9def", "3456789abc\\udce9"), ("ab\udce9", "ab\\udce9")):
        with pytest.raises(RegardError) as caught:
            words.encode(text)
        assert f"after '{piece}'" in str(caught.value)


def test_spans_are_those_of_the_tokens_in_the_normalised_line():
    words = Tokenizer.train(["the cat é"], "word", 9)
    text = " the  cat, e\u0301"
    normal = words.normalise(text)
    assert [normal[a:b] for a, b in words.offsets(text)] == ["the", "cat", ",", "é"]


def test_lines_must_be_lines(tokenizer):
    for lines in (["a\nb"], ["a", "b\n"], ["\n", ""]):
        with pytest.raises(ValueError, match="line break"):
            tokenizer.encode_lines(lines)


def test_words_that_occur_once_are_unknown_unless_all_do_or_the_text_is_tokenised():
    assert Tokenizer.train(["a b", "b c c"], "word").tokens == ["<eos>", "<unk>", "b", "c"]
    assert Tokenizer.train(["a b"], "word").tokens == ["<eos>", "<unk>", "a", "b"]
    assert Tokenizer.train(["a b", "b c"], "word", pretokenised=True).tokens == ["<eos>", "<unk>", "b", "a", "c"]
    assert Tokenizer.train(["a b", "b c"], "word", 99).tokens == ["<eos>", "<unk>", "b", "a", "c"]


@pytest.mark.parametrize("arguments", [("bpe", 257), ("word", 3), ("char", 3), ("byte", 257), ("byte", None)])
def test_the_smallest_vocabularies_are_fine(arguments):
    assert Tokenizer.train(TEXT, *arguments).vocabulary == (arguments[1] or 257)


@pytest.mark.parametrize("arguments", [("bpe", 256), ("word", 2), ("char", 2), ("byte", 256), ("byte", 258)])
def test_smaller_ones_are_refused(arguments):
    with pytest.raises(RegardError, match=r"at least|always has 257"):
        Tokenizer.train(TEXT, *arguments)


def test_byte_pairs_have_a_largest_default(monkeypatch):
    assert (vocabulary.MAX_BPE_SYMBOLS, vocabulary.CHARACTERS_PER_SYMBOL) == (8000, 200)
    monkeypatch.setattr(vocabulary, "MAX_BPE_SYMBOLS", 260)
    monkeypatch.setattr(vocabulary, "CHARACTERS_PER_SYMBOL", 1)
    assert Tokenizer.train(TEXT * 3, "bpe").vocabulary == 260
    rare = Tokenizer.train(["abab", "cd"], "bpe", 400)
    assert rare.tokens[257:] == ["ab"]  # what occurs once is not merged


def test_bytes_are_shown_as_themselves_or_by_their_number():
    tokens = Tokenizer.train(TEXT, "byte").tokens
    assert tokens[:2] == ["<eos>", "\x00"]
    assert tokens[1 + ord("a")] == "a"
    assert tokens[1 + 0xC3] == "<0xC3>"
    pairs = Tokenizer.train(["é é é é"], "bpe", 260)
    assert "é" in pairs.tokens
    oracle = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    for byte in range(128):
        ((shown, _),) = oracle.pre_tokenize_str(chr(byte))
        assert BYTE_SYMBOLS[byte] == shown
    assert sorted(BYTE_SYMBOLS) == sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    assert [ord(BYTE_SYMBOLS[byte]) for byte in (0, 32, 127, 160, 161, 172, 173, 174, 255)] == [
        256, 288, 289, 322, 161, 172, 323, 174, 255
    ]  # fmt: skip


def test_remembered_pieces_are_counted_in_characters(monkeypatch):
    monkeypatch.setattr(tokenizer_module, "CACHED_CHARACTERS", 6)
    words = Tokenizer.train(["abc def ghi j"], "word", 9)
    words.encode("abc def")
    assert words._remembered.keys() == {"\n", "abc", "def"}
    words.encode("abc def")  # six characters are not too many
    words.encode("j")
    assert words._remembered.keys() == {"\n", "abc", "def", "j"}
    words.encode("ghi")
    assert words._remembered.keys() == {"\n", "ghi"}


def test_words_are_joined_as_they_are_written():
    words = Tokenizer.train(["“ ( a , b ) ! ” [ c ] ; it 's …"], "word", 99)
    raw = [words.tokens.index(token) for token in str.split("“ ( a , b ) ! ” [ c ] ;")]
    assert words.decode(raw) == "“(a, b)!” [c];"
    assert words.decode([raw[2], 0, raw[4]]) == "a\nb"
    given = Tokenizer.of_tokens(["<eos>", "<unk>", "a", ","], "word")
    assert given.pretokenised
    assert given.decode([2, 3, 0, 2, 1]) == "a ,\na <unk>"
    letters = Tokenizer.of_tokens(["<eos>", "<unk>", "a", " "], "char")
    assert letters.decode([2, 3, 0, 2]) == "a \na"
    assert letters.encode("a b") == [2, 3, 1]


@pytest.mark.parametrize("change, said", [
    (lambda tree: tree["model"]["vocab"].update({"<eos>": 1, "<unk>": 0}), "not written by Regard"),
    (lambda tree: tree["model"]["vocab"].update({"<unk>": 2, "cat": 1}), "not written by Regard"),
    (lambda tree: tree["normalizer"].update({"type": "NFD"}), "not written by Regard"),
    (lambda tree: tree.update({"pre_tokenizer": {"type": "Whitespace"}}), "not written by Regard"),
    (lambda tree: tree["model"]["vocab"].update({"new": 9}), "ids have gaps"),
])  # fmt: skip
def test_a_vocabulary_of_another_program_is_refused(tmp_path, change, said):
    tree = json.loads(Tokenizer.train(["the cat", "the cat"], "word").json)
    assert tree["model"]["vocab"] == {"<eos>": 0, "<unk>": 1, "cat": 2, "the": 3}
    change(tree)
    (tmp_path / "t.json").write_text(json.dumps(tree), encoding="utf-8")
    with pytest.raises(RegardError, match=said):
        Tokenizer.load(tmp_path / "t.json")


def test_bytes_in_another_order_are_refused(tmp_path):
    for kind, said in (("byte", "a different order"), ("bpe", "")):
        tree = json.loads(Tokenizer.train(TEXT, kind).json)
        vocabulary = tree["model"]["vocab"]
        vocabulary["a"], vocabulary["b"] = vocabulary["b"], vocabulary["a"]
        (tmp_path / "t.json").write_text(json.dumps(tree), encoding="utf-8")
        if said:
            with pytest.raises(RegardError, match=said):
                Tokenizer.load(tmp_path / "t.json")
        else:
            assert Tokenizer.load(tmp_path / "t.json").decode([vocabulary["a"]]) == "a"
    tree = json.loads(Tokenizer.train(TEXT, "byte").json)
    tree["model"]["vocab"]["\n"] = tree["model"]["vocab"].pop("a")
    (tmp_path / "t.json").write_text(json.dumps(tree), encoding="utf-8")
    with pytest.raises(RegardError, match="not made of bytes"):
        Tokenizer.load(tmp_path / "t.json")


@pytest.mark.parametrize("form", ["nfc", "nfkc", "none"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_tokenizer_is_lossless_if_any_text_comes_back(kind, form):
    tokenizer, text = Tokenizer.train(TEXT, kind, normalise=form), "e\u0301  ﬁn Ω"
    assert tokenizer.lossless is (tokenizer.decode(tokenizer.encode(text)) == text)


@pytest.mark.parametrize("kind", KINDS)
def test_composed_and_decomposed_training_text_give_the_same_vocabulary(kind):
    text = ["l'été déjà passé, été déjà"] * 5
    apart = [unicodedata.normalize("NFD", line) for line in text]
    assert Tokenizer.train(apart, kind, 270 if kind == "bpe" else None).digest == (
        Tokenizer.train(text, kind, 270 if kind == "bpe" else None).digest
    )


@pytest.mark.parametrize("kind", KINDS)
def test_another_program_that_loads_the_file_decodes_the_text(tmp_path, kind):
    tokenizer, text = Tokenizer.train(["the cat sat"] * 2, kind), "the cat sat"
    tokenizer.save(tmp_path / "tokenizer.json")
    assert len((tmp_path / "tokenizer.json").read_text(encoding="utf-8").splitlines()) > tokenizer.vocabulary
    engine = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert engine.decode(tokenizer.encode(text)) == text


def test_only_words_can_be_cut_already():
    for kind in KINDS:
        assert Tokenizer.train(TEXT, kind, pretokenised=True).pretokenised is (kind == "word")
        assert Tokenizer.train(TEXT, kind).pretokenised is False


@pytest.mark.parametrize("characters, symbols", [(399, 1), (400, 2)])
def test_two_hundred_characters_give_a_symbol(characters, symbols):
    lines = ["abcdefg hij"] * 33  # of 12 characters each, with their ends
    lines.append("k" * (characters - 12 * 33 - 1))
    assert Tokenizer.train(lines, "bpe").vocabulary == 257 + symbols


@pytest.mark.parametrize("change", [
    lambda vocabulary: vocabulary.update({"bc": vocabulary.pop("a")}),  # a byte is missing
    lambda vocabulary: vocabulary.update({"\n": len(vocabulary)}),  # this one stands for no byte
])  # fmt: skip
def test_byte_pairs_have_all_bytes_and_are_made_of_nothing_else(tmp_path, change):
    tree = json.loads(Tokenizer.train(TEXT, "bpe", 257).json)
    change(tree["model"]["vocab"])
    (tmp_path / "t.json").write_text(json.dumps(tree), encoding="utf-8")
    with pytest.raises(RegardError, match="symbols are not made of bytes"):
        Tokenizer.load(tmp_path / "t.json")


def test_a_character_is_one_character(tmp_path):
    tree = json.loads(Tokenizer.of_tokens(["<eos>", "<unk>", "a", "ab"], "char").json)
    (tmp_path / "t.json").write_text(json.dumps(tree), encoding="utf-8")
    with pytest.raises(RegardError, match="a symbol is longer than a character"):
        Tokenizer.load(tmp_path / "t.json")


def test_a_model_of_another_kind_is_refused_by_what_it_has_more(tmp_path):
    tree = json.loads(Tokenizer.train(TEXT, "word").json)
    pieces = {"type": "WordPiece", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100}
    tree["model"] |= pieces
    (tmp_path / "t.json").write_text(json.dumps(tree), encoding="utf-8")
    with pytest.raises(RegardError, match=r"its model\.continuing_subword_prefix is not used here"):
        Tokenizer.load(tmp_path / "t.json")


def test_training_draws_no_bar_of_its_own(monkeypatch):
    options, trainer = {}, tokenizers.trainers.BpeTrainer
    monkeypatch.setattr(vocabulary.trainers, "BpeTrainer", lambda **given: options.update(given) or trainer(**given))
    Tokenizer.train(TEXT, "bpe")
    assert options["show_progress"] is False


@pytest.mark.parametrize("run", [" ", "a", "\u3042"])
def test_a_line_of_one_character_takes_no_longer_than_its_length(run):
    """As one word of a million characters it would take minutes."""
    lines = ["the cat sees the dog"] * 20 + [run * 1_000_000]
    made = Tokenizer.train(lines, kind="bpe", vocabulary=300)
    assert made.decode(made.encode("the dog")) == "the dog"


@pytest.mark.parametrize("kind", ["char", "bpe"])
def test_half_a_surrogate_pair_is_refused_in_training_too(kind):
    with pytest.raises(RegardError, match="unpaired surrogate after"):
        Tokenizer.train(["a line", "caf\u00e9 \ud83d"], kind)
    assert valid_unicode("café 😀") == "café 😀"
    with pytest.raises(RegardError, match="unpaired surrogate after"):
        valid_unicode("caf\u00e9 \ud83d")
