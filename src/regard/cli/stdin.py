"""Text that comes through a pipe: all of it, or as it arrives, so that each line is answered before the next."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from queue import Empty, Queue
from threading import Thread
from typing import BinaryIO

from regard.base.errors import RegardError
from regard.text.readers.lines import MAX_LINE_BYTES, bounded_lines
from regard.text.readers.tables import split_fields

NAME = "The input"
Arrived = bytes | OSError | RegardError | None  # a line, or why none follows; None: the input has ended

AT_ONCE = 8192  # lines that are taken together at most: memory does not grow with the input
BYTES_AT_ONCE = 1 << 24  # … and about so many bytes


def stdin_lines() -> Iterator[str]:
    """Lines of stdin as text, one clear sentence for what is not UTF-8."""
    if sys.stdin is None:
        raise RegardError("There is no input: stdin is closed.")
    yield from as_text(bounded_lines(sys.stdin.buffer, NAME))


def stdin_text() -> str:
    """All of stdin as one text."""
    lines, size = [], 0
    for line in stdin_lines():
        lines.append(line)
        size += len(line) + 1
        if size > MAX_LINE_BYTES:
            raise RegardError(f"{NAME} is larger than {MAX_LINE_BYTES >> 20} MiB, too large for one text: shorten it.")
    return "\n".join(lines)


def stdin_batches() -> Iterator[list[str]]:
    """Lines of stdin as they come: whatever has arrived by the time it is asked for, never nothing.

    A slow pipe or a person at a terminal gives one line at a time, a fast pipe many; a file is there at once.
    """
    if sys.stdin is None:
        raise RegardError("There is no input: stdin is closed.")
    before = 0
    for batch in _batches(sys.stdin.buffer):
        yield [*as_text(batch, before + 1)]
        before += len(batch)


def _batches(stream: BinaryIO) -> Iterator[list[bytes]]:
    if not _comes_slowly(stream):
        lines = bounded_lines(stream, NAME)
        while taken := [*_together(lines)]:
            yield [line for line in taken if isinstance(line, bytes)]
        return
    # A reader of its own: a thread that still waits when the program ends must not hold the lock of sys.stdin.
    own = open(stream.fileno(), "rb", closefd=False)  # noqa: SIM115
    arrived = _Arrivals(AT_ONCE)
    Thread(target=_read, args=(own, arrived), daemon=True).start()
    last: Arrived = b""
    while isinstance(last, bytes):
        taken = [*_together(chain([arrived.get()], _waiting(arrived)))]
        last = taken[-1]
        if batch := [line for line in taken if isinstance(line, bytes)]:
            yield batch
    if last is not None:
        raise last


def _together(lines: Iterable[Arrived]) -> Iterator[Arrived]:
    """The first lines of those that follow, as many as are answered together."""
    size = 0
    for line in islice(lines, AT_ONCE):
        yield line
        size += _size(line)
        if size > BYTES_AT_ONCE:
            return


class _Arrivals(Queue[Arrived]):
    """Lines that were read and not taken yet; full also when they are many bytes."""

    def _init(self, maxsize: int) -> None:
        super()._init(maxsize)
        self.bytes = 0

    def _put(self, item: Arrived) -> None:
        super()._put(item)
        self.bytes += _size(item)

    def _get(self) -> Arrived:
        item: Arrived = super()._get()
        self.bytes -= _size(item)
        return item

    def _qsize(self) -> int:
        return self.maxsize if self.bytes > BYTES_AT_ONCE else super()._qsize()


def _size(line: Arrived) -> int:
    return len(line) if isinstance(line, bytes) else 0


def _comes_slowly(stream: BinaryIO) -> bool:
    try:
        return not stat.S_ISREG(os.fstat(stream.fileno()).st_mode)
    except OSError:  # not a file of the system's: it is in memory
        return False


def _read(stream: BinaryIO, arrived: Queue[Arrived]) -> None:
    try:
        for line in bounded_lines(stream, NAME):
            arrived.put(line)
        arrived.put(None)
    except (OSError, RegardError) as error:
        arrived.put(error)


def _waiting(arrived: Queue[Arrived]) -> Iterator[Arrived]:
    while True:
        try:
            yield arrived.get_nowait()
        except Empty:
            return


def as_text(lines: Iterable[bytes], first: int = 1) -> Iterator[str]:
    """Lines as text, without line ends and byte-order mark, as in the files of `--data`."""
    for number, line in enumerate(lines, first):
        try:
            text = line.decode("utf-8")
            yield (text.removeprefix("\ufeff") if number == 1 else text).removesuffix("\n").rstrip("\r")
        except UnicodeDecodeError as error:
            raise RegardError(
                f"Line {number} of the input is not UTF-8 (byte {error.start}); convert it first."
            ) from None


def stdin_pairs(lines: Iterable[str], first: int = 1) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(lines, first):
        fields = split_fields(line)
        if len(fields) != 2:
            count = "one field" if len(fields) == 1 else f"{len(fields)} fields"
            raise RegardError(
                f"Line {number} of the input has {count}: write each pair as source⇥target, separated by a tab."
            )
        yield fields[0], fields[1]
