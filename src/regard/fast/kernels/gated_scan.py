"""The minimal GRU's recurrence and its gradient in Triton: one kernel each, over all steps.

    h_t = (1 − z_t) h_{t-1} + z_t n_t
    g_t = dh_t + (1 − z_{t+1}) g_{t+1},    dz_t = g_t (n_t − h_{t-1}),    dn_t = g_t z_t,    dh_0 = (1 − z_1) g_1

A program owns a few components of one row. It goes through the text in chunks; within a chunk all steps are one
associative scan in registers, from chunk to chunk it carries h (or, from the end, g). Imported only where Triton is.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def compose(a_1, b_1, a_2, b_2):
    """Two steps h → a h + b in a row."""
    return a_1 * a_2, a_2 * b_1 + b_2


@triton.jit
def scan_forward(z, n, first, h, steps, width, CHUNK: tl.constexpr, BLOCK: tl.constexpr):
    """z, n, h [rows, steps, width] and first [rows, width], all contiguous."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    step = tl.arange(0, CHUNK)
    carry = tl.load(first + row * width + column, mask=column < width, other=0.0)
    for start in range(0, steps, CHUNK):
        inside = ((start + step) < steps)[:, None] & (column < width)[None, :]
        place = (row * steps + start + step)[:, None] * width + column[None, :]
        gate = tl.load(z + place, mask=inside, other=0.0)  # past the end nothing changes
        candidate = tl.load(n + place, mask=inside, other=0.0)
        kept, added = tl.associative_scan((1.0 - gate, gate * candidate), 0, compose)
        hidden = kept * carry[None, :] + added
        tl.store(h + place, hidden, mask=inside)
        carry = tl.sum(tl.where((step == CHUNK - 1)[:, None], hidden, 0.0), 0)


@triton.jit
def scan_backward(z, n, first, h, d_h, d_z, d_n, d_first, steps, width, CHUNK: tl.constexpr, BLOCK: tl.constexpr):
    """The chunks from the last to the first."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    step = tl.arange(0, CHUNK)
    wide = column < width
    before = tl.load(first + row * width + column, mask=wide, other=0.0)
    carry = tl.zeros([BLOCK], before.dtype)  # g of the step after the chunk
    chunks = tl.cdiv(steps, CHUNK)
    for turn in range(chunks):
        t = (chunks - 1 - turn) * CHUNK + step
        inside = (t < steps)[:, None] & wide[None, :]
        place = (row * steps + t)[:, None] * width + column[None, :]
        later = tl.load(z + place + width, mask=((t + 1) < steps)[:, None] & wide[None, :], other=0.0)
        given = tl.load(d_h + place, mask=inside, other=0.0)
        kept, added = tl.associative_scan((1.0 - later, given), 0, compose, reverse=True)
        gradient = kept * carry[None, :] + added
        gate = tl.load(z + place, mask=inside, other=0.0)
        candidate = tl.load(n + place, mask=inside, other=0.0)
        past = tl.load(h + place - width, mask=inside & (t > 0)[:, None], other=0.0)
        past = tl.where((t == 0)[:, None], before[None, :], past)
        tl.store(d_z + place, gradient * (candidate - past), mask=inside)
        tl.store(d_n + place, gradient * gate, mask=inside)
        carry = tl.sum(tl.where((step == 0)[:, None], gradient, 0.0), 0)
    opening = tl.load(z + row * steps * width + column, mask=wide, other=0.0)
    tl.store(d_first + row * width + column, (1.0 - opening) * carry, mask=wide)
