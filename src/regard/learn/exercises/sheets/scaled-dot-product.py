"""Exercise scaled-dot-product: softmax(QKᵀ/√d) V (chapter 5 of the course).

A query is compared with every key by their dot product. Of d independent components of mean 0 and variance 1
this sum has variance d, so it is divided by √d. The softmax makes weights of the scores that sum to 1 for each query,
and the output is the average of the values by these weights:

    Attention(Q, K, V) = softmax(Q Kᵀ / √d + M) V         M = −∞ where a key is hidden, else 0

Fill in the blank below, then run: regard exercise check FILE
"""

import torch
from torch import Tensor

EXERCISE = "scaled-dot-product"


def attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    """The output [R, T, E].

    query [R, T, d], key [R, S, d], value [R, S, E]      mask [T, S], bool: True where the query may see the key
    """
    raise NotImplementedError("return the output")
