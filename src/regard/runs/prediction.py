"""What comes next, as something one can ask: a distribution over the vocabulary."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from regard.base.errors import RegardError
from regard.text.tokenizer import Tokenizer


class Prediction:
    """What comes next: a distribution over the vocabulary."""

    def __init__(self, logits: Tensor, tokenizer: Tokenizer):
        self.log_probabilities = torch.log_softmax(logits.double(), -1).cpu().numpy()  # [V]
        self._tokenizer = tokenizer

    @property
    def probabilities(self) -> np.ndarray:
        return np.exp(self.log_probabilities)

    def top(self, count: int = 5) -> list[tuple[str, float]]:
        """The most probable next tokens with their probabilities, best first."""
        order = np.argsort(-self.log_probabilities, kind="stable")[:count]
        return [(self._tokenizer.token(int(n)), float(math.exp(self.log_probabilities[n]))) for n in order]

    def probability(self, token: str) -> float:
        """P(token): `token` is one token of the vocabulary, or text that is a single token."""
        ids = self._tokenizer.encode(token)
        if token == "<eos>":
            ids = [self._tokenizer.eos]
        if len(ids) != 1:
            raise RegardError(f"{token!r} is {len(ids)} tokens for this model; ask for one at a time.")
        return float(math.exp(self.log_probabilities[ids[0]]))

    @property
    def entropy(self) -> float:
        """In bits."""
        p = self.probabilities
        return float(-(p * np.where(p > 0, self.log_probabilities, 0)).sum() / math.log(2))

    def __repr__(self) -> str:
        return "Prediction(" + ", ".join(f"{token!r} {p:.3f}" for token, p in self.top(3)) + ", …)"
