"""Exercise nucleus-sampling: which word to draw, top-p (chapter 4 of the course).

The number of good words differs from step to step. The nucleus is the smallest set of most probable words whose
probabilities sum to at least p, including the word with which the sum reaches p. Only these may be drawn
(Holtzman et al. 2020):

    P'(w) = P(w) / Σ_{nucleus} P   for words in the nucleus, and 0 for the others

Fill in the blank below, then run: regard exercise check FILE
"""

import torch
from torch import Tensor

EXERCISE = "nucleus-sampling"


def nucleus(probabilities: Tensor, p: float) -> Tensor:
    """The probability of each word to be drawn, [V], in the order of the vocabulary.

    probabilities [V]: they sum to 1 and are not sorted      p: between 0 and 1
    """
    raise NotImplementedError("return the probabilities")
