"""Linear attention over a whole text in Triton, chunk by chunk, with its matrix in registers.

    w_tj = φ(q_t)·φ(k_j) for j ≤ t,    z_t = Σ_j w_tj,    y_t = Σ_j w_tj v_j / z_t,    φ(u) = elu(u) + 1
    dw_tj = (dy_t·v_j − dy_t·y_t) / z_t;    dv = wᵀ (dy / z),   dφ(q) = dw φ(k),   dφ(k) = dwᵀ φ(q)

Within a chunk these are products of tiles; what other chunks add is the product of a row with a sum over them, which is
carried: of φ(k_j) ⊗ v_j and φ(k_j) forward, of φ(q_t) ⊗ dy_t / z_t and −φ(q_t) dy_t·y_t / z_t backward. So the work
grows with the text's length, not with its square. Factors of products have the precision of the text's vectors (of
fp32, tf32), sums are in fp32. A program owns one head of one text. Queries, keys and values are read packed, and their
gradients written so. Imported only where Triton is.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

STAGES = 2  # chunks that are loaded at a time


@triton.jit
def _tile(base, step, steps, stride, DEPTH: tl.constexpr):
    """[tile, DEPTH] of some steps."""
    place = base + step[:, None] * stride + tl.arange(0, DEPTH)[None, :]
    return tl.load(place, mask=(step < steps)[:, None], other=0.0)


@triton.jit
def _feature(given, step, steps):
    """φ of the steps that exist; 0 of the others."""
    u = given.to(tl.float32)
    found = tl.where((step < steps)[:, None], tl.where(u > 0.0, u + 1.0, tl.exp(tl.minimum(u, 0.0))), 0.0)
    return found.to(given.dtype)


@triton.jit
def _slope(given):
    u = given.to(tl.float32)
    return tl.where(u > 0.0, 1.0, tl.exp(tl.minimum(u, 0.0)))


@triton.jit(do_not_specialize=["steps"])
def _forward(packed, out, norms, steps, heads, least, DEPTH: tl.constexpr, TILE: tl.constexpr):
    row, head = (tl.program_id(0) // heads).to(tl.int64), tl.program_id(0) % heads
    wide = heads * DEPTH
    base, at = packed + row * steps * 3 * wide + head * DEPTH, row * steps * wide + head * DEPTH
    matrix, keys = tl.zeros([DEPTH, DEPTH], tl.float32), tl.zeros([DEPTH], tl.float32)  # Σ φ(k) ⊗ v, Σ φ(k)
    for start in range(0, steps, TILE):
        t = start + tl.arange(0, TILE)
        query = _feature(_tile(base, t, steps, 3 * wide, DEPTH), t, steps)
        key = _feature(_tile(base + wide, t, steps, 3 * wide, DEPTH), t, steps)
        value = _tile(base + 2 * wide, t, steps, 3 * wide, DEPTH)
        weight = tl.where(t[None, :] <= t[:, None], tl.dot(query, tl.trans(key)), 0.0)
        norm = tl.sum(weight, 1) + tl.sum(query.to(tl.float32) * keys[None, :], 1)
        total = tl.dot(weight.to(value.dtype), value) + tl.dot(query, matrix.to(value.dtype))
        matrix += tl.dot(tl.trans(key), value)
        keys += tl.sum(key.to(tl.float32), 0)
        read = total / tl.maximum(norm, least)[:, None]
        place = out + at + t[:, None] * wide + tl.arange(0, DEPTH)[None, :]
        tl.store(place, read.to(out.dtype.element_ty), mask=(t < steps)[:, None])
        tl.store(norms + tl.program_id(0) * steps + t, norm, mask=t < steps)


@triton.jit
def _above(out, d_out, norms, at, t, steps, wide, least, DEPTH: tl.constexpr):
    """dy / z [tile, DEPTH] and −dy·y / z [tile]."""
    z = tl.load(norms + t, mask=t < steps, other=1.0)
    given = _tile(d_out + at, t, steps, wide, DEPTH)
    found = given.to(tl.float32) / tl.maximum(z, least)[:, None]
    change = -tl.sum(found * _tile(out + at, t, steps, wide, DEPTH).to(tl.float32), 1)
    return found.to(given.dtype), tl.where(z > least, change, 0.0)


@triton.jit(do_not_specialize=["steps"])
def _backward_queries(
    packed, out, d_out, norms, found, steps, heads, least, DEPTH: tl.constexpr, TILE: tl.constexpr
):  # fmt: skip
    row, head = (tl.program_id(0) // heads).to(tl.int64), tl.program_id(0) % heads
    wide = heads * DEPTH
    begins, at = row * steps * 3 * wide + head * DEPTH, row * steps * wide + head * DEPTH
    base = packed + begins
    matrix, keys = tl.zeros([DEPTH, DEPTH], tl.float32), tl.zeros([DEPTH], tl.float32)  # Σ v ⊗ φ(k), Σ φ(k)
    for start in range(0, steps, TILE):
        t = start + tl.arange(0, TILE)
        key = _feature(_tile(base + wide, t, steps, 3 * wide, DEPTH), t, steps)
        value = _tile(base + 2 * wide, t, steps, 3 * wide, DEPTH)
        above, d_norm = _above(out, d_out, norms + tl.program_id(0) * steps, at, t, steps, wide, least, DEPTH)
        d_weight = tl.where(t[None, :] <= t[:, None], tl.dot(above, tl.trans(value)) + d_norm[:, None], 0.0)
        total = tl.dot(d_weight.to(key.dtype), key) + tl.dot(above, matrix.to(key.dtype))
        total += d_norm[:, None] * keys[None, :]
        matrix += tl.dot(tl.trans(value), key)
        keys += tl.sum(key.to(tl.float32), 0)
        total *= _slope(_tile(base, t, steps, 3 * wide, DEPTH))
        place = found + begins + t[:, None] * 3 * wide + tl.arange(0, DEPTH)[None, :]
        tl.store(place, total.to(found.dtype.element_ty), mask=(t < steps)[:, None])


@triton.jit(do_not_specialize=["steps"])
def _backward_keys(
    packed, out, d_out, norms, found, steps, heads, least, DEPTH: tl.constexpr, TILE: tl.constexpr
):  # fmt: skip
    """The chunks from the last to the first."""
    row, head = (tl.program_id(0) // heads).to(tl.int64), tl.program_id(0) % heads
    wide = heads * DEPTH
    begins, at = row * steps * 3 * wide + head * DEPTH, row * steps * wide + head * DEPTH
    base = packed + begins
    matrix, queries = tl.zeros([DEPTH, DEPTH], tl.float32), tl.zeros([DEPTH], tl.float32)  # Σ φ(q) ⊗ dy / z, …
    chunks = tl.cdiv(steps, TILE)
    for turn in range(chunks):
        t = (chunks - 1 - turn) * TILE + tl.arange(0, TILE)
        given = _tile(base + wide, t, steps, 3 * wide, DEPTH)
        query = _feature(_tile(base, t, steps, 3 * wide, DEPTH), t, steps)
        key, value = _feature(given, t, steps), _tile(base + 2 * wide, t, steps, 3 * wide, DEPTH)
        above, d_norm = _above(out, d_out, norms + tl.program_id(0) * steps, at, t, steps, wide, least, DEPTH)
        later = t[None, :] >= t[:, None]  # [j, t]
        weight = tl.where(later, tl.dot(key, tl.trans(query)), 0.0)
        for_value = tl.dot(weight.to(above.dtype), above) + tl.dot(key, matrix.to(key.dtype))
        d_weight = tl.where(later, tl.dot(value, tl.trans(above)) + d_norm[None, :], 0.0)
        for_key = tl.dot(d_weight.to(query.dtype), query) + tl.dot(value, tl.trans(matrix.to(value.dtype)))
        for_key = (for_key + queries[None, :]) * _slope(given)
        matrix += tl.dot(tl.trans(query), above)
        queries += tl.sum(query.to(tl.float32) * d_norm[:, None], 0)
        place = found + begins + wide + t[:, None] * 3 * wide + tl.arange(0, DEPTH)[None, :]
        tl.store(place, for_key.to(found.dtype.element_ty), mask=(t < steps)[:, None])
        tl.store(place + wide, for_value.to(found.dtype.element_ty), mask=(t < steps)[:, None])


def _how(packed: Tensor, heads: int) -> tuple[tuple[int], dict[str, int]]:
    depth = packed.size(2) // (3 * heads)
    tile, warps = (64, 4) if depth <= 64 else (32, 8)
    return (packed.size(0) * heads,), {"DEPTH": depth, "TILE": tile, "num_warps": warps, "num_stages": STAGES}


def linear_attention(packed: Tensor, heads: int, least: float) -> tuple[Tensor, Tensor]:
    """y [R, T, H d] and z [R H, T] of packed queries, keys and values [R, T, 3 H d]; a divisor is at least `least`."""
    rows, steps, width = packed.shape
    out, norms = packed.new_empty(rows, steps, width // 3), packed.new_empty(rows * heads, steps, dtype=torch.float32)
    grid, how = _how(packed, heads)
    _forward[grid](packed, out, norms, steps, heads, least, **how)
    return out, norms


def linear_attention_backward(
    packed: Tensor, out: Tensor, d_out: Tensor, norms: Tensor, heads: int, least: float
) -> Tensor:
    """The gradients of queries, keys and values, packed; everything is contiguous."""
    found = torch.empty_like(packed)
    grid, how = _how(packed, heads)
    for kernel in (_backward_queries, _backward_keys):
        kernel[grid](packed, out, d_out, norms, found, packed.size(1), heads, least, **how)
    return found
