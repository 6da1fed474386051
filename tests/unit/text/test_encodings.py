"""A file in another encoding is refused with its name, and read when that is given."""

import codecs

import pytest

from regard.base.errors import RegardError
from regard.text.check.check_pairs import check_pairs
from regard.text.check.check_text import check_text
from regard.text.corpus import open_corpus, open_whole
from regard.text.pairs import open_pairs, read_pairs
from regard.text.readers.encodings import check_encoding, likely_encoding

FRENCH = [f"L’été n° {n} – “très” chaud, déjà 5 €." for n in range(60)]
WORDS = {
    "cp1252": [
        "L'été – très chaud, 5 €.",
        "Der Käse schmeckt, die Tür ist größer.",
        "¿El niño está aquí?",
        "“quoted” – only",
    ],
    "cp1250": ["Zażółć gęślą jaźń, proszę się śmiać.", "Příliš žluťoučký kůň úpěl ďábelské ódy"],
    "cp1251": ["Привет, это строка.", "Сьогодні гарна погода."],
    "koi8_r": ["Привет, это строка."],
    "cp1253": ["Καλημέρα κόσμε, αυτό είναι."],
    "cp1255": ["שלום עולם, זה מבחן."],
    "cp1256": ["مرحبا بالعالم هذا اختبار."],
    "cp932": ["猫は水を飲む。これはテストです。"],
    "euc_jp": ["猫は水を飲む。これはテストです。"],
    "gb18030": ["我们今天在学校里学习中文,这是一个例子。"],
    "big5": ["我們今天在學校裡學習中文,這是一個例子。"],
    "cp949": ["고양이는 물을 마신다."],
    "utf-16-le": ["Hello wörld"],
    "utf-16-be": ["Hello wörld"],
}


@pytest.mark.parametrize("encoding, text", [(name, text) for name, texts in WORDS.items() for text in texts])
def test_the_likely_encoding_of_a_text_is_its_own(encoding, text):
    assert likely_encoding("\n".join([text] * 20).encode(encoding)) == encoding


def test_bytes_that_no_language_has_are_not_named():
    assert likely_encoding(bytes(range(128, 256)) * 20) == ""


@pytest.mark.parametrize("name", ["nope", "hex", "rot13", "zlib", "idna", "unicode_escape", "", "\0", "x" * 1000])
def test_what_is_not_a_text_encoding_is_refused(name):
    with pytest.raises(RegardError, match="no text encoding"):
        check_encoding(name)


@pytest.fixture
def excel(tmp_path):
    path = tmp_path / "excel.txt"
    path.write_bytes("\r\n".join([*FRENCH, ""]).encode("cp1252"))
    return path


def test_a_text_is_refused_with_its_encoding_and_read_with_it(excel):
    expected = (
        r"line 1 has the byte 0x92 at offset 1; it is probably cp1252, as Excel saves: add --data.encoding cp1252"
    )
    with pytest.raises(RegardError, match=expected):
        open_corpus(excel)
    for split in ("auto", "tail"):
        corpus = open_corpus(excel, split, encoding="cp1252")
        assert sorted(line for lines in corpus.splits.values() for line in lines) == sorted(FRENCH)
        assert "excel.txt is cp1252." in corpus.origin
    assert [*open_whole(excel, "all", encoding="windows-1252").splits["all"]] == FRENCH


def test_the_encoding_is_part_of_the_checksum_but_its_spelling_is_not(excel):
    def checksum(encoding):
        return open_corpus(excel, encoding=encoding).checksum()

    assert checksum("cp1252") == checksum("windows-1252") != checksum("latin-1")
    excel.write_text("\n".join(FRENCH), encoding="utf-8")
    assert checksum("utf-8") == checksum("UTF8")


def test_a_byte_order_mark_decides(tmp_path):
    path = tmp_path / "marked.txt"
    for mark, encoding in ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le")):
        path.write_bytes(mark + "\n".join(FRENCH).encode(encoding))
        assert [*open_whole(path, "all", encoding="cp1252").splits["all"]] == FRENCH


def test_utf_16_without_a_mark_is_named_and_read(tmp_path):
    path = tmp_path / "wide.txt"
    path.write_bytes("\n".join(FRENCH).encode("utf-16-le"))
    with pytest.raises(RegardError, match=r"zero byte at offset 1; if it is utf-16-le, add --data.encoding utf-16-le"):
        open_corpus(path)
    assert [*open_whole(path, "all", encoding="utf-16-le").splits["all"]] == FRENCH


def test_a_wrong_encoding_is_refused(excel):
    with pytest.raises(RegardError, match=r"not ascii text, or damaged .*set --data.encoding to its encoding"):
        open_corpus(excel, encoding="ascii")


@pytest.mark.parametrize("name, pattern", [
    ("pairs.csv", "{};{}\r\n"), ("pairs.tsv", "{}\t{}\n"), ("pairs.txt", "{}\t{}\n"),
    ("pairs.jsonl", '{{"English": "{}", "Français": "{}"}}\n'),
])  # fmt: skip
def test_pairs_of_every_format_are_refused_checked_and_read(tmp_path, name, pattern):
    rows = [(f"Summer {n} is hot.", line) for n, line in enumerate(FRENCH)]
    header = [] if name.endswith("jsonl") else [("English", "Français")]
    path = tmp_path / name
    path.write_bytes("".join(pattern.format(*row) for row in [*header, *rows]).encode("cp1252"))
    with pytest.raises(RegardError, match="probably cp1252"):
        open_pairs(path)
    report = check_pairs(path).files["pairs"]
    assert report.encoding == "not UTF-8"
    assert "not UTF-8" in report.found
    assert "add --data.encoding cp1252" in report.refused
    report = check_pairs(path, encoding="cp1252").files["pairs"]
    assert (report.encoding, report.refused) == ("cp1252", "")
    found = read_pairs(path, encoding="cp1252")
    assert [*zip(found.sources, found.targets)] == rows


def test_parallel_files_and_further_pairs_have_the_same_encoding(tmp_path):
    for code, lines in (("en", [f"Summer {n}" for n in range(60)]), ("fr", FRENCH)):
        (tmp_path / f"train.{code}").write_bytes("\n".join([*lines, ""]).encode("cp1252"))
    (tmp_path / "more.tsv").write_bytes("Spring\tl'été passé\n".encode("cp1252"))
    with pytest.raises(RegardError, match=r"train.fr' is not UTF-8"):
        open_pairs(tmp_path / "train", source="en", target="fr")
    also = str(tmp_path / "more.tsv")
    found = open_pairs(tmp_path / "train", source="en", target="fr", also=also, encoding="cp1252")
    targets = [text for pairs in found.splits.values() for text in pairs.targets]
    assert sorted(targets) == sorted([*FRENCH, "l'été passé"])


def test_a_check_reports_and_says_what_training_would(excel):
    report = check_text(excel).files["text"]
    assert (report.encoding, report.lines) == ("not UTF-8", 60)
    assert "add --data.encoding cp1252" in report.refused
    report = check_text(excel, encoding="cp1252").files["text"]
    assert (report.encoding, report.refused, report.characters) == ("cp1252", "", sum(map(len, FRENCH)) + 60)
