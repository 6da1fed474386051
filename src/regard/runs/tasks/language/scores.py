"""The scores of lines and of next tokens."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from regard.evaluation.scoring import line_sums


@dataclass(frozen=True)
class ScoredLines:
    """Many lines one after the other. Lists are made on demand, since n-grams score a line in microseconds."""

    ids: np.ndarray
    ends: np.ndarray  # of each line among them
    scores: np.ndarray  # log P of each
    vocabulary: list[str]

    @cached_property
    def log_probabilities(self) -> list[float]:
        return self.scores.tolist()

    @cached_property
    def sums(self) -> list[float]:
        return line_sums(self.scores, self.ends)

    @cached_property
    def bounds(self) -> list[int]:
        return [0, *self.ends.tolist()]


class LineScore:
    """The log-probability of one line."""

    __slots__ = ("_line", "_scored", "text")

    def __init__(self, text: str, scored: ScoredLines, line: int) -> None:
        self.text, self._scored, self._line = text, scored, line

    @property
    def log_probabilities(self) -> list[float]:
        """In nats, one per token, <eos> last."""
        return self._scored.log_probabilities[self._scored.bounds[self._line] : self._scored.bounds[self._line + 1]]

    @property
    def tokens(self) -> list[str]:
        start, end = self._scored.bounds[self._line : self._line + 2]
        return [self._scored.vocabulary[number] for number in self._scored.ids[start:end].tolist()]

    @property
    def log_probability(self) -> float:
        return self._scored.sums[self._line]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LineScore):
            return NotImplemented
        return (self.text, self.log_probabilities) == (other.text, other.log_probabilities)

    def __repr__(self) -> str:
        return f"LineScore(text={self.text!r}, log_probabilities={self.log_probabilities!r})"


@dataclass(frozen=True)
class NextToken:
    """A token that may come next."""

    number: int
    token: str
    text: str  # what it adds to the text
    probability: float  # by the model
    drawn: float  # with temperature, top-k and top-p
