"""Exercise label-smoothing: a loss whose target is never certain (chapter 1 of the course).

The loss −log P(target) is smallest when the model is certain, so it learns to be overconfident. Label smoothing asks
for a little less: a share ε of the target's probability is spread evenly over all V words, including the target:

    L = (1 − ε) · (−log P(target)) + ε · (1/V) Σ_w −log P(w)

Fill in the blank below, then run: regard exercise check FILE
"""

import torch
from torch import Tensor

EXERCISE = "label-smoothing"


def smoothed_loss(logits: Tensor, targets: Tensor, share: float) -> Tensor:
    """The loss of every row, [N].

    logits [N, V]      targets [N]: the right words      share: ε
    """
    raise NotImplementedError("return the losses")
