"""metrics.jsonl while it grows: read once, then only the rows that were added. No torch."""

from __future__ import annotations

import json
import math
import os
import stat
import threading
from array import array
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from regard.base.numbers import pluralize
from regard.base.reading import PLAIN
from regard.training.metrics import as_written

END = 1 << 13  # bytes of metrics.jsonl in which its newest row is found
MAX_METRICS = 1 << 26  # bytes of metrics.jsonl: four days of a row each second; of a larger file the end is read
PIECE = 1 << 20  # bytes that are read at once
MAX_LINE = 1 << 16  # bytes of a row
MAX_ROWS = 10_000  # that are sent to a page at once
COLUMNS = ("step", "tokens", "seconds", "loss", "perplexity", "bleu", "accuracy", "learning_rate", "tokens_per_second")


@dataclass
class LiveCurve:
    """metrics.jsonl in columns. Reading again reads only what was added; a truncated file is read again."""

    path: Path
    columns: dict[str, array[float]] = field(default_factory=lambda: {key: array("d") for key in COLUMNS})
    valid: list[bool] = field(default_factory=list)  # is the row a validation?
    damaged: int = 0  # lines that were left out
    skipped: int = 0  # bytes at the beginning of a file that is too large
    age: int = 0  # how often it was read anew
    _offset: int = 0
    _in_long_line: bool = False  # what comes until the next line end belongs to a line that is too long
    _stamp: Any = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def rows(self) -> int:
        return len(self.valid)

    @property
    def note(self) -> str:
        """A sentence for a file that is not shown whole."""
        parts = [f"only the last {MAX_METRICS >> 20} MiB of the curves are shown"] if self.skipped else []
        parts += [f"{pluralize(self.damaged, 'damaged line')} omitted from the curves"] if self.damaged else []
        return "; ".join(parts)

    def read(self) -> None:
        with self._lock:
            self._read()

    def _read(self) -> None:
        try:
            now = file_stamp(self.path)
        except OSError:
            now = None
        if now == self._stamp:
            return
        size = now[1] if now else 0
        if size < self._offset or (self._stamp and now and now[2] != self._stamp[2]):  # cut, or another file
            self.columns, self.valid, self._offset = {key: array("d") for key in COLUMNS}, [], 0
            self.damaged, self.skipped, self._in_long_line = 0, 0, False
            self.age += 1
        self._stamp = now
        if now is None:
            return
        if size - self._offset > MAX_METRICS:  # at most so much at once, then what is added
            self.skipped = self._offset = size - MAX_METRICS
            self._in_long_line = True  # the first line is not whole
        try:
            with open(os.open(self.path, os.O_RDONLY | PLAIN), "rb") as stream:
                stream.seek(self._offset)
                while self._offset < size and self._add(stream.read(min(PIECE, size - self._offset))):
                    stream.seek(self._offset)
        except OSError:
            return

    def _add(self, content: bytes) -> bool:
        """Adds the whole lines of a piece of the file; False: nothing more can be read now."""
        if not content:
            return False
        begin = 0
        if self._in_long_line:
            begin = content.find(b"\n") + 1 or len(content)
            self._in_long_line = content[begin - 1 : begin] != b"\n"
        end = max(content.rfind(b"\n") + 1, begin)
        if len(content) - end >= MAX_LINE:
            self.damaged += 1
            self._in_long_line = True
        self._offset += len(content) if self._in_long_line else end
        rows, damaged = parsed(content[begin:end])
        self.damaged += damaged
        for key in COLUMNS:
            self.columns[key].extend(array("d", [row.get(key, math.nan) for row in rows]))
        self.valid += [row.get("split") == "valid" for row in rows]
        return bool(end) or self._in_long_line

    def since(self, row: int) -> list[list[Any]]:
        """The next rows from a number on, each: is it a validation, then the columns in their order."""
        with self._lock:
            rows = range(max(0, row), min(self.rows, row + MAX_ROWS))
            return [[self.valid[i], *(self.columns[key][i] for key in COLUMNS)] for i in rows]

    def taken(self, *keys: str) -> tuple[list[bool], list[array[float]]]:
        """Which rows are validations, and these columns: copies, as another request may add rows."""
        with self._lock:
            return self.valid[:], [self.columns[key][:] for key in keys]


def parsed(content: bytes) -> tuple[list[dict[str, Any]], int]:
    """The rows of a piece of metrics.jsonl, with the numbers of COLUMNS and their split; and how many lines were left
    out, because they are damaged.

    Ten thousand lines are read at once, which takes a fraction of the time; one by one only if something is wrong.
    """
    lines = content.splitlines()
    try:
        rows = json.loads(b"[" + b",".join(lines) + b"]", parse_int=float)
        if (
            all(type(row[key]) is float for row in rows for key in COLUMNS[:4])
            and all(type(row.get(key, 0.0)) is float for row in rows for key in COLUMNS[4:])
            and all(as_written(line, row) for line, row in zip(lines, rows, strict=True))
        ):
            return rows, 0
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        pass
    found = []
    for line in lines:
        try:
            row = json.loads(line, parse_int=float)  # a number with thousands of digits is infinite
        except (ValueError, RecursionError):
            continue
        whole = isinstance(row, dict) and all(type(row.get(key)) is float for key in COLUMNS[:4])
        if whole and as_written(line, row):
            numbers = {key: row[key] for key in COLUMNS if type(row.get(key)) is float}
            found.append(numbers | {"split": row.get("split")})
    return found, len(lines) - len(found)


def last_row(path: Path) -> dict[str, Any]:
    """How far it is, and the newest numbers of training, or of a validation if the file ends before any."""
    with open(os.open(path, os.O_RDONLY | PLAIN), "rb") as stream:
        size = os.fstat(stream.fileno()).st_size
        stream.seek(max(0, size - END))
        content = stream.read(END)
    begin = content.find(b"\n") + 1 if size > END else 0
    rows: list[dict[str, Any]] = []  # from the last
    for line in reversed(content[begin : content.rfind(b"\n") + 1].splitlines()):
        rows += parsed(line)[0]
        if rows and rows[-1].get("split") != "valid":
            break
    trained = [row for row in rows if row.get("split") != "valid"]
    row = (trained or rows or [{}])[0]
    row = row | {key: rows[0][key] for key in ("step", "tokens", "seconds") if rows and key in rows[0]}
    return {key: row[key] for key in COLUMNS if math.isfinite(row.get(key, math.nan))}


def file_stamp(path: Path) -> tuple[int, int, int]:
    """A file's signature, which shows if it was replaced: time, size, identity; a link is not followed."""
    found = os.lstat(path)
    if not stat.S_ISREG(found.st_mode):
        raise OSError("not a plain file")
    return found.st_mtime_ns, found.st_size, found.st_ino
