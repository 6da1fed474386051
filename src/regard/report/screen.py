"""Safe text for a terminal: a stranger's run may contain terminal control codes."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from typing import Any, TextIO

COLOUR = re.compile(r"(\x1b\[[0-9;]*m)")
# All control characters but tab and line end, and those that turn the direction of the text around them.
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
SCREEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # Regard's own figures isolate words that run to the left


def harmless(words: str, control: re.Pattern[str] = CONTROL) -> str:
    """The text with a visible sign in place of each control character: ␛ for escape."""
    return control.sub(
        lambda match: chr(0x2400 + ord(match[0])) if match[0] < " " else "\N{REPLACEMENT CHARACTER}", words
    )


def for_stdout(words: str) -> str:
    """Text from a model, a corpus or a file: on a terminal without escape codes, in a pipe unchanged."""
    return harmless(words) if sys.stdout.isatty() else words


class Screen:
    """A terminal stream on which Regard's own colors are the only control codes."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, words: str) -> int:
        parts = COLOUR.split(words)
        parts[::2] = (harmless(part, SCREEN) for part in parts[::2])
        self.stream.write("".join(parts))
        return len(words)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)
