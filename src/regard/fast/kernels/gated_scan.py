"""The minimal GRU's recurrence and its gradient in Triton: one kernel each, over all steps.

    h_t = (1 − z_t) h_{t-1} + z_t n_t,    z_t = σ(u_t)
    g_t = dh_t + (1 − z_{t+1}) g_{t+1},    dh_0 = (1 − z_1) g_1
    du_t = g_t (n_t − h_{t-1}) z_t (1 − z_t),    dn_t = g_t z_t

u and n are read side by side, as one product made them, and their gradients written so. A program owns a few components
of one row. It goes through the text in chunks; within a chunk all steps are one associative scan in registers, from
chunk to chunk it carries h (or, from the end, g), in the precision of h_0. Behind a row's end z is 0, so h stays as it
is. Imported only where Triton is.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def compose(a_1, b_1, a_2, b_2):
    """Two steps h → a h + b in a row."""
    return a_1 * a_2, a_2 * b_1 + b_2


@triton.jit
def _gate(place, inside, kind: tl.constexpr):
    """σ(u); 0 where there is no step."""
    u = tl.load(place, mask=inside, other=0.0).to(kind)
    return tl.where(inside, 1.0 / (1.0 + tl.exp(-u)), 0.0)


@triton.jit(do_not_specialize=["steps"])
def scan_forward(
    packed, first, lengths, hidden, end, steps, width,
    RAGGED: tl.constexpr, CHUNK: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """packed [rows, steps, 2 width], first and end [rows, width], hidden [rows, steps, width], all contiguous."""
    kind: tl.constexpr = first.dtype.element_ty
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    step, wide = tl.arange(0, CHUNK), column < width
    real = tl.load(lengths + row).to(tl.int32) if RAGGED else steps
    carry = tl.load(first + row * width + column, mask=wide, other=0.0)
    for start in range(0, steps, CHUNK):
        t = start + step
        inside = (t < real)[:, None] & wide[None, :]
        place = packed + (row * steps + t)[:, None] * 2 * width + column[None, :]
        gate = _gate(place, inside, kind)
        candidate = tl.load(place + width, mask=inside, other=0.0).to(kind)
        kept, added = tl.associative_scan((1.0 - gate, gate * candidate), 0, compose)
        found = kept * carry[None, :] + added
        place = hidden + (row * steps + t)[:, None] * width + column[None, :]
        tl.store(place, found.to(hidden.dtype.element_ty), mask=(t < steps)[:, None] & wide[None, :])
        carry = tl.sum(tl.where((step == CHUNK - 1)[:, None], found, 0.0), 0)
    tl.store(end + row * width + column, carry, mask=wide)


@triton.jit(do_not_specialize=["steps"])
def scan_backward(
    packed, first, lengths, hidden, d_hidden, d_end, d_packed, d_first, steps, width,
    RAGGED: tl.constexpr, CHUNK: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The chunks from the last to the first."""
    kind: tl.constexpr = first.dtype.element_ty
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    step, wide = tl.arange(0, CHUNK), column < width
    real = tl.load(lengths + row).to(tl.int32) if RAGGED else steps
    before = tl.load(first + row * width + column, mask=wide, other=0.0)
    carry = tl.load(d_end + row * width + column, mask=wide, other=0.0)  # g of the step after the chunk
    chunks = tl.cdiv(steps, CHUNK)
    for turn in range(chunks):
        t = (chunks - 1 - turn) * CHUNK + step
        written, inside = (t < steps)[:, None] & wide[None, :], (t < real)[:, None] & wide[None, :]
        at = (row * steps + t)[:, None] * 2 * width + column[None, :]
        later = _gate(packed + at + 2 * width, ((t + 1) < real)[:, None] & wide[None, :], kind)
        place = (row * steps + t)[:, None] * width + column[None, :]
        given = tl.load(d_hidden + place, mask=written, other=0.0).to(kind)
        kept, added = tl.associative_scan((1.0 - later, given), 0, compose, reverse=True)
        gradient = kept * carry[None, :] + added
        gate = _gate(packed + at, inside, kind)
        candidate = tl.load(packed + at + width, mask=inside, other=0.0).to(kind)
        past = tl.load(hidden + place - width, mask=inside & (t > 0)[:, None], other=0.0).to(kind)
        past = tl.where((t == 0)[:, None], before[None, :], past)
        d_gate = gradient * (candidate - past) * gate * (1.0 - gate)
        tl.store(d_packed + at, d_gate.to(d_packed.dtype.element_ty), mask=written)
        tl.store(d_packed + at + width, (gradient * gate).to(d_packed.dtype.element_ty), mask=written)
        carry = tl.sum(tl.where((step == 0)[:, None], gradient, 0.0), 0)
    begins = packed + row * steps * 2 * width + column
    opening = _gate(begins, wide & (real > 0), kind)
    tl.store(d_first + row * width + column, (1.0 - opening) * carry, mask=wide)
