"""The memory-mapped array holds exactly what the tokenizer says, and survives mishaps."""

import errno
import json
import re
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.base.errors import RegardError
from regard.text import tokens as tokens_module
from regard.text.corpus import Corpus, GivenLines, open_corpus
from regard.text.tokenizer import Tokenizer, blocks
from regard.text.tokens import WRITTEN_EOS, cached, load_tokens, tokenise

law = settings(derandomize=True, deadline=None, max_examples=40)
some_line = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n"))
LINES = ("the cat sat", "", "the dog did not sit", "le café e\u0301te\u0301")


@pytest.mark.parametrize("kind", ["word", "char", "byte", "bpe"])
@law
@given(lines=st.lists(some_line, min_size=1), block=st.integers(1, 50))
def test_the_array_on_disk_equals_encoding_in_memory(tmp_path_factory, kind, lines, block):
    tokenizer = Tokenizer.train(LINES, kind)
    expected = [symbol for line in lines for symbol in (*tokenizer.encode(line), tokenizer.eos)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokens_module, "blocks", partial(blocks, characters=block))
        array = tokenise(lines, tokenizer, tmp_path_factory.mktemp("array") / "train.npy")
    assert array.ids.tolist() == expected
    assert isinstance(array.ids, np.memmap)
    assert array.ids.dtype == np.uint16
    assert array.lines == len(lines)
    assert array.characters == sum(len(tokenizer.normalise(line)) + 1 for line in lines)
    assert array.unknown == (expected.count(tokenizer.unk) if tokenizer.unk is not None else 0)


def test_many_types_take_four_bytes(tmp_path):
    tokenizer = Tokenizer.train([" ".join(f"w{number}" for number in range(70_000))], "word")
    array = tokenise(["w69999 w0 w12345"], tokenizer, tmp_path / "new" / "folder" / "x.npy")
    assert array.ids.dtype == np.uint32
    assert tokenizer.decode(array.ids.tolist()) == "w69999 w0 w12345\n"


def test_progress_ends_where_it_promised(tmp_path):
    corpus_file = tmp_path / "text.txt"
    corpus_file.write_text("".join(f"ligne numéro {number}\n" for number in range(1000)), encoding="utf-8")
    calls: list[tuple[int, int | None]] = []
    corpus = open_corpus(corpus_file, split="tail")
    tokenizer = Tokenizer.train(LINES, "char")
    tokenise(corpus.splits["train"], tokenizer, tmp_path / "x.npy", lambda *call: calls.append(call))
    assert calls[-1][0] == calls[-1][1]


def test_the_same_text_is_tokenised_only_once(monkeypatch, own_cache):
    corpus = Corpus("small", {"train": GivenLines(LINES), "valid": GivenLines(LINES[:1])})
    tokenizer = Tokenizer.train(LINES, "char")
    first = cached(corpus, tokenizer, "train")
    with monkeypatch.context() as patch:
        patch.setattr(tokens_module, "tokenise", None)  # would fail if called
        again = cached(Corpus("renamed", corpus.splits), tokenizer, "train")
    assert (again.ids == first.ids).all()
    assert (again.characters, again.lines, again.unknown) == (first.characters, first.lines, first.unknown)
    shorter, longer = cached(corpus, tokenizer, "valid"), cached(corpus, Tokenizer.train(LINES, "byte"), "train")
    assert len(shorter.ids) < len(first.ids) < len(longer.ids)
    assert len(list((own_cache / "tokens").glob("*.npy"))) == 3


def test_a_damaged_cache_is_made_anew(own_cache):
    corpus, tokenizer = Corpus("small", {"train": GivenLines(LINES)}), Tokenizer.train(LINES, "char")
    good = cached(corpus, tokenizer, "train").ids.tolist()
    path = next((own_cache / "tokens").glob("*.npy"))
    for damage in (
        lambda: path.write_bytes(path.read_bytes()[:-4]),
        lambda: path.with_suffix(".json").write_text("{"),
        lambda: path.with_suffix(".json").unlink(),
    ):
        damage()
        assert cached(corpus, tokenizer, "train").ids.tolist() == good


def test_damaged_files_are_named(tmp_path):
    tokenise(LINES, Tokenizer.train(LINES, "char"), tmp_path / "x.npy")
    content = json.loads((tmp_path / "x.json").read_text())
    (tmp_path / "x.json").write_text(json.dumps(content | {"tokens": 3}))
    with pytest.raises(RegardError, match="damaged"):
        load_tokens(tmp_path / "x.npy")
    with pytest.raises(RegardError, match="no file"):
        load_tokens(tmp_path / "absent.npy")


def test_a_full_disk_leaves_nothing_behind(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(RegardError, match="disk is full"):
        tokenise(LINES, Tokenizer.train(LINES, "char"), tmp_path / "x.npy")
    assert list(tmp_path.iterdir()) == []


def test_nothing_to_tokenise_and_missing_splits_are_refused(tmp_path):
    with pytest.raises(RegardError, match="no lines"):
        tokenise([], Tokenizer.train(LINES, "char"), tmp_path / "x.npy")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(RegardError, match="has no test split; choose one of train"):
        cached(Corpus("small", {"train": GivenLines(LINES)}), Tokenizer.train(LINES, "char"), "test")


def test_real_corpora_have_their_published_numbers(machine_data):
    wikitext = open_corpus("wikitext-2")
    words = Tokenizer.train(wikitext.splits["train"], "word", pretokenised=wikitext.pretokenised)
    assert words.vocabulary == 33_278
    assert {split: len(cached(wikitext, words, split).ids) for split in wikitext.splits} == {
        "train": 2_088_628,
        "valid": 217_646,
        "test": 245_569,
    }
    shakespeare = open_corpus("shakespeare")
    characters = Tokenizer.train(shakespeare.splits["train"], "char")
    arrays = [cached(shakespeare, characters, split) for split in shakespeare.splits]
    assert sum(len(array.ids) for array in arrays) == sum(array.characters for array in arrays) == 1_115_394


def test_an_eos_spelt_out_at_a_lines_end_is_that_end(tmp_path):
    tokenizer = Tokenizer.train(["a b <unk>"], "word", pretokenised=True)
    plain = tokenise(["a b", "b <unk>"], tokenizer, tmp_path / "plain.npy")
    spelt = tokenise(["a b <eos>", "b <unk> <eos> "], tokenizer, tmp_path / "spelt.npy")
    assert spelt.ids.tolist() == plain.ids.tolist()


class Killed(BaseException):
    """Not an error that anything could handle."""


def dying(lines, after):
    for number, line in enumerate(lines):
        if number == after:
            raise Killed
        yield line


@pytest.mark.parametrize("kind", ["word", "bpe", "char"])
def test_what_was_cut_before_a_kill_is_not_cut_again(tmp_path, monkeypatch, kind):
    lines = [f"line {n} of the text, number {n * n}" for n in range(400)]
    tokenizer = Tokenizer.train(lines, kind)
    whole = tokenise(lines, tokenizer, tmp_path / "whole.npy")
    monkeypatch.setattr(tokens_module, "KEPT_EVERY", 500)
    monkeypatch.setattr(tokens_module, "blocks", lambda lines: blocks(lines, 300))
    path, read = tmp_path / "cut.npy", []
    for after in (150, 260):
        with pytest.raises(Killed):
            tokenise(dying(lines, after), tokenizer, path)
        with open(path.with_suffix(".part"), "ab") as part:
            part.write(b"written after the last note")
    cut = tokenise(lines, tokenizer, path, lambda done, total: read.append(done))
    assert read[0] > 150 * 20  # it went on, and did not begin again
    assert (cut.ids == whole.ids).all()
    assert (cut.characters, cut.lines, cut.unknown) == (whole.characters, whole.lines, whole.unknown)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["cut.json", "cut.npy", "whole.json", "whole.npy"]


def test_several_processes_cut_as_one_does(tmp_path, monkeypatch):
    lines = [f"line {n} of the text, number {n * n}" for n in range(2000)]
    tokenizer = Tokenizer.train(lines, "bpe", 300)
    monkeypatch.setattr(tokens_module, "blocks", lambda lines: blocks(lines, 2000))
    one = tokenise(lines, tokenizer, tmp_path / "one.npy", processes=1)
    two = tokenise(lines, tokenizer, tmp_path / "two.npy", processes=2)
    assert (one.ids == two.ids).all()
    assert (one.characters, one.lines, one.unknown) == (two.characters, two.lines, two.unknown)


def test_a_broken_note_is_not_believed(tmp_path):
    lines = ["a b c"] * 5
    (tmp_path / "x.part").write_bytes(b"junk")
    (tmp_path / "x.part.json").write_text('{"tokens": 3}', encoding="utf-8")
    assert tokenise(lines, Tokenizer.train(lines, "word"), tmp_path / "x.npy").lines == 5


def test_an_end_that_is_written_out_is_found_in_any_number_of_blanks():
    for text in ("a <eos>", "a  \t<eos> \t", "a<eos>", "<eos>", " <eos>", "a <eos> b", "a <eos> <eos>", "a\n <eos>\nb"):
        assert WRITTEN_EOS.sub("", text) == re.sub(r"[ \t]*<eos>[ \t]*$", "", text, flags=re.M)
    assert WRITTEN_EOS.sub("", " " * 1_000_000) == " " * 1_000_000  # at once: it took minutes
