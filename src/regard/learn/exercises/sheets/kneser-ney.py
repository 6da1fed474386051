"""Exercise kneser-ney: Kneser and Ney's discount (chapter 1 of the course).

A count of 1 is partly luck. Smoothing takes a discount D off every count that is not 0, and gives what it has freed
to the words in proportion to a lower order's probabilities, P(w), which needs no context:

    P(w | h) = (count(h w) − D(count)) / count(h ·) + γ(h) P(w),        γ(h) = Σ_w D(count(h w)) / count(h ·)

D(0) = 0, and there are three discounts, D(1), D(2), D(3 and more) (Chen and Goodman 1999). Each row sums to 1 again.
A word h that was never seen before another says nothing: P(w | h) is then P(w).

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
