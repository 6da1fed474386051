"""Corpora from files and folders: how they are read, split, named, and refused."""

import gzip
import os
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.base.errors import RegardError
from regard.text.corpus import (
    Corpus,
    FileLines,
    GivenLines,
    Overlap,
    available,
    count_overlap,
    open_corpus,
    open_whole,
    says,
    shards,
    split_files,
)

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
        "Split in file order: 90 % train, 5 % valid, 5 % test.",
        "No line of valid also occurs in train.",
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
        "No line of test also occurs in train.",
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
    assert "not a complete gz file" in refusal(file(b"plain text\nnot packed\n", "text.txt.gz"))
    assert "not a complete gz file" in refusal(file(gzip.compress(bytes(range(256)))[:-20], "text.txt.gz"))
    assert "choose lines or tail" in refusal(file(b"one\ntwo\n"), split="half")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="the superuser may read everything")
def test_a_file_that_may_not_be_read_is_refused(tmp_path):
    write(tmp_path / "text.txt", ENOUGH).chmod(0)
    assert "cannot be read; change its permissions" in refusal(tmp_path / "text.txt")


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
    assert "contains sentence pairs" in refusal("multi30k")
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


# -- details ---------------------------------------------------------------------------------------------------------


def test_overlap_is_counted_in_lines_and_said_in_a_sentence():
    train = GivenLines(("a", "b", "", " ", "c"))
    splits = {"train": train, "valid": GivenLines(("a", "a", "x", "")), "test": GivenLines(("y", "", "z"))}
    assert count_overlap(splits) == [Overlap("valid", 3, 2), Overlap("test", 2, 0)]
    assert Overlap("valid", 3, 2).sentence == "2 of 3 lines of valid (66.7 %) also occur in train."
    assert Overlap("valid", 1, 1).sentence == "1 of 1 line of valid (100.0 %) also occurs in train."
    assert Overlap("test", 2, 0).sentence == "No line of test also occurs in train."
    assert Corpus("x", splits, origin="Given.").notes[0] == "Given."
    assert len(Corpus("x", splits).notes) == 2
    assert Corpus("x", splits, disjoint=True).notes == ()
    assert Corpus("x", splits, origin="Given.", disjoint=True).notes == ("Given.",)
    assert (Corpus("x", splits).pretokenised, Corpus("x", splits).suggested_tokenizer) == (False, "bpe")


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    "lengths, starts",
    [
        ([10] * 20, [18, 19]),  # as exact as can be: 0.9 and 0.95 of 200 bytes are where lines begin
        ([10] * 10, [9, None]),  # 0.95 lies within the last line, so the last two lines are held out
        ([100, 5, 5], [1, 2]),
        ([5, 100], [1, None]),
        ([60, 60, 60], [1, 2]),
        ([2] * 99 + [4], [91, 96]),
        ([2] * 5 + [200] + [2] * 30, [23, 29]),
    ],
)
def test_a_tail_begins_with_the_first_line_after_its_share_of_the_bytes(tmp_path, packed, lengths, starts):
    lines = [f"{n % 10}".ljust(length - 1, "x") for n, length in enumerate(lengths)]
    path = write(tmp_path / "text.txt", lines)
    if packed:
        path = tmp_path / "text.txt.gz"
        path.write_bytes(gzip.compress("".join(f"{line}\n" for line in lines).encode()))
    splits = read(open_corpus(path, split="tail"))
    edges = [0, *(start for start in starts if start), len(lines)]
    if starts == [9, None]:
        edges = [0, 8, 9, 10]
    assert list(splits.values()) == [lines[a:b] for a, b in pairwise(edges)]


def test_files_are_known_by_their_names():
    for name in ("train", "train.txt", "ptb.train.txt", "wiki-training", "my_train.en", "TRAIN.txt"):
        assert says("train", name)
        assert not says("valid", name)
    for name in ("trains.txt", "strain.txt", "retrain", "training2.txt"):
        assert not says("train", name)
    for name in ("dev.txt", "val", "x.validation.txt", "valid-1"):
        assert says("valid", name)
    assert says("test", "test_2016_flickr.de")
    assert not says("test", "latest.txt")


def test_a_plain_file_comes_before_its_packed_twin_and_text_before_a_table(tmp_path):
    write(tmp_path / "train.txt", ["plain", "text"])
    (tmp_path / "train.txt.gz").write_bytes(gzip.compress(b"packed\ntext\n"))
    write(tmp_path / "train.tsv", ["a\tb"])
    write(tmp_path / "valid.jsonl", ['{"text": "x"}'])
    write(tmp_path / ".train.txt", ["hidden"])
    assert {split: [path.name for path in paths] for split, paths in split_files(tmp_path).items()} == {
        "train": ["train.txt"],
        "valid": ["valid.jsonl"],
    }
    assert read(open_corpus(tmp_path))["valid"] == ["x"]
    write(tmp_path / "train.tokens", ["another"])
    assert "several train files (train.tokens, train.txt)" in refusal(tmp_path)


def test_parts_of_a_dataset_are_sorted_into_splits(tmp_path):
    names = "train/data-1.arrow train/data-0.arrow train/cache-1.arrow dev/x.parquet a/b/test-0.parquet"
    for name in names.split():
        write(tmp_path / name, ["x"])
    write(tmp_path / "train" / "state.json", ["{}"])
    write(tmp_path / "a" / "b" / "c" / "deep.parquet", ["x"])
    found = {split: [path.name for path in paths] for split, paths in shards(tmp_path).items()}
    assert found == {"train": ["data-0.arrow", "data-1.arrow"], "valid": ["x.parquet"], "test": ["test-0.parquet"]}
    write(tmp_path / "other" / "data.parquet", ["x"])
    assert [path.name for path in shards(tmp_path / "other")["train"]] == ["data.parquet"]
    write(tmp_path / "held" / "test.parquet", ["x"])
    assert shards(tmp_path / "held") == {}


def test_text_is_told_to_be_tokenised_by_its_first_thousand_lines(tmp_path):
    for at, found in ((999, True), (1000, False)):
        lines = [f"line {n}" for n in range(3000)]
        lines[at] = "an <unk>"
        assert open_corpus(write(tmp_path / "text.txt", lines), split="tail").pretokenised is found
    assert not open_corpus(write(tmp_path / "text.txt", ["a<unk>b", "c"])).pretokenised
    assert open_corpus(write(tmp_path / "wiki.tokens.gz.txt", ["a", "c"])).pretokenised


def test_a_whole_file_is_one_split(tmp_path):
    path = write(tmp_path / "text.txt", ["one", "one"])
    corpus = open_whole(path, "test")
    assert read(corpus) == {"test": ["one", "one"]}
    assert (corpus.name, corpus.notes, corpus.suggested_tokenizer) == ("text.txt", (), "bpe")
    table = write(tmp_path / "t.tsv", ["sw\ten", "moja\tone"])
    assert read(open_whole(table, "valid", columns="en")) == {"valid": ["one"]}
    assert open_whole(table, "valid", usual="sw").columns == "sw"
    with pytest.raises(RegardError, match="only blank lines"):
        open_whole(write(tmp_path / "blank.txt", ["x" * 0] * 70_000), "test")


def test_corpora_with_a_name_are_listed_with_where_they_are(tmp_path, own_cache):
    write(own_cache / "data" / "ptb" / "ptb.train.txt", ENOUGH)
    rows = {row["name"]: row for row in available()}
    assert rows["phrasebook"]["kind"] == "built in, pairs"
    assert rows["pyref"]["kind"] == "built in"
    assert {rows[name]["here"] for name in ("phrasebook", "pyref")} == {"yes"}
    assert rows["ptb"]["here"] == str(own_cache / "data" / "ptb")
    assert (rows["ptb"]["kind"], rows["multi30k"]["kind"]) == ("download", "download, pairs")
    assert rows["wikitext-2"]["here"] == "regard data fetch wikitext-2"
    assert all(set(row) == {"name", "kind", "here", "about"} and row["about"] for row in rows.values())


def test_what_has_its_own_splits_or_no_columns_says_so(tmp_path):
    assert "'pyref' has its own splits" in refusal("pyref", split="tail")
    assert "'pyref' has no columns" in refusal("pyref", columns="1")
    corpus = open_corpus("pyref")
    assert (corpus.name, corpus.suggested_tokenizer, corpus.pretokenised) == ("pyref", "bpe", False)
    toy = open_corpus("copy")
    assert (toy.suggested_tokenizer, toy.pretokenised) == ("word", True)
    table = write(tmp_path / "t.csv", ["text,label", *(f"line {n},x" for n in range(30))])
    assert "Only plain text can be split in file order, not t.csv" in refusal(table, split="tail")
    found = open_corpus(table)
    assert (found.columns, found.header) == ("text", "yes")
    assert found.notes[0].startswith("t.csv is CSV (UTF-8, header text, label): text is read. Lines for valid")


def test_a_folder_says_which_of_its_files_were_given(tmp_path):
    write(tmp_path / "train.txt", ENOUGH)
    write(tmp_path / "test.txt", ["a test"])
    corpus = open_corpus(tmp_path)
    assert corpus.origin == (
        "Given: train.txt, test.txt. Lines for valid are drawn by hash (5 % each); identical lines share a split."
    )
    assert not corpus.disjoint
    (tmp_path / "test.txt").unlink()
    assert open_corpus(tmp_path).disjoint
    write(tmp_path / "valid.txt", ["a line"])
    assert open_corpus(tmp_path).origin == "Splits as given: train.txt, valid.txt."
    other = tmp_path / "other"
    write(other / "notes.txt", ENOUGH)
    assert open_corpus(other).name == "other"
    write(other / "valid.txt", ["x"])
    assert "or give a single text file" in refusal(other)
    (other / "notes.txt").unlink()
    assert f"or give the file {str(other / 'valid.txt')!r} itself" in refusal(other)


def test_of_a_fetched_corpus_its_own_file_is_read_and_otherwise_the_one_that_is_there(own_cache):
    folder = own_cache / "data" / "shakespeare"
    write(folder / "about.txt", ["A note", "and another"])
    assert read(open_corpus("shakespeare")) == {"train": ["A note"], "valid": ["and another"]}
    write(folder / "zz.txt", ["no", "text"])
    (folder / "input.txt.gz").write_bytes(gzip.compress(b"Enter\nExit\n"))
    assert read(open_corpus("shakespeare")) == {"train": ["Enter"], "valid": ["Exit"]}


def test_lines_drawn_by_their_hash_cannot_overlap_and_nothing_is_said_about_it(tmp_path):
    corpus = open_corpus(write(tmp_path / "text.txt", [*ENOUGH, *ENOUGH]))
    assert corpus.disjoint
    assert corpus.notes == ("Lines for valid and test are drawn by hash (5 % each); identical lines share a split.",)


@pytest.mark.parametrize("split", ["train", "valid", "test"])
def test_a_split_of_blank_lines_alone_is_refused(tmp_path, split):
    for name in ("train", "valid", "test"):
        write(tmp_path / f"{name}.txt", [""] * 70_000 if name == split else ENOUGH)
    assert f"{split}.txt' has only blank lines" in refusal(tmp_path)


def test_neither_a_folder_nor_another_kind_of_file_is_a_table_of_a_split(tmp_path):
    table = write(tmp_path / "train.jsonl", ['{"text": "x"}', '{"text": "y"}'])
    write(tmp_path / "train.pdf", ["%PDF"])
    (tmp_path / "valid.csv").mkdir()
    assert split_files(tmp_path) == {"train": (table,)}


@pytest.mark.parametrize("size, packed, counted", [(65_535, False, False), (65_536, False, True), (9000, True, True)])
def test_an_overlap_is_kept_where_counting_it_again_takes_time_or_may(tmp_path, own_cache, size, packed, counted):
    """From 64 KiB on, and where the size is not known."""
    lines = ["x" * 8] * (size // 9)
    write(tmp_path / "valid.txt", lines[:100])
    content = "".join(f"{line}\n" for line in lines[100:]).encode()
    content += b"y" * (size - 900 - len(content))
    path = tmp_path / ("train.txt.gz" if packed else "train.txt")
    path.write_bytes(gzip.compress(content) if packed else content)
    assert open_corpus(tmp_path).notes[1:] == ("100 of 100 lines of valid (100.0 %) also occur in train.",)
    assert bool(list(own_cache.rglob("*.overlap"))) is counted
