"""Exercise warm-up-schedule: the Transformer's learning rate (chapter 6 of the course).

The first steps of a Transformer are dangerous: its gradients are large and Adam's averages are not yet reliable. So the
learning rate grows linearly to its peak, which it reaches in the last step of the warm-up, and then falls with one over
the square root of the step:

    rate = peak · (step + 1) / warmup        for step = 0 … warmup − 1
    rate = peak · √(warmup / step)           afterwards

Fill in the blank below, then run: regard exercise check FILE
"""

import math

EXERCISE = "warm-up-schedule"


def learning_rate(step: int, peak: float, warmup: int) -> float:
    """The learning rate of a step; the first step is number 0."""
    raise NotImplementedError("return the learning rate")
