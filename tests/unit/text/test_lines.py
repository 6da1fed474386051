"""Lines of files, whatever their encoding, packing and place; and where the lines of a language model come from."""

import gzip
import io

import pytest

from regard.base.errors import RegardError
from regard.corpora.split import HashSplit
from regard.text.readers import lines as lines_module
from regard.text.readers.lines import (
    LOOK,
    bounded_lines,
    encoding_of,
    read_lines,
    reading_text,
    require_text_file,
    skip_to,
    unpacked_name,
)
from regard.text.readers.sources import DrawnLines, FileLines, ManyFiles, TableLines, content_digest, open_text


def refusal(call, *arguments, **more):
    with pytest.raises(RegardError) as caught:
        list(call(*arguments, **more) or [])
    return str(caught.value)


@pytest.mark.parametrize(
    "encoding, said",
    [("utf-8", "UTF-8"), ("utf-8-sig", "UTF-8 with byte-order mark"), ("utf-16", "UTF-16"), ("utf-32", "UTF-32")],
)
def test_an_encoding_is_told_by_its_mark(tmp_path, encoding, said):
    content = "".join(f"Zeile {n} für Ελλάδα\n" for n in range(9000))  # more than is decoded at once
    path = tmp_path / "t.txt"
    path.write_bytes(content.encode(encoding))
    assert encoding_of(path.read_bytes()[:4]) == said
    with reading_text(path) as stream:
        read = stream.read()
    assert read == content.encode("utf-8-sig" if encoding == "utf-8-sig" else "utf-8")
    assert list(read_lines(path)) == content.splitlines()


def test_lines_that_begin_in_a_range_are_read_with_the_numbers_of_what_is_wrong(tmp_path):
    path = tmp_path / "t.txt"
    path.write_bytes(b"one\ntwo\r\nthr\xe9\xe8e\nfour")
    found = []
    note = lambda *where: found.append(where)  # noqa: E731
    assert list(read_lines(path, undecodable=note)) == ["one", "two", "thr??e", "four"]
    assert found == [(3, 0xE9)]
    assert list(read_lines(path, 4, undecodable=note)) == ["two", "thr??e", "four"]
    assert list(read_lines(path, 4, 9)) == ["two"]
    assert list(read_lines(path, 4, 8)) == ["two"]
    assert list(read_lines(path, 0, 4)) == ["one"]
    assert list(read_lines(path, 0, 5)) == ["one", "two"]
    assert list(read_lines(path, 16)) == ["four"]
    assert "line 3 has the byte 0xE9 at offset 12;" in refusal(read_lines, path)
    assert "line 3 has the byte 0xE9 at offset 12;" in refusal(read_lines, path, 9)
    marked = tmp_path / "marked.txt"
    marked.write_bytes("\ufeffone\n\ufefftwo\n".encode())
    assert list(read_lines(marked)) == ["one", "\ufefftwo"]  # only the first is a mark


def test_the_line_of_a_wrong_byte_is_counted_far_into_a_file(tmp_path):
    path = tmp_path / "t.txt"
    path.write_bytes(b"line of text\n" * 20_000 + b"caf\xe9\n")
    assert "line 20001 has the byte 0xE9 at offset 260003;" in refusal(read_lines, path)
    packed = tmp_path / "t.txt.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert "line 20001 has the byte 0xE9 at offset 260003;" in refusal(read_lines, packed, 260_000)
    assert list(read_lines(packed, 13, 39)) == ["line of text"] * 2


def test_skipping_is_exact_also_where_nothing_can_be_sought():
    class Pipe(io.BytesIO):
        def seekable(self):
            return False

        def seek(self, *_):
            raise OSError

    for offset in (0, 1, LOOK - 1, LOOK, LOOK + 1, 3 * LOOK):
        for kind in (io.BytesIO, Pipe):
            stream = kind(bytes(range(256)) * 1024)
            skip_to(stream, offset)
            assert stream.read(1) == bytes([offset % 256])
    ended = Pipe(b"abc")
    skip_to(ended, 10)  # past its end
    assert ended.read() == b""


def test_a_line_may_be_as_long_as_the_longest_and_no_longer(monkeypatch):
    monkeypatch.setattr(lines_module, "MAX_LINE_BYTES", 6)
    assert list(bounded_lines(io.BytesIO(b"12345\n123456"), "x")) == [b"12345\n", b"123456"]
    assert "x has a line of more than 0 MiB (line 2 from" in refusal(bounded_lines, io.BytesIO(b"1\n123456\n"), "x")
    assert lines_module.LOOK == 1 << 16


def test_the_longest_line_has_four_mebibytes():
    assert lines_module.MAX_LINE_BYTES == 4 << 20


def test_names_lose_what_they_were_packed_with(tmp_path):
    names = {"a.txt.gz": "a.txt", "a.txt.zst": "a.txt", "a.txt": "a.txt", "a": "a"}
    assert {name: unpacked_name(tmp_path / name).name for name in names} == names


def test_what_is_no_text(tmp_path):
    path = tmp_path / "t.txt"
    for content, said in (
        (b"", "is empty"), (b"\xef\xbb\xbf \n\n", "is empty"), (b" \n" * (LOOK // 2 - 1), "is empty"),
        (b"abc\0d", "zero byte at offset 3"), (b"\0abc", "zero byte at offset 0"),
    ):  # fmt: skip
        path.write_bytes(content)
        assert said in refusal(require_text_file, path)
    for content in (b" \n" * (LOOK // 2), b"x", "wide".encode("utf-16")):  # of the first more may come later
        path.write_bytes(content)
        require_text_file(path)
    assert "neither a file nor a folder" in refusal(require_text_file, tmp_path / "none")


# -- where lines come from -------------------------------------------------------------------------------------------


def test_a_file_knows_its_size_if_it_can_be_told_without_reading(tmp_path):
    plain, packed, wide = tmp_path / "a.txt", tmp_path / "a.txt.gz", tmp_path / "w.txt"
    plain.write_bytes(b"one\ntwo\nthree\n")
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    wide.write_bytes("one\ntwo".encode("utf-16"))
    assert FileLines(plain).size == 14
    assert FileLines(plain, 4).size == 10
    assert FileLines(plain, 4, 8).size == FileLines(packed, 4, 8).size == 4
    assert FileLines(packed).size is FileLines(wide).size is ManyFiles((plain,)).size is None
    draw = HashSplit(("valid", "test"))
    assert [DrawnLines(FileLines(plain), draw, name).size for name in ("train", "valid")] == [12, 0]
    assert [DrawnLines(FileLines(plain), HashSplit(("valid",)), name).size for name in ("train", "valid")] == [13, 0]
    assert DrawnLines(FileLines(packed), draw, "train").size is None


def test_a_text_says_what_it_is(tmp_path):
    plain, wide, table = tmp_path / "a.txt", tmp_path / "w.txt", tmp_path / "t.tsv"
    plain.write_bytes(b"one\ntwo\n")
    wide.write_bytes("one\ntwo".encode("utf-16"))
    table.write_bytes(b"sw\ten\nmoja\tone\n\ttwo\nmbili\n")
    assert (FileLines(plain).name, FileLines(plain).about) == ("a.txt", "")
    assert FileLines(wide).about == "w.txt is UTF-16."
    many = open_text([plain, wide])
    assert (many.name, many.about) == ("2 files", "2 files are read as one text, a.txt first.")
    assert list(many) == ["one", "two", "one", "two"]
    for columns, rows in (("sw", ["moja", "mbili"]), ("2", ["one", "two"])):
        column = open_text([table], columns)
        assert isinstance(column, TableLines)
        assert (list(column), column.columns, column.header) == (rows, "sw" if columns == "sw" else "en", "yes")
    assert open_text([table], usual="en").columns == "en"
    assert open_text([table], "1", "no").header == "no"
    assert isinstance(open_text([plain]), FileLines)
    tabbed = tmp_path / "tabbed.txt"
    tabbed.write_bytes(b"a\tb\n")
    assert list(open_text([tabbed])) == ["a\tb"]
    assert list(open_text([tabbed], "2")) == ["b"]
    for empty in ([tmp_path / "e.txt"], [plain, tmp_path / "e.txt"]):
        empty[-1].write_bytes(b"")
        assert "e.txt' is empty" in refusal(open_text, empty)
        assert "is empty" in refusal(open_text, empty[-1:], "1")


def test_a_file_that_changes_has_another_digest(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"x" * (1 << 20) + b"end")
    first = content_digest(path)
    path.write_bytes(b"x" * (1 << 20) + b"another")
    assert content_digest(path) != first
    assert len(first) == 32
