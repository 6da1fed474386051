"""Exercise temperature-top-k: which word to draw (chapter 4 of the course).

A text in which every word is the most probable one is dull. So words are sampled. A temperature below 1 makes the
distribution sharper, above 1 flatter, and only the k most probable words can be drawn:

    P'(w) ∝ exp(z_w / temperature)   for the k words with the largest logits z, and 0 for the others

The k words' probabilities sum to 1 again.

Fill in the blank below, then run: regard exercise check FILE
"""

import torch
from torch import Tensor

EXERCISE = "temperature-top-k"


def chances(logits: Tensor, temperature: float, k: int) -> Tensor:
    """The probability of each word to be drawn, [R, V].

    logits [R, V]      temperature: above 0      k: from 1 to V
    """
    raise NotImplementedError("return the probabilities")
