"""Each format in which people have sentence pairs and text: a right file, and wrong ones."""

import builtins
import gzip
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.base import reading
from regard.base.errors import RegardError
from regard.text.check.check_pairs import check_pairs
from regard.text.check.check_text import check_text
from regard.text.corpus import open_corpus
from regard.text.pairs import is_pairs, open_pairs, read_pairs
from regard.text.readers.lines import MAX_LINE_BYTES
from regard.text.readers.pair_files import find_pair_files, holds_pairs

PAIRS = [(f"Nina vitabu {n}.", f"I have {n} books, and {n + 1} pens.") for n in range(2, 42)]
BOM = b"\xef\xbb\xbf"


def pairs_in(path, **settings):
    found = read_pairs(path, **settings)
    return list(zip(found.sources, found.targets))


def refusal(path, **settings):
    with pytest.raises(RegardError) as caught:
        open_pairs(path, **settings)
    message = str(caught.value)
    assert "\n" not in message
    assert message.endswith(".")
    return message


def lines_in(path, **settings):
    return sorted(line for lines in open_corpus(path, **settings).splits.values() for line in lines)


def text_refusal(path, **settings):
    with pytest.raises(RegardError) as caught:
        open_corpus(path, **settings)
    return str(caught.value)


def write(path, content, encoding="utf-8"):
    path.write_bytes(content if isinstance(content, bytes) else content.encode(encoding))
    return path


def tsv(pairs, header=""):
    return header + "".join(f"{source}\t{target}\n" for source, target in pairs)


def csv_field(text, always=False):
    return '"' + text.replace('"', '""') + '"' if always or any(mark in text for mark in ',;"\n\t') else text


# -- TSV ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"])
@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_tables_are_read_in_every_encoding_that_says_what_it_is(tmp_path, encoding, ending):
    content = tsv([*PAIRS, ("Ñandú 水", "Ελλάδα")]).replace("\n", ending)
    mark = "\ufeff" if encoding in ("utf-16-le", "utf-16-be") else ""
    path = write(tmp_path / "pairs.tsv", mark + content, encoding)
    assert pairs_in(path) == [*PAIRS, ("Ñandú 水", "Ελλάδα")]
    said = "byte-order mark" if encoding == "utf-8-sig" else encoding[:6].upper() if "8" not in encoding else "UTF-8"
    assert said in open_pairs(path).notes[0]


@pytest.mark.parametrize(
    "names",
    ["sw\ten", "source\ttarget", "Swahili\tEnglish", "en-US\tpt_BR", "eng_Latn\tswh_Latn", "sentence_sw\tsentence_en"],
)
def test_a_header_is_recognised_said_and_no_pair(tmp_path, names):
    path = write(tmp_path / "pairs.tsv", tsv(PAIRS, f"{names}\n"))
    assert pairs_in(path) == PAIRS
    corpus = open_pairs(path)
    assert f"header {names.replace(chr(9), ', ')}" in corpus.notes[0]
    assert (corpus.columns, corpus.header) == (names.replace("\t", ","), "yes")


@pytest.mark.parametrize("first", ["Habari\tHello", "ndiyo\tyes", "no\tnein", "1\t2"])
def test_a_first_pair_is_no_header(tmp_path, first):
    path = write(tmp_path / "pairs.tsv", tsv(PAIRS, f"{first}\n"))
    assert pairs_in(path)[0] == tuple(first.split("\t"))
    assert "no header" in open_pairs(path).notes[0]
    assert open_pairs(path, header="yes").header == "yes"


def test_a_header_can_be_denied(tmp_path):
    path = write(tmp_path / "pairs.tsv", tsv(PAIRS, "it\tes\n"))
    assert sum(map(len, open_pairs(path).splits.values())) == len(PAIRS)
    assert sum(map(len, open_pairs(path, header="no").splits.values())) == len(PAIRS) + 1


@pytest.mark.parametrize("header", ["", "id\tsw\ten\n", "nummer\tphrase one\tphrase two\n"])
def test_columns_that_are_not_clear_are_asked_for_with_a_sample(tmp_path, header):
    rows = "".join(f"{n}\t{source}\t{target}\n" for n, (source, target) in enumerate(PAIRS, 17))
    path = write(tmp_path / "pairs.tsv", header + rows)
    message = refusal(path)
    assert "has 3 columns" in message
    assert "--data.columns" in message
    assert "'17'" in message or "'nummer'" in message
    asked = "sw,en" if header.startswith("id") else "phrase one,phrase two" if header else "2,3"
    assert pairs_in(path, columns=asked) == PAIRS
    assert [(two, one) for one, two in pairs_in(path, columns=",".join(asked.split(",")[::-1]))] == PAIRS
    for wrong in ("sw,xx", "2,9", "2", "2,2", "1,2,3", "0,1", "-1,2"):
        assert "--data.columns" in refusal(path, columns=wrong)


def test_line_numbers_are_no_source(tmp_path):
    path = write(tmp_path / "pairs.tsv", "".join(f"{n}\t{target}\n" for n, (_, target) in enumerate(PAIRS)))
    assert "--data.columns" in refusal(path)
    sums = write(tmp_path / "sums.tsv", "".join(f"{3 * n % 17}\t{5 * n % 11}\n" for n in range(40)))
    assert len(pairs_in(sums)) == 40  # numbers may be what one learns


def test_excels_quotes_are_taken_off_and_those_of_the_text_kept(tmp_path):
    odd = [*PAIRS, ('He said "no"', 'Alisema "la"'), ("two\tfields", "a tab"), ("two\nlines", "one, two")]
    excel = "".join("\t".join(map(csv_field, pair)) + "\r\n" for pair in odd)
    plain = [*PAIRS, ('He said "no"', 'Alisema "la"'), ("two fields", "a tab"), ("two lines", "one, two")]
    path = write(tmp_path / "pairs.tsv", excel, "utf-16")
    assert pairs_in(path) == plain
    assert "quotes removed" in open_pairs(path).notes[0]
    everything = write(
        tmp_path / "all.tsv", "".join("\t".join(csv_field(side, True) for side in p) + "\n" for p in odd)
    )
    assert pairs_in(everything) == plain
    speech = [*PAIRS, ('"Go!" he said.', '"Nenda!" alisema.'), ('"Come', 'Njoo"'), ('"Yes, yes."', '"Ndiyo."')]
    assert pairs_in(write(tmp_path / "speech.tsv", tsv(speech))) == speech


def test_a_tsv_that_is_wrong_is_refused_by_its_line(tmp_path):
    assert "only one field on line 3" in refusal(write(tmp_path / "a.tsv", "a\tb\nc\td\nalone\n"))
    assert "has no pairs" in refusal(write(tmp_path / "b.tsv", "only\ntext\n"))
    assert "is empty" in refusal(write(tmp_path / "c.tsv", BOM))
    assert "line 2 has the byte 0xE9" in refusal(write(tmp_path / "d.tsv", b"a\tb\ncaf\xe9\tcoffee\n"))
    report = check_pairs(write(tmp_path / "e.tsv", b"a\tb\nalone\ncaf\xe9\tcoffee\n" + tsv(PAIRS).encode()))
    found = {odd.what: (odd.lines, odd.first) for odd in report.files["pairs"].findings}
    assert found["only one field"] == (1, 2)
    assert found["not UTF-8 (byte 0xE9)"] == (1, 3)


# -- CSV ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("header", [(), ("sw", "en")])
@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_csv_of_every_delimiter(tmp_path, delimiter, header, encoding):
    odd = [*PAIRS, ('He said "no"; yes', "one\r\ntwo, three")]
    rows = [*([header] if header else []), *odd]
    path = write(tmp_path / "p.csv", "".join(delimiter.join(map(csv_field, row)) + "\r\n" for row in rows), encoding)
    assert is_pairs(path)
    assert pairs_in(path) == [*PAIRS, ('He said "no"; yes', "one two, three")]
    assert open_pairs(path).columns == (",".join(header) or "1,2")


def test_excels_own_line_about_the_separator(tmp_path):
    path = write(tmp_path / "p.csv", "sep=|\nsw|en\n" + "".join(f"{one}|{two}\n" for one, two in PAIRS))
    assert pairs_in(path) == PAIRS


@given(
    st.lists(
        st.tuples(*[st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]), min_size=1)] * 2), min_size=4
    )
)
def test_what_a_csv_writer_writes_is_read_again(tmp_path_factory, rows):
    import csv

    path = tmp_path_factory.mktemp("csv") / "pairs.csv"
    with path.open("w", encoding="utf-8", newline="") as stream:
        csv.writer(stream).writerows([("source", "target"), *rows])
    expected = [(one.strip(), two.strip()) for one, two in rows]
    assert pairs_in(path) == [pair for pair in expected if any(pair)]


def test_a_csv_that_is_wrong_is_refused_by_its_line(tmp_path):
    rows = "".join(f'{one},"{two}"\n' for one, two in PAIRS)
    assert "a quote that is not closed or not doubled on line 41" in refusal(
        write(tmp_path / "a.csv", f'{rows}x,"open\n')
    )
    assert "a quote that is not" in refusal(write(tmp_path / "b.csv", f'{rows}"Go," he said.,y\n'))
    assert "only one field on line 41" in refusal(write(tmp_path / "c.csv", f"{rows}alone\n"))
    found = check_pairs(tmp_path / "a.csv").files["pairs"].findings
    assert any("quote" in odd.what and odd.first == 41 for odd in found)


# -- TMX and XLIFF -----------------------------------------------------------------------------------------------------


def tmx(units, head='<?xml version="1.0" encoding="UTF-8"?><!DOCTYPE tmx SYSTEM "tmx14.dtd">'):
    body = "".join(
        "<tu>" + "".join(f'<tuv xml:lang="{code}"><seg>{text}</seg></tuv>' for code, text in unit.items()) + "</tu>\n"
        for unit in units
    )
    return f'{head}<tmx version="1.4"><header srclang="sw"/><body>{body}</body></tmx>'


MEMORY = [{"sw": one, "en-US": two} for one, two in PAIRS]


@pytest.mark.parametrize(
    "name, encoding", [("m.tmx", "utf-8"), ("m.tmx.gz", "utf-8"), ("m.xml", "utf-8"), ("m.tmx", "utf-16")]
)
def test_a_translation_memory_is_pairs(tmp_path, name, encoding):
    head = f'<?xml version="1.0" encoding="{encoding}"?>'
    marked = [
        *MEMORY,
        {
            "SW": 'a <bpt i="1">&lt;b&gt;</bpt>bold<ept i="1">&lt;/b&gt;</ept> word',
            "en-us": "two\n lines &amp; <hi>hi</hi>",
        },
        {"sw": "not translated"},
    ]
    content = tmx(marked, head).encode(encoding)
    path = write(tmp_path / name, gzip.compress(content) if name.endswith(".gz") else content)
    assert pairs_in(path) == [*PAIRS, ("a bold word", "two lines & hi")]
    corpus = open_pairs(path)
    assert corpus.notes[0] == f"{name} is TMX (languages sw, en-us): sw is the source, en-us the target."
    assert "1 unit without both languages" in corpus.notes[-1]
    assert (corpus.source, corpus.target) == ("sw", "en-us")
    assert pairs_in(path, columns="en,sw")[0] == PAIRS[0][::-1]
    assert pairs_in(path, source="en", target="sw")[0] == PAIRS[0][::-1]


def test_a_memory_of_three_languages_asks_which(tmp_path):
    path = write(tmp_path / "m.tmx", tmx([unit | {"de": "Buch"} for unit in MEMORY]))
    assert "has 3 columns (sw 'Nina vitabu 2.', en-us 'I have 2 books, and…', de 'Buch')" in refusal(path)
    assert pairs_in(path, columns="sw,en") == PAIRS


def test_a_language_model_never_trains_on_markup(tmp_path):
    path = write(tmp_path / "m.tmx", tmx(MEMORY))
    assert "choose with --data.columns" in text_refusal(path)
    assert lines_in(path, columns="en") == sorted(two for _, two in PAIRS)
    assert check_text(path, columns="sw").files["text"].lines == len(PAIRS)
    assert "choose with --data.columns" in text_refusal(write(tmp_path / "m.txt", tmx(MEMORY)))


BOMB = '<!DOCTYPE tmx [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">]>'
OUTSIDE = '<!DOCTYPE tmx [<!ENTITY a SYSTEM "file:///etc/passwd">]>'


@pytest.mark.parametrize(
    "content, said",
    [
        (tmx(MEMORY, BOMB).replace("Nina", "&b;"), "declares XML entities"),
        (tmx(MEMORY, OUTSIDE).replace("Nina", "&a;"), "declares XML entities"),
        (tmx(MEMORY)[:-20], "not complete XML"),
        (tmx(MEMORY).replace("</seg>", "", 1), "not complete XML"),
        (tmx([]), "without any text"),
        ("<html><body/></html>", "neither TMX nor XLIFF"),
        ("<a>" * 5000, "nests elements more than"),
        ('<?xml version="1.0" encoding="klingon"?><tmx/>', "not complete XML"),
    ],
)
def test_a_memory_that_is_wrong_is_refused(tmp_path, content, said):
    assert said in refusal(write(tmp_path / "m.tmx", content))


def test_a_sentence_without_end_is_refused(tmp_path):
    huge = tmx([{"sw": "x" * (MAX_LINE_BYTES + 10), "en": "y"}])
    assert "more than 4 MiB" in refusal(write(tmp_path / "m.tmx", huge))


def xliff_1(pairs):
    units = "".join(
        f'<trans-unit id="{n}"><source>{one}<x id="1"/></source><seg-source>no</seg-source><target>{two}</target>'
        "<alt-trans><source>not this</source><target>nor this</target></alt-trans></trans-unit>"
        for n, (one, two) in enumerate(pairs)
    )
    return (
        '<?xml version="1.0"?><xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2"><file original="a" '
        f'source-language="sw" target-language="en" datatype="plaintext"><body>{units}'
        '<trans-unit id="last"><source>untranslated</source></trans-unit></body></file></xliff>'
    )


def xliff_2(pairs):
    units = "".join(
        f'<unit id="{n}"><originalData><data id="d">code</data></originalData><segment>'
        f'<source>{one}<ph id="1"/></source><target><pc id="2">{two}</pc></target></segment></unit>'
        for n, (one, two) in enumerate(pairs)
    )
    return (
        '<xliff xmlns="urn:oasis:names:tc:xliff:document:2.0" version="2.0" srcLang="sw" trgLang="en"><file id="f">'
        f'<group id="g">{units}</group><unit id="u"><segment><source>untranslated</source></segment></unit>'
        "</file></xliff>"
    )


@pytest.mark.parametrize("make, version", [(xliff_1, "1.2"), (xliff_2, "2.0")])
def test_xliff_is_pairs(tmp_path, make, version):
    path = write(tmp_path / "memory.xlf", make(PAIRS))
    assert pairs_in(path) == PAIRS
    corpus = open_pairs(path)
    assert f"is XLIFF {version} (columns source, target): source is the source, target the target." in corpus.notes[0]
    assert (corpus.source, corpus.target) == ("sw", "en")
    assert pairs_in(path, columns="en,sw") == [pair[::-1] for pair in PAIRS]
    assert lines_in(path, columns="en") == sorted(two for _, two in PAIRS)
    assert "not complete XML" in refusal(write(tmp_path / "cut.xliff", make(PAIRS)[:-30]))
    assert "without any text" in refusal(write(tmp_path / "none.xliff", '<xliff version="1.2"/>'))


# -- JSON Lines --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "record",
    [
        lambda one, two: {"sw": one, "en": two},
        lambda one, two: {"translation": {"sw": one, "en": two}},
        lambda one, two: {"id": 7, "translation": {"sw": one, "en": two}, "tags": ["a"]},
        lambda one, two: {"id": 7, "source": one, "target": two, "score": 0.5},
        lambda one, two: [one, two],
    ],
)
def test_json_lines_are_pairs(tmp_path, record):
    lines = "".join(json.dumps(record(one, two), ensure_ascii=False) + "\n" for one, two in PAIRS)
    path = write(tmp_path / "pairs.jsonl", lines)
    assert is_pairs(path)
    assert pairs_in(path) == PAIRS
    broken = write(tmp_path / "broken.jsonl", lines + '{"sw": "cut', "utf-8")
    assert "no JSON object on line 41" in refusal(broken)
    assert check_pairs(broken).files["pairs"].findings


def test_keys_that_are_not_clear_are_asked_for(tmp_path):
    lines = "".join(json.dumps({"n": n, "a": one, "b": two}) + "\n" for n, (one, two) in enumerate(PAIRS))
    path = write(tmp_path / "pairs.jsonl", lines)
    assert "has 3 columns (n '0', a 'Nina vitabu 2.', b 'I have 2 books, and…')" in refusal(path)
    assert "for example --data.columns a,b." in refusal(path)
    assert pairs_in(path, columns="a,b") == PAIRS


def test_json_lines_are_text(tmp_path):
    texts = [f"sentence {n}\nand another" for n in range(30)]
    path = write(tmp_path / "t.jsonl", "".join(json.dumps({"id": 1, "text": text}) + "\n" for text in texts))
    assert not is_pairs(path)
    assert lines_in(path) == sorted(text.replace("\n", " ") for text in texts)
    assert "t.jsonl is JSON Lines (UTF-8, columns id, text): text is read." in open_corpus(path).notes[0]
    assert check_text(path).files["text"].lines == 30
    assert "there is no column 'body'" in text_refusal(path, columns="body")
    assert "no JSON object on line 1" in text_refusal(write(tmp_path / "w.json", "[\n{}\n]\n"))
    assert "no JSON object on line 1" in text_refusal(write(tmp_path / "deep.jsonl", "[" * 100_000))


# -- Parquet, Arrow, Zstandard -----------------------------------------------------------------------------------------


def test_hugging_face_datasets_are_read_from_the_disk(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    both = arrow.struct([("sw", arrow.string()), ("en", arrow.string())])  # by itself an old pyarrow would sort them
    made = arrow.Table.from_pylist(
        [{"id": str(n), "translation": dict(zip(("sw", "en"), pair))} for n, pair in enumerate(PAIRS)],
        arrow.schema([("id", arrow.string()), ("translation", both)]),
    )
    saved = tmp_path / "saved"  # as Dataset.save_to_disk does
    for split, rows in {"train": made.slice(0, 30), "validation": made.slice(30)}.items():
        (saved / split).mkdir(parents=True)
        for part in range(2):
            half = rows.slice(part * 15, 15)
            with arrow.ipc.new_stream(saved / split / f"data-0000{part}-of-00002.arrow", half.schema) as stream:
                stream.write_table(half)
    corpus = open_pairs(saved)
    assert list(zip(corpus.splits["train"].sources, corpus.splits["train"].targets)) == PAIRS[:30]
    assert len(corpus.splits["valid"]) == 10
    assert is_pairs(saved)
    assert "Arrow" in corpus.notes[0]
    hub = tmp_path / "hub" / "data"  # as the Hub keeps them
    hub.mkdir(parents=True)
    parquet.write_table(made.slice(0, 30), hub / "train-00000-of-00001.parquet")
    parquet.write_table(made.slice(30), hub / "test-00000-of-00001.parquet")
    assert pairs_in(hub / "train-00000-of-00001.parquet") == PAIRS[:30]
    assert len(open_pairs(hub.parent, columns="en,sw").splits["test"]) == 10
    assert len(list(open_corpus(hub.parent, columns="en").splits["test"])) == 10
    assert check_pairs(hub.parent).files["train"].pairs == 30
    assert "not a complete .parquet" in refusal(write(tmp_path / "x.parquet", b"PAR1 nothing"))
    assert "not a complete .arrow" in refusal(write(tmp_path / "x.arrow", b"nothing"))


def without(monkeypatch, *names):
    """As if these packages were not installed."""
    real = builtins.__import__

    def importing(name, *rest, **options):
        if name.split(".")[0] in names:
            raise ImportError(name)
        return real(name, *rest, **options)

    monkeypatch.setattr(builtins, "__import__", importing)


def test_what_is_missing_is_said_with_how_to_install_it(tmp_path, monkeypatch):
    without(monkeypatch, "pyarrow", "compression", "backports")
    assert refusal(write(tmp_path / "x.parquet", b"PAR1")).endswith("install pyarrow: pip install 'regard[data]'.")
    assert text_refusal(write(tmp_path / "x.txt.zst", b"x")).endswith("pip install 'regard[data]'.")


def test_zstandard_is_unpacked(tmp_path, monkeypatch):
    zstd = pytest.importorskip("backports.zstd")
    lines = [f"line {n}" for n in range(100)]
    packed = zstd.compress("".join(f"{line}\n" for line in lines).encode())
    path = write(tmp_path / "t.txt.zst", packed)
    assert lines_in(path) == sorted(lines)
    assert lines_in(path, split="tail") == sorted(lines)
    assert pairs_in(write(tmp_path / "p.tsv.zst", zstd.compress(tsv(PAIRS).encode()))) == PAIRS
    for wrong in (b"plain text\n", packed[:-9]):
        assert "not a complete zst file" in text_refusal(write(tmp_path / "w.txt.zst", wrong))
    monkeypatch.setattr(reading, "MAX_SMALL_BYTES", 1 << 17)
    assert "200 times" in text_refusal(write(tmp_path / "b.txt.zst", zstd.compress(b"\n" * (1 << 18))))


# -- text --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
@pytest.mark.parametrize("packed", ["", ".gz"])
def test_text_is_read_in_every_encoding_that_says_what_it_is(tmp_path, encoding, packed):
    lines = [f"Zeile {n} für Ελλάδα" for n in range(60)]
    content = "".join(f"{line}\n" for line in lines).encode(encoding)
    path = write(tmp_path / f"t.txt{packed}", gzip.compress(content) if packed else content)
    assert lines_in(path) == sorted(lines)
    tail = open_corpus(path, split="tail")
    assert [line for part in tail.splits.values() for line in part] == lines
    plain = open_corpus(write(tmp_path / "plain.txt", "".join(f"{line}\n" for line in lines)), split="tail")
    if encoding != "utf-8-sig":  # its mark counts as text
        assert {split: list(part) for split, part in tail.splits.items()} == {
            split: list(part) for split, part in plain.splits.items()
        }
    assert "is UTF-" in open_corpus(path).notes[0]


def test_a_folder_of_files_is_one_text(tmp_path):
    folder = tmp_path / "books"
    folder.mkdir()
    for book in range(3):
        write(
            folder / f"book{book}.txt",
            "".join(f"book {book} line {n}\n" for n in range(30)),
            "utf-16" if book else "utf-8",
        )
    assert len(lines_in(folder)) == 90
    assert "3 files are read as one text" in open_corpus(folder).notes[0]
    first = open_corpus(folder).checksum()
    write(folder / "book1.txt", "another\n" * 5)
    assert open_corpus(folder).checksum() != first
    write(folder / "book2.txt", "")
    assert "book2.txt' is empty" in text_refusal(folder)


def test_a_column_of_a_table_is_text(tmp_path):
    path = write(tmp_path / "pairs.csv", "sw,en\n" + "".join(f'{one},"{two}"\n' for one, two in PAIRS))
    assert "Regard cannot tell which of them is the text" in text_refusal(path)
    assert lines_in(path, columns="en") == lines_in(path, columns="2") == sorted(two for _, two in PAIRS)
    assert "a language model needs one column" in text_refusal(path, columns="sw,en")
    tabbed = write(tmp_path / "tabs.txt", tsv(PAIRS))
    assert lines_in(tabbed) == sorted("\t".join(pair) for pair in PAIRS)  # a text may have tabs
    assert lines_in(tabbed, columns="1") == sorted(one for one, _ in PAIRS)


# -- bombs -------------------------------------------------------------------------------------------------------------


def test_a_packed_file_that_unfolds_without_end_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "MAX_SMALL_BYTES", 1 << 17)  # else the same, but slower
    for content in (b"\n" * (1 << 18), b"a" * (1 << 18)):
        assert "200 times" in text_refusal(write(tmp_path / "bomb.txt.gz", gzip.compress(content)))
    for content in (b"a\tb\n" * (1 << 16), b"a" * (1 << 18), b"a\tb\n" + b"\t\n" * (1 << 17)):
        assert "200 times" in refusal(write(tmp_path / "bomb.tsv.gz", gzip.compress(content)))


def test_blanks_are_read_in_linear_time(tmp_path):
    wide = f"a{' ' * 1_000_000}b\tc\t"
    path = write(tmp_path / "wide.tsv", f"{wide}\n" + tsv(PAIRS))
    assert pairs_in(path, columns="1,2")[0] == (f"a{' ' * 1_000_000}b", "c")
    comments = write(tmp_path / "c.txt", "<!--" * 16_000 + "<tmx>")
    assert not is_pairs(comments)


def test_a_line_without_end_is_refused(tmp_path):
    path = write(tmp_path / "long.txt", b"word " * (MAX_LINE_BYTES // 5 + 10) + b"\nshort\n")
    assert "a line of more than 4 MiB" in text_refusal(path)
    assert "a line of more than 4 MiB" in refusal(path.rename(tmp_path / "long.tsv"))


def test_a_misspelt_column_is_answered_with_the_one_that_is_there(tmp_path):
    path = tmp_path / "my.csv"
    path.write_text("id,english,french\n" + "".join(f"{n},The cat {n},Le chat {n}\n" for n in range(9)), "utf-8")
    with pytest.raises(RegardError, match=r"did you mean english\?.*for example --data.columns english,french"):
        open_pairs(str(path), columns="englsh,french")


# -- which files are pairs ---------------------------------------------------------------------------------------------


def test_only_languages_make_two_files_parallel(tmp_path):
    for name in ("a.csv", "a.tmx", "b.txt", "b.log", "c.de", "other.en", "d.de", "d.txt"):
        write(tmp_path / name, "x\n")
    for name in "abcd":
        assert not holds_pairs(tmp_path / name)
    write(tmp_path / "c.en", "x\n")
    assert holds_pairs(tmp_path / "c")
    assert find_pair_files(tmp_path / "c", "de", "en") == {"pairs": (tmp_path / "c.de", tmp_path / "c.en")}


def test_a_table_is_taken_unless_the_languages_asked_for_have_files_of_their_own(tmp_path):
    table = write(tmp_path / "train.tsv", tsv(PAIRS))
    one = write(tmp_path / "train.de", "x\n")
    assert find_pair_files(tmp_path, "de", "en") == {"train": (table,)}
    other = write(tmp_path / "train.en", "y\n")
    assert find_pair_files(tmp_path, "de", "en") == {"train": (one, other)}
    assert find_pair_files(tmp_path) == {"train": (table,)}


def test_a_folder_without_training_pairs_names_its_only_table(tmp_path):
    write(tmp_path / "README.md", "about\n")
    path = write(tmp_path / "pairs.tsv", tsv(PAIRS))
    with pytest.raises(RegardError, match="has no training pairs") as caught:
        find_pair_files(tmp_path)
    assert f"or give the file {str(path)!r} itself" in str(caught.value)
    write(tmp_path / "more.tsv", tsv(PAIRS))
    with pytest.raises(RegardError, match="or give a single tab-separated file"):
        find_pair_files(tmp_path)


def test_parallel_files_in_no_folder_are_not_there(tmp_path):
    assert not holds_pairs(tmp_path / "none" / "train")
    assert "There is no corpus, file or folder" in refusal(tmp_path / "none" / "train", source="de", target="en")


@pytest.mark.parametrize("side", ["de", "en"])
def test_of_parallel_files_each_must_be_text(tmp_path, side):
    for code in ("de", "en"):
        write(tmp_path / f"train.{code}", "one\ntwo\n")
    write(tmp_path / f"train.{side}", b"one\nt\0o\n")
    assert f"train.{side}' is not a text file: it has a zero byte at offset 5" in refusal(
        tmp_path, source="de", target="en"
    )
