"""Exercise word-average: the DAN, an average of all words so far (chapter 5 of the course).

The deep averaging network ignores order: its context is the mean of the words' vectors, each with the same weight.
As a language model it predicts the next word after every prefix, so position t averages the words 1 … t, and none
after t:

    c_t = (x_1 + … + x_t) / t

For A A B A with A = (1, 0) and B = (0, 1) the last one is (3/4, 1/4).

Fill in the blank below, then run: regard exercise check FILE
"""

import torch
from torch import Tensor

EXERCISE = "word-average"


def averages(x: Tensor) -> Tensor:
    """The averages c_1 … c_T, [R, T, D], of the words x [R, T, D]."""
    raise NotImplementedError("return the averages")
