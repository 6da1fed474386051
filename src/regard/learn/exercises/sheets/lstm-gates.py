"""Exercise lstm-gates: the LSTM's cell and its gates (chapter 3 of the course).

The plain recurrent network overwrites its whole state at every step. The LSTM keeps a second vector, the cell c, and
gates decide what happens to each of its components. A gate is between 0 (closed) and 1 (open):

    forget   f = σ(…)         how much of the old cell stays
    store    i = σ(…)         how much of the new content is written
    update   g = tanh(…)      the new content
    output   o = σ(…)         how much of the cell is shown

    c_t = f * c_{t-1} + i * g            h_t = o * tanh(c_t)

Along c the gradient is only multiplied by f, so it survives longer than in the plain network.

Fill in the blank below, then run: regard exercise check FILE
"""

import torch
from torch import Tensor

EXERCISE = "lstm-gates"


def lstm_step(x: Tensor, hidden: Tensor, cell: Tensor, W: Tensor, U: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """The new hidden state and the new cell, each [R, H].

    x [R, I], hidden [R, H], cell [R, H];  W [4H, I], U [4H, H], b [4H]: the weights of forget, store, update, output
    """
    forget, store, update, output = (x @ W.T + hidden @ U.T + b).chunk(4, dim=-1)  # each [R, H], before σ and tanh
    raise NotImplementedError("return the new hidden state and the new cell: hidden, cell")
