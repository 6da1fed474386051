"""Cross-entropy of rows of logits z in Triton: returns each row's loss and overwrites z by its gradient.

    cost  = log Σ_v exp z_v − (1 − ε) z_y − ε/V Σ_v z_v          ∂cost/∂z_v = softmax(z)_v − (1 − ε) [v = y] − ε/V

A row is read three times: for its maximum, for the sum, for the gradient. Few programs run on each multiprocessor at a
time, so the second and third read hit the cache. A row with a negative target has loss 0. The reference in plain
PyTorch is `linear_cross_entropy.written_rows_`.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

MANY = 4096, 16, 4  # logits per block, warps per program, programs per multiprocessor
FEW = 1024, 4, 32  # the same for up to 16,384 words
LOG2_E: tl.constexpr = tl.constexpr(1.4426950408889634)


@triton.jit
def _logits(logits, bias, column, words: tl.constexpr, BIASED: tl.constexpr, LAST: tl.constexpr):
    """The logits of some columns; −∞ beyond the last word, which is checked only if LAST."""
    if LAST:
        z = tl.load(logits + column, mask=column < words, other=-float("inf")).to(tl.float32)
        if BIASED:
            z += tl.load(bias + column, mask=column < words, other=0.0).to(tl.float32)
    else:
        z = tl.load(logits + column).to(tl.float32)
        if BIASED:
            z += tl.load(bias + column).to(tl.float32)
    return z


@triton.jit
def _rows(
    logits, bias, targets, costs, rows, programs, stride, smoothing,
    words: tl.constexpr, width: tl.constexpr, BIASED: tl.constexpr, SMOOTHED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    inside = tl.arange(0, BLOCK)
    whole: tl.constexpr = words // BLOCK * BLOCK  # columns in full blocks
    z_row = logits + tl.program_id(0).to(tl.int64) * stride
    for row in range(tl.program_id(0), rows, programs):
        target = tl.load(targets + row)
        counted = target >= 0
        place = tl.where(counted, target, 0)
        truth = tl.load(z_row + place).to(tl.float32)  # read before it is overwritten
        if BIASED:
            truth += tl.load(bias + place).to(tl.float32)
        highest = tl.full([BLOCK], -float("inf"), tl.float32)  # per lane; reduced at the end
        summed = tl.zeros([BLOCK], tl.float32)
        for start in range(0, whole, BLOCK):
            z = _logits(z_row, bias, start + inside, words, BIASED, False)
            highest = tl.maximum(highest, z)
            if SMOOTHED:
                summed += z
        if whole < words:
            z = _logits(z_row, bias, whole + inside, words, BIASED, True)
            highest = tl.maximum(highest, z)
            if SMOOTHED:
                summed += tl.where(whole + inside < words, z, 0.0)
        top = tl.max(highest, 0) * LOG2_E
        total = tl.zeros([BLOCK], tl.float32)
        for start in range(0, whole, BLOCK):
            total += tl.exp2(_logits(z_row, bias, start + inside, words, BIASED, False) * LOG2_E - top)
        if whole < words:
            total += tl.exp2(_logits(z_row, bias, whole + inside, words, BIASED, True) * LOG2_E - top)
        normaliser = top + tl.log2(tl.sum(total, 0))
        share = smoothing / words
        cost = normaliser / LOG2_E - (1.0 - smoothing) * truth - share * tl.sum(summed, 0)
        tl.store(costs + row, tl.where(counted, cost, 0.0))
        lowered = tl.where(counted, normaliser, float("inf"))  # a masked row has gradient 0
        share = tl.where(counted, share, 0.0)
        for start in range(0, whole, BLOCK):
            gradient = tl.exp2(_logits(z_row, bias, start + inside, words, BIASED, False) * LOG2_E - lowered)
            if SMOOTHED:
                gradient -= share
            tl.store(z_row + start + inside, gradient.to(logits.dtype.element_ty))
        if whole < width:
            column = whole + inside
            gradient = tl.exp2(_logits(z_row, bias, column, words, BIASED, True) * LOG2_E - lowered) - share
            gradient = tl.where(column < words, gradient, 0.0)
            tl.store(z_row + column, gradient.to(logits.dtype.element_ty), mask=column < width)
        tl.debug_barrier()  # the target's gradient overwrites what was just stored
        own = tl.exp2(truth * LOG2_E - lowered) - tl.where(counted, 1.0 - smoothing, 0.0) - share
        tl.store(z_row + place, own.to(logits.dtype.element_ty))
        z_row += programs * stride


@triton.jit
def _scaled(x, factor, out, size, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < size, other=0.0).to(tl.float32) * tl.load(factor).to(tl.float32)
    tl.store(out + at, value.to(out.dtype.element_ty), mask=at < size)


def scaled(x: Tensor, factor: Tensor) -> Tensor:
    """x times a scalar on the device; PyTorch's kernel does not vectorise this in half precision."""
    out = torch.empty_like(x)
    _scaled[(triton.cdiv(x.numel(), 4096),)](x, factor, out, x.numel(), BLOCK=4096, num_warps=8)
    return out


def rows_(logits: Tensor, bias: Tensor | None, targets: Tensor, words: int, smoothing: float) -> Tensor:
    """The losses [N] of logits [N, width], whose first `words` columns are real; overwrites logits by the gradient."""
    costs = torch.empty(len(logits), dtype=torch.float32, device=logits.device)
    processors = torch.cuda.get_device_properties(logits.device).multi_processor_count if logits.is_cuda else 1
    most, warps, each = FEW if logits.size(1) <= 16_384 else MANY
    programs = min(len(logits), each * processors)
    block = min(most, triton.next_power_of_2(logits.size(1)))
    _rows[(programs,)](
        logits, bias, targets, costs, len(logits), programs, logits.stride(0), smoothing,
        words=words, width=logits.size(1), BIASED=bias is not None, SMOOTHED=smoothing > 0.0,
        BLOCK=block, num_warps=max(1, min(warps, block // 256)),
    )  # fmt: skip
    return costs
