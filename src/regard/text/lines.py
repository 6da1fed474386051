"""Lines of a text file in UTF-8, or in UTF-16 or UTF-32 with a byte-order mark; plain or compressed.

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
from regard.base.files import PACKED, reading

BOM = b"\xef\xbb\xbf"
WIDE = {  # in this order: the mark of UTF-16 begins that of UTF-32
    codecs.BOM_UTF32_LE: "UTF-32",
    codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}
LOOK = 1 << 16  # bytes that are read at once; by the first of them a binary file is recognised
LONGEST_LINE = 1 << 22
Undecodable = Callable[[int, int], None]  # line, byte


def unpacked_name(path: Path) -> Path:
    """notes.txt.gz → notes.txt"""
    return path.with_suffix("") if path.suffix in PACKED else path


def encoding_of(head: bytes) -> str:
    """By its first bytes: "UTF-8", "UTF-8 with byte-order mark", "UTF-16" or "UTF-32"."""
    wide = next((name for mark, name in WIDE.items() if head.startswith(mark)), "")
    return wide or ("UTF-8 with byte-order mark" if head.startswith(BOM) else "UTF-8")


def read_head(path: Path) -> bytes:
    with reading(path) as stream:
        return stream.read(LOOK)


@contextmanager
def reading_text(path: Path) -> Iterator[BinaryIO]:
    """The text of a file as UTF-8 bytes; a UTF-16 or UTF-32 mark is removed."""
    with reading(path) as stream:
        encoding = encoding_of(stream.read(4))
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
                raise RegardError(
                    f"{str(self._path)!r} is damaged {self._encoding} text ({getattr(error, 'reason', error)}); save "
                    "it again as UTF-8."
                ) from None
            if not block:
                break
        count = min(len(buffer), len(self._ready))
        buffer[:count], self._ready = self._ready[:count], self._ready[count:]
        return count


def skip_to(stream: BinaryIO, offset: int) -> None:
    """Skips to an offset in a newly opened stream, also in one that cannot seek."""
    if stream.seekable():
        stream.seek(offset)
        return
    while offset and (block := stream.read(min(LOOK, offset))):
        offset -= len(block)


def bounded_lines(stream: BinaryIO, name: str) -> Iterator[bytes]:
    """The lines of a stream with their ends; `name` is what an error calls it."""
    read = partial(stream.readline, LONGEST_LINE + 1)
    for number, raw in enumerate(iter(read, b""), 1):
        if len(raw) > LONGEST_LINE:
            raise RegardError(
                f"{name} has a line of more than {LONGEST_LINE >> 20} MiB, line {number} from where reading "
                "began; put one sentence or paragraph on each line (for example with `fold -s -w 1000`)."
            )
        yield raw


def read_lines(
    path: Path, start: int = 0, stop: int | None = None, undecodable: Undecodable | None = None
) -> Iterator[str]:
    """The lines of a text file that begin in [start, stop), without line ends (LF or CR LF) and byte-order mark.

    Bytes that are not UTF-8 raise an error; with `undecodable` it is called instead, and they become question marks.
    """
    offset = start
    with reading_text(path) as stream:
        if start:
            skip_to(stream, start)
        for number, raw in enumerate(bounded_lines(stream, repr(str(path))), 1):
            if stop is not None and offset >= stop:
                return
            try:
                line = raw.decode()
            except UnicodeDecodeError as error:
                if undecodable is None:
                    raise _not_utf8(path, offset, raw, error) from None
                undecodable(number, raw[error.start])
                line = raw.decode(errors="replace").replace("\ufffd", "?")
            if offset == 0:
                line = line.removeprefix("\ufeff")
            yield line.removesuffix("\n").rstrip("\r")
            offset += len(raw)


def _not_utf8(path: Path, offset: int, raw: bytes, error: UnicodeDecodeError) -> RegardError:
    number = 1
    with reading(path) as stream:
        remaining = offset
        while remaining and (block := stream.read(min(LOOK, remaining))):
            number += block.count(b"\n")
            remaining -= len(block)
    return RegardError(
        f"{str(path)!r} is not UTF-8 text: line {number} has the byte 0x{raw[error.start]:02X} at offset "
        f"{offset + error.start}; save it as UTF-8, or convert it, for example with `iconv -f latin1 -t utf-8`."
    )


DOCUMENTS = {  # how they begin
    b"PK\x03\x04": "a document of an office program, or another zip archive",
    b"\xd0\xcf\x11\xe0": "a document of an older office program",
    b"%PDF-": "a PDF",
    b"{\\rtf": "a document in rich text format",
}


def refuse_what_is_no_text(path: Path) -> None:
    if not path.is_file():
        raise RegardError(f"{str(path)!r} is neither a file nor a folder; give a text file.")
    head = read_head(path)
    for begin, what in DOCUMENTS.items():
        if head.startswith(begin):
            raise RegardError(f"{str(path)!r} is {what}: save its text as plain text (UTF-8), a table as CSV.")
    if not head.removeprefix(BOM).strip() and len(head) < LOOK:
        raise RegardError(f"{str(path)!r} is empty; give a text with one sentence or paragraph per line.")
    if encoding_of(head).startswith("UTF-8") and (zero := head.find(b"\0")) >= 0:
        raise RegardError(f"{str(path)!r} is no text: it has a zero byte at offset {zero}; give a UTF-8 text file.")
