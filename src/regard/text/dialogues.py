"""Dialogues for training: JSON Lines of messages, rendered by a chat template; the assistant's messages are learned.

    {"messages": [{"role": "user", "content": "Who watches?"}, {"role": "assistant", "content": "They do."}]}

A dialogue is one line of the corpus, so a split never cuts it. Its parts are tokenized one by one, as at inference,
where the model reads the tokens of a prompt and continues them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from regard.base.errors import RegardError
from regard.base.reading import parse_object
from regard.text.chat_template import ChatTemplate, read_messages
from regard.text.readers.encodings import UTF8
from regard.text.readers.lines import read_lines
from regard.text.readers.sources import Source, decoded_digest, digest_of

KEY = "messages"


class Dialogue(str):
    """The text of a dialogue, and its parts, each with a flag that is true for the assistant's."""

    __slots__ = ("turns",)
    turns: list[tuple[str, bool]]


@dataclass(frozen=True)
class DialogueLines(Source):
    """The dialogues of a file, each as one line (which contains line ends)."""

    path: Path
    template: ChatTemplate = field(default_factory=ChatTemplate, compare=False)
    encoding: str = UTF8

    @property
    def paths(self) -> tuple[Path, ...]:  # type: ignore[override]
        return (self.path,)

    @property
    def about(self) -> str:
        return f"{self.path.name} contains dialogues: only the assistant's turns are learned."

    def __iter__(self) -> Iterator[str]:
        for number, line in enumerate(read_lines(self.path, encoding=self.encoding), 1):
            if not line.strip():
                continue
            try:
                messages = read_messages((parse_object(line) or {}).get(KEY), KEY)
                turns = self.template.turns(messages)
            except RegardError as error:
                raise RegardError(f"{str(self.path)!r}, line {number}: {error}") from None
            made = Dialogue("".join(text for text, _ in turns).removesuffix("\n"))
            made.turns = turns
            yield made

    def content(self) -> str:
        return digest_of(decoded_digest(self.paths, self.encoding), self.template.source)

    def checksum(self) -> str:
        return digest_of(self.content(), "dialogues")


def has_dialogues(path: Path, encoding: str) -> bool:
    """True if the first object of a JSON Lines file has messages."""
    first = next((line for line in islice(read_lines(path, encoding=encoding), 100) if line.strip()), "")
    try:
        found = json.loads(first)
    except (ValueError, RecursionError):
        return False
    return isinstance(found, dict) and isinstance(found.get(KEY), list)
