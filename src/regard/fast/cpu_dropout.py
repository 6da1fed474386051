"""Dropout whose coins are cheap (the idea: Srivastava et al. 2014).

    y = x · m / (1 − p),   each m_i is 0 with probability p, else 1

On a CPU the library draws a random number for each coin, which is a twelfth of a Transformer's training step. Sixteen
bits are enough for a coin: a number of 64 bits gives four, at a rate that is a multiple of 1/65536.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

SIDES = 2**16  # how finely a rate can be chosen


class Dropout(nn.Dropout):
    """`nn.Dropout`, with fewer random numbers where drawing them takes time."""

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0.0:
            return x
        if x.device.type != "cpu" or not x.is_floating_point():
            return F.dropout(x, self.p)
        dropped = round(self.p * SIDES)
        if dropped in (0, SIDES):
            return x * float(dropped == 0)
        numbers = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None)  # all 64 bits
        coins = numbers.view(torch.int16)[: x.numel()].view(x.shape)  # −SIDES/2 … SIDES/2 − 1
        kept = torch.ge(coins, dropped - SIDES // 2, out=torch.empty(x.shape, dtype=x.dtype))  # 1 or 0
        return x * kept.mul_(SIDES / (SIDES - dropped))
