"""Dropout: y = x · m / (1 − p), each m_i is 0 with probability p, else 1. Inactive in eval().

Dropout              every component by itself                       Srivastava et al. 2014
VariationalDropout   one mask for all time steps of a row            Gal & Ghahramani 2016
WordDropout          whole words, at all positions                   Gal & Ghahramani 2016; Merity et al. 2018
drop_weight          connections of a matrix, resampled per call     Wan et al. 2013; Merity et al. 2018
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Dropout(nn.Dropout):
    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.p, self.training)


class VariationalDropout(nn.Module):
    """The same components of x [R, T, D] are dropped at every t; a new mask for each row and call."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.rate == 0.0:
            return x
        return x * F.dropout(torch.ones_like(x[:, :1]), self.rate)  # mask [R, 1, D]


class WordDropout(nn.Module):
    """A dropped word is zero wherever it occurs in the call, as if its row of the embedding table were zero."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor, tokens: Tensor, vocabulary: int) -> Tensor:
        if not self.training or self.rate == 0.0:
            return x
        kept = F.dropout(x.new_ones(vocabulary), self.rate)  # one decision for each word of the vocabulary
        return x * kept[tokens][..., None]


def drop_weight(weight: Tensor, rate: float, training: bool) -> Tensor:
    """The matrix with connections dropped: one draw for a whole call, so that every time step loses the same ones."""
    return F.dropout(weight, rate, training) if rate > 0.0 else weight
