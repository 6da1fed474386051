"""Data given in Python instead of a file: a list of lines, or of pairs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from regard.base.cache import cache_folder
from regard.base.errors import RegardError
from regard.base.numbers import pluralize
from regard.base.writing import write_text
from regard.report.progress import say

GivenLines = str | Path | Sequence[str]  # a corpus by its name or path, or its lines
GivenPairs = str | Path | Sequence[tuple[str, str]]  # … or its pairs of source and target, or of text and label
GivenData = GivenLines | GivenPairs


def lines_of(data: Sequence[str]) -> tuple[str, ...]:
    """The lines of a list; every item must be a single line."""
    return tuple(_checked(line, number, "\n\r") for number, line in enumerate(data))


def each_line(lines: str | Iterable[str]) -> Iterator[str]:
    """The lines of a list or an open file, without line ends; a single string is one line."""
    for number, line in enumerate([lines] if isinstance(lines, str) else lines):
        text = _checked(line, number, "")
        yield text[:-1].removesuffix("\r") if text.endswith("\n") else text


def each_pair(pairs: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """The pairs of a list; every item must be a pair."""
    for number, pair in enumerate(pairs):
        if isinstance(pair, str) or not isinstance(pair, Sequence) or len(pair) != 2:
            raise RegardError(f"Item {number} of the data is not a pair of strings: (source, target) or (text, label).")
        yield _checked(pair[0], number, ""), _checked(pair[1], number, "")


def sides(data: Sequence[tuple[str, str]]) -> tuple[list[str], list[str]]:
    """The sources and the targets of a list of pairs."""
    found: tuple[list[str], list[str]] = ([], [])
    for number, pair in enumerate(each_pair(data)):
        for side, text in zip(found, pair):
            side.append(_checked(text, number, "\n\r\t"))
    return found


def _checked(text: object, number: int, breaks: str) -> str:
    if not isinstance(text, str):
        raise RegardError(
            f"Item {number} of the data is of type {type(text).__name__}: give strings, or pairs of them."
        )
    if found := next((sign for sign in breaks if sign in text), None):
        what = "a tab" if found == "\t" else "a line break: give one item per line"
        raise RegardError(f"Item {number} of the data contains {what}.")
    return text


def as_file(data: GivenData) -> str:
    """The name of a corpus or its path. A list is written to a file in the cache, named by its content, so that a run
    can be resumed after the program has ended.
    """
    if isinstance(data, (str, Path)):
        return str(data)
    items: list[Any] = list(data)
    if not items:
        raise RegardError("The data is an empty list: give lines, or pairs of source and target.")
    if isinstance(items[0], str):
        kind, content = "lines", "".join(f"{line}\n" for line in lines_of(items))
    else:
        pairs = ({"source": source, "target": target} for source, target in zip(*sides(items)))
        kind, content = "pairs", "".join(f"{json.dumps(pair, ensure_ascii=False)}\n" for pair in pairs)
    digest = hashlib.blake2b(content.encode(), digest_size=6).hexdigest()
    path = cache_folder() / "lists" / f"{kind}-{digest}.{'txt' if kind == 'lines' else 'jsonl'}"
    if not path.exists():
        write_text(path, content)
    what = pluralize(len(items), kind.removesuffix("s"))
    say(f"The list of {what} is in {path}; keep that file for as long as you want to resume or evaluate the run.")
    return str(path)
