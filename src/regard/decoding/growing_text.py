"""Tokens to text as they arrive: pieces that end at character boundaries, and never part of a stop sequence."""

from __future__ import annotations

from collections.abc import Sequence

from regard.text.tokenizers.tokenizer import Tokenizer

BEFORE = 16  # tokens that affect the spelling of the next one: spaces, the rest of a character


class GrowingText:
    """The text generated after a prompt: the pieces together equal the decoded tokens."""

    def __init__(self, tokenizer: Tokenizer, prompt: Sequence[int], *, without_space: bool = False) -> None:
        """`without_space`: the first token has a space that the prompt already ends with."""
        self.tokenizer = tokenizer
        self.tokens = list(prompt[-BEFORE:])
        self.said = len(tokenizer.decode(self.tokens)) + without_space  # of `tokens`, given out

    def add(self, tokens: Sequence[int]) -> str:
        """The next piece: whole characters, "" while the bytes of one are incomplete."""
        before = len(self.tokens)
        self.tokens += tokens
        text = self.tokenizer.decode(self.tokens)
        piece = text[self.said :]
        self.said = max(self.said, len(text))
        if piece and before > 2 * BEFORE:
            self.tokens = self.tokens[-BEFORE:]
            self.said = len(self.tokenizer.decode(self.tokens))  # may begin within a returned character
        return piece


class Until:
    """Passes text on up to the first stop sequence, and holds back text that could be the beginning of one."""

    def __init__(self, stops: Sequence[str]) -> None:
        self.stops, self.held, self.met = stops, "", False

    def add(self, piece: str, ended: bool) -> str:
        """The text that can be sent now; `met` is true if a stop sequence was found."""
        text, self.held = self.held + piece, ""
        found = [place for stop in self.stops if (place := text.find(stop)) >= 0]
        if found:
            self.met = True
            return text[: min(found)]
        if not ended:
            keep = max((_overlap(text, stop) for stop in self.stops), default=0)
            text, self.held = text[: len(text) - keep], text[len(text) - keep :]
        return text


def _overlap(text: str, stop: str) -> int:
    """The longest end of the text that is a beginning of the stop sequence."""
    return next((size for size in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:size])), 0)
