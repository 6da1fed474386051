"""The end of a Transformer's sublayer in Triton: bias, dropout, sum and layer norm in one pass, forward and backward.

    s = x + m ∘ (a + c) / (1 − p),      ŝ = (s − μ) / σ,      y = g ∘ ŝ + b
    ds = (g ∘ dy − mean(g ∘ dy) − ŝ mean(g ∘ dy ∘ ŝ)) / σ + the residual's gradient;   dx = ds,    da = m ∘ ds / (1 − p)

One call of Philox (Salmon et al. 2011) makes eight 16-bit random numbers for the dropout mask m; the backward pass
makes the same ones from the same seed. The gradients of g, b and c are sums over rows; each program writes a partial
sum. RMSNorm has μ = 0 and no b. Imported only on a GPU. See fast/attention/residual.py.
"""

from __future__ import annotations

import triton
import triton.language as tl

ROUNDS: tl.constexpr = tl.constexpr(7)  # of Philox: the fewest that pass all its authors' tests


@triton.jit
def _random_16_bits(seed, row, WIDTH: tl.constexpr):
    """Random numbers [rows, WIDTH] from 0 to 65535."""
    call = row[:, None] * (WIDTH // 8) + tl.arange(0, WIDTH // 8)[None, :]
    a, b, c, d = tl.randint4x(seed, call, ROUNDS)
    left, right = tl.interleave(a, b).to(tl.uint32, bitcast=True), tl.interleave(c, d).to(tl.uint32, bitcast=True)
    both = tl.interleave(left, right)
    return tl.interleave(both & 0xFFFF, both >> 16)


@triton.jit(do_not_specialize=["rows", "dropped"])
def add_norm_forward(
    x, part, bias, gain, shift, seed, total, normed, mean, spread, rows, width, eps, dropped, scale,
    DROPS: tl.constexpr, RMS: tl.constexpr, BIASED: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    row, column = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, WIDTH)
    inside = (row < rows)[:, None] & (column < width)[None, :]
    place = row.to(tl.int64)[:, None] * width + column[None, :]
    added = tl.load(part + place, mask=inside, other=0.0).to(tl.float32)
    if BIASED:
        added += tl.load(bias + column, mask=column < width, other=0.0).to(tl.float32)[None, :]
    if DROPS:
        added = tl.where(_random_16_bits(tl.load(seed), row, WIDTH) >= dropped, added * scale, 0.0)
    s = (tl.load(x + place, mask=inside, other=0.0).to(tl.float32) + added).to(total.dtype.element_ty)
    tl.store(total + place, s, mask=inside)
    s = s.to(tl.float32)  # normalize the rounded value, which the backward pass reads
    if RMS:
        centred = s
    else:
        mu = tl.sum(tl.where(inside, s, 0.0), 1) / width
        centred = tl.where(inside, s - mu[:, None], 0.0)
        tl.store(mean + row, mu, mask=row < rows)
    inverse = tl.rsqrt(tl.sum(centred * centred, 1) / width + eps)
    tl.store(spread + row, inverse, mask=row < rows)
    g = tl.load(gain + column, mask=column < width, other=0.0).to(tl.float32)
    y = centred * inverse[:, None] * g[None, :]
    if not RMS:
        y += tl.load(shift + column, mask=column < width, other=0.0).to(tl.float32)[None, :]
    tl.store(normed + place, y.to(normed.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["rows", "each", "stride", "dropped"])
def add_norm_backward(
    total, d_normed, d_carried, d_total, gain, seed, mean, spread, d_x, d_part, sums, rows, width, each, stride,
    dropped, scale,
    CARRIED: tl.constexpr, SUMMED: tl.constexpr, DROPS: tl.constexpr, RMS: tl.constexpr, BIASED: tl.constexpr,
    ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """`sums` [programs, …] with row stride `stride`: each program's partial sums for g, b and c, those that exist."""
    column = tl.arange(0, WIDTH)
    real = column < width
    g = tl.load(gain + column, mask=real, other=0.0).to(tl.float32)
    for_gain = tl.zeros([ROWS, WIDTH], tl.float32)  # summed over the tile's rows only at the end
    for_shift = tl.zeros([ROWS, WIDTH], tl.float32)
    for_bias = tl.zeros([ROWS, WIDTH], tl.float32)
    first = tl.program_id(0) * each
    for start in tl.range(first, min(first + each, rows), ROWS, num_stages=4):  # prefetches the next rows
        row = start + tl.arange(0, ROWS)
        here = (row < rows) & (row < first + each)
        inside = here[:, None] & real[None, :]
        place = row.to(tl.int64)[:, None] * width + column[None, :]
        dy = tl.load(d_normed + place, mask=inside, other=0.0).to(tl.float32)
        if CARRIED:
            dy += tl.load(d_carried + place, mask=inside, other=0.0).to(tl.float32)
        s = tl.load(total + place, mask=inside, other=0.0).to(tl.float32)
        inverse = tl.load(spread + row, mask=here, other=0.0)[:, None]
        if not RMS:
            s -= tl.load(mean + row, mask=here, other=0.0)[:, None]
            for_shift += dy
        hat = tl.where(inside, s * inverse, 0.0)
        for_gain += dy * hat
        dy *= g[None, :]
        ds = dy - hat * (tl.sum(dy * hat, 1)[:, None] / width)
        if not RMS:
            ds -= tl.sum(dy, 1)[:, None] / width
        ds *= inverse
        if SUMMED:
            ds += tl.load(d_total + place, mask=inside, other=0.0).to(tl.float32)
        ds = tl.where(inside, ds, 0.0)
        tl.store(d_x + place, ds.to(d_x.dtype.element_ty), mask=inside)
        if DROPS:
            ds = tl.where(_random_16_bits(tl.load(seed), row, WIDTH) >= dropped, ds * scale, 0.0)
        tl.store(d_part + place, ds.to(d_part.dtype.element_ty), mask=inside)
        for_bias += ds
    mine = sums + tl.program_id(0).to(tl.int64) * stride + column
    tl.store(mine, tl.sum(for_gain, 0), mask=real)
    if not RMS:
        tl.store(mine + width, tl.sum(for_shift, 0), mask=real)
    if BIASED:
        tl.store(mine + (width if RMS else 2 * width), tl.sum(for_bias, 0), mask=real)
