"""Sources of lines for a language model: memory, a file, a column of a table, many files."""

from __future__ import annotations

import codecs
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import ClassVar

from regard.base.known_digests import known_digest
from regard.base.numbers import group_digits, pluralize
from regard.base.reading import PACKED, reading
from regard.corpora.split import PARTS, HashSplit, line_hash
from regard.text.readers.columns import text_column
from regard.text.readers.encodings import UTF8, is_utf8
from regard.text.readers.lines import encoding_of, read_head, read_lines, require_text_file
from regard.text.readers.tables import BINARY, TextTable, kind_of, open_table


class TextLines(ABC):
    """Lines of text, without line ends, that can be read repeatedly."""

    unit: ClassVar[str] = "line"

    @property
    def size(self) -> int | None:
        """Approximate bytes of text; None: not known before reading."""
        return None

    @abstractmethod
    def __iter__(self) -> Iterator[str]: ...

    @abstractmethod
    def checksum(self) -> str:
        """A digest that changes when a line changes."""

    def hashes(self) -> Iterator[int]:
        """A hash of each line that is not blank."""
        return (line_hash(line) for line in self if line.strip())


@dataclass(frozen=True)
class GivenLines(TextLines):
    """Lines in memory."""

    lines: tuple[str, ...] = field(repr=False)

    @property
    def size(self) -> int | None:
        return sum(map(len, self.lines)) + len(self.lines)

    def __iter__(self) -> Iterator[str]:
        return iter(self.lines)

    def checksum(self) -> str:
        return hashlib.blake2b("\n".join((*self.lines, "")).encode(), digest_size=16).hexdigest()


class Source(TextLines):
    """Lines of one or several files."""

    paths: tuple[Path, ...]

    @property
    def name(self) -> str:
        return self.paths[0].name if len(self.paths) == 1 else f"{len(self.paths)} files"

    @property
    def about(self) -> str:
        """A sentence about the files, if they are not plain UTF-8 text."""
        return ""

    @abstractmethod
    def content(self) -> str:
        """A digest of the text."""


@dataclass(frozen=True)
class FileLines(Source):
    """The lines that begin within a range of a file's bytes (as UTF-8)."""

    path: Path
    start: int = 0
    stop: int | None = None
    encoding: str = UTF8

    @property
    def paths(self) -> tuple[Path, ...]:  # type: ignore[override]
        return (self.path,)

    @property
    def about(self) -> str:
        encoding = encoding_of(read_head(self.path), self.encoding)
        return "" if encoding == "UTF-8" else f"{self.path.name} is {encoding}."

    @property
    def size(self) -> int | None:
        if self.stop is not None:
            return self.stop - self.start
        if self.path.suffix in PACKED or not encoding_of(read_head(self.path), self.encoding).startswith("UTF-8"):
            return None
        return self.path.stat().st_size - self.start

    def __iter__(self) -> Iterator[str]:
        return read_lines(self.path, self.start, self.stop, encoding=self.encoding)

    def content(self) -> str:
        return decoded_digest((self.path,), self.encoding)

    def checksum(self) -> str:
        return digest_of(self.content(), str(self.start), str(self.stop))


@dataclass(frozen=True)
class ManyFiles(Source):
    """The lines of several plain files, one after the other."""

    paths: tuple[Path, ...]
    encoding: str = UTF8

    @property
    def about(self) -> str:
        return f"{len(self.paths)} files are read as one text, {self.paths[0].name} first."

    def __iter__(self) -> Iterator[str]:
        for path in self.paths:
            yield from read_lines(path, encoding=self.encoding)

    def content(self) -> str:
        return digest_of(decoded_digest(self.paths, self.encoding))

    def checksum(self) -> str:
        return digest_of(self.content(), "many")


@dataclass(frozen=True)
class TableLines(Source):
    """A column of a table; fields of several lines are joined into one."""

    table: TextTable
    chosen: int

    @property
    def paths(self) -> tuple[Path, ...]:  # type: ignore[override]
        return self.table.paths

    @property
    def columns(self) -> str:
        return self.table.named([self.chosen])

    @property
    def header(self) -> str:
        return "yes" if self.table.header else "no"

    @property
    def about(self) -> str:
        described, width = self.table.describe([self.chosen]), len(self.table.columns)
        if not (too_long := sum(any(fields[width:]) for fields in self.table.sample)):
            return described
        share = f"{group_digits(too_long)} of its first {pluralize(len(self.table.sample), 'row')}"
        has, field = "has" if too_long == 1 else "have", pluralize(width, "field")
        return (
            f"{described} {share} {has} more than {field}, and the extra fields are not read: quote fields that "
            "contain a delimiter."
        )

    def __iter__(self) -> Iterator[str]:
        for _, fields in self.table.rows():
            if self.chosen < len(fields) and fields[self.chosen]:
                yield fields[self.chosen]

    def content(self) -> str:
        return digest_of(decoded_digest(self.paths, self.table.encoding), self.columns, self.header)

    def checksum(self) -> str:
        return digest_of(self.content(), "column")


@dataclass(frozen=True)
class DrawnLines(TextLines):
    """The lines of a text that were drawn for one split; blank lines stay with the line before them."""

    text: Source
    draw: HashSplit
    split: str

    @property
    def size(self) -> int | None:
        parts = PARTS - len(self.draw.held_out) if self.split == "train" else 1
        return None if self.text.size is None else self.text.size * parts // PARTS

    def __iter__(self) -> Iterator[str]:
        split = "train"
        for line in self.text:
            if line.strip():
                split = self.draw(line)
            if split == self.split:
                yield line

    def checksum(self) -> str:
        return digest_of(self.text.content(), "drawn", *self.draw.splits, self.split)


def open_text(
    paths: Sequence[Path], columns: str = "", header: str = "auto", usual: str = "", encoding: str = UTF8
) -> Source:
    """The text of a file, of the parts of a dataset, or of many files; of a table the chosen column.

    A .txt file with tabs is plain text, unless columns are requested.
    """
    path, kind = paths[0], kind_of(paths[0])
    if kind in BINARY or (len(paths) == 1 and (kind or columns)):
        if not kind:
            require_text_file(path, encoding)
        table = open_table(paths, header, columns or usual, encoding=encoding)
        return TableLines(table, text_column(table, columns, usual=usual))
    for part in paths:
        require_text_file(part, encoding)
    return FileLines(path, encoding=encoding) if len(paths) == 1 else ManyFiles(tuple(paths), encoding)


def decoded_digest(paths: Sequence[Path], encoding: str) -> str:
    """A digest of the files as they are decoded."""
    parts = "\n".join(map(content_digest, paths))
    return parts if is_utf8(encoding) else f"{parts}\n{codecs.lookup(encoding).name}"


def content_digest(path: Path) -> str:
    """The digest of a file's (unpacked) bytes, computed once for as long as the file is not touched."""
    state = path.stat()
    return _content_digest(path, state.st_size, state.st_mtime_ns, state.st_ctime_ns)


@lru_cache
def _content_digest(path: Path, size: int, modified: int, changed: int) -> str:
    def compute() -> str:
        with reading(path) as stream:
            return hashlib.file_digest(stream, lambda: hashlib.blake2b(digest_size=16)).hexdigest()  # type: ignore[arg-type]

    return known_digest(path, "unpacked", compute)


def digest_of(*parts: str) -> str:
    return hashlib.blake2b("\n".join(parts).encode(), digest_size=16).hexdigest()
