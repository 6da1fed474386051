"""Word and position embedding with dropout in Triton: x_t = m ∘ (a E[w_t] + p_t) / (1 − p), forward and backward.

The dropout mask m is made as in dropout_add_norm.py. Imported only on a GPU. See fast/attention/word_vectors.py.
"""

from __future__ import annotations

import triton
import triton.language as tl

from regard.fast.kernels.dropout_add_norm import _random_16_bits


@triton.jit(do_not_specialize=["rows", "columns", "dropped"])
def words_forward(
    tokens, table, places, seed, out, rows, columns, width, factor, dropped, scale,
    PLACED: tl.constexpr, DROPS: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    row, column = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, WIDTH)
    inside = (row < rows)[:, None] & (column < width)[None, :]
    word = tl.load(tokens + row, mask=row < rows, other=0)
    x = tl.load(table + word[:, None] * width + column[None, :], mask=inside, other=0.0).to(tl.float32) * factor
    if PLACED:
        x += tl.load(places + (row % columns)[:, None] * width + column[None, :], mask=inside, other=0.0)
    if DROPS:
        x = tl.where(_random_16_bits(tl.load(seed), row, WIDTH) >= dropped, x * scale, 0.0)
    place = row.to(tl.int64)[:, None] * width + column[None, :]
    tl.store(out + place, x.to(out.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["rows", "dropped"])
def words_backward(
    d_out, seed, d_words, rows, width, factor, dropped, scale,
    DROPS: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """The gradient of each E[w_t], row by row, not yet summed by word."""
    row, column = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, WIDTH)
    inside = (row < rows)[:, None] & (column < width)[None, :]
    place = row.to(tl.int64)[:, None] * width + column[None, :]
    gradient = tl.load(d_out + place, mask=inside, other=0.0).to(tl.float32) * factor
    if DROPS:
        gradient = tl.where(_random_16_bits(tl.load(seed), row, WIDTH) >= dropped, gradient * scale, 0.0)
    tl.store(d_words + place, gradient.to(d_words.dtype.element_ty), mask=inside)
