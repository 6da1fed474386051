"""Text that comes through a pipe."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator

from regard.base.errors import RegardError
from regard.text.tables import split_fields


def stdin_lines() -> Iterator[str]:
    """Lines of stdin as text, one clear sentence for what is not UTF-8."""
    if sys.stdin is None:
        raise RegardError("There is no input: stdin is closed.")
    yield from as_text(sys.stdin.buffer)


def as_text(lines: Iterable[bytes]) -> Iterator[str]:
    """Lines as text, without line ends and byte-order mark, as in the files of `--data`."""
    for number, line in enumerate(lines, 1):
        try:
            text = line.decode("utf-8")
            yield (text.removeprefix("\ufeff") if number == 1 else text).removesuffix("\n").rstrip("\r")
        except UnicodeDecodeError as error:
            raise RegardError(
                f"Line {number} of the input is not UTF-8 (byte {error.start}); convert it first."
            ) from None


def stdin_pairs() -> Iterator[tuple[str, str]]:
    for number, line in enumerate(stdin_lines(), start=1):
        fields = split_fields(line)
        if len(fields) != 2:
            count = "one field" if len(fields) == 1 else f"{len(fields)} fields"
            raise RegardError(f"Line {number} of the input has {count}: a pair is source⇥target, with a tab between.")
        yield fields[0], fields[1]
