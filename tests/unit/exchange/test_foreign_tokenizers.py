"""Other programs' tokenizers cut lines of many scripts as their own libraries do."""

import io
import json
import struct

import pytest
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, trainers
from tokenizers import Tokenizer as Engine

from regard.base.errors import RegardError
from regard.exchange import foreign_tokenizers, sentencepiece_file
from regard.exchange.foreign_folder import Config
from regard.exchange.foreign_tokenizers import (
    BYTE,
    CONTROL,
    CUTS,
    NORMAL,
    UNKNOWN,
    byte_pairs,
    cut_by,
    llama2c_tokenizer,
    sentence_pieces,
)
from regard.exchange.hf_tokenizer import template_of, tokenizer_of
from regard.exchange.sentencepiece_file import read_pieces, sentencepiece_model
from regard.text.tokenizers.imported import import_engine
from regard.text.tokenizers.tokenizer import Tokenizer

SCRIPTS = [
    "The ship left the harbour at dawn; it's 12,345 miles away!",
    "Où vont-ils ? À la maison, e\u0301videmment, cœur naïf.",
    "Το πλοίο έφυγε από το λιμάνι.",
    "Корабль вышел из гавани на рассвете.",
    "غادرت السفينة الميناء عند الفجر.",
    "הספינה עזבה את הנמל עם שחר.",
    "जहाज भोर में बंदरगाह से निकला।",
    "เรือออกจากท่าเรือตอนรุ่งสาง",
    "船在黎明时离开了港口。",
    "船は夜明けに港を出た。カタカナ",
    "배는 새벽에 항구를 떠났다.",
    "🚢 left 👩‍👩‍👧 at 5 a.m.",
    "def f(x):\n\treturn  x**2   # two  spaces",
    "  leading and trailing  ",
    "",
    " ",
    "\n\n",
]


def same(tokenizer, encode, decode):
    """Encoded as `encode` does, one by one and all at once, and decoded to the text that `decode` gives."""
    for text in SCRIPTS:
        assert tokenizer.encode(text) == encode(text), text
        assert tokenizer.decode(tokenizer.encode(text)) == decode(encode(text)), text
    lines = [text for text in SCRIPTS if "\n" not in text]
    ids, ends = tokenizer.encode_text(lines)
    assert ids.tolist() == [number for line in lines for number in [*encode(line), tokenizer.eos]]
    assert ends.tolist()[-1] == len(ids)
    again = Tokenizer.from_json(tokenizer.json)
    assert [again.encode(text) for text in SCRIPTS] == [tokenizer.encode(text) for text in SCRIPTS]
    assert (again.begin, again.eos, again.specials) == (tokenizer.begin, tokenizer.eos, tokenizer.specials)


@pytest.fixture(scope="module", params=CUTS)
def byte_level(request):
    """Byte pairs of each way of cutting that GGUF names."""
    engine = Engine(models.BPE())
    engine.pre_tokenizer, engine.decoder = cut_by(request.param), decoders.ByteLevel()
    if request.param == "qwen2":
        engine.normalizer = normalizers.NFC()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=["<s>", "</s>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    engine.train_from_iterator(SCRIPTS * 3, trainer)
    return request.param, engine


def test_byte_pairs_are_cut_as_by_the_tokenizers_library(byte_level):
    _, engine = byte_level
    made = import_engine(Engine.from_str(engine.to_str()), begin=0, eos=1, vocabulary=engine.get_vocab_size())
    same(made, lambda text: engine.encode(text, add_special_tokens=False).ids, engine.decode)
    if engine.normalizer is None:
        assert [made.decode(made.encode(text)) for text in SCRIPTS] == SCRIPTS


def test_byte_pairs_as_gguf_lists_them_are_the_same_tokenizer(byte_level):
    cut, engine = byte_level
    model = json.loads(engine.to_str())["model"]
    tokens = [engine.id_to_token(number) for number in range(engine.get_vocab_size())]
    merges = [" ".join(pair) for pair in model["merges"]]
    made = byte_pairs(tokens, merges, [CONTROL, CONTROL, *[NORMAL] * (len(tokens) - 2)], cut)
    for text in SCRIPTS:
        if cut != "llama-bpe":  # whole words of the vocabulary are taken first there
            assert made.encode(text).ids == engine.encode(text).ids
        assert made.decode(made.encode(text).ids) == engine.decode(engine.encode(text).ids)


@pytest.mark.parametrize("names, pattern", [
    ("llama-bpe", r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
                  r"|\s*[\r\n]+|\s+(?!\S)|\s+"),
    ("qwen2", r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
              r"|\s+(?!\S)|\s+"),
])  # fmt: skip
def test_the_expressions_are_those_of_the_published_tokenizers(names, pattern):
    """As in the tokenizer.json of Llama 3 and Qwen2, and in llama.cpp."""
    split, _ = json.loads(cut_by(names).__getstate__())["pretokenizers"]
    assert split["pattern"] == {"Regex": pattern}


# -- SentencePiece -----------------------------------------------------------------------------------------------------


def trained(**more):
    sentencepiece = pytest.importorskip("sentencepiece", reason="which trains these models")
    written = io.BytesIO()
    settings = {"model_type": "bpe", "vocab_size": 640, "byte_fallback": True, "normalization_rule_name": "identity"}
    settings |= {"remove_extra_whitespaces": False, "character_coverage": 0.98, "minloglevel": 2, **more}
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([text for text in SCRIPTS if text.strip()] * 3), model_writer=written, **settings
    )
    return written.getvalue(), sentencepiece.SentencePieceProcessor(model_proto=written.getvalue())


@pytest.mark.parametrize("more", [{}, {"add_dummy_prefix": False}], ids=str)
def test_sentencepiece_bpe_with_bytes_is_cut_as_by_its_package(tmp_path, more):
    content, theirs = trained(**more)
    (tmp_path / "m.model").write_bytes(content)
    engine, begin, eos = sentencepiece_model(tmp_path / "m.model")
    made = import_engine(engine, begin=begin, eos=eos, vocabulary=theirs.get_piece_size())
    assert (made.begin, made.eos, made.unk) == (theirs.bos_id(), theirs.eos_id(), theirs.unk_id())
    same(made, theirs.encode, theirs.decode)
    assert [made.decode(made.encode(text)) for text in SCRIPTS] == SCRIPTS


def test_without_bytes_a_strange_character_is_the_unknown_token(tmp_path):
    content, theirs = trained(byte_fallback=False, vocab_size=300)
    (tmp_path / "m.model").write_bytes(content)
    engine, begin, eos = sentencepiece_model(tmp_path / "m.model")
    made = import_engine(engine, begin=begin, eos=eos, vocabulary=theirs.get_piece_size())
    for text in SCRIPTS[:12]:
        assert made.encode(text) == theirs.encode(text)
    assert made.unk in made.encode("🦆")


@pytest.mark.parametrize("more", [
    {"model_type": "unigram", "byte_fallback": False, "vocab_size": 200, "normalization_rule_name": "nmt_nfkc",
     "remove_extra_whitespaces": True},
    {"model_type": "unigram", "vocab_size": 450, "add_dummy_prefix": False},
    {"model_type": "bpe", "normalization_rule_name": "nfkc_cf", "remove_extra_whitespaces": True},
], ids=str)  # fmt: skip
def test_unigram_and_normalization_are_cut_as_by_its_package(tmp_path, more):
    content, theirs = trained(**more)
    (tmp_path / "m.model").write_bytes(content)
    engine, begin, eos = sentencepiece_model(tmp_path / "m.model")
    made = import_engine(engine, begin=begin, eos=eos, vocabulary=theirs.get_piece_size())
    for text in (*SCRIPTS[:12], "  ﬁve² Ⅷ  spaces ", ""):
        assert made.encode(text) == theirs.encode(text), text
        assert made.decode(made.encode(text)) == theirs.decode(theirs.encode(text)).replace(" ⁇ ", ""), text
    assert eos not in made.encode("a </s> b")
    assert made.tokens[eos] == "</s>"


def test_symbols_of_a_users_own_are_refused_rather_than_cut_wrongly(tmp_path):
    content, _ = trained(user_defined_symbols=["<mine>"])
    (tmp_path / "m.model").write_bytes(content)
    with pytest.raises(RegardError, match="splits text in a way that Regard does not"):
        sentencepiece_model(tmp_path / "m.model")


@pytest.mark.parametrize("kind", ["word", "char"])
def test_other_kinds_of_sentencepiece_are_refused_rather_than_cut_wrongly(tmp_path, kind):
    content, _ = trained(model_type=kind, byte_fallback=False, vocab_size=60, hard_vocab_limit=False)
    (tmp_path / "m.model").write_bytes(content)
    with pytest.raises(RegardError, match="Regard supports only SentencePiece's BPE and unigram"):
        sentencepiece_model(tmp_path / "m.model")


@pytest.mark.parametrize("content", [b"", b"\x00" * 100, b"\xff" * 1000, b"\x0a\xff\xff\xff\xff\x0f" + b"a" * 50])
def test_a_damaged_model_is_one_sentence(tmp_path, content):
    pytest.importorskip("sentencepiece", reason="which reads these models")
    (tmp_path / "m.model").write_bytes(content)
    with pytest.raises(RegardError, match="is not a SentencePiece model"):
        sentencepiece_model(tmp_path / "m.model")


def test_half_a_model_is_one_sentence(tmp_path):
    content, _ = trained()
    for size in (10, len(content) // 2, len(content) - 3):
        (tmp_path / "m.model").write_bytes(content[:size])
        with pytest.raises(RegardError) as error:
            sentencepiece_model(tmp_path / "m.model")
        assert "\n" not in str(error.value)


# -- llama2.c's tok.bin ------------------------------------------------------------------------------------------------


def tok_bin(theirs):
    """As llama2.c's tokenizer.py writes it."""
    tokens = [theirs.id_to_piece(number) for number in range(theirs.get_piece_size())]
    tokens[1:3] = ["\n<s>\n", "\n</s>\n"]
    stored = [token.replace("▁", " ").encode() for token in tokens]
    parts = [struct.pack("<fI", theirs.get_score(number), len(one)) + one for number, one in enumerate(stored)]
    return struct.pack("<I", max(map(len, stored))) + b"".join(parts)


def test_tok_bin_is_the_sentencepiece_model_that_it_was_made_from(tmp_path):
    _, theirs = trained()
    (tmp_path / "tok.bin").write_bytes(tok_bin(theirs))
    size = theirs.get_piece_size()
    made = import_engine(llama2c_tokenizer(tmp_path / "tok.bin", size), begin=1, eos=2, vocabulary=size)
    same(made, theirs.encode, theirs.decode)


def test_a_damaged_tok_bin_is_one_sentence(tmp_path):
    good = b"\x09\0\0\0" + b"".join(struct.pack("<fI", 0.0, 1) + b"%c" % (97 + n) for n in range(5))
    for content in (
        b"",
        good[:-1],
        good[:7],
        good + b"more",
        good[:8] + b"\xff\xff\xff\x7f" + good[12:],
        good[:12] + b"\xff" + good[13:],
    ):
        (tmp_path / "tok.bin").write_bytes(content)
        with pytest.raises(RegardError, match=r"tok\.bin"):
            llama2c_tokenizer(tmp_path / "tok.bin", 5)


# -- lists from a stranger ---------------------------------------------------------------------------------------------


def test_lists_that_contradict_themselves_are_refused():
    with pytest.raises(RegardError, match="twice"):
        sentence_pieces(["a", "a"], [0.0, 0.0], [NORMAL, NORMAL], True)
    with pytest.raises(RegardError, match="a merge of tokens that are not in its vocabulary"):
        byte_pairs(["a", "b"], ["a b"], [NORMAL, NORMAL], "gpt-2")
    with pytest.raises(RegardError, match="a merge of tokens that are not in its vocabulary"):
        byte_pairs(["a", "b"], ["nonsense"], [NORMAL, NORMAL], "gpt-2")
    with pytest.raises(RegardError, match="which Regard does not know"):
        byte_pairs(["a"], [], [NORMAL], "tekken")


def test_many_long_pieces_take_bounded_time():
    """A piece of n characters can be cut in n − 1 places."""
    long = ["a" * n for n in range(1, 1001)]
    tokens = ["<unk>", "<s>", "</s>", *long]
    kinds = [UNKNOWN, CONTROL, CONTROL, *[NORMAL] * len(long)]
    with pytest.raises(RegardError, match="so many long pieces"):
        sentence_pieces(tokens, [0.0] * len(tokens), kinds, True)


def test_bytes_that_are_only_partly_there_are_not_fallen_back_to():
    tokens = ["<unk>", "<s>", "</s>", "<0x41>", "a"]
    engine = sentence_pieces(tokens, [0.0] * 5, [UNKNOWN, CONTROL, CONTROL, BYTE, NORMAL], False)
    assert engine.encode("aA").ids == [4, 0]


def test_an_expression_without_end_is_stopped_with_one_sentence():
    engine = Engine(models.BPE({"a": 0, "b": 1, "<s>": 2}, []))
    engine.pre_tokenizer = pre_tokenizers.Split(Regex("(a+)+b"), "isolated")
    made = import_engine(engine, begin=2, eos=2, vocabulary=3)
    for cut in (made.encode, made.encode_template, lambda text: made.encode_text([text])):
        with pytest.raises(RegardError, match="cannot split this text"):
            cut("a" * 40)


def field(number, value):
    """A field of a protocol buffer: a number below 128 bits of 7, or bytes."""
    if isinstance(value, bytes):
        return varint(number << 3 | 2) + varint(len(value)) + value
    return varint(number << 3) + varint(value)


def varint(value):
    return bytes([value & 127 | 128]) + varint(value >> 7) if value > 127 else bytes([value])


@pytest.mark.parametrize("part", [
    field(1, field(1, 1 << 30)),  # a piece that is a number: not so many zeros
    field(3, field(2, 1 << 30)),
    field(3, field(2, struct.pack("<I", 2**32 - 1) + b"abc")),  # a table longer than itself
    field(3, field(2, bytes(4) + b"y" * 10000)),  # a character that becomes 10,000
    field(1, field(1, b"u" * 10000)),
], ids=["piece", "table", "size", "growth", "long"])  # fmt: skip
def test_a_model_that_would_fill_the_memory_is_refused(tmp_path, part):
    content, _ = trained()
    (tmp_path / "m.model").write_bytes(content + part)
    with pytest.raises(RegardError, match=r"is damaged|a token of more than 4096 characters"):
        sentencepiece_model(tmp_path / "m.model")


def pieces_file(path, *fields):
    path.write_bytes(b"".join(fields))
    return path


def piece(name, score=None, kind=None):
    more = (varint(2 << 3 | 5) + struct.pack("<f", score) if score is not None else b"") + (
        field(3, kind) if kind else b""
    )
    return field(1, field(1, name.encode()) + more)


def test_a_model_that_leaves_things_out_means_what_the_format_means_by_it(tmp_path, monkeypatch):
    bare = read_pieces(pieces_file(tmp_path / "bare.model", piece("a"), piece("b", -2.5, CONTROL)))
    assert (bare.tokens, bare.scores, bare.kinds) == (["a", "b"], [0.0, -2.5], [NORMAL, CONTROL])
    assert (bare.model, bare.prefix, bare.collapses, bare.charsmap) == (1, True, True, b"")
    assert (bare.of_kind(CONTROL), bare.of_kind(UNKNOWN)) == (1, -1)
    assert (bare.named("b"), bare.named("a"), bare.named("c")) == (1, -1, -1)
    assert read_pieces(pieces_file(tmp_path / "first.model", piece("<s>", 0.0, CONTROL))).named("<s>") == 0
    said = [piece("a"), field(2, field(3, 2)), field(3, field(3, 0) + field(4, 0) + field(2, bytes(4) + b"x"))]
    full = read_pieces(pieces_file(tmp_path / "full.model", *said, varint(9 << 3 | 1) + bytes(8)))
    assert (full.model, full.prefix, full.collapses, full.charsmap) == (2, False, False, bytes(4) + b"x")
    trainer_alone = read_pieces(pieces_file(tmp_path / "t.model", piece("a"), field(2, b""), field(3, b"")))
    assert (trainer_alone.model, trainer_alone.prefix, trainer_alone.collapses) == (1, True, True)
    for score, fits in ((9.9e8, True), (-9.9e8, True), (1e9, False), (-1e9, False), (float("nan"), False)):
        file = pieces_file(tmp_path / "s.model", piece("a", score))
        if fits:
            assert read_pieces(file).scores == [pytest.approx(score)]
        else:
            with pytest.raises(RegardError, match="is not a SentencePiece model"):
                read_pieces(file)
    monkeypatch.setattr(sentencepiece_file, "MAX_VOCABULARY", 2)
    assert len(read_pieces(pieces_file(tmp_path / "m.model", piece("a"), piece("b"))).tokens) == 2
    with pytest.raises(RegardError, match="has more than 2 tokens, the most that Regard supports"):
        read_pieces(pieces_file(tmp_path / "m.model", piece("a"), piece("b"), piece("c")))


def test_a_number_of_a_model_has_as_many_bytes_as_it_needs_and_not_more_than_ten():
    read = sentencepiece_file._varint
    for value in (0, 1, 127, 128, 300, 2**32, 2**63):
        content = bytes(2) + varint(value) + b"\xff"
        assert read(memoryview(content), 2) == (value, len(content) - 1)
    assert read(memoryview(b"\x80" * 9 + b"\x00"), 0) == (0, 10)
    with pytest.raises(ValueError):
        read(memoryview(b"\x80" * 10 + b"\x00"), 0)
    with pytest.raises(IndexError):
        read(memoryview(b"\x80\x80"), 0)


def test_a_folder_with_a_sentencepiece_model_has_its_tokenizer(tmp_path):
    content, theirs = trained()
    (tmp_path / "tokenizer.model").write_bytes(content)
    config = Config(tmp_path / "config.json", {"bos_token_id": 1, "eos_token_id": [2, 5]})
    made, order = tokenizer_of(tmp_path, config, None, theirs.get_piece_size())
    assert (made.begin, made.eos, order) == (1, 2, list(range(theirs.get_piece_size())))
    assert made.encode(SCRIPTS[0]) == theirs.encode(SCRIPTS[0])
    config.values.pop("bos_token_id")  # then a text begins with what ends one
    assert tokenizer_of(tmp_path, config, None, theirs.get_piece_size())[0].begin == 2


def test_a_piece_of_a_tok_bin_may_be_as_long_as_the_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(foreign_tokenizers, "MAX_PIECE", 2)
    for name, fits in ((b"ab", True), (b"abc", False)):
        parts = [struct.pack("<fI", 0.0, len(one)) + one for one in (b"u", b"s", b"e", name)]
        (tmp_path / "tok.bin").write_bytes(struct.pack("<I", 3) + b"".join(parts))
        if fits:
            assert llama2c_tokenizer(tmp_path / "tok.bin", 4).token_to_id("ab") == 3
        else:
            with pytest.raises(RegardError, match=r"is not a llama2\.c tokenizer of 4 tokens"):
                llama2c_tokenizer(tmp_path / "tok.bin", 4)


def test_a_template_is_read_through_the_hubs_links_and_through_no_other(tmp_path):
    cache, elsewhere = tmp_path / "hub" / "models--x", tmp_path / "secret.txt"
    folder = cache / "snapshots" / "0a1b"
    for path in (folder, cache / "blobs"):
        path.mkdir(parents=True)
    (cache / "blobs" / "77").write_text("{{ messages[0].content }}")
    elsewhere.write_text("mine")
    (folder / "chat_template.jinja").symlink_to("../../blobs/77")
    assert template_of(folder) == "{{ messages[0].content }}"
    (folder / "chat_template.jinja").unlink()
    (folder / "chat_template.jinja").symlink_to(elsewhere)
    with pytest.raises(RegardError, match="is a link to a file outside the model's folder"):
        template_of(folder)
