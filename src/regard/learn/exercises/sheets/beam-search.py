"""Exercise beam-search: keep the best few hypotheses (chapter 4 of the course).

Greedy decoding cannot take back a bad first word. Beam search keeps the `width` best hypotheses (beginnings), extends
each by every word, and keeps the best `width` of all these candidates, whichever hypothesis they extend:

    score(y_1 … y_t) = log P(y_1) + … + log P(y_t | y_1 … y_{t-1})

This exercise is one such step, without ending hypotheses and choosing the best one.

Fill in the blank below, then run: regard exercise check FILE
"""

import torch
from torch import Tensor

EXERCISE = "beam-search"


def extend(scores: Tensor, log_probabilities: Tensor, width: int) -> tuple[Tensor, Tensor, Tensor]:
    """The best candidates, best first: their scores, which hypothesis each extends, and by which token; each [width].

    scores [K]: of the K hypotheses so far      log_probabilities [K, V]: log P of every next token, after each of them
    width: how many candidates to keep, at most K · V
    """
    raise NotImplementedError("return scores, hypotheses, tokens")
