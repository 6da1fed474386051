"""Exercise cached-attention: one word at a time, with the same answer (chapter 6 of the course).

Attention is parallel in training and sequential in generation. When a new word arrives, the keys and values of the
words before it have not changed: they are in the cache. The new word adds its own key and value, and its query attends
to all of them, including its own. Step by step, this gives exactly the same result as the causal mask in one pass.

    K ← [K ; k_t],  V ← [V ; v_t]          y_t = softmax(q_t Kᵀ / √d) V

Fill in the blank below, then run: regard exercise check FILE
"""

import torch
from torch import Tensor

EXERCISE = "cached-attention"


def step(query: Tensor, key: Tensor, value: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The output [R, d], and the longer cache: keys and values [R, S + 1, d].

    query, key, value [R, d]: of the new word
    keys, values [R, S, d]: of the S words before it, oldest first; S may be 0
    """
    raise NotImplementedError("return the output and the new cache: output, keys, values")
