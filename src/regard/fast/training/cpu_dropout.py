"""Dropout on a CPU with a quarter of the random numbers.

PyTorch draws one random number per component, a twelfth of a Transformer's training step on a CPU. Sixteen bits are
enough, so each 64-bit number decides for four components; the rate is rounded to a multiple of 1/65536.
"""

from __future__ import annotations

import torch
from torch import Tensor

from regard.fast.table import Row, needs_cpu
from regard.layers.dropout import Dropout

LEVELS = 2**16  # the rate is rounded to a multiple of 1/LEVELS


def drops(dropout: Dropout, x: Tensor) -> bool:
    return dropout.training and dropout.p > 0.0 and x.is_floating_point() and x.device.type == "cpu"


def drop(dropout: Dropout, x: Tensor) -> Tensor:
    dropped = round(dropout.p * LEVELS)
    if dropped in (0, LEVELS):
        return x * float(dropped == 0)
    numbers = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None)  # all 64 bits
    bits = numbers.view(torch.int16)[: x.numel()].view(x.shape)  # −LEVELS/2 … LEVELS/2 − 1
    kept = torch.ge(bits, dropped - LEVELS // 2, out=torch.empty(x.shape, dtype=x.dtype))  # 1 or 0
    return x * kept.mul_(LEVELS / (LEVELS - dropped))


ROWS = (Row("dropout with few random numbers", "regard.layers.dropout:Dropout.forward", drop, drops, needs=needs_cpu),)
