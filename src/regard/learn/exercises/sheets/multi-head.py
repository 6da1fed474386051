"""Exercise multi-head: several heads side by side (chapter 6 of the course).

One softmax gives one average. Several heads give several: the D components of query, key and value
are split into H pieces of d = D / H neighboring components, each piece attends separately, and the outputs are
concatenated:

    head_h = Attention(Q_h, K_h, V_h)            MultiHead = [head_1 ; … ; head_H]

Heads do not interact; positions interact only in attention. The projection W_o that follows is left out here.

Fill in the blank below, then run: regard exercise check FILE
"""

import torch
from torch import Tensor

EXERCISE = "multi-head"


def attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Causal scaled dot product over the last two axes: [..., T, d] each → [..., T, d]. Given."""
    scores = query @ key.transpose(-2, -1) / query.size(-1) ** 0.5
    later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    return scores.masked_fill(later, -torch.inf).softmax(dim=-1) @ value


def multi_head(query: Tensor, key: Tensor, value: Tensor, heads: int) -> Tensor:
    """The outputs of all heads side by side, [R, T, D].

    query, key, value [R, T, D]      heads: H, which divides D; head 1 has the first D / H components
    """
    raise NotImplementedError("split into heads, attend, join the heads; return the result")
