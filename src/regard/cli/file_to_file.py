"""From a file to a file, line by line, in constant memory; an interrupted job resumes where it stopped.

OUT.part        the lines written so far; it becomes OUT when it is complete (of subtitles: one line for each sentence)
OUT.part.json   what was asked for: another question does not go on with it
"""

from __future__ import annotations

import json
import os
import time
from codecs import BOM_UTF8
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, islice
from pathlib import Path
from typing import Any

from regard.base.errors import RegardError
from regard.base.locks import exclusive_name
from regard.base.numbers import pluralize
from regard.base.reading import reading
from regard.base.writing import atomic_write, open_own_file, remove_partial_files, rename_new, write_text
from regard.cli.stdin import as_text
from regard.report.progress import Bar, progress, say
from regard.text.readers.lines import bounded_lines
from regard.text.readers.sources import content_digest
from regard.text.readers.subtitles import Subtitles

FLUSH_SECONDS = 1.0  # a kill loses about as much

Answer = Callable[[Iterable[str], tuple[int, int]], Iterator[str]]
"""(the lines that are left, how many came before and how many of those were not empty) → a line for each"""


def line_by_line(
    source: Path, out: Path, question: Mapping[str, Any], answer: Answer, subtitles: Subtitles | None = None
) -> None:
    """Write `answer` of each line of a file to another file, or resume; for subtitles, of each sentence."""
    _check_free(out)
    part, note = out.with_name(f"{out.name}.part"), out.with_name(f"{out.name}.part.json")
    if source.exists() and not source.is_file() and not source.is_dir():  # read twice, it would seem empty
        raise RegardError(f"{source} is a pipe or a device, but --in takes a file: leave --in out to read stdin.")
    with reading(source) as stream:
        stream.read(0)  # a file that is not there is said before anything is made
    asked = json.dumps({"input": content_digest(source), **question}, sort_keys=True)
    with exclusive_name(out):
        _check_free(out)  # another process may have finished it
        remove_partial_files(out.parent, of=note.name)
        done = _done(part, note, asked)
        _go_on(source, part, done, answer, subtitles)
        if subtitles is None:
            _finish(part, out)
        else:
            _write_subtitles(source, part, out, subtitles)
            part.unlink()
        note.unlink()


def _check_free(out: Path) -> None:
    if os.path.lexists(out):
        raise RegardError(f"{out} already exists: move it away, or choose another --out.")


def _done(part: Path, note: Path, asked: str) -> int:
    """Whole lines that are there already; what was cut short behind them is cut off. Files of others are left alone."""
    there = [path for path in (part, note) if os.path.lexists(path)]
    if there and not (note.is_file() and note.read_bytes() == asked.encode()):
        raise RegardError(
            f"{there[0]} belongs to a job with a different run, input or options: move it away, or "
            "choose another --out."
        )
    if not there:
        write_text(note, asked, new=True)
    if not os.path.lexists(part):
        return 0
    lines = size = 0
    with open(open_own_file(part, os.O_RDWR), "r+b") as stream:
        for line in stream:
            if not line.endswith(b"\n"):
                break
            lines, size = lines + 1, size + len(line)
        stream.truncate(size)
    if lines:
        say(f"{part}: continuing after {pluralize(lines, 'line')}")
    return lines


def _finish(part: Path, out: Path) -> None:
    try:
        rename_new(part, out)
    except RegardError:
        raise RegardError(
            f"Another program created {out} in the meantime: move it away and run the same command again to "
            f"rename {part}."
        ) from None


def _write_subtitles(source: Path, part: Path, out: Path, subtitles: Subtitles) -> None:
    """The source with the sentences of OUT.part in it; line ends and byte-order mark are the source's."""
    with reading(source) as stream, reading(part) as written, atomic_write(out, new=True) as temporary:
        raw = bounded_lines(stream, repr(str(source)))
        first = next(raw, b"")
        lines = as_text(chain([first], raw) if first else [])
        texts = as_text(bounded_lines(written, repr(str(part))))
        end = b"\r\n" if first.endswith(b"\r\n") else b"\n"
        with open(temporary, "xb") as file:
            file.write(BOM_UTF8 if first.startswith(BOM_UTF8) else b"")
            file.writelines(line.encode() + end for line in subtitles.replaced(lines, texts))


def _go_on(source: Path, part: Path, done: int, answer: Answer, subtitles: Subtitles | None) -> None:
    total = None if source.suffix == ".gz" else source.stat().st_size
    written = open_own_file(part, os.O_WRONLY | os.O_APPEND)
    with open(written, "ab") as out, reading(source) as stream, progress(source.name, total, unit=" bytes") as bar:
        lines = as_text(_counted(bounded_lines(stream, repr(str(source))), bar))
        if subtitles is not None:
            lines = subtitles.texts(lines)
        spoken = sum(bool(line.strip()) for line in islice(lines, done))
        flushed = time.monotonic()
        for line in answer(lines, (done, spoken)):
            out.write(line.encode() + b"\n")
            if time.monotonic() - flushed > FLUSH_SECONDS:
                out.flush()
                flushed = time.monotonic()
        out.flush()
        os.fsync(out.fileno())


def _counted(lines: Iterable[bytes], bar: Bar) -> Iterator[bytes]:
    for line in lines:
        bar.advance(len(line))
        yield line


def run_digests(run: Path, weights: str, average: int | None = None) -> dict[str, str]:
    """Everything that a run's answers depend on, so that a file is finished only by the model that began it."""
    from regard.base.fields import whole_number
    from regard.runs.store.folder import moments
    from regard.text.readers.sources import content_digest
    from regard.training.checkpointing import kept_weights

    last = (run / "training.safetensors").exists() and (weights != "best" or not (run / "model.safetensors").exists())
    files = [run / ("training.safetensors" if last else "model.safetensors")]
    if (step := whole_number(weights)) is not None:
        files = [moments(run).get(step, files[0])]
    if average is not None:
        files = kept_weights(run)[-average:]
    beside = [run / name for name in ("recipe.toml", "tokenizer.json", "tokenizer.source.json")]
    return {path.name: content_digest(path) for path in [*files, *beside] if path.exists()}


class ReadAhead:
    """Lines that a model reads ahead; `take` returns them again, one by one, in their order."""

    def __init__(self, lines: Iterator[str]):
        self._lines, self._waiting = lines, deque[str]()

    def __iter__(self) -> Iterator[str]:
        for line in self._lines:
            self._waiting.append(line)
            yield line

    def take(self) -> str:
        return self._waiting.popleft()
