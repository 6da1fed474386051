"""The loss: the negative log-likelihood of the next token.

    −log P(x_t | x_<t) = −z_{x_t} + log Σ_v exp(z_v)                for logits z, in nats

Its sum over a text, divided by the number of tokens, is the cross-entropy; exp of that is the perplexity.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def negative_log_likelihood(logits: Tensor, targets: Tensor, *, smoothing: float = 0.0) -> Tensor:
    """−log P(target) of every column: logits [R, T, V], targets [R, T] → [R, T]. Label smoothing (Szegedy et al. 2016)
    spreads a share of the probability over all words."""
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))  # bf16 has too few digits for a sum over V
    nll = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none", label_smoothing=smoothing)
    return nll.view_as(targets)
