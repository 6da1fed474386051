"""Exercise kernel-regression: Nadaraya and Watson, attention by distance (chapter 5 of the course).

Long before attention got its name, statisticians predicted the value at a new point as an average of known values, in
which near points count more:

    f(q) = Σ_i K(u_i) v_i / Σ_j K(u_j),        u_i = |q − k_i| / h,        K(u) = exp(−u²/2)

The bandwidth h defines "near": h → 0 is the nearest neighbor, h → ∞ the mean of all values.

Fill in the blank below, then run: regard exercise check FILE
"""

import torch
from torch import Tensor

EXERCISE = "kernel-regression"


def regress(query: Tensor, keys: Tensor, values: Tensor, bandwidth: float) -> Tensor:
    """The predictions f(q), [Q].

    query [Q]: the new points      keys [N], values [N]: the known points and their values      bandwidth: h
    """
    raise NotImplementedError("return the predictions")
