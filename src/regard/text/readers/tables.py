"""Tables of text in common formats.

TSV, CSV        by tab, comma or semicolon; header, quotes (RFC 4180, Excel) and byte-order mark are recognized
JSON Lines      an object on each line; keys are columns, {"translation": {"de": …}} is the column translation.de
TMX, XLIFF      translation memories (`translation_memory.py`); languages are columns
XLSX            the first sheet of a workbook (`workbook.py`)
Parquet, Arrow  files of Hugging Face datasets, through pyarrow
"""

from __future__ import annotations

import csv
import json
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import chain, dropwhile, islice
from pathlib import Path
from typing import Any

from regard.base.errors import RegardError
from regard.base.reading import max_unpacked_bytes, unpacks_to_too_much
from regard.text.readers.encodings import UTF8
from regard.text.readers.lines import (
    MAX_LINE_BYTES,
    encoding_name,
    read_head,
    read_lines,
    require_text_file,
    unpacked_name,
)
from regard.text.readers.translation_memory import memory_kind, read_memory
from regard.text.readers.workbook import Workbook

Problem = Callable[[str, int], None]  # called with a problem and its line; may raise
Row = tuple[int, Sequence[str]]  # line (of a file without lines: row), fields
Record = tuple[int, Mapping[str, str]]

KINDS = {
    ".tsv": "TSV",
    ".tab": "TSV",
    ".csv": "CSV",
    ".jsonl": "JSON Lines",
    ".ndjson": "JSON Lines",
    ".json": "JSON Lines",
    ".tmx": "TMX",
    ".xlf": "XLIFF",
    ".xliff": "XLIFF",
    ".sdlxliff": "XLIFF",
    ".mqxliff": "XLIFF",
    ".xlsx": "XLSX",
    ".xlsm": "XLSX",
    ".parquet": "Parquet",
    ".arrow": "Arrow",
}
IN_PARTS = ("Parquet", "Arrow")  # a dataset may have many such files
BINARY = (*IN_PARTS, "XLSX")
BY_ROWS = ("TSV", "CSV", "XLSX")  # with a header or without
SAMPLE = 1000  # rows from which columns are recognized
SAMPLE_CHARACTERS = 1 << 20
MAX_COLUMNS = 1000
AT_ONCE = 1 << 28  # bytes of a Parquet file that are unfolded together
QUOTED = re.compile(r'"(?:[^"]|"")*"')
LINE_ENDS = re.compile(r"[\r\n\t]+")
BROKEN_QUOTES = "a quote that is not closed or not doubled"
NO_OBJECT = "no JSON object"


@dataclass(frozen=True)
class TextTable:
    """A recognized table in one file or in several parts: its columns, and how to read its rows."""

    paths: tuple[Path, ...]
    kind: str
    details: tuple[str, ...]  # encoding, header, quotes
    columns: tuple[str, ...]  # their names; without a header their numbers
    header: bool
    sample: tuple[Sequence[str], ...] = field(repr=False)
    read: Callable[[Problem], Iterator[Row]] = field(repr=False)
    languages: Mapping[str, str] = field(default_factory=dict)  # for XLIFF: the languages of source and target
    encoding: str = UTF8

    @property
    def name(self) -> str:
        parts = len(self.paths)
        return self.paths[0].name if parts == 1 else f"{self.paths[0].name} and {parts - 1} more"

    def rows(self, problem: Problem | None = None) -> Iterator[Row]:
        """All rows, each with at most as many fields as columns; `problem` is called for unreadable rows."""
        yield from self.read(problem or refusing(self.paths[0]))

    def describe(self, chosen: Sequence[int]) -> str:
        """One sentence for the log: the kind of file, and the role of each column."""
        names = [f"column {name}" if name.isdecimal() else name for name in (self.columns[n] for n in chosen)]
        roles = f"{names[0]} is the source, {names[1]} the target" if len(names) == 2 else f"{names[0]} is read"
        return f"{self.name} is {self.kind} ({', '.join(self.details)}): {roles}."

    def named(self, chosen: Sequence[int]) -> str:
        """Columns as `--data.columns` takes them."""
        return ",".join(self.columns[number] for number in chosen)


def refusing(path: Path) -> Problem:
    def problem(what: str, line: int) -> None:
        raise RegardError(
            f"{str(path)!r} has {what} on line {line}; fix it (`regard data check` finds all such lines)."
        )

    return problem


def one_line(text: str) -> str:
    """A field as one line without space around it."""
    if text.isprintable():  # so it contains no line end
        return text.strip()
    return " ".join(filter(None, map(str.strip, LINE_ENDS.split(text))))


def split_fields(line: str) -> list[str]:
    """The fields of a line `source⇥target`."""
    return line.split("\t")


def split_names(columns: str) -> list[str]:
    """ "en, sw" → en, sw"""
    return [part for part in map(str.strip, columns.split(",")) if part]


def kind_of(path: Path) -> str:
    """The kind of table that a file is by its name or its first bytes; "" for plain text."""
    kind = KINDS.get(unpacked_name(path).suffix.lower(), "")
    return kind or (memory_kind(read_head(path)) if path.is_file() else "")


def has_tabs(path: Path) -> bool:
    """True if the first line that is not blank has a tab."""
    try:
        lines = read_lines(path, undecodable=lambda *_: None)  # in most encodings a tab is one byte
        first = next((line for line in islice(lines, 100) if line.strip()), "")
    except RegardError:
        return False
    return "\t" in first


def open_table(
    paths: Sequence[Path], header: str = "auto", columns: str = "", undecodable: Any = None, *, encoding: str = UTF8
) -> TextTable:
    """Recognizes the table in a file (or in its parts); a file without a known suffix is read as TSV.

    `header` is auto, yes or no; `columns` are names that make a first line with them a header.
    """
    path, kind = paths[0], kind_of(paths[0]) or "TSV"
    for part in paths:
        if kind not in BINARY:
            require_text_file(part, encoding)
    if kind in ("TSV", "CSV"):
        return _delimited(path, kind, header, split_names(columns), undecodable, encoding)
    if kind == "XLSX":
        return _sheet(path, header, split_names(columns))
    records: Callable[[Problem], Iterator[Record]]
    languages: Mapping[str, str] = {}
    details = [encoding_name(path, encoding)] if kind not in BINARY else []
    if kind == "JSON Lines":
        records = partial(_json_records, path, undecodable, encoding)
    elif kind in BINARY:
        records = partial(_arrow_records, paths)
    else:
        memory = read_memory(path)
        kind, languages, records, details = memory.kind, memory.languages, memory.records, []
    sample = [record for _, record in islice(records(lambda what, line: None), SAMPLE)]
    names = tuple(dict.fromkeys(chain.from_iterable(sample)))
    _check_width(path, len(names))
    if not names:
        next(records(refusing(path)), None)  # raises the problem of the first line
        raise RegardError(f"{str(path)!r} is {kind} without any text; give a file that contains text.")
    rows = tuple([record.get(name, "") for name in names] for record in sample)
    details += [f"{'languages' if kind == 'TMX' else 'columns'} {', '.join(names)}"]

    def read(problem: Problem) -> Iterator[Row]:
        return ((number, [record.get(name, "") for name in names]) for number, record in records(problem))

    return TextTable(tuple(paths), kind, tuple(details), names, False, rows, read, languages, encoding)


# -- TSV and CSV -------------------------------------------------------------------------------------------------------


def _delimited(path: Path, kind: str, header: str, columns: list[str], undecodable: Any, encoding: str) -> TextTable:
    lines = list(_some(read_lines(path, undecodable=undecodable and (lambda *_: None), encoding=encoding)))
    skip = 0
    delimiter, quotes = "\t", True
    if kind == "CSV":
        if lines and (match := re.fullmatch(r"sep=(.)", lines[0])):  # Excel's own first line
            delimiter, skip = match[1], 1
        else:
            delimiter = _delimiter(lines)
    else:
        quotes = _has_quotes(lines)

    def read(problem: Problem) -> Iterator[Row]:
        text = islice(read_lines(path, undecodable=undecodable, encoding=encoding), skip, None)
        return _split_rows(text, delimiter, quotes, problem, skip)

    rows = [
        list(map(one_line, fields))
        for _, fields in _split_rows(lines[skip:], delimiter, quotes, lambda what, line: None, skip)
        if any(map(str.strip, fields))
    ]
    details = {",": [], "\t": [] if kind == "TSV" else ["by tabs"]}.get(delimiter, [f"by {delimiter!r}"])
    details += ["quotes removed"] if quotes and any('"' in line for line in lines) else []
    table = _with_header(path, kind, rows, read, header, columns)
    return replace(table, details=(encoding_name(path, encoding), *table.details, *details), encoding=encoding)


def _sheet(path: Path, header: str, columns: list[str]) -> TextTable:
    """The first sheet of a workbook."""
    book = Workbook(path)
    rows = [list(map(one_line, fields)) for _, fields in islice(book.rows(), SAMPLE) if any(map(str.strip, fields))]
    table = _with_header(path, "XLSX", rows, lambda problem: book.rows(), header, columns)
    return replace(table, details=(book.sheet, *table.details))


def _with_header(
    path: Path,
    kind: str,
    rows: list[list[str]],
    read: Callable[[Problem], Iterator[Row]],
    header: str,
    columns: list[str],
) -> TextTable:
    """A table whose first row may name its columns; `rows` is a sample."""
    if not rows:
        raise RegardError(f"{str(path)!r} has no pairs; each line must have a source, a tab and a target.")
    _check_width(path, max(map(len, rows)))
    usual = Counter(map(len, rows)).most_common(1)[0][0]
    has_header = header == "yes" or (header == "auto" and _is_header(rows, columns))
    width = len(rows[0]) if has_header else usual
    numbers = [str(number + 1) for number in range(width)]
    names = tuple(name or number for name, number in zip(rows[0], numbers)) if has_header else tuple(numbers)
    if len(set(names)) < len(names):
        names = tuple(numbers)

    def body(problem: Problem) -> Iterator[Row]:
        rows = read(problem)
        if has_header:
            rows = islice(dropwhile(lambda row: not any(map(str.strip, row[1])), rows), 1, None)
        return ((number, list(map(one_line, fields))) for number, fields in rows)

    named = f"header {', '.join(names)}" if has_header else "no header"
    return TextTable((path,), kind, (named,), names, has_header, tuple(rows[has_header:]), body)


def _check_width(path: Path, columns: int) -> None:
    if columns > MAX_COLUMNS:
        raise RegardError(f"{str(path)!r} has {columns} columns, more than {MAX_COLUMNS}: it is not a table of text.")


def _some(lines: Iterable[str]) -> Iterator[str]:
    """The first lines, of bounded size, for recognizing the format."""
    room = SAMPLE_CHARACTERS
    for line in islice(lines, SAMPLE):
        yield line
        room -= len(line)
        if room < 0:
            return


def _split_rows(lines: Iterable[str], delimiter: str, quotes: bool, problem: Problem, skipped: int) -> Iterator[Row]:
    if not quotes:
        yield from ((number, split_fields(line)) for number, line in enumerate(lines, 1))
        return
    reader = csv.reader((f"{line}\n" for line in lines), delimiter=delimiter, strict=True)
    while True:
        number = reader.line_num + 1 + skipped
        try:
            yield number, next(reader)
        except StopIteration:
            return
        except csv.Error:
            problem(BROKEN_QUOTES, number)


def _delimiter(lines: Sequence[str]) -> str:
    """The delimiter that gives most rows the same number of fields, at least two; the comma only if no other does."""

    def agreement(delimiter: str) -> int:
        rows = [row for _, row in _split_rows(lines, delimiter, True, lambda what, line: None, 0) if row]
        return sum(count for width, count in Counter(map(len, rows)).most_common(1) if width > 1)

    return max("\t;,", key=agreement)


def _has_quotes(lines: Sequence[str]) -> bool:
    """True if quotes in a file with tabs are Excel's, not part of the text.

    Excel's: all fields have them, or those with a comma or a quote do, no others, and quotes inside are doubled. A
    field over several lines is Excel's too: without its quotes the rows would not have equally many fields.
    """
    rows = [split_fields(line) for line in lines if line.strip()]
    fields = [text for row in rows for text in row if text]
    opened = [text for text in fields if text.startswith('"')]
    if not opened:
        return False
    if all(QUOTED.fullmatch(text) for text in opened):
        inside = [text[1:-1] for text in opened]
        needed = all("," in text or '""' in text for text in inside)
        plain = [text for text in fields if not text.startswith('"')]
        return len(opened) == len(fields) or (needed and not any('"' in text or "," in text for text in plain))
    complaints: list[str] = []
    quoted = [row for _, row in _split_rows(lines, "\t", True, lambda what, line: complaints.append(what), 0) if row]
    return not complaints and len(set(map(len, quoted))) == 1 < len(set(map(len, rows)))


def _is_header(rows: Sequence[Sequence[str]], columns: Sequence[str]) -> bool:
    """True if the first row names the columns: with a requested name, or with common names only."""
    first = [name.casefold() for name in rows[0]]
    requested = [name.casefold() for name in columns if not name.isdecimal()]
    if requested:
        return any(name in first for name in requested)  # a misspelled one raises an error later
    return len(set(first)) == len(first) and _are_names(first) and not (len(rows) > 1 and _are_names(rows[1]))


def _are_names(fields: Sequence[str]) -> bool:
    named = [text for text in fields if text]
    return bool(named) and len(named) >= len(fields) - 1 and all(map(_is_name, named))


def _words(text: str) -> list[str]:
    """The words of a name: letters with their marks, and digits."""
    composed = unicodedata.normalize("NFC", text.casefold())
    return "".join(char if unicodedata.category(char)[0] in "LMN" else " " for char in composed).split()


@cache
def header_words() -> frozenset[str]:
    """Words that name columns: languages, their codes, and roles such as source or label."""
    return frozenset(_words(Path(__file__).with_name("header_words.txt").read_text(encoding="utf-8")))


def _is_name(text: str) -> bool:
    words = _words(text)
    if re.fullmatch(r"[A-Za-z]{2,3}[-_][A-Za-z]{2,4}", text):  # en-US, eng_Latn
        words = words[:1]
    return 0 < len(words) <= 3 and all(word in header_words() for word in words)


# -- records -----------------------------------------------------------------------------------------------------------


def _json_records(path: Path, undecodable: Any, encoding: str, problem: Problem) -> Iterator[Record]:
    for number, line in enumerate(read_lines(path, undecodable=undecodable, encoding=encoding), 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            record = None
        if isinstance(record, str | list):
            values = [record] if isinstance(record, str) else record
            record = {str(place): value for place, value in enumerate(values, 1)}
        if isinstance(record, dict):
            yield number, flat(record)
        else:
            problem(NO_OBJECT, number)


def flat(record: Mapping[str, Any], before: str = "") -> dict[str, str]:
    """Texts, numbers and labels by name, those of a nested object by both names; lists are left out."""
    fields: dict[str, str] = {}
    for name, value in record.items():
        if isinstance(value, Mapping) and not before:
            fields |= flat(value, f"{name}.")
        elif isinstance(value, str | int | float):
            fields[f"{before}{name}"] = one_line(str(value))
    return fields


def _arrow_records(paths: Sequence[Path], problem: Problem) -> Iterator[Record]:
    try:
        import pyarrow
        from pyarrow import ipc, parquet
    except ImportError:
        raise RegardError(f"To read {str(paths[0])!r}, install pyarrow: pip install 'regard[data]'.") from None
    number = 0
    for path in paths:
        unfolded, most = 0, max_unpacked_bytes(path)
        try:
            if path.suffix == ".parquet":
                file = parquet.ParquetFile(path)
                groups = [file.metadata.row_group(group) for group in range(file.metadata.num_row_groups)]
                largest = max((group.total_byte_size for group in groups), default=0)
                if largest > most:
                    raise unpacks_to_too_much(path)
                rows = AT_ONCE // max(1, largest)  # even if every cell were as large as all that is stored
                batches = file.iter_batches(min(8192, max(64, rows)))
            else:
                with open(path, "rb") as stream:
                    is_file = stream.read(6) == b"ARROW1"
                opened = pyarrow.memory_map(str(path))
                if is_file:
                    reader = ipc.open_file(opened)
                    batches = (reader.get_batch(place) for place in range(reader.num_record_batches))
                else:
                    batches = iter(ipc.open_stream(opened))
            for batch in batches:
                unfolded += batch.nbytes
                if unfolded > most:
                    raise unpacks_to_too_much(path)
                for record in batch.to_pylist():
                    number += 1
                    fields = flat(record)
                    if any(len(text) > MAX_LINE_BYTES for text in fields.values()):
                        problem(f"a text of more than {MAX_LINE_BYTES >> 20} MiB", number)
                    yield number, fields
        except (pyarrow.ArrowException, OSError) as error:
            raise RegardError(f"{str(path)!r} is not a complete {path.suffix} file ({error}); copy it again.") from None
