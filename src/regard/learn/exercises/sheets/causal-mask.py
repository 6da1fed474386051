"""Exercise causal-mask: hide the words that come later (chapter 6 of the course).

During training, attention reads a whole sentence at once. A position that could see the next word would only copy
it. So position t may attend to positions 1 … t, including itself, and never to later ones:

    query 1 sees   k₁                a_1 has one entry
    query 2 sees   k₁ k₂             a_2 has two
    query 3 sees   k₁ k₂ k₃          a_3 has three

Fill in the blank below, then run: regard exercise check FILE
"""

import torch
from torch import Tensor

EXERCISE = "causal-mask"


def causal_mask(length: int) -> Tensor:
    """A bool tensor [length, length]: entry (query, key) is True where the query may see the key."""
    raise NotImplementedError("return the mask")
