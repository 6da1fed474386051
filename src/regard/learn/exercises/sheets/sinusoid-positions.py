"""Exercise sinusoid-positions: sin(ωt), the position of a word (chapter 6 of the course).

Attention sees a set of words: "Jack gave water to Jill" and "Jill gave water to Jack" are the same to it. So a vector
that encodes the position t is added to each word vector. Vaswani et al. use waves, from fast to slow:

    p[2k] = sin(ω_k t),    p[2k + 1] = cos(ω_k t),        ω_k = 10000^(−k/n),   k = 0 … n − 1,   n = width / 2

Sine and cosine of one frequency are neighbors.

Fill in the blank below, then run: regard exercise check FILE
"""

import torch
from torch import Tensor

EXERCISE = "sinusoid-positions"


def sinusoid(positions: Tensor, width: int) -> Tensor:
    """The vectors [T, width], in float64.

    positions [T]: whole numbers, not always 0, 1, 2, …      width: an even number
    """
    t = positions.to(torch.float64)
    raise NotImplementedError("return the vectors")
