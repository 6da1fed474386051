"""Translations and the scores of pairs."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True)
class Translation:
    """One translation of a sentence.

    Attributes:
        text: The translation.
        log_probability: The log-probability of these tokens, in nats.
        score: The score for ranking, log_probability / length^length_penalty.
        tokens: The tokens of the translation.
        finished: True if the translation ends in `<eos>`, False if it reached the length limit.
        alignment: Pairs (source word, target word), numbered from 0, if requested.
        attention: Arrays [heads, target tokens, source tokens] by name, if requested.
    """

    text: str
    log_probability: float
    score: float
    tokens: list[str] = field(repr=False)
    finished: bool = True
    alignment: list[tuple[int, int]] | None = None
    attention: dict[str, np.ndarray] | None = field(default=None, repr=False)


@dataclass(frozen=True)
class PairScore:
    """The log-probability of a target, given its source."""

    source: str
    target: str
    tokens: list[str]
    log_probabilities: list[float]  # nats, one per target token, <eos> last

    @property
    def log_probability(self) -> float:
        return float(sum(self.log_probabilities))


NOTHING = Translation("", 0.0, 0.0, [])  # of an empty line
