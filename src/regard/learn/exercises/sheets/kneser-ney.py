"""Exercise kneser-ney: Kneser and Ney's discount (chapter 1 of the course).

A count of 1 is partly luck. Smoothing subtracts a discount D from every count that is not 0, and distributes the freed
probability over all words in proportion to the lower order's probabilities P(w), which need no context:

    P(w | h) = (count(h w) − D(count)) / count(h ·) + γ(h) P(w),        γ(h) = Σ_w D(count(h w)) / count(h ·)

D(0) = 0, and there are three discounts, D(1), D(2), D(3 and more) (Chen and Goodman 1999). Each row sums to 1 again.
If h was never seen before another word, P(w | h) = P(w).

Fill in the blank below, then run: regard exercise check FILE
"""

import torch
from torch import Tensor

EXERCISE = "kneser-ney"


def smooth(counts: Tensor, discounts: Tensor, lower: Tensor) -> Tensor:
    """P(w | h), [V, V], one row for each h.

    counts [V, V]: counts[h, w], whole numbers      discounts [4]: D(0) = 0, D(1), D(2), D(3 and more)
    lower [V]: P(w)
    """
    discount = discounts[counts.clamp(max=3)]  # [V, V]: D of every count
    raise NotImplementedError("return the probabilities")
