"""The backward pass of ReLU together with the gradient of the bias before it, in Triton.

    dz = dy ∘ [y > 0],      db = Σ_rows dz

Each program writes the sum of its own rows. Imported only on a GPU.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["rows", "each", "stride"])
def column_sums(
    d_y, y, d_z, sums, rows, width, each, stride, RECTIFIED: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    """`sums` [programs, width] with row stride `stride`: each program's partial sum."""
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    first = tl.program_id(0) * each
    total = tl.zeros([ROWS, BLOCK], tl.float32)
    for start in range(first, min(first + each, rows), ROWS):
        row = start + tl.arange(0, ROWS)
        inside = ((row < rows) & (row < first + each))[:, None] & (column < width)[None, :]
        place = row.to(tl.int64)[:, None] * width + column[None, :]
        gradient = tl.load(d_y + place, mask=inside, other=0.0)
        if RECTIFIED:
            gradient = tl.where(tl.load(y + place, mask=inside, other=0.0) > 0, gradient, 0.0)
            tl.store(d_z + place, gradient, mask=inside)
        total += gradient.to(tl.float32)
    tl.store(sums + tl.program_id(0).to(tl.int64) * stride + column, tl.sum(total, 0), mask=column < width)
