"""Validation during training: the loss on held-out data, and the criterion that selects the best weights.

A validation returns the loss (nats per token), other figures such as BLEU, and `objective`, by which the
best weights are chosen (lower is better): the loss itself, or for translations −BLEU.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from regard.evaluation.perplexity import Method, likelihood, token_losses
from regard.systems.model import Model


@dataclass(frozen=True)
class ValidationResult:
    loss: float
    figures: dict[str, float] = field(default_factory=dict)  # other measures, such as bleu
    criterion: str = "loss"  # "loss", or the name of a metric, for which higher is better

    @property
    def objective(self) -> float:
        return self.loss if self.criterion == "loss" else -self.figures[self.criterion]


class Validation(Protocol):
    def __call__(self, model: Model) -> ValidationResult: ...


@dataclass(frozen=True)
class TextValidation:
    """The loss on a text; every validation uses the same text."""

    ids: np.ndarray
    eos: int
    begin: int | None = None  # the token that is read after `eos` was predicted; None = the same
    counted: np.ndarray | None = None  # [N] of dialogues: the tokens that count; None = all

    def __call__(self, model: Model) -> ValidationResult:
        if self.counted is not None:
            losses = token_losses(model, self.ids, Method.in_training(model), eos=self.eos, begin=self.begin)
            found = np.concatenate([*losses])[self.counted]
            return ValidationResult(float(found.mean()) if len(found) else 0.0)
        *_, whole = likelihood(model, self.ids, Method.in_training(model), eos=self.eos, begin=self.begin)
        return ValidationResult(whole.mean)


@dataclass(frozen=True)
class PairValidation:
    """The teacher-forced loss on pairs, and optionally the BLEU of greedy translations of their sources."""

    loss: Callable[[Model], float]
    bleu: Callable[[Model], float] | None = None

    def __call__(self, model: Model) -> ValidationResult:
        if self.bleu is None:
            return ValidationResult(self.loss(model))
        return ValidationResult(self.loss(model), {"bleu": self.bleu(model)}, "bleu")


def best_words(objective: float, criterion: str) -> str:
    """ "loss 2.3456" or "BLEU 31.20": the best so far, for a sentence."""
    return f"loss {objective:.4f}" if criterion == "loss" else f"{criterion.upper()} {-objective:.2f}"
