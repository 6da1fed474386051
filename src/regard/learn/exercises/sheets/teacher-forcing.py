"""Exercise teacher-forcing: the decoder reads the right word, not its own (chapter 4 of the course).

A decoder generates y_1, y_2, …, y_T one after the other. At test time it reads the word that it has just generated. In
training it reads the correct word instead, whatever it would have generated. So at step t

    it reads y_{t-1}   (at the first step the boundary token <bos>)
    it predicts y_t, and the loss is −log P(y_t | y_1 … y_{t-1})

and the state is passed from step to step.

Fill in the blank below, then run: regard exercise check FILE
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

EXERCISE = "teacher-forcing"


def losses(step: Callable[[Tensor, Any], tuple[Tensor, Any]], state: Any, targets: Tensor, bos: int) -> Tensor:
    """−log P of every target, [R, T].

    step(tokens [R], state) → logits [R, V] of the next token, and the new state
    state: the state before the first step      targets [R, T]: the right words      bos: the boundary token
    """
    raise NotImplementedError("return the losses of all steps, stacked to [R, T]")
