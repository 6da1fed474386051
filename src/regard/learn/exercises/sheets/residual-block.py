"""Exercise residual-block: the Transformer's block (chapter 6 of the course).

A block has two sublayers: attention mixes positions, the feed-forward network transforms each. Neither replaces x: each
adds to it, so that gradients pass unchanged through the sum. In the order of GPT-2 (pre-norm), a sublayer reads the
normalized x and adds its output to the original x:

    x = x + Attention(LN_1(x))
    x = x + FF(LN_2(x))

Fill in the blank below, then run: regard exercise check FILE
"""

from collections.abc import Callable

import torch
from torch import Tensor

EXERCISE = "residual-block"

Map = Callable[[Tensor], Tensor]  # [R, T, D] → [R, T, D]


def block(x: Tensor, attention: Map, feedforward: Map, norm_1: Map, norm_2: Map) -> Tensor:
    """The block's output [R, T, D], of x [R, T, D]."""
    raise NotImplementedError("return the output")
