"""Exercise rnn-step: one step of the recurrent network (chapter 3 of the course).

A recurrent network reads one word at a time and keeps what it has read in one vector, the hidden state h. At every step
it mixes the new word x with the old state, with the same weights each time, and applies a tanh to the sum:

    h_t = tanh(W x_t + U h_{t-1} + b)

Fill in the blank below, then run: regard exercise check FILE
"""

import torch
from torch import Tensor

EXERCISE = "rnn-step"


def rnn_step(x: Tensor, hidden: Tensor, W: Tensor, U: Tensor, b: Tensor) -> Tensor:
    """The new hidden state [R, H] of R rows.

    x [R, I]: the words' vectors      hidden [R, H]: the state before them
    W [H, I], U [H, H], b [H]: the weights; the rows of x and hidden are vectors, so W x is written x @ W.T
    """
    raise NotImplementedError("return the new hidden state")
