"""Layer norm, GELU and sums of a Transformer's block, between its products, each in one pass (Triton).

norm          s = x + y,   n = (s − mean) · r · g + b,   r = 1 / √(var + ε)                      Ba et al. 2016
backward      ds = du + r (dn·g − mean(dn·g) − ŝ mean(dn·g·ŝ)),   ŝ = (s − mean) · r;   Σ dn·ŝ, dn, ds, du over rows
gelu          y = x σ(2u),   u = √(2/π) (x + 0.044715 x³)                                        Hendrycks & Gimpel 2016
backward      dx = dy (σ + x σ (1 − σ) 2u′);   Σ dx over rows               (epilogue.py does it within the products)
pack          dq, dk and dv side by side, and Σ over rows

The sums over rows are the gradients of gains and biases: each program sums its own rows, and `add_up` adds these
partial sums. Everything is computed in fp32 and stored in the output's dtype. The reference is `PreNormBlock`.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

# The fastest of those tried on an H200, for 65,536 rows of 768:
NORM = 1, 1  # rows at a time, warps for every 1024 columns
NORM_BACKWARD = 1, 2, 4, 4  # also programs per multiprocessor, and pipeline stages
SLOPE = 1024, 256, 8, 8  # rows and columns of a program, rows at a time, warps
PACK = 512, 128, 64, 8
SUM = 1024, 256, 16, 8
FEW_ROWS = 2048  # of which each program sums fewer
ADD_UP = 16, 256, 8  # columns of a program, rows at a time, warps


@triton.jit
def _norm(
    x, y, gain, shift, total, normed, means, scales, rows, eps,
    WIDTH: tl.constexpr, BLOCK: tl.constexpr, SOME: tl.constexpr, ADDED: tl.constexpr, SHIFTED: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * SOME + tl.arange(0, SOME)[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    there = (row < rows) & (column < WIDTH)
    at = row.to(tl.int64) * WIDTH + column
    s = tl.load(x + at, mask=there, other=0.0).to(tl.float32)
    if ADDED:
        s += tl.load(y + at, mask=there, other=0.0).to(tl.float32)
        s = s.to(total.dtype.element_ty)
        tl.store(total + at, s, mask=there)
        s = s.to(tl.float32)
    mean = tl.sum(s, 1)[:, None] / WIDTH
    centred = tl.where(column < WIDTH, s - mean, 0.0)
    scale = tl.rsqrt(tl.sum(centred * centred, 1)[:, None] / WIDTH + eps)
    n = centred * scale * tl.load(gain + column, mask=column < WIDTH, other=0.0).to(tl.float32)
    if SHIFTED:
        n += tl.load(shift + column, mask=column < WIDTH, other=0.0).to(tl.float32)
    tl.store(normed + at, n.to(normed.dtype.element_ty), mask=there)
    tl.store(means + row, mean, mask=row < rows)
    tl.store(scales + row, scale, mask=row < rows)


def norm(
    x: Tensor, y: Tensor | None, gain: Tensor, shift: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """n and s of rows [N, D], and the means and scales [N] for the backward pass. Without y, s is x."""
    rows, width = x.shape
    block, (some, warps) = triton.next_power_of_2(width), NORM
    total = x if y is None else torch.empty_like(x)
    normed = torch.empty_like(x)
    means, scales = (torch.empty(rows, device=x.device, dtype=torch.float32) for _ in range(2))
    _norm[(triton.cdiv(rows, some),)](
        x, y, gain, shift, total, normed, means, scales, rows, eps,
        WIDTH=width, BLOCK=block, SOME=some,
        ADDED=y is not None, SHIFTED=shift is not None, num_warps=warps * -(-block // 1024),
    )  # fmt: skip
    return normed, total, means, scales


@triton.jit
def _norm_backward(
    d_normed, d_above, total, gain, means, scales, d_total, sums, rows, programs,
    WIDTH: tl.constexpr, BLOCK: tl.constexpr, SOME: tl.constexpr, UNDER_WAY: tl.constexpr,
    ABOVE: tl.constexpr, ALL: tl.constexpr,
):  # fmt: skip
    column = tl.arange(0, BLOCK)[None, :]
    g = tl.load(gain + column, mask=column < WIDTH, other=0.0).to(tl.float32)
    for_gain = tl.zeros([SOME, BLOCK], tl.float32)
    for_shift = tl.zeros([SOME, BLOCK], tl.float32)
    for_total = tl.zeros([SOME, BLOCK], tl.float32)
    for_above = tl.zeros([SOME, BLOCK], tl.float32)
    for start in tl.range(tl.program_id(0) * SOME, rows, programs * SOME, num_stages=UNDER_WAY):
        row = start + tl.arange(0, SOME)[:, None]
        there = (row < rows) & (column < WIDTH)
        at = row.to(tl.int64) * WIDTH + column
        dn = tl.load(d_normed + at, mask=there, other=0.0).to(tl.float32)
        s = tl.load(total + at, mask=there, other=0.0).to(tl.float32)
        mean = tl.load(means + row, mask=row < rows, other=0.0)
        scale = tl.load(scales + row, mask=row < rows, other=0.0)
        unit = tl.where(there, (s - mean) * scale, 0.0)
        pulled = dn * g
        ds = pulled - tl.sum(pulled, 1)[:, None] / WIDTH - unit * (tl.sum(pulled * unit, 1)[:, None] / WIDTH)
        ds = ds * scale
        if ABOVE:
            du = tl.load(d_above + at, mask=there, other=0.0).to(tl.float32)
            ds += du
        ds = ds.to(d_total.dtype.element_ty)
        tl.store(d_total + at, ds, mask=there)
        for_gain += dn * unit
        for_shift += dn
        if ALL:
            for_total += tl.where(there, ds.to(tl.float32), 0.0)
            for_above += du
    place = sums + tl.program_id(0) * (4 if ALL else 2) * WIDTH + tl.arange(0, BLOCK)
    inside = tl.arange(0, BLOCK) < WIDTH
    tl.store(place, tl.sum(for_gain, 0), mask=inside)
    tl.store(place + WIDTH, tl.sum(for_shift, 0), mask=inside)
    if ALL:
        tl.store(place + 2 * WIDTH, tl.sum(for_total, 0), mask=inside)
        tl.store(place + 3 * WIDTH, tl.sum(for_above, 0), mask=inside)


def norm_backward(
    d_normed: Tensor, d_above: Tensor | None, total: Tensor, gain: Tensor, means: Tensor, scales: Tensor, *, sums: int
) -> tuple[Tensor, Tensor]:
    """ds of rows [N, D] from dn and du, the gradient of s from the residual path; and [sums, D]: the sums over rows of
    dn·ŝ, dn, ds and du, all four or the first two."""
    rows, width = total.shape
    block, (some, warps, each, under_way) = triton.next_power_of_2(width), NORM_BACKWARD
    programs = min(triton.cdiv(rows, some), each * processors(total))
    d_total = torch.empty_like(total)
    found = torch.empty(programs, sums * width, device=total.device, dtype=torch.float32)
    _norm_backward[(programs,)](
        d_normed, d_above, total, gain, means, scales, d_total, found, rows, programs,
        WIDTH=width, BLOCK=block, SOME=some, UNDER_WAY=under_way,
        ABOVE=d_above is not None, ALL=sums == 4, num_warps=warps * -(-block // 1024),
    )  # fmt: skip
    return d_total, add_up(found).view(sums, width)


@triton.jit
def _sigmoid_2u(x):
    return 1.0 / (1.0 + tl.exp(-1.5957691216057308 * (x + 0.044715 * x * x * x)))


@triton.jit
def _gelu(x, y, size, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < size, other=0.0).to(tl.float32)
    tl.store(y + at, (value * _sigmoid_2u(value)).to(y.dtype.element_ty), mask=at < size)


def gelu(x: Tensor) -> Tensor:
    y = torch.empty_like(x)
    _gelu[(triton.cdiv(x.numel(), 2048),)](x, y, x.numel(), BLOCK=2048, num_warps=8)
    return y


@triton.jit
def _gelu_backward(x, dy, sums, rows, WIDTH: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr, TILE: tl.constexpr):
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([TILE, BLOCK], tl.float32)
    for start in range(0, ROWS, TILE):
        row = tl.program_id(0) * ROWS + start + tl.arange(0, TILE)[:, None]
        there = (row < rows) & (column < WIDTH)[None, :]
        at = row.to(tl.int64) * WIDTH + column[None, :]
        value = tl.load(x + at, mask=there, other=0.0).to(tl.float32)
        s = _sigmoid_2u(value)
        slope = s + value * s * (1.0 - s) * 1.5957691216057308 * (1.0 + 0.134145 * value * value)
        dx = (tl.load(dy + at, mask=there, other=0.0).to(tl.float32) * slope).to(dy.dtype.element_ty)
        tl.store(dy + at, dx, mask=there)
        total += dx.to(tl.float32)
    tl.store(sums + tl.program_id(0) * WIDTH + column, tl.sum(total, 0), mask=column < WIDTH)


@triton.jit(do_not_specialize=["rows"])
def _sum_rows(x, sums, rows, WIDTH: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr, TILE: tl.constexpr):
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([TILE, BLOCK], tl.float32)
    for start in range(0, ROWS, TILE):
        row = tl.program_id(0) * ROWS + start + tl.arange(0, TILE)[:, None]
        there = (row < rows) & (column < WIDTH)[None, :]
        total += tl.load(x + row.to(tl.int64) * WIDTH + column[None, :], mask=there, other=0.0).to(tl.float32)
    tl.store(sums + tl.program_id(0) * WIDTH + column, tl.sum(total, 0), mask=column < WIDTH)


def sum_rows(x: Tensor) -> Tensor:
    """The sum over rows [D] of x [N, D]."""
    rows, width = x.shape
    most, block, tile, warps = SUM
    most = most if rows > FEW_ROWS else most // 16
    sums = torch.empty(triton.cdiv(rows, most), width, device=x.device, dtype=torch.float32)
    _sum_rows[(len(sums), triton.cdiv(width, block))](
        x, sums, rows, WIDTH=width, BLOCK=block, ROWS=most, TILE=tile, num_warps=warps
    )
    return add_up(sums)


def gelu_backward_(x: Tensor, dy: Tensor) -> Tensor:
    """Overwrites dy [N, D] by dx; returns its sum over rows [D]."""
    rows, width = x.shape
    most, block, tile, warps = SLOPE
    sums = torch.empty(triton.cdiv(rows, most), width, device=x.device, dtype=torch.float32)
    _gelu_backward[(len(sums), triton.cdiv(width, block))](
        x, dy, sums, rows, WIDTH=width, BLOCK=block, ROWS=most, TILE=tile, num_warps=warps
    )
    return add_up(sums)


@triton.jit
def _pack(
    dq, dk, dv, packed, sums, rows, WIDTH: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr, TILE: tl.constexpr
):
    which = tl.program_id(1)
    column = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    source = dq
    if which == 1:
        source = dk
    if which == 2:
        source = dv
    total = tl.zeros([TILE, BLOCK], tl.float32)
    for start in range(0, ROWS, TILE):
        row = (tl.program_id(0) * ROWS + start + tl.arange(0, TILE)[:, None]).to(tl.int64)
        there = (row < rows) & (column < WIDTH)[None, :]
        value = tl.load(source + row * WIDTH + column[None, :], mask=there, other=0.0)
        tl.store(packed + row * (3 * WIDTH) + which * WIDTH + column[None, :], value, mask=there)
        total += value.to(tl.float32)
    place = tl.program_id(0) * (3 * WIDTH) + which * WIDTH + column
    tl.store(sums + place, tl.sum(total, 0), mask=column < WIDTH)


def pack(dq: Tensor, dk: Tensor, dv: Tensor) -> tuple[Tensor, Tensor]:
    """[N, D] each → [N, 3·D], and its sum over rows [3·D]."""
    rows, width = dq.shape
    packed = torch.empty(rows, 3 * width, device=dq.device, dtype=dq.dtype)
    most, block, tile, warps = PACK
    sums = torch.empty(triton.cdiv(rows, most), 3 * width, device=dq.device, dtype=torch.float32)
    _pack[(len(sums), 3, triton.cdiv(width, block))](
        dq, dk, dv, packed, sums, rows, WIDTH=width, BLOCK=block, ROWS=most, TILE=tile, num_warps=warps
    )
    return packed, add_up(sums)


@triton.jit
def _add_up(found, sums, rows, WIDTH: tl.constexpr, BLOCK: tl.constexpr, TILE: tl.constexpr):
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([TILE, BLOCK], tl.float32)
    for start in range(0, rows, TILE):
        row = start + tl.arange(0, TILE)[:, None]
        there = (row < rows) & (column < WIDTH)[None, :]
        total += tl.load(found + row * WIDTH + column[None, :], mask=there, other=0.0)
    tl.store(sums + column, tl.sum(total, 0), mask=column < WIDTH)


def add_up(found: Tensor) -> Tensor:
    """The sum [D] of the programs' partial sums [P, D]; `torch.sum` is slow for so few rows."""
    rows, width = found.shape
    block, tile, warps = ADD_UP
    tile = min(tile, triton.next_power_of_2(rows))
    sums = torch.empty(width, device=found.device, dtype=torch.float32)
    _add_up[(triton.cdiv(width, block),)](found, sums, rows, WIDTH=width, BLOCK=block, TILE=tile, num_warps=warps)
    return sums


def processors(tensor: Tensor) -> int:
    return torch.cuda.get_device_properties(tensor.device).multi_processor_count if tensor.is_cuda else 1
