"""Exercise gru-gates: the GRU's two gates (chapter 3 of the course).

The gated recurrent unit has no cell. One gate filters the past before it is combined with the new word; the other
decides how much of the past is kept:

    reset       r = σ(W_r x + U_r h + b_r)
    update      z = σ(W_z x + U_z h + b_z)
    candidate   n = tanh(W_n x + b_n + r * (U_n h))       the reset gate acts after U_n
    new state   h' = z * h + (1 − z) * n                  z is the share of the past

Fill in the blank below, then run: regard exercise check FILE
"""

import torch
from torch import Tensor

EXERCISE = "gru-gates"


def gru_step(x: Tensor, hidden: Tensor, W: Tensor, U: Tensor, b: Tensor) -> Tensor:
    """The new hidden state [R, H].

    x [R, I], hidden [R, H];  W [3H, I], U [3H, H], b [3H]: the weights of reset, update, candidate
    """
    from_word = (x @ W.T + b).chunk(3, dim=-1)  # reset, update, candidate, each [R, H]
    from_past = (hidden @ U.T).chunk(3, dim=-1)  # the same three
    raise NotImplementedError("return the new hidden state")
