"""Exercise gradient-clipping: scale big gradients (chapter 3 of the course).

Over many steps a gradient can explode, and one such optimizer step ruins the weights. Clipping bounds the
norm of the whole gradient, with all parameters together as one long vector g:

    ‖g‖ = √(Σ g_i²)  over all parameters           g ← g · c / ‖g‖   if ‖g‖ > c,   else unchanged

The direction stays the same: only the length changes.

Fill in the blank below, then run: regard exercise check FILE
"""

import torch
from torch import Tensor

EXERCISE = "gradient-clipping"


def clip(gradients: list[Tensor], most: float) -> list[Tensor]:
    """The clipped gradients, in the same order and shapes.

    gradients: one tensor of any shape for each parameter      most: the largest norm, c
    """
    raise NotImplementedError("return the list of clipped gradients")
