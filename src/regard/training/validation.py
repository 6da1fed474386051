"""Looking at held-out data during training: how good is the model now, and is it better than before?

A validation returns a verdict: the loss (nats per token), what else was measured, and one number to be made small, by
which the best weights are chosen: the loss itself, or for translations −BLEU.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from regard.evaluation.perplexity import Method, likelihood
from regard.systems.model import Model


@dataclass(frozen=True)
class Verdict:
    loss: float
    figures: dict[str, float] = field(default_factory=dict)  # what else was measured, such as bleu
    criterion: str = "loss"  # "loss", or one of the figures, of which more is better

    @property
    def badness(self) -> float:
        return self.loss if self.criterion == "loss" else -self.figures[self.criterion]


class Validation(Protocol):
    def __call__(self, model: Model) -> Verdict: ...


@dataclass(frozen=True)
class TextValidation:
    """The loss on a stretch of text, always the same one."""

    ids: np.ndarray
    eos: int

    def __call__(self, model: Model) -> Verdict:
        *_, whole = likelihood(model, self.ids, Method.of(model), eos=self.eos)
        return Verdict(whole.mean)


@dataclass(frozen=True)
class PairValidation:
    """The loss on pairs, teacher-forced, and where asked for the BLEU of greedy translations of their sources."""

    loss: Callable[[Model], float]
    bleu: Callable[[Model], float] | None = None

    def __call__(self, model: Model) -> Verdict:
        if self.bleu is None:
            return Verdict(self.loss(model))
        return Verdict(self.loss(model), {"bleu": self.bleu(model)}, "bleu")


def best_words(badness: float, criterion: str) -> str:
    """ "loss 2.3456" or "BLEU 31.20": the best so far, for a sentence."""
    return f"loss {badness:.4f}" if criterion == "loss" else f"{criterion.upper()} {-badness:.2f}"
