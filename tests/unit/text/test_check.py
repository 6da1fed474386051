"""`regard data check`: what it must notice in a text."""

import gzip
from collections import Counter
from dataclasses import asdict

import pytest

from regard.base.errors import RegardError
from regard.text.check.check_text import _unknown_rate, check_text
from regard.text.corpus import Overlap, open_corpus
from regard.text.tokenizers.tokenizer import Tokenizer


def write(path, text: str):
    path.write_bytes(text.encode())
    return path


def test_the_numbers_of_a_plain_text_are_right(tmp_path):
    text = "One two.\n\nOne two.\nthree\n"
    for path in (write(tmp_path / "text.txt", text), tmp_path / "text.txt.gz"):
        if path.suffix == ".gz":
            path.write_bytes(gzip.compress(text.encode()))
        report = check_text(path).files["text"]
        assert (report.encoding, report.byte_order_mark, report.bytes) == ("ASCII", False, len(text))
        assert (report.lines, report.blank_lines, report.duplicate_lines) == (4, 1, 1)
        assert (report.characters, report.words, report.vocabulary) == (len(text), 5, 3)
        assert (report.line_lengths["longest"], report.longest_line) == (8, 1)
        assert report.oddities == ()


def test_odd_lines_are_counted_and_found(tmp_path):
    path = tmp_path / "odd.txt"
    lines = [b"\xef\xbb\xbffine\r", b"bell \x07", b"&quot;a &#39;\ta", "café \ufffd".encode(), b"caf\xe9", b"a\rb"]
    path.write_bytes(b"\n".join([*lines, b""]))
    report = check_text(path).files["text"]
    found = {oddity.what: (oddity.lines, oddity.first) for oddity in report.oddities}
    assert found == {
        "CR LF line endings mixed with LF": (1, 1),
        "control characters": (1, 2),
        "HTML escapes": (1, 3),
        "tabs": (1, 3),
        "replacement characters (U+FFFD)": (1, 4),
        "not UTF-8": (1, 5),
        "carriage returns within a line": (1, 6),
    }
    assert (report.encoding, report.byte_order_mark) == ("not UTF-8", True)


def test_windows_line_ends_alone_are_not_odd(tmp_path):
    assert check_text(write(tmp_path / "text.txt", "one\r\ntwo\r\nthree")).files["text"].oddities == ()


def test_the_unknown_rate_is_that_of_a_word_tokenizer_of_ten_thousand(tmp_path):
    lines = [f"word{number % 15_000} of {number % 700} don't" for number in range(30_000)]
    path = write(tmp_path / "text.txt", "\n".join(lines))
    corpus = open_corpus(path)
    kept = [line for split in ("train", "test") for line in corpus.splits[split]]
    tokenizer = Tokenizer.train(kept, "word", 10_002)
    ids = [symbol for line in corpus.splits["valid"] for symbol in tokenizer.encode(line)]
    rate = check_text(path).files["text"].unknown_rate
    assert rate == pytest.approx(ids.count(tokenizer.unk) / len(ids))
    assert rate > 0.05
    ranked = Counter({f"{number:05}": 20_000 - number for number in range(10_001)})
    assert _unknown_rate(ranked, Counter(["09999", "10000"])) == 0.5
    assert [_unknown_rate(ranked, Counter(words)) for words in (["00000"], ["x"], [])] == [0, 1, 1]


def test_a_folder_is_reported_by_split_with_the_overlap(tmp_path):
    write(tmp_path / "train.txt", "a b\nc d\n")
    write(tmp_path / "valid.txt", "a b\ne f\n")
    write(tmp_path / "test.txt", "g h\n")
    report = check_text(tmp_path)
    assert {split: file.lines for split, file in report.files.items()} == {"train": 2, "valid": 2, "test": 1}
    assert report.overlap == (Overlap("valid", 2, 1), Overlap("test", 1, 0))
    assert [file.unknown_rate for file in report.files.values()] == [None, 0.5, 1.0]
    assert asdict(report)["files"]["train"]["words"] == 4


def test_a_folder_with_a_file_in_another_encoding_is_still_reported(tmp_path):
    write(tmp_path / "train.txt", "a b\nc d\n")
    (tmp_path / "valid.txt").write_bytes(b"caf\xe9\n")
    report = check_text(tmp_path)
    assert report.files["valid"].encoding == "not UTF-8"
    assert report.overlap == ()


def test_what_is_no_text_is_refused(tmp_path):
    (tmp_path / "empty.txt").write_bytes(b"")
    (tmp_path / "binary.txt").write_bytes(b"a\0b")
    for name, says in {
        "absent": "no file",
        "empty.txt": "empty",
        "binary.txt": "zero byte",
        "": "no training file",
    }.items():
        with pytest.raises(RegardError, match=says):
            check_text(tmp_path / name)


def test_a_report_by_hand(tmp_path):
    """The unknown words of a text are those of the lines that would be held out."""
    path = write(tmp_path / "text.txt", "".join(f"word{n} of\n" for n in range(40)) + "\n" + "x" * 30 + "\n")
    report = check_text(path).files["text"]
    assert (report.lines, report.blank_lines, report.duplicate_lines) == (42, 1, 0)
    assert report.line_lengths == {"median": 9, "90 %": 9, "99 %": 30, "longest": 30}
    assert (report.longest_line, report.found) == (42, "")
    held = [line.split() for line in open_corpus(path).splits["valid"] if line]
    assert held
    assert report.unknown_rate == pytest.approx(len(held) / sum(map(len, held)))  # "of" alone is known
    assert report.bytes == path.stat().st_size


def test_a_text_that_is_tokenised_already_is_cut_at_spaces(tmp_path):
    path = write(tmp_path / "text.txt", "it 's <unk>\ndon't it 's\n")
    report = check_text(path).files["text"]
    assert (report.words, report.vocabulary) == (6, 4)
    write(path, "it 's\ndon't it 's\n")
    assert check_text(path).files["text"].vocabulary == 3  # it, s, don't


def test_tables_and_other_encodings_are_reported_as_what_they_are(tmp_path):
    table = write(tmp_path / "t.tsv", "sw\ten\nmoja\tone é\n\ntatu\tthree\n")
    report = check_text(table, columns="en").files["text"]
    assert (report.lines, report.encoding, report.bytes) == (2, "UTF-8", len("one é\nthree\n".encode()))
    assert report.found.startswith("t.tsv is TSV")
    wide = tmp_path / "w.txt"
    wide.write_bytes("one\ntwo\n".encode("utf-16"))
    assert check_text(wide).files["text"].encoding == "UTF-16"
    late = write(tmp_path / "late.txt", "one\n\ufefftwo é\n")
    assert not check_text(late).files["text"].byte_order_mark
    assert check_text(late).files["text"].encoding == "UTF-8"
    assert check_text(write(tmp_path / "one.txt", "alone\r\n")).files["text"].oddities == ()
    with pytest.raises(RegardError, match="has no text"):
        check_text(write(tmp_path / "none.tsv", "sw\ten\nmoja\t\n"), columns="en")


MANY = [f"word{n} of page{n % 7}" for n in range(300)]  # some of them would be held out


def test_all_words_of_a_text_are_counted_also_those_that_would_be_held_out(tmp_path):
    report = check_text(write(tmp_path / "text.txt", "\n".join(MANY))).files["text"]
    words = Counter(word for line in MANY for word in line.split())
    assert (report.words, report.vocabulary) == (900, len(words))
    assert report.unknown_rate > 0


def test_beside_a_validation_file_every_line_of_the_training_file_is_known(tmp_path):
    write(tmp_path / "train.txt", "\n".join(MANY))
    write(tmp_path / "valid.txt", "\n".join([*MANY, "unseen alone"]))
    report = check_text(tmp_path).files["valid"]
    assert report.unknown_rate == pytest.approx(2 / 902)


def test_an_odd_row_of_a_table_is_found_by_its_number(tmp_path):
    path = write(tmp_path / "text.jsonl", '{"text": "one"}\n{"text": "two &amp; three"}\n{"text": "&lt;"}\n')
    (odd,) = check_text(path).files["text"].oddities
    assert (odd.what, odd.lines, odd.first) == ("HTML escapes", 2, 2)


def test_words_are_cut_at_spaces_only_where_the_text_is_tokenised_already(tmp_path):
    for rest, words, vocabulary in (("", 4, 2), (" <unk>", 5, 4)):  # a bracket is no word, but of a token
        path = write(tmp_path / "text.txt", f"(one) one\n(one) two{rest}\n")
        report = check_text(path).files["text"]
        assert (report.words, report.vocabulary) == (words, vocabulary)
