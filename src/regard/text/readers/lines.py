"""Lines of a text file in UTF-8, in UTF-16 or UTF-32 with a byte-order mark, or in a given encoding; plain or packed.

A line has at most 4 MiB, so that a file without line ends cannot fill the memory.
"""

from __future__ import annotations

import codecs
import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, cast

from regard.base.errors import RegardError
from regard.base.reading import PACKED, reading
from regard.text.readers.encodings import UTF8, is_utf8, likely_encoding

BOM = b"\xef\xbb\xbf"
WIDE = {  # in this order: the mark of UTF-16 begins that of UTF-32
    codecs.BOM_UTF32_LE: "UTF-32",
    codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}
LOOK = 1 << 16  # bytes that are read at once; by the first of them a binary file is recognized
MAX_LINE_BYTES = 1 << 22
Undecodable = Callable[[int, int], None]  # line, byte


def unpacked_name(path: Path) -> Path:
    """notes.txt.gz → notes.txt"""
    return path.with_suffix("") if path.suffix in PACKED else path


def encoding_of(head: bytes, encoding: str = UTF8) -> str:
    """By its first bytes: "UTF-8 with byte-order mark", "UTF-16" or "UTF-32"; without a mark the given one."""
    wide = next((name for mark, name in WIDE.items() if head.startswith(mark)), "")
    given = "UTF-8" if is_utf8(encoding) else encoding
    return wide or ("UTF-8 with byte-order mark" if head.startswith(BOM) else given)


def read_head(path: Path) -> bytes:
    with reading(path) as stream:
        return stream.read(LOOK)


def encoding_name(path: Path, encoding: str = UTF8) -> str:
    """`encoding_of` a file's first bytes, or "not UTF-8"."""
    head = read_head(path)
    name = encoding_of(head, encoding)
    try:
        codecs.getincrementaldecoder(UTF8)().decode(head if name.startswith("UTF-8") else b"")
    except UnicodeDecodeError:
        return "not UTF-8"
    return name


@contextmanager
def reading_text(path: Path, encoding: str = UTF8) -> Iterator[BinaryIO]:
    """The text of a file as UTF-8 bytes; a UTF-16 or UTF-32 mark is removed. A mark decides, else `encoding`."""
    with reading(path) as stream:
        encoding = encoding_of(stream.read(4), encoding)
        stream.seek(0)
        if encoding.startswith("UTF-8"):
            yield stream
        else:
            yield cast(BinaryIO, io.BufferedReader(_Transcoded(stream, encoding, path), LOOK))


class _Transcoded(io.RawIOBase):
    def __init__(self, stream: BinaryIO, encoding: str, path: Path):
        self._stream, self._encoding, self._path = stream, encoding, path
        self._decoder = codecs.getincrementaldecoder(encoding)()
        self._ready = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ready:
            block = self._stream.read(LOOK)
            try:
                self._ready = self._decoder.decode(block, final=not block).encode()
            except UnicodeError as error:
                why = getattr(error, "reason", error)
                marked = self._encoding in WIDE.values()
                what = f"damaged {self._encoding} text" if marked else f"not {self._encoding} text, or damaged"
                advice = (
                    "save it again as UTF-8" if marked else "set --data.encoding to its encoding, or save it as UTF-8"
                )
                raise RegardError(f"{str(self._path)!r} is {what} ({why}); {advice}.") from None
            if not block:
                break
        count = min(len(buffer), len(self._ready))
        buffer[:count], self._ready = self._ready[:count], self._ready[count:]
        return count


def skip_to(stream: BinaryIO, offset: int) -> None:
    """Skips to an offset in a newly opened stream, even one that cannot seek."""
    if stream.seekable():
        stream.seek(offset)
        return
    while offset and (block := stream.read(min(LOOK, offset))):
        offset -= len(block)


def bounded_lines(stream: BinaryIO, name: str) -> Iterator[bytes]:
    """The lines of a stream with their ends; `name` is its name in errors."""
    read = partial(stream.readline, MAX_LINE_BYTES + 1)
    for number, raw in enumerate(iter(read, b""), 1):
        if len(raw) > MAX_LINE_BYTES:
            raise RegardError(
                f"{name} has a line of more than {MAX_LINE_BYTES >> 20} MiB (line {number} from where reading "
                "started); put one sentence or paragraph on each line (for example with `fold -s -w 1000`)."
            )
        yield raw


def read_lines(
    path: Path, start: int = 0, stop: int | None = None, undecodable: Undecodable | None = None, *, encoding: str = UTF8
) -> Iterator[str]:
    """The lines of a text file that begin in [start, stop), without line ends (LF or CR LF) and byte-order mark.

    Bytes that are not UTF-8 raise an error; with `undecodable` it is called instead, and they become question marks.
    """
    offset = start
    with reading_text(path, encoding) as stream:
        if start:
            skip_to(stream, start)
        for number, raw in enumerate(bounded_lines(stream, repr(str(path))), 1):
            if stop is not None and offset >= stop:
                return
            try:
                line = raw.decode()
            except UnicodeDecodeError as error:
                if undecodable is None:
                    raise RegardError(why_not_utf8(path)) from None
                undecodable(number, raw[error.start])
                line = raw.decode(errors="replace").replace("\ufffd", "?")
            if offset == 0:
                line = line.removeprefix("\ufeff")
            yield line.removesuffix("\n").rstrip("\r")
            offset += len(raw)


def why_not_utf8(path: Path) -> str:
    """A sentence about a file that is not UTF-8: where, its likely encoding, and what to do; "" if it is UTF-8."""
    offset = 0
    with reading_text(path) as stream:
        for number, raw in enumerate(bounded_lines(stream, repr(str(path))), 1):
            try:
                raw.decode()
            except UnicodeDecodeError as error:
                where = f"line {number} has the byte 0x{raw[error.start]:02X} at offset {offset + error.start}"
                likely = likely_encoding(raw + stream.read(LOOK))
                break
            offset += len(raw)
        else:
            return ""
    problem = f"{str(path)!r} is not UTF-8 text: {where};"
    if not likely:
        return f"{problem} set --data.encoding to its encoding, or save it as UTF-8."
    excel = ", as Excel saves" if likely == "cp1252" else ""
    return f"{problem} it is probably {likely}{excel}: add --data.encoding {likely}, or save it as UTF-8."


DOCUMENTS = {  # how they begin
    b"PK\x03\x04": "an office document or another zip archive",
    b"\xd0\xcf\x11\xe0": "a document in an older office format",
    b"%PDF-": "a PDF",
    b"{\\rtf": "a Rich Text Format (RTF) document",
}


def require_text_file(path: Path, encoding: str = UTF8) -> None:
    if not path.is_file():
        raise RegardError(f"{str(path)!r} is neither a file nor a folder; give a text file.")
    head = read_head(path)
    for begin, what in DOCUMENTS.items():
        if head.startswith(begin):
            raise RegardError(
                f"{str(path)!r} is {what}: save its text as plain text (UTF-8), or a table as XLSX or CSV."
            )
    if not head.removeprefix(BOM).strip() and len(head) < LOOK:
        raise RegardError(f"{str(path)!r} is empty; give text with one sentence or paragraph per line.")
    if encoding_of(head, encoding).startswith("UTF-8") and (zero := head.find(b"\0")) >= 0:
        likely = likely_encoding(head)
        wide = likely.startswith("utf-16")
        advice = f"if it is {likely}, add --data.encoding {likely}" if wide else "give a UTF-8 text file"
        raise RegardError(f"{str(path)!r} is not a text file: it has a zero byte at offset {zero}; {advice}.")
