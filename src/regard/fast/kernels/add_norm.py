"""Residual sum and layer norm in one pass over the row, for decoding.

s = x + y,     n = (s − mean(s)) / √(var(s) + ε) · g + b               Ba et al. 2016; in fp32, whatever x is
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor, nn


@triton.jit
def _add_norm(
    x, y, gain, shift, total, normed, width, eps, BLOCK: tl.constexpr, SHIFT: tl.constexpr, KEEP: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64) * width
    part = tl.arange(0, BLOCK)
    inside = part < width
    left = tl.load(x + row + part, mask=inside, other=0.0).to(tl.float32)
    both = left + tl.load(y + row + part, mask=inside, other=0.0).to(tl.float32)
    both = both.to(x.dtype.element_ty)  # rounded as a separate sum would be
    if KEEP:
        tl.store(total + row + part, both, mask=inside)
    both = both.to(tl.float32)
    mean = tl.sum(both, axis=0) / width
    centred = tl.where(inside, both - mean, 0.0)
    spread = tl.rsqrt(tl.sum(centred * centred, axis=0) / width + eps)
    result = centred * spread * tl.load(gain + part, mask=inside, other=0.0).to(tl.float32)
    if SHIFT:
        result += tl.load(shift + part, mask=inside, other=0.0).to(tl.float32)
    tl.store(normed + row + part, result.to(normed.dtype.element_ty), mask=inside)


def add_norm(x: Tensor, y: Tensor, norm: nn.LayerNorm, *, keep: bool = True) -> tuple[Tensor, Tensor]:
    """s and n of rows [R, D]; without `keep`, s is not stored and the first result is meaningless."""
    normed = torch.empty_like(x)
    total = torch.empty_like(x) if keep else normed
    _add_norm[(len(x),)](
        x, y, norm.weight, norm.bias, total, normed, x.size(-1), norm.eps,
        BLOCK=triton.next_power_of_2(x.size(-1)), SHIFT=norm.bias is not None, KEEP=keep,
        num_warps=1 if x.size(-1) <= 1024 else 8,
    )  # fmt: skip
    return total, normed
