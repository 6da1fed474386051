"""Corpora from files and folders: how they are read, split, named, and refused."""

import gzip
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.base.errors import RegardError
from regard.text.corpus import Corpus, FileLines, GivenLines, open_corpus

law = settings(derandomize=True, deadline=None, max_examples=60)
printable = st.text(st.characters(exclude_categories=["Cs", "Cc"]))
some_line = st.one_of(st.sampled_from(["", "  ", "one", "two", "three"]), printable)
ENOUGH = [f"line {number:03} of the text" for number in range(400)]


def write(path: Path, lines, ending: str = "\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes("".join(f"{line}{ending}" for line in lines).encode())
    return path


def read(corpus: Corpus) -> dict[str, list[str]]:
    return {split: list(lines) for split, lines in corpus.splits.items()}


def refusal(path, **options) -> str:
    with pytest.raises(RegardError) as raised:
        read(open_corpus(str(path), **options))
    message = str(raised.value)
    assert message.endswith((".", "?"))
    assert "\n" not in message
    return message


@law
@given(lines=st.lists(some_line))
def test_lines_are_read_as_they_were_written(tmp_path_factory, lines):
    folder = tmp_path_factory.mktemp("lines")
    for ending in ("\n", "\r\n"):
        plain = write(folder / "plain.txt", lines, ending)
        marked = folder / "marked.txt"
        marked.write_bytes(b"\xef\xbb\xbf" + plain.read_bytes())
        packed = folder / "packed.txt.gz"
        packed.write_bytes(gzip.compress(plain.read_bytes()))
        for path in (plain, packed, *([marked] if lines else [])):
            source = FileLines(path)
            assert list(source) == lines
            assert list(source) == lines  # again


def test_only_line_feeds_end_lines(tmp_path):
    odd = ["a\x0bb", "c\x0cd", "e\x85f", "g\u2028h", "i\rj"]
    assert list(FileLines(write(tmp_path / "odd.txt", odd))) == odd
    (tmp_path / "open.txt").write_bytes(b"no line end\nat the last")
    assert list(FileLines(tmp_path / "open.txt")) == ["no line end", "at the last"]


@law
@given(lines=st.lists(some_line, min_size=2).filter(lambda lines: len({line for line in lines if line.strip()}) >= 2))
def test_identical_lines_share_a_split_and_none_is_lost(tmp_path_factory, lines):
    splits = read(open_corpus(write(tmp_path_factory.mktemp("drawn") / "text.txt", lines)))
    assert sorted(line for part in splits.values() for line in part) == sorted(lines)
    filled = {split: {line for line in part if line.strip()} for split, part in splits.items()}
    assert filled["train"]
    assert filled["valid"]
    assert all(filled.values())
    for one in filled:
        for other in filled:
            assert one == other or not filled[one] & filled[other]


def test_a_growing_file_keeps_its_splits(tmp_path):
    before = read(open_corpus(write(tmp_path / "text.txt", ENOUGH)))
    after = read(open_corpus(write(tmp_path / "text.txt", [*ENOUGH, *(f"new {number}" for number in range(400))])))
    for split, lines in before.items():
        assert after[split][: len(lines)] == lines
    assert 0.8 < len(after["train"]) / 800 < 0.97


def test_blank_lines_stay_with_the_line_before_them(tmp_path):
    lines = [text for line in ENOUGH for text in (line, "", " ")]
    for part in read(open_corpus(write(tmp_path / "text.txt", lines))).values():
        assert part[1::3] == [""] * (len(part) // 3)
        assert all(line in ENOUGH for line in part[::3])


@law
@given(
    lines=st.lists(some_line, min_size=2).filter(lambda lines: len({line for line in lines if line.strip()}) >= 2),
    packed=st.booleans(),
)
def test_the_tail_split_keeps_the_order_of_the_file(tmp_path_factory, lines, packed):
    path = write(tmp_path_factory.mktemp("tail") / "text.txt", lines)
    if packed:
        path = path.with_name("text.txt.gz")
        path.write_bytes(gzip.compress("".join(f"{line}\n" for line in lines).encode()))
    splits = read(open_corpus(path, split="tail"))
    assert [line for part in splits.values() for line in part] == lines
    assert all(splits.values())
    assert list(splits)[:2] == ["train", "valid"]


def test_the_tail_split_holds_out_a_tenth_and_counts_the_overlap(tmp_path):
    corpus = open_corpus(write(tmp_path / "text.txt", [*ENOUGH, ENOUGH[0]]), split="tail")
    assert {split: len(lines) for split, lines in read(corpus).items()} == {"train": 361, "valid": 20, "test": 20}
    assert corpus.notes == (
        "Cut in file order: 90 % train, 5 % valid, 5 % test.",
        "No line of valid occurs in train.",
        "1 of 20 lines of test (5.0 %) also occurs in train.",
    )


@pytest.mark.parametrize(
    "names",
    [
        ("train.txt", "valid.txt", "test.txt"),
        ("ptb.train.txt", "ptb.valid.txt", "ptb.test.txt"),
        ("wiki.train.tokens.gz", "wiki.valid.tokens", "wiki.test.tokens"),
        ("train", "dev", "test"),
        ("Train.TXT", "val.txt", "test.txt"),
    ],
)
def test_a_folder_with_splits_is_used_as_it_is(tmp_path, names):
    given = {"train": ["one", "two"], "valid": ["three", "two"], "test": ["four"]}
    for name, lines in zip(names, given.values()):
        content = "".join(f"{line}\n" for line in lines).encode()
        (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    (tmp_path / "README.md").write_text("a training text")
    corpus = open_corpus(tmp_path)
    assert read(corpus) == given
    assert corpus.name == tmp_path.name
    assert corpus.pretokenised == (".tokens" in names[1])
    assert corpus.notes[1:] == (
        "1 of 2 lines of valid (50.0 %) also occurs in train.",
        "No line of test occurs in train.",
    )


def test_what_a_folder_lacks_is_held_out_of_its_training_file(tmp_path):
    write(tmp_path / "train.txt", ENOUGH)
    assert list(read(open_corpus(tmp_path))) == ["train", "valid", "test"]
    write(tmp_path / "test.txt", ["a test"])
    splits = read(open_corpus(tmp_path))
    assert splits["test"] == ["a test"]
    assert splits["valid"]
    assert sorted(splits["train"] + splits["valid"]) == sorted(ENOUGH)


def test_token_files_are_recognised(tmp_path):
    corpus = open_corpus(write(tmp_path / "text.txt", ["the <unk> sat", "on a mat"]))
    assert (corpus.pretokenised, corpus.suggested_tokenizer) == (True, "word")
    assert not open_corpus(write(tmp_path / "raw.txt", ["The cat", "sat."])).pretokenised


def test_the_checksum_follows_the_content_and_not_the_place(tmp_path):
    one, same = write(tmp_path / "one.txt", ENOUGH), write(tmp_path / "there" / "other.txt", ENOUGH)
    packed = tmp_path / "packed.txt.gz"
    packed.write_bytes(gzip.compress(one.read_bytes()))
    first = open_corpus(one).checksum()
    assert open_corpus(same).checksum() == open_corpus(packed).checksum() == first
    assert open_corpus(one, split="tail").checksum() != first
    write(one, [*ENOUGH[:-1], "changed"])
    os.utime(one, ns=(1, 1))
    assert open_corpus(one).checksum() != first
    assert GivenLines(("a", "b")).checksum() != GivenLines(("a b",)).checksum()


def test_corpora_that_are_missing_are_named_with_the_nearest_one(tmp_path):
    write(tmp_path / "novel.txt", ENOUGH)
    assert "did you mean 'shakespeare'?" in refusal("shakespear")
    assert "did you mean 'pyref'?" in refusal("pyreff")
    assert f"did you mean {str(tmp_path / 'novel.txt')!r}?" in refusal(tmp_path / "novle.txt")
    assert "`regard data` lists" in refusal(tmp_path / "zzzzzzzzzzzzzzzzzzz")
    assert "There is no corpus" in refusal("a whole text instead of its name " * 100)
    assert "`regard data fetch ptb`" in refusal("ptb")


def test_files_that_cannot_be_a_corpus_are_refused_with_the_next_step(tmp_path):
    def file(content: bytes, name: str = "text.txt") -> Path:
        (tmp_path / name).write_bytes(content)
        return tmp_path / name

    assert "is empty" in refusal(file(b""))
    assert "is empty" in refusal(file(b"\xef\xbb\xbf\n\n \n"))
    assert "only blank lines" in refusal(file(b"\n" * 70_000))
    assert "only one distinct line" in refusal(file(b"again\nagain\n\nagain"))
    assert "only one distinct line" in refusal(file(b"again\nagain\n"), split="tail")
    assert "zero byte at offset 5" in refusal(file(b"\x7fELF\n\x00\x01"))
    assert "damaged UTF-16" in refusal(file("text\nmore".encode("utf-16")[:-1]))
    assert "line 3 has the byte 0xE9 at offset 12" in refusal(file(b"first\nok\ncaf\xe9\nlast\n"))
    assert "line 3 has the byte 0xE9 at offset 12" in refusal(file(b"first\nok\ncaf\xe9\nlast\n"), split="tail")
    assert "not a whole gz file" in refusal(file(b"plain text\nnot packed\n", "text.txt.gz"))
    assert "not a whole gz file" in refusal(file(gzip.compress(bytes(range(256)))[:-20], "text.txt.gz"))
    assert "choose lines or tail" in refusal(file(b"one\ntwo\n"), split="half")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="the superuser may read everything")
def test_a_file_that_may_not_be_read_is_refused(tmp_path):
    write(tmp_path / "text.txt", ENOUGH).chmod(0)
    assert "may not be read" in refusal(tmp_path / "text.txt")


def test_folders_that_cannot_be_a_corpus_are_refused_with_the_next_step(tmp_path):
    assert "has no training file" in refusal(tmp_path)
    write(tmp_path / "test.txt", ENOUGH)
    assert str(tmp_path / "test.txt") in refusal(tmp_path)
    write(tmp_path / "train.txt", ENOUGH)
    assert "own splits" in refusal(tmp_path, split="tail")
    write(tmp_path / "valid.txt", [""])
    assert "valid.txt' is empty" in refusal(tmp_path)
    write(tmp_path / "dev.txt", ["x"])
    assert "several valid files (dev.txt, valid.txt)" in refusal(tmp_path)


def test_a_fetched_corpus_is_found_first_where_the_user_says(tmp_path, own_cache, monkeypatch):
    write(own_cache / "data" / "shakespeare" / "input.txt", ENOUGH)
    assert list(read(open_corpus("shakespeare"))) == ["train", "valid"]
    monkeypatch.setenv("REGARD_DATA", str(tmp_path))
    write(tmp_path / "shakespeare" / "input.txt", ["Enter", "Exit"])
    corpus = open_corpus("shakespeare")
    assert read(corpus) == {"train": ["Enter"], "valid": ["Exit"]}
    assert (corpus.name, corpus.suggested_tokenizer, corpus.pretokenised) == ("shakespeare", "char", False)


def test_a_corpus_fetched_in_part_is_refused(own_cache):
    write(own_cache / "data" / "ptb" / "ptb.train.txt", ENOUGH)
    assert "'ptb' is incomplete on this machine; run `regard data fetch ptb`" in refusal("ptb")


def test_a_part_where_the_user_says_does_not_hide_the_whole_in_the_cache(tmp_path, own_cache, monkeypatch):
    monkeypatch.setenv("REGARD_DATA", str(tmp_path))
    write(tmp_path / "ptb" / "ptb.train.txt", ["no", "valid file"])
    for split in ("train", "valid", "test"):
        write(own_cache / "data" / "ptb" / f"ptb.{split}.txt", ENOUGH)
    assert read(open_corpus("ptb"))["train"] == ENOUGH


def test_sentence_pairs_are_no_text_for_a_language_model(own_cache):
    write(own_cache / "data" / "multi30k" / "train.en", ENOUGH)
    assert "holds sentence pairs" in refusal("multi30k")
    assert read(open_corpus(own_cache / "data" / "multi30k" / "train.en"))["train"]


def test_real_corpora_have_their_published_sizes(machine_data):
    wikitext = open_corpus("wikitext-2")
    assert {split: sum(len(line.split()) + 1 for line in lines) for split, lines in wikitext.splits.items()} == {
        "train": 2_088_628,
        "valid": 217_646,
        "test": 245_569,
    }
    shakespeare = open_corpus("shakespeare")
    assert sum(len(line) + 1 for lines in shakespeare.splits.values() for line in lines) == 1_115_394
    assert sum(len(line) + 1 for line in shakespeare.splits["train"]) == pytest.approx(0.9 * 1_115_394, abs=40)
