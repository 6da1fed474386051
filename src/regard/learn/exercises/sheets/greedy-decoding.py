"""Exercise greedy-decoding: from <bos> until <eos> (chapter 4 of the course).

To generate, the model reads the boundary token, takes the most probable next token, reads that one, and so on. It stops
when it has generated <eos>, or after `limit` tokens:

    y_t = argmax P(y | y_1 … y_{t-1})          the generated token is the next one to read

Fill in the blank below, then run: regard exercise check FILE
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

EXERCISE = "greedy-decoding"


def greedy(step: Callable[[int, Any], tuple[Tensor, Any]], state: Any, bos: int, eos: int, limit: int) -> list[int]:
    """The generated tokens, including <eos> if it was generated.

    step(token, state) → logits [V] of the next token, and the new state      state: the one to begin with
    bos: the token to read first      eos: the token that ends the text      limit: the maximum number of tokens
    """
    raise NotImplementedError("return the list of tokens")
