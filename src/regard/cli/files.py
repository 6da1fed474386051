"""From a file to a file, line by line, in constant memory; what a kill interrupts goes on where it was.

OUT.part        the lines written so far; it becomes OUT when it is complete
OUT.part.json   what was asked for: another question does not go on with it
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from regard.cli.stdin import as_text
from regard.errors import RegardError
from regard.files import locked, reading, write_text
from regard.numbers import counted
from regard.report.progress import Bar, progress, say
from regard.text.corpus import content_digest

FLUSH_SECONDS = 1.0  # a kill loses about as much

Answer = Callable[[Iterable[str], tuple[int, int]], Iterator[str]]
"""(the lines that are left, how many came before and how many of those were not empty) → a line for each"""


def line_by_line(source: Path, out: Path, question: Mapping[str, Any], answer: Answer) -> None:
    """Write `answer` of each line of a file to another file, or go on with it."""
    if out.exists():
        raise RegardError(f"{out} exists already: move it away, or choose another --out.")
    part, note = out.with_name(f"{out.name}.part"), out.with_name(f"{out.name}.part.json")
    with reading(source) as stream:
        stream.read(0)  # a file that is not there is said before anything is made
    out.parent.mkdir(parents=True, exist_ok=True)
    asked = json.dumps({"input": content_digest(source), **question}, sort_keys=True)
    with locked(out.with_name(f".{out.name}.lock")):
        done = _done(part, note, asked)
        write_text(note, asked)
        _go_on(source, part, done, answer)
        os.replace(part, out)
        note.unlink()
    out.with_name(f".{out.name}.lock").unlink(missing_ok=True)


def _done(part: Path, note: Path, asked: str) -> int:
    """Whole lines that are there already; what was cut short behind them is cut off."""
    if not part.exists():
        return 0
    if not note.exists() or note.read_text(encoding="utf-8") != asked:
        raise RegardError(f"{part} was begun with another run, file or options: remove it, or choose another --out.")
    lines = size = 0
    with part.open("r+b") as stream:
        for line in stream:
            if not line.endswith(b"\n"):
                break
            lines, size = lines + 1, size + len(line)
        stream.truncate(size)
    if lines:
        say(f"{part}: {counted(lines, 'line')} were there before; continuing")
    return lines


def _go_on(source: Path, part: Path, done: int, answer: Answer) -> None:
    total = None if source.suffix == ".gz" else source.stat().st_size
    with reading(source) as stream, part.open("ab") as out, progress(source.name, total, unit=" bytes") as bar:
        lines = as_text(_counted(stream, bar))
        spoken = sum(bool(line.strip()) for line in islice(lines, done))
        flushed = time.monotonic()
        for line in answer(lines, (done, spoken)):
            out.write(line.encode() + b"\n")
            if time.monotonic() - flushed > FLUSH_SECONDS:
                out.flush()
                flushed = time.monotonic()
        out.flush()
        os.fsync(out.fileno())


def _counted(stream: BinaryIO, bar: Bar) -> Iterator[bytes]:
    for line in stream:
        bar.advance(len(line))
        yield line
