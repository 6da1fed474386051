"""Workbooks (.xlsx): the first sheet is a table; a hostile or damaged one is refused in one sentence."""

import datetime
import io
import re
import sys
import zipfile

import openpyxl
import pytest

from regard.base.errors import RegardError
from regard.text.check.check_pairs import check_pairs
from regard.text.corpus import open_corpus
from regard.text.pairs import is_pairs, open_pairs, read_pairs

ROWS = [(f"The cat {n} sleeps.", f"Le chat {n} dort à l'été.") for n in range(40)]


def save(path, rows, **others):
    book = openpyxl.Workbook()
    book.active.title = "Pairs"
    for row in rows:
        book.active.append(row)
    for name, more in others.items():
        sheet = book.create_sheet(name)
        for row in more:
            sheet.append(row)
    book.save(path)
    return path


def changed(path, part, change):
    """The workbook with one of its files changed."""
    with zipfile.ZipFile(path) as archive:
        content = {entry.filename: archive.read(entry) for entry in archive.infolist()}
    content[part] = change(content[part])
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in content.items():
            archive.writestr(name, data)
    return path


def refusal(path):
    with pytest.raises(RegardError) as found:
        open_pairs(path)
    return str(found.value)


def test_pairs_with_a_header_or_without(tmp_path):
    for header in ([], [("English", "Français")]):
        path = save(tmp_path / f"pairs{len(header)}.xlsx", [*header, *ROWS], Notes=[["not", "read"]])
        found = read_pairs(path)
        assert [*zip(found.sources, found.targets)] == ROWS
        assert is_pairs(path)
        report = check_pairs(path).files["pairs"]
        assert report.found.startswith(f"{path.name} is XLSX (sheet 'Pairs', the first of 2, ")
        assert report.pairs == 40


def test_numbers_dates_and_line_breaks_are_text_and_other_columns_are_asked_about(tmp_path):
    days = [datetime.date(2024, 5, 1) + datetime.timedelta(days=n) for n in range(40)]
    rows = [("ID", "Text", "Date"), *((n, f"One\nline {n}, {n / 2}", days[n]) for n in range(1, 40))]
    path = save(tmp_path / "text.xlsx", rows)
    corpus = open_corpus(path)
    lines = {line for lines in corpus.splits.values() for line in lines}
    assert lines == {f"One line {n}, {n / 2}" for n in range(1, 40)}
    assert {*open_corpus(path, columns="ID").splits["train"]} <= {str(n) for n in range(1, 40)}
    assert {*open_corpus(path, columns="Date").splits["train"]} <= {day.isoformat() for day in days}
    assert "--data.columns" in refusal(path)


def test_strings_that_cells_share_are_read_as_excel_writes_them(tmp_path):
    path = save(tmp_path / "shared.xlsx", ROWS)
    texts = [text for row in ROWS for text in row]
    numbers = iter(range(len(texts)))

    def refer(xml):
        return re.sub(rb't="inlineStr"><is>.*?</is>', lambda _: b't="s"><v>%d</v>' % next(numbers), xml)

    changed(path, "xl/worksheets/sheet1.xml", refer)
    kind = "http://schemas.openxmlformats.org/officeDocument/2006/relationships/sharedStrings"
    link = f'<Relationship Type="{kind}" Target="/xl/sharedStrings.xml" Id="rId99"/></Relationships>'.encode()
    changed(path, "xl/_rels/workbook.xml.rels", lambda xml: xml.replace(b"</Relationships>", link))
    kind = "application/vnd.openxmlformats-officedocument.spreadsheetml.sharedStrings+xml"
    part = f'<Override PartName="/xl/sharedStrings.xml" ContentType="{kind}"/></Types>'.encode()
    changed(path, "[Content_Types].xml", lambda xml: xml.replace(b"</Types>", part))
    main = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    items = "".join(f"<si><t>{text}</t></si>" for text in texts)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("xl/sharedStrings.xml", f'<sst xmlns="{main}" count="80" uniqueCount="80">{items}</sst>')
    found = read_pairs(path)
    assert [*zip(found.sources, found.targets)] == ROWS


def test_a_folder_of_workbooks_has_its_splits(tmp_path):
    save(tmp_path / "train.xlsx", ROWS[:30])
    save(tmp_path / "valid.xlsx", ROWS[30:])
    assert [len(pairs) for pairs in open_pairs(tmp_path).splits.values()] == [30, 10]


def test_a_hidden_sheet_is_passed_over(tmp_path):
    path = save(tmp_path / "hidden.xlsx", [["secret", "sheet"]], Shown=ROWS)
    book = openpyxl.load_workbook(path)
    book["Pairs"].sheet_state = "hidden"
    book.active = 1
    book.save(path)
    assert read_pairs(path).sources[0] == ROWS[0][0]


@pytest.mark.parametrize("content", [b"", b"text", b"PK\x03\x04 cut short", b"\xd0\xcf\x11\xe0 in an older"])
def test_what_is_not_a_workbook_is_refused(tmp_path, content):
    path = tmp_path / "no.xlsx"
    path.write_bytes(content)
    assert "not a complete workbook" in refusal(path)


def test_a_damaged_sheet_is_refused(tmp_path):
    path = save(tmp_path / "cut.xlsx", ROWS)
    assert "not a complete workbook" in refusal(
        changed(path, "xl/worksheets/sheet1.xml", lambda xml: xml[: len(xml) // 2])
    )


def test_a_workbook_that_unpacks_to_too_much_is_refused(tmp_path):
    path = save(tmp_path / "bomb.xlsx", ROWS)
    blanks = b" " * (1 << 24)
    assert "unpacks to more than" in refusal(changed(path, "xl/worksheets/sheet1.xml", lambda xml: xml + blanks))


def test_claims_about_the_size_of_a_sheet_are_not_believed(tmp_path):
    path = save(tmp_path / "wide.xlsx", ROWS)
    claim = rb'<dimension ref="A1:XFD1048576"/>'
    changed(path, "xl/worksheets/sheet1.xml", lambda xml: re.sub(rb"<dimension[^>]*>", claim, xml))
    assert len(read_pairs(path)) == 40
    far = changed(path, "xl/worksheets/sheet1.xml", lambda xml: xml.replace(b'<row r="40"', b'<row r="99999999999"'))
    assert "more than 1048576 rows" in refusal(far)
    right = changed(save(path, ROWS), "xl/worksheets/sheet1.xml", lambda xml: xml.replace(b'r="B7"', b'r="XFD7"'))
    assert "more than 1000 columns" in refusal(right)


def test_entities_are_not_unfolded(tmp_path):
    path = save(tmp_path / "laughs.xlsx", ROWS)
    laughs = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 9))
    doctype = f'<!DOCTYPE x [<!ENTITY l0 "ha">{laughs}]>'.encode()
    changed(path, "xl/worksheets/sheet1.xml", lambda xml: doctype + xml.replace(b"The cat 0", b"&l8;", 1))
    assert "not a complete workbook" in refusal(path)


def test_the_missing_package_is_named(tmp_path, monkeypatch):
    path = save(tmp_path / "pairs.xlsx", ROWS)
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    assert "pip install 'regard[data]'" in refusal(path)


def test_a_packed_workbook_is_read(tmp_path):
    import gzip

    content = io.BytesIO()
    save(content, ROWS)
    path = tmp_path / "pairs.xlsx.gz"
    path.write_bytes(gzip.compress(content.getvalue()))
    assert len(read_pairs(path)) == 40
