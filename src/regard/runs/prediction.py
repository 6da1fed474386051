"""The next token: a distribution over the vocabulary that can be queried."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from regard.base.arguments import checked
from regard.base.errors import RegardError
from regard.base.settings import check_range
from regard.text.tokenizers.tokenizer import Tokenizer


@checked
class Prediction:
    """A distribution over the vocabulary: the model's prediction of the next token.

    Args:
        logits: The logits of the next token [V].
        tokenizer: The tokenizer of the model.
    """

    def __init__(self, logits: Tensor, tokenizer: Tokenizer):
        self.log_probabilities = torch.log_softmax(logits.double(), -1).cpu().numpy()  # [V]
        self._tokenizer = tokenizer

    @property
    def probabilities(self) -> np.ndarray:
        """The probability of every token [V]."""
        return np.exp(self.log_probabilities)

    def top(self, count: int = 5) -> list[tuple[str, float]]:
        """Return the most probable next tokens.

        Args:
            count: The maximum number of tokens to return.

        Returns:
            The tokens with their probabilities, best first.

        Raises:
            RegardError: If an argument is wrong.
        """
        check_range("count", count, 0)
        order = np.argsort(-self.log_probabilities, kind="stable")[:count]
        return [(self._tokenizer.token(int(n)), float(math.exp(self.log_probabilities[n]))) for n in order]

    def probability(self, token: str) -> float:
        """The probability of one token.

        Args:
            token: A token of the vocabulary, a text that is a single token, or "<eos>".

        Returns:
            The probability, between 0 and 1.

        Raises:
            RegardError: If the text is not exactly one token.
        """
        ids = self._tokenizer.encode(token)
        if token == "<eos>":
            ids = [self._tokenizer.eos]
        if len(ids) != 1:
            raise RegardError(f"{token!r} is {len(ids)} tokens for this model; give one token at a time.")
        return float(math.exp(self.log_probabilities[ids[0]]))

    @property
    def entropy(self) -> float:
        """The entropy of the distribution, in bits."""
        p = self.probabilities
        return float(-(p * np.where(p > 0, self.log_probabilities, 0)).sum() / math.log(2))

    def __repr__(self) -> str:
        return "Prediction(" + ", ".join(f"{token!r} {p:.3f}" for token, p in self.top(3)) + ", …)"
