"""Dropout with few random numbers, for a CPU.

On a CPU the library draws a random number for each component, which is a twelfth of a Transformer's training step.
Sixteen bits are enough to decide: a number of 64 bits serves four components, at a rate that is a multiple of 1/65536.
"""

from __future__ import annotations

import torch
from torch import Tensor

from regard.fast.row_table import Row, needs_cpu
from regard.layers.dropout import Dropout

SIDES = 2**16  # how finely a rate can be chosen


def drops(dropout: Dropout, x: Tensor) -> bool:
    return dropout.training and dropout.p > 0.0 and x.is_floating_point() and x.device.type == "cpu"


def drop(dropout: Dropout, x: Tensor) -> Tensor:
    dropped = round(dropout.p * SIDES)
    if dropped in (0, SIDES):
        return x * float(dropped == 0)
    numbers = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None)  # all 64 bits
    bits = numbers.view(torch.int16)[: x.numel()].view(x.shape)  # −SIDES/2 … SIDES/2 − 1
    kept = torch.ge(bits, dropped - SIDES // 2, out=torch.empty(x.shape, dtype=x.dtype))  # 1 or 0
    return x * kept.mul_(SIDES / (SIDES - dropped))


ROWS = (Row("dropout with few random numbers", "regard.layers.dropout:Dropout.forward", drop, drops, needs=needs_cpu),)
