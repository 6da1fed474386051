"""Exercise continuation-counts: Kneser and Ney's counts (chapter 1 of the course).

How probable is a word in a context that was never seen? Its frequency is misleading: "Francisco" is frequent, but only
after "San". Kneser and Ney count in how many different contexts a word has been seen, however often in each:

    a(w) = number of different words h with count(h w) > 0

Fill in the blank below, then run: regard exercise check FILE
"""

import torch
from torch import Tensor

EXERCISE = "continuation-counts"


def continuations(counts: Tensor) -> Tensor:
    """a(w) for every word w: whole numbers [V].

    counts [V, V]: counts[h, w] says how often w came after h
    """
    raise NotImplementedError("return the continuation counts")
