"""Safe text for a terminal: a stranger's run may contain terminal control codes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, TextIO

COLOUR = re.compile(r"(\x1b\[[0-9;]*m)")
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # all but tab and line end


def harmless(words: str) -> str:
    """The text with a visible sign in place of each control character: ␛ for escape."""
    return CONTROL.sub(
        lambda found: chr(0x2400 + ord(found[0])) if found[0] < " " else "\N{REPLACEMENT CHARACTER}", words
    )


class Screen:
    """A terminal stream on which Regard's own colours are the only control codes."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, words: str) -> int:
        parts = COLOUR.split(words)
        parts[::2] = map(harmless, parts[::2])
        self.stream.write("".join(parts))
        return len(words)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)
