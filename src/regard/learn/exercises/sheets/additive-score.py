"""Exercise additive-score: Bahdanau's score and context (chapter 4 of the course).

Instead of using one vector for the whole source, the decoder computes a new one at every step: an average of the
encoder's states h_1 … h_S, weighted by how well each fits its own state q (Bahdanau, Cho and Bengio 2015). The score
is a small network, so q and h may have different widths:

    s_j = vᵀ tanh(W_q q + W_k h_j)        α = softmax(s)        c = Σ_j α_j h_j

Fill in the blank below, then run: regard exercise check FILE
"""

import torch
from torch import Tensor

EXERCISE = "additive-score"


def attend(query: Tensor, memory: Tensor, W_q: Tensor, W_k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """The context [R, M] and the weights [R, S].

    query [R, Q]: the decoder's state      memory [R, S, M]: the encoder's states
    W_q [A, Q], W_k [A, M], v [A]: the weights of the score
    """
    raise NotImplementedError("return the context and the weights: context, weights")
