"""Exercise corpus-perplexity: perplexity, over all tokens (chapter 1 of the course).

The loss of a text is the average negative log-likelihood over all its tokens, whatever line they are in. Perplexity
is its exponential: the number of equally probable words among which the model would have to guess.

    PPL = exp( − (1/N) Σ log P(token) )            the sum and N go over all tokens of all lines

Fill in the blank below, then run: regard exercise check FILE
"""

import torch
from torch import Tensor

EXERCISE = "corpus-perplexity"


def perplexity(lines: list[Tensor]) -> Tensor:
    """The perplexity of the whole text, a tensor with one number [].

    lines: for each line the log P of its tokens, [T] in nats; lines have different lengths
    """
    raise NotImplementedError("return the perplexity")
