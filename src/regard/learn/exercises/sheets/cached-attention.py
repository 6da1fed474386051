"""Exercise cached-attention: one word at a time, with the same answer (chapter 6 of the course).

Attention is parallel while it is trained and sequential while it writes. When a new word arrives, the keys and values
of the words before it have not changed: they are kept, in the cache. The new word adds its own key and value, and its
query looks at all of them, its own included. Step by step that gives exactly what the causal mask gives at once.

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
