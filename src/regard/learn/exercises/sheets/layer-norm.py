"""Exercise layer-norm: layer normalization (chapter 5 of the course).

Each vector is shifted to mean 0 and scaled to variance 1 over its D components; then each component gets its own
learned gain and bias:

    y = a * (x − mean(x)) / √(var(x) + ε) + b             var(x) = mean((x − mean(x))²): divided by D, not by D − 1

No vector depends on another one, so the normalization can neither leak the future nor mix the rows of a batch.

Fill in the blank below, then run: regard exercise check FILE
"""

import torch
from torch import Tensor

EXERCISE = "layer-norm"


def layer_norm(x: Tensor, gain: Tensor, bias: Tensor, epsilon: float) -> Tensor:
    """The normalized vectors [R, T, D].

    x [R, T, D]      gain [D]: a      bias [D]: b      epsilon: ε
    """
    raise NotImplementedError("return the normalized vectors")
