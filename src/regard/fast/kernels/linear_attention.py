"""Linear attention over a whole text in Triton: the weights of its regression, tile by tile, never in memory.

    w_tj = φ(q_t)·φ(k_j) for j ≤ t,    z_t = Σ_j w_tj,    y_t = Σ_j w_tj v_j / z_t,    φ(u) = elu(u) + 1
    dw_tj = dy_t·v_j / z_t + dz_t,    dz_t = −dy_t·y_t / z_t;    dv = wᵀ (dy / z),   dφ(q) = dw φ(k),   dφ(k) = dwᵀ φ(q)

For the few hundred words of a training window that is less work than the recurrent form, which goes chunk by chunk and
must write its matrix. Products are in tf32, sums in fp32. A program owns one tile of one head. Queries, keys and values
are read packed, and their gradients written so. Imported only where Triton is.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

WARPS = 4


@triton.jit
def _tile(base, step, steps, stride, DEPTH: tl.constexpr):
    """[tile, DEPTH] of some steps in fp32."""
    place = base + step[:, None] * stride + tl.arange(0, DEPTH)[None, :]
    return tl.load(place, mask=(step < steps)[:, None], other=0.0).to(tl.float32)


@triton.jit
def _feature(u, step, steps):
    """φ of the steps that exist; 0 of the others."""
    return tl.where((step < steps)[:, None], tl.where(u > 0.0, u + 1.0, tl.exp(tl.minimum(u, 0.0))), 0.0)


@triton.jit
def _slope(u):
    return tl.where(u > 0.0, 1.0, tl.exp(tl.minimum(u, 0.0)))


@triton.jit(do_not_specialize=["steps"])
def _forward(packed, out, norms, steps, heads, least, DEPTH: tl.constexpr, TILE: tl.constexpr):
    row, head = (tl.program_id(0) // heads).to(tl.int64), tl.program_id(0) % heads
    wide = heads * DEPTH
    base = packed + row * steps * 3 * wide + head * DEPTH
    t = tl.program_id(1) * TILE + tl.arange(0, TILE)
    query = _feature(_tile(base, t, steps, 3 * wide, DEPTH), t, steps)
    total, norm = tl.zeros([TILE, DEPTH], tl.float32), tl.zeros([TILE], tl.float32)
    for start in range(0, (tl.program_id(1) + 1) * TILE, TILE):
        j = start + tl.arange(0, TILE)
        key = _feature(_tile(base + wide, j, steps, 3 * wide, DEPTH), j, steps)
        value = _tile(base + 2 * wide, j, steps, 3 * wide, DEPTH)
        weight = tl.where(j[None, :] <= t[:, None], tl.dot(query, tl.trans(key)), 0.0)
        norm += tl.sum(weight, 1)
        total += tl.dot(weight, value)
    place = out + (row * steps + t[:, None]) * wide + head * DEPTH + tl.arange(0, DEPTH)[None, :]
    read = total / tl.maximum(norm, least)[:, None]
    tl.store(place, read.to(out.dtype.element_ty), mask=(t < steps)[:, None])
    tl.store(norms + tl.program_id(0) * steps + t, norm, mask=t < steps)


@triton.jit
def _above(out, d_out, norms, at, t, steps, wide, least, DEPTH: tl.constexpr):
    """dy / z [tile, DEPTH] and dz [tile]."""
    z = tl.load(norms + t, mask=t < steps, other=1.0)
    divisor = tl.maximum(z, least)
    found = _tile(d_out + at, t, steps, wide, DEPTH) / divisor[:, None]
    read = _tile(out + at, t, steps, wide, DEPTH)
    return found, tl.where(z > least, -tl.sum(found * read, 1), 0.0)


@triton.jit(do_not_specialize=["steps"])
def _backward_queries(
    packed, out, d_out, norms, found, steps, heads, least, DEPTH: tl.constexpr, TILE: tl.constexpr
):  # fmt: skip
    row, head = (tl.program_id(0) // heads).to(tl.int64), tl.program_id(0) % heads
    wide = heads * DEPTH
    begins, at = row * steps * 3 * wide + head * DEPTH, row * steps * wide + head * DEPTH
    base = packed + begins
    t = tl.program_id(1) * TILE + tl.arange(0, TILE)
    above, d_norm = _above(out, d_out, norms + tl.program_id(0) * steps, at, t, steps, wide, least, DEPTH)
    total = tl.zeros([TILE, DEPTH], tl.float32)
    for start in range(0, (tl.program_id(1) + 1) * TILE, TILE):
        j = start + tl.arange(0, TILE)
        key = _feature(_tile(base + wide, j, steps, 3 * wide, DEPTH), j, steps)
        value = _tile(base + 2 * wide, j, steps, 3 * wide, DEPTH)
        d_weight = tl.dot(above, tl.trans(value)) + d_norm[:, None]
        total += tl.dot(tl.where(j[None, :] <= t[:, None], d_weight, 0.0), key)
    total *= _slope(_tile(base, t, steps, 3 * wide, DEPTH))
    place = found + begins + t[:, None] * 3 * wide + tl.arange(0, DEPTH)[None, :]
    tl.store(place, total.to(found.dtype.element_ty), mask=(t < steps)[:, None])


@triton.jit(do_not_specialize=["steps"])
def _backward_keys(
    packed, out, d_out, norms, found, steps, heads, least, DEPTH: tl.constexpr, TILE: tl.constexpr
):  # fmt: skip
    row, head = (tl.program_id(0) // heads).to(tl.int64), tl.program_id(0) % heads
    wide = heads * DEPTH
    begins, at = row * steps * 3 * wide + head * DEPTH, row * steps * wide + head * DEPTH
    base = packed + begins
    j = tl.program_id(1) * TILE + tl.arange(0, TILE)
    key = _feature(_tile(base + wide, j, steps, 3 * wide, DEPTH), j, steps)
    value = _tile(base + 2 * wide, j, steps, 3 * wide, DEPTH)
    for_key, for_value = tl.zeros([TILE, DEPTH], tl.float32), tl.zeros([TILE, DEPTH], tl.float32)
    for start in range(tl.program_id(1) * TILE, steps, TILE):
        t = start + tl.arange(0, TILE)
        query = _feature(_tile(base, t, steps, 3 * wide, DEPTH), t, steps)
        above, d_norm = _above(out, d_out, norms + tl.program_id(0) * steps, at, t, steps, wide, least, DEPTH)
        seen = j[None, :] <= t[:, None]
        weight = tl.where(seen, tl.dot(query, tl.trans(key)), 0.0)
        for_value += tl.dot(tl.trans(weight), above)
        d_weight = tl.where(seen, tl.dot(above, tl.trans(value)) + d_norm[:, None], 0.0)
        for_key += tl.dot(tl.trans(d_weight), query)
    for_key *= _slope(_tile(base + wide, j, steps, 3 * wide, DEPTH))
    place = found + begins + wide + j[:, None] * 3 * wide + tl.arange(0, DEPTH)[None, :]
    tl.store(place, for_key.to(found.dtype.element_ty), mask=(j < steps)[:, None])
    tl.store(place + wide, for_value.to(found.dtype.element_ty), mask=(j < steps)[:, None])


def _how(packed: Tensor, heads: int) -> tuple[tuple[int, int], dict[str, int]]:
    rows, steps, width = packed.shape
    depth = width // (3 * heads)
    tile = 64 if depth <= 64 else 32
    return (rows * heads, triton.cdiv(steps, tile)), {"DEPTH": depth, "TILE": tile, "num_warps": WARPS}


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
