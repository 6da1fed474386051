"""How a table is recognised: its delimiter, quotes, header and columns, each with its nearest wrong neighbours."""

import json
from pathlib import Path

import pytest

from regard.base.errors import RegardError
from regard.text.readers import tables
from regard.text.readers.columns import Wanted, _find, _is_constant, _numbers_rows, pair_columns, text_column
from regard.text.readers.sources import open_text
from regard.text.readers.tables import (
    TextTable,
    _are_names,
    _check_width,
    _delimiter,
    _has_quotes,
    _is_header,
    _is_name,
    _some,
    flat,
    has_tabs,
    kind_of,
    one_line,
    open_table,
)


def table(columns, *rows, kind="TSV", header=False, languages=None, paths=("pairs.tsv",)):
    return TextTable(
        tuple(map(Path, paths)), kind, ("UTF-8",), tuple(columns), header, tuple(rows), None, languages or {}
    )  # fmt: skip


def asked(call, *arguments, **more):
    with pytest.raises(RegardError) as caught:
        call(*arguments, **more)
    return str(caught.value)


# -- which column ----------------------------------------------------------------------------------------------------


def test_a_column_is_found_by_name_then_number_then_language_then_part():
    names = table(["Source", "target", "2"], languages={"Source": "sw", "target": "en-US"})
    assert _find(names, "source") == 0
    assert _find(names, "TARGET") == 1
    assert _find(names, "2") == 2  # a name comes before a number
    assert _find(names, "1") == 0
    assert _find(names, "3") == 2
    assert _find(names, "SW") == 0
    assert _find(names, "en-us") == 1
    assert all(_find(names, word) is None for word in ("", "0", "4", "01", "1.5", "de", "en"))
    nested = table(["id", "translation.de", "translation.en", "other.en"])
    assert _find(nested, "de") == 1
    assert _find(nested, "en") is None  # two have it
    codes = table(["en-US", "pt_BR", "en-GB"])
    assert _find(codes, "pt") == 1
    assert _find(codes, "en") is None
    assert _find(codes, "en-gb") == 2
    assert _find(codes, "us") is None
    assert _find(table(["a"]), "1000000") is None
    many = table([f"c{n}" for n in range(12)])
    assert (_find(many, "10"), _find(many, "12"), _find(many, "13")) == (9, 11, None)


def test_pairs_are_the_asked_columns_the_languages_the_usual_or_the_only_two():
    three = table(["id", "sw", "en"], ["x1", "moja", "one"])
    assert pair_columns(three, Wanted(columns="en,sw")) == (2, 1)
    assert pair_columns(three, Wanted(columns=" sw , 3 ")) == (1, 2)
    assert pair_columns(three, Wanted(source="en", target="sw")) == (2, 1)
    assert pair_columns(three, Wanted(usual="sw,en")) == (1, 2)
    assert pair_columns(three, Wanted(columns="1,3", usual="sw,en", source="sw", target="en")) == (0, 2)
    assert pair_columns(three, Wanted(source="sw", target="en", usual="1,2")) == (1, 2)
    assert "cannot tell" in asked(pair_columns, three, Wanted())
    assert "cannot tell" in asked(pair_columns, three, Wanted(usual="1,2"))  # numbers of a file with two columns
    assert "cannot tell" in asked(pair_columns, three, Wanted(source="sw"))
    assert "cannot tell" in asked(pair_columns, three, Wanted(source="sw", target="sw"))
    assert pair_columns(table(["id", "src", "x", "tgt"]), Wanted()) == (1, 3)
    assert pair_columns(table(["label", "id", "text"]), Wanted()) == (2, 0)
    two = table(["sw", "en"], ["moja", "one"])
    assert pair_columns(two, Wanted()) == (0, 1)
    assert pair_columns(two, Wanted(usual="2,1")) == (1, 0)
    assert pair_columns(two, Wanted(usual="1,2")) == (0, 1)
    assert pair_columns(table(["id", "en", "translation.de", "translation.fr"]), Wanted()) == (2, 3)
    assert "cannot tell" in asked(pair_columns, table(["a.x", "b.y", "c"], kind="JSON Lines"), Wanted())
    assert "cannot tell" in asked(pair_columns, table(["a.x", "a.y", "a.z"], kind="JSON Lines"), Wanted())
    assert pair_columns(table(["sw", "en", "note"], ["moja", "one"]), Wanted()) == (0, 1)  # no row has a note


def test_wrong_columns_are_answered_with_what_is_wrong():
    three = table(["id", "sw", "en"], ["x1", "moja", "one"])
    assert "pairs need two columns, not 'sw'" in asked(pair_columns, three, Wanted(columns="sw"))
    assert "pairs need two columns" in asked(pair_columns, three, Wanted(columns="1,2,3"))
    assert "no column 'xx'" in asked(pair_columns, three, Wanted(columns="sw,xx"))
    assert "no column 'yy'" in asked(pair_columns, three, Wanted(columns="yy,sw"))
    assert "no column 'yy'" in asked(pair_columns, three, Wanted(columns="yy,xx"))
    assert "names one column twice" in asked(pair_columns, three, Wanted(columns="2,sw"))
    one = table(["1"], ["alone"])
    assert "most lines have only one field;" in asked(pair_columns, one, Wanted())
    assert "most lines have only one field;" in asked(pair_columns, table(["text"], ["a"], header=True), Wanted())
    assert "cannot tell" in asked(pair_columns, table(["text"], ["a"], kind="JSON Lines"), Wanted())


def test_columns_at_the_end_that_say_nothing_are_left_out():
    rows = [["a", "b", "CC-BY", "x"], ["c", "d", "CC-BY", "x"]]
    assert pair_columns(table("1234", *rows), Wanted()) == (0, 1)
    assert "cannot tell" in asked(pair_columns, table("1234", *rows, kind="JSON Lines"), Wanted())
    assert "cannot tell" in asked(pair_columns, table("123", ["a", "b", "x"]), Wanted())  # one row alone shows nothing
    attributed = "CC-BY 2.0 (France) Attribution: tatoeba.org #{}"
    rows = [[f"a{n}", f"b{n}", attributed.format(n)] for n in range(3)]
    assert pair_columns(table("123", *rows), Wanted()) == (0, 1)
    assert pair_columns(table("12", ["a", "b"], ["a", "b"]), Wanted()) == (0, 1)  # of two none is left out
    assert _is_constant(table("12", ["a", "x"], ["b"], ["c", "x"]), 1)
    assert not _is_constant(table("12", ["a", "x"], ["b"]), 1)
    assert not _is_constant(table("12", ["a", "x"], ["b", "y"]), 1)


def test_a_column_that_counts_the_rows_is_no_text():
    def counted(*fields, name="1"):
        return _numbers_rows(table([name, "2"], *([field, "text"] for field in fields)), 0)

    assert counted("7", " 8 ", "9")
    assert not counted("7", "8")
    assert not counted("7", "8", "10")
    assert not counted("9", "8", "7")
    assert not counted("7", "8", "nine")
    assert counted("100000000000000", "100000000000001", "100000000000002")
    assert not counted("1000000000000000", "1000000000000001", "1000000000000002")
    assert counted("x", name="ID")
    assert not counted("x", name="sw")
    assert not _numbers_rows(table("12", ["a", "1"], ["b"], ["c", "2"]), 1)
    assert "cannot tell" in asked(pair_columns, table(["id", "sw"], ["x", "moja"]), Wanted())


def test_a_language_model_reads_the_asked_column_the_usual_one_the_text_or_the_only_one():
    three = table(["id", "text", "sentence"])
    assert text_column(three) == 1
    assert text_column(three, "sentence") == 2
    assert text_column(three, "3") == 2
    assert text_column(three, usual="sentence") == 2
    assert text_column(three, usual="1") == 1  # the number of a file with one column
    assert text_column(three, usual="3") == 2
    assert text_column(table(["id", "text"]), usual="1") == 1
    assert "which of them is the text" in asked(text_column, table("12"), usual="1")
    assert text_column(table(["1"]), usual="1") == 0
    assert text_column(table(["content", "id"])) == 0
    assert text_column(table(["sw"])) == 0
    assert "which of them is the text" in asked(text_column, table(["sw", "en"]))
    assert "one column, not 'id,text'" in asked(text_column, three, "id,text")
    assert "no column 'texts' (did you mean text?)" in asked(text_column, three, "texts")


def test_a_question_shows_the_columns_the_first_row_and_an_example():
    wide = table([str(n) for n in range(1, 15)], ["17", *(f"word {n}" for n in range(2, 15))])
    said = asked(pair_columns, wide, Wanted())
    assert "has 14 columns (1 '17', 2 'word 2', " in said
    assert "12 'word 12'), and Regard cannot tell which is the source" in said
    assert said.endswith("for example --data.columns 2,3.")
    named = table(["nr", "a", "b"], ["17", "12345678901234567890", "123456789012345678901"])
    said = asked(pair_columns, named, Wanted())
    assert "(nr '17', a '12345678901234567890', b '1234567890123456789…')" in said
    assert said.endswith("for example --data.columns nr,a.")  # no words anywhere
    assert "has 1 column (text 'x'), and" in asked(pair_columns, table(["text"], ["x"]), Wanted(columns="a,b"))
    assert "has 2 columns (a 'x', b 'y'), and" in asked(pair_columns, table("ab", ["x", "y"]), Wanted(columns="a,c"))
    assert "(1 '', 2 '', 3 '')" in asked(pair_columns, table("123", kind="Arrow"), Wanted())
    assert "(1 'a', 2 '', 3 '')" in asked(pair_columns, table("123", ["a"], kind="Arrow"), Wanted())
    late = [["1", "2", "3"]] * 8 + [["1", "zwei", "drei"]]
    assert asked(pair_columns, table("123", *late), Wanted()).endswith("--data.columns 2,3.")
    codes = [[f"TX-{n}", f"the cat {n}", f"le chat {n}"] for n in range(9)]
    assert asked(pair_columns, table("123", ["nº", "eins", "zwei"], *codes), Wanted()).endswith("--data.columns 2,3.")
    assert asked(pair_columns, table("12", *(row[:2] for row in codes)), Wanted()).endswith("--data.columns 1,2.")
    assert asked(text_column, table("123", ["1", "zwei", "drei"])).endswith("--data.columns 2.")
    assert asked(text_column, table("123", ["1", "2", "drei"])).endswith("--data.columns 3.")


def test_the_languages_of_parallel_files_are_the_wanted_ones_or_the_columns():
    assert Wanted(source="sw", target="en", columns="a,b").languages == ("sw", "en")
    assert Wanted(source="sw").languages == ("sw", "")
    assert Wanted(target="en").languages == ("", "en")
    assert Wanted(columns="sw,en").languages == ("sw", "en")
    assert Wanted(columns="sw").languages == ("sw", "")
    assert Wanted(columns="1,2").languages == ("1", "2")
    assert Wanted(usual="sw,en").languages == ("sw", "en")
    assert Wanted(usual="1,2").languages == ("", "")
    assert Wanted(usual="1,en").languages == ("1", "en")
    assert Wanted().languages == ("", "")


def test_a_table_says_what_it_is():
    one = table(["sw", "2"], ["moja", "one"])
    assert one.describe([0, 1]) == "pairs.tsv is TSV (UTF-8): sw is the source, column 2 the target."
    assert one.describe([1]) == "pairs.tsv is TSV (UTF-8): column 2 is read."
    assert one.named([1, 0]) == "2,sw"
    assert table("12", paths=("a.arrow", "b.arrow", "c.arrow")).name == "a.arrow and 2 more"


# -- delimiters, quotes, headers -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "lines, delimiter",
    [
        (["a,b", "c,d"], ","), (["a;b", "c;d"], ";"), (["a\tb", "c\td"], "\t"),
        (["a;b,c", "d;e", "f;g"], ";"), (["a,b;c", "d,e", "f,g"], ","), (["a;b", "c,d"], ";"), (["a;b\tc"], "\t"),
        (["alone", "words"], "\t"), ([], "\t"), (["d;e", "a,b,c", "f;g", "h,i"], ";"), (["a", "b", "c;d"], "\t"),
        (['"a;b",c', '"d;e",f'], ","), (["", "a;b", ""], ";"),
        (["a,b;c", "d,e;f", "g,h;i", "j,k,l;m", "n,o,p"], ";"),  # of the comma's rows three agree, not five
    ],
)  # fmt: skip
def test_the_delimiter_is_the_one_that_most_rows_agree_on(lines, delimiter):
    assert _delimiter(lines) == delimiter


@pytest.mark.parametrize(
    "lines, excel",
    [
        ([], False), (["a\tb"], False), (['"a"\t"b"', '"c"\t"d"'], True), (['"a"\tb'], False),
        (['"a, b"\tc'], True), (['"a, b"\tc, d'], False), (['"a, b"\tsay "c"'], False), (['"a ""b"""\tc'], True),
        (['"a"\tb, c'], False), (['"a, b"\t"c"', "d\te"], False), (['"a, b"\tc', '\td'], True),
        (['"a', 'b"\tc'], True), (['"a', 'b"\tc', "d\te"], True), (['"a\tb', 'c"\td'], False),
        (['"a" b\tc'], False), (['"a\tb"', "c\td"], False), (['"a', 'b"\tc', '"d" e\tf'], False),
        (['"a', 'b"\tc\td', "e\tf"], False), (['""\t"b"'], True), (['   ', '"a"\t"b"'], True),
        (['", b"\tc'], True), (['"a,"\tc'], True), (['"""a"\tc'], True), (['"a"""\tc'], True),
    ],
)  # fmt: skip
def test_excels_quotes_are_told_from_those_of_the_text(lines, excel):
    assert _has_quotes(lines) is excel


def test_a_header_has_the_asked_names_or_usual_ones_only():
    body = ["Habari", "Hello"]
    assert _is_header([["sw", "en"], body], [])
    assert _is_header([["sw", "en"]], [])
    assert not _is_header([["sw", "en"], ["id", "it"]], [])  # the next row could be one, too
    assert not _is_header([["sw", "sw"], body], [])
    assert not _is_header([["sw", "Hello"], body], [])
    assert not _is_header([["sw", "moja"], body], ["1", "2"])
    assert _is_header([["sw", "en"], body], ["1", "2"])
    assert _is_header([["first", "second"], body], ["FIRST", "secnd"])
    assert not _is_header([["first", "second"], body], ["third"])
    assert not _is_header([["sw", "en"], body], ["third", "1"])


def test_names_of_columns():
    assert _are_names(["source", "", "target"])
    assert not _are_names(["source", "", ""])
    assert _are_names(["", "source"])
    assert not _are_names([""])
    assert not _are_names([])
    assert not _are_names(["source", "x"])
    for name in (
        "en",
        "ENGLISH",
        "en-US",
        "eng_Latn",
        "sentence_en",
        "source text",
        "reference translation note",
        "id:",
    ):
        assert _is_name(name), name
    for name in ("", "?", "Hello", "en US fr de", "source text note id", "hello-en", "en-hello", "abcd-US", "en-Xlatn"):
        assert not _is_name(name), name


@pytest.mark.parametrize("columns", [1000, 1001])
def test_a_table_has_at_most_a_thousand_columns(tmp_path, columns):
    for name, content in (
        ("wide.tsv", "\t".join("a" * columns)),
        ("wide.jsonl", json.dumps({str(n): "a" for n in range(columns)})),
    ):
        path = tmp_path / name
        path.write_text(content + "\n", encoding="utf-8")
        if columns > 1000:
            assert "has 1001 columns, more than 1000" in asked(open_table, [path])
        else:
            assert len(open_table([path]).columns) == columns
    _check_width(path, 1000)


def test_a_sample_has_few_lines_and_few_characters(monkeypatch):
    assert len(list(_some(iter("a" for _ in range(5000))))) == tables.SAMPLE == 1000
    assert tables.SAMPLE_CHARACTERS == 1 << 20
    monkeypatch.setattr(tables, "SAMPLE_CHARACTERS", 10)
    assert list(_some(["abcde", "fghij", "k", "l"])) == ["abcde", "fghij", "k"]
    assert list(_some(["abcde", "fghijk", "l"])) == ["abcde", "fghijk"]


def made(tmp_path, content, name="pairs.tsv", **settings):
    path = tmp_path / name
    path.write_text(content, encoding="utf-8")
    return open_table([path], **settings)


def test_rows_keep_the_numbers_of_their_lines(tmp_path):
    assert list(made(tmp_path, "a\tb\n\nc\td\n").rows()) == [(1, ["a", "b"]), (2, [""]), (3, ["c", "d"])]
    quoted = made(tmp_path, 'sep=;\nsw;en\n"a\nb";c\nd;e\n', "p.csv")
    assert quoted.columns == ("sw", "en")
    assert list(quoted.rows()) == [(3, ["a b", "c"]), (5, ["d", "e"])]
    assert quoted.details == ("UTF-8", "header sw, en", "by ';'", "quotes removed")
    assert quoted.sample == (["a b", "c"], ["d", "e"])
    blank = made(tmp_path, "\nsw\ten\n\na\tb\n")
    assert blank.header
    assert list(blank.rows()) == [(3, [""]), (4, ["a", "b"])]  # a blank line is one, with or without a header
    assert blank.sample == (["a", "b"],)


def test_the_width_is_the_headers_or_the_most_frequent(tmp_path):
    ragged = made(tmp_path, "a\tb\tc\nd\te\nf\tg\n")
    assert (ragged.columns, ragged.header) == (("1", "2"), False)
    headed = made(tmp_path, "id\tsw\ten\nd\te\nf\tg\n")
    assert (headed.columns, headed.header) == (("id", "sw", "en"), True)
    unnamed = made(tmp_path, "id\t\ten\nd\te\tf\n")
    assert unnamed.columns == ("id", "2", "en")
    same = made(tmp_path, "x\tx\nd\te\n", header="yes")
    assert (same.columns, same.header) == (("1", "2"), True)
    assert made(tmp_path, "sw\ten\nd\te\n", header="no").columns == ("1", "2")
    assert made(tmp_path, "one\ttwo\nd\te\n", columns="two,one").columns == ("one", "two")


@pytest.mark.parametrize(
    "content, name, details",
    [
        ("a\tb\n", "p.tsv", ("UTF-8", "no header")),
        ("a,b\n", "p.csv", ("UTF-8", "no header")),
        ("a\tb\n", "p.csv", ("UTF-8", "no header", "by tabs")),
        ("a;b\n", "p.csv", ("UTF-8", "no header", "by ';'")),
        ('a,"b"\n', "p.csv", ("UTF-8", "no header", "quotes removed")),
        ('"a"\t"b"\n', "p.tsv", ("UTF-8", "no header", "quotes removed")),
        ('a\tsay "b"\n', "p.tsv", ("UTF-8", "no header")),
        ('{"sw": "a", "en": "b"}\n', "p.jsonl", ("UTF-8", "columns sw, en")),
    ],
)
def test_details_are_what_was_recognised(tmp_path, content, name, details):
    assert made(tmp_path, content, name).details == details


def test_only_csv_has_excels_line_about_the_separator(tmp_path):
    assert list(made(tmp_path, "sep=|\na|b\n", "p.csv").rows()) == [(2, ["a", "b"])]
    assert next(made(tmp_path, "sep=||\na,b\n", "p.csv").rows()) == (1, ["sep=||"])


def test_broken_quotes_are_named_by_the_line_where_they_begin(tmp_path):
    found = []
    broken = made(tmp_path, 'a,b\n"c" d,e\nf,g\n"h,i\n', "p.csv")
    rows = list(broken.rows(lambda what, line: found.append((what, line))))
    assert rows == [(1, ["a", "b"]), (3, ["f", "g"])]
    assert found == [("a quote that is not closed or not doubled", line) for line in (2, 4)]
    assert "not doubled on line 2; fix it" in asked(lambda: list(broken.rows()))


# -- records ---------------------------------------------------------------------------------------------------------


def test_records_are_flat():
    record = {
        "id": 7,
        "score": 0.5,
        "ok": True,
        "none": None,
        "tags": ["a"],
        "t": {"de": " Haus\n\tboot ", "x": {"y": "z"}},
    }
    assert flat(record) == {"id": "7", "score": "0.5", "ok": "True", "t.de": "Haus boot"}
    assert one_line(" a \r\n\t b\n") == "a b"


def test_lines_of_json_are_numbered_and_those_that_are_none_are_named(tmp_path):
    content = '{"sw": "a", "en": "b"}\n\n["c", "d", 3]\n7\n"e"\n{"en": "f"}\n{"cut\n'
    found = []
    both = made(tmp_path, content, "p.jsonl")
    assert both.columns == ("sw", "en", "1", "2", "3")
    rows = list(both.rows(lambda what, line: found.append((what, line))))
    assert rows == [
        (1, ["a", "b", "", "", ""]),
        (3, ["", "", "c", "d", "3"]),
        (5, ["", "", "e", "", ""]),
        (6, ["", "f", "", "", ""]),
    ]
    assert found == [("no JSON object", 4), ("no JSON object", 7)]
    assert both.sample[0] == ["a", "b", "", "", ""]
    assert "JSON Lines without any text" in asked(made, tmp_path, "{}\n", "p.jsonl")
    assert "no JSON object on line 1" in asked(made, tmp_path, "7\n", "p.jsonl")


@pytest.mark.parametrize(
    "name, kind",
    [
        ("a.tsv", "TSV"), ("a.TAB", "TSV"), ("a.csv.gz", "CSV"), ("a.ndjson", "JSON Lines"), ("a.sdlxliff", "XLIFF"),
        ("a.parquet", "Parquet"), ("a.arrow", "Arrow"), ("a.txt", ""), ("a", ""),
    ],
)  # fmt: skip
def test_the_kind_of_a_file_is_told_by_its_name(tmp_path, name, kind):
    assert kind_of(tmp_path / name) == kind


def test_tabs_are_looked_for_in_the_first_line_that_is_not_blank(tmp_path):
    path = tmp_path / "t.txt"
    for content, found in (
        ("a\tb\n", True), ("a b\nc\td\n", False), ("\n  \na\tb\n", True), ("", False), ("\t\n", False),
        ("\n" * 99 + "a\tb", True), ("\n" * 100 + "a\tb", False),
    ):  # fmt: skip
        path.write_text(content, encoding="utf-8")
        assert has_tabs(path) is found, content[-4:]
    assert not has_tabs(tmp_path / "none.txt")


def test_parquet_and_arrow_are_read_in_bounded_pieces(tmp_path, monkeypatch):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rows = [{"sw": f"neno {n}", "en": f"word {n}"} for n in range(200)]
    both = arrow.Table.from_pylist(rows)
    parquet.write_table(both, tmp_path / "a.parquet", row_group_size=100)
    with arrow.ipc.new_file(tmp_path / "b.arrow", both.schema) as stream:
        stream.write_table(both, max_chunksize=70)
    parts = [tmp_path / "a.parquet", tmp_path / "b.arrow"]
    expected = [(n, [row["sw"], row["en"]]) for n, row in enumerate([*rows, *rows], 1)]
    assert list(open_table(parts).rows()) == expected
    sizes = []
    batches = parquet.ParquetFile.iter_batches
    monkeypatch.setattr(
        parquet.ParquetFile, "iter_batches", lambda self, size: sizes.append(size) or batches(self, size)
    )  # fmt: skip
    largest = max(parquet.ParquetFile(parts[0]).metadata.row_group(n).total_byte_size for n in range(2))
    for at_once, size in ((1, 64), (largest * 70 + 5, 70), (1 << 60, 8192)):
        monkeypatch.setattr(tables, "AT_ONCE", at_once)
        assert list(open_table(parts[:1]).rows()) == expected[:200]
        assert set(sizes) == {size}
        sizes.clear()
    in_arrow = sum(batch.nbytes for batch in map(arrow.ipc.open_file(parts[1]).get_batch, range(3)))
    in_parquet = sum(batch.nbytes for batch in parquet.ParquetFile(parts[0]).iter_batches(8192))
    for name, most in (("a.parquet", max(in_parquet, largest)), ("b.arrow", in_arrow)):
        path = tmp_path / name
        monkeypatch.setattr(tables, "max_unpacked_bytes", lambda path, most=most: most)
        assert len(list(open_table([path]).rows())) == 200
        monkeypatch.setattr(tables, "max_unpacked_bytes", lambda path, most=most: most - 1)
        assert "200 times" in asked(lambda path=path: list(open_table([path]).rows()))


def test_a_text_without_end_in_a_binary_file_is_named_by_its_row(tmp_path, monkeypatch):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr(tables, "MAX_LINE_BYTES", 5)
    parquet.write_table(arrow.table({"text": ["12345", "123456", "a"]}), tmp_path / "a.parquet")
    found = []
    rows = list(open_table([tmp_path / "a.parquet"]).rows(lambda what, line: found.append(line)))
    assert found == [2]
    assert [number for number, _ in rows] == [1, 2, 3]


def test_a_table_is_shown_without_its_rows(tmp_path):
    shown = repr(made(tmp_path, "a secret\tb\n"))
    assert shown.startswith("TextTable(paths=")
    assert "secret" not in shown
    assert "function" not in shown


@pytest.mark.parametrize(
    "content, name, header",
    [("sw\ten\na\tb\n", "p.tsv", "yes"), ("a\tb\n", "p.tsv", "no"), ('{"text": "a"}\n', "p.jsonl", "no")],
)
def test_only_a_line_of_names_is_a_header(tmp_path, content, name, header):
    path = tmp_path / name
    path.write_text(content, encoding="utf-8")
    assert open_text([path], "" if name == "p.jsonl" else "1").header == header


@pytest.mark.parametrize("choice", [{"columns": "zweite"}, {"usual": "zweite"}])
def test_the_column_of_before_is_found_by_its_name_as_an_asked_one_is(tmp_path, choice):
    """A test file is read as the training file was, though its header has no usual names."""
    path = tmp_path / "p.tsv"
    path.write_text("erste\tzweite\na\tb\nc\td\n", encoding="utf-8")
    text = open_text([path], **choice)
    assert (text.columns, text.header, list(text)) == ("zweite", "yes", ["b", "d"])


def test_a_file_of_exactly_the_largest_size_is_read(tmp_path, monkeypatch):
    """Of a few rows a Parquet file says that they take more than they do in memory: that must be allowed, too."""
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "a.parquet"
    parquet.write_table(arrow.table({"text": ["a"]}), path)
    file = parquet.ParquetFile(path)
    largest = file.metadata.row_group(0).total_byte_size
    assert largest > sum(batch.nbytes for batch in file.iter_batches())
    monkeypatch.setattr(tables, "max_unpacked_bytes", lambda path: largest)
    assert list(open_table([path]).rows()) == [(1, ["a"])]
    monkeypatch.setattr(tables, "max_unpacked_bytes", lambda path: largest - 1)
    assert "200 times" in asked(open_table, [path])


def test_a_text_that_is_too_long_is_said_in_mebibytes(tmp_path, monkeypatch):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr(tables, "MAX_LINE_BYTES", 1 << 20)
    parquet.write_table(arrow.table({"text": ["a" * ((1 << 20) + 1)]}), tmp_path / "a.parquet")
    assert "a text of more than 1 MiB on line 1" in asked(lambda: list(open_table([tmp_path / "a.parquet"]).rows()))


def test_a_text_that_a_delimiter_cuts_short_is_said(tmp_path):
    path = tmp_path / "one.csv"
    path.write_text("text\n" + "".join(f"Hello {n}, my world\n" for n in range(20)) + "Plain\n", encoding="utf-8")
    about = open_text((path,)).about
    assert "20 of its first 21 rows have more than 1 field, and the extra fields are not read: quote fields" in about
    path.write_text("text\n" + "".join(f'"Hello {n}, my world"\n' for n in range(20)), encoding="utf-8")
    assert "not read" not in open_text((path,)).about


OWN_NAMES = ["Español", "Deutsch", "Français", "Türkçe", "Čeština", "Русский", "हिन्दी", "日本語", "עברית", "العربية"]


@pytest.mark.parametrize("name", [*OWN_NAMES, "Espan\u0303ol", "Tiếng Việt"])
def test_languages_are_known_by_their_own_names(tmp_path, name):
    path = tmp_path / "pairs.csv"
    path.write_text(
        f"English,{name}\nThe cat sleeps.,El gato duerme.\nA dog barks.,Un perro ladra.\n", encoding="utf-8"
    )
    assert open_table([path]).columns == ("English", name)


def test_indonesian_is_a_language_inside_a_record(tmp_path):
    path = tmp_path / "pairs.jsonl"
    path.write_text('{"translation": {"en": "Water", "id": "Air"}}\n' * 3, encoding="utf-8")
    assert pair_columns(open_table([path]), Wanted()) == (0, 1)
