"""Exercise ngram-counts: count and normalize (chapter 1 of the course).

A bigram model stores P(next word | word) as a table. Its estimate is a count divided by a sum. Adding k to every
count keeps a pair that was never seen from having probability 0:

    P(w | h) = (count(h w) + k) / (Σ_w' count(h w') + k V)

Fill in the blank below, then run: regard exercise check FILE
"""

import torch
from torch import Tensor

EXERCISE = "ngram-counts"


def bigrams(words: list[int], vocabulary: int, k: float) -> Tensor:
    """The table P [V, V] in float64, one row for each word before (h), one column for the next word (w).

    words: a text as numbers from 0 to V − 1; word t + 1 comes after word t      vocabulary: V
    Every word of the vocabulary is followed by a word at least once, so that no row divides 0 by 0.
    """
    raise NotImplementedError("return the table")
