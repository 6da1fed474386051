"""Between the products of a language model's block, in Triton: queries and keys turned, and the gate of a feed-forward.

rotate     (a, b) → (a cos ω t − b sin ω t, a sin ω t + b cos ω t) for the components k and k + d/2 of queries and keys;
           read from three tensors, written side by side. Its gradient turns back, and packs dq, dk and dv on the way
swiglu     y = u σ(u) v for [u ; v];    du = dy v σ(u) (1 + u (1 − σ(u))),    dv = dy u σ(u)

Imported only on a GPU. See fast/attention/language_blocks.py.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 1024  # components of a program


@triton.jit(do_not_specialize=["steps"])
def _rotate(
    q, k, v, packed, cos, sin, steps, sign,
    q_row, q_step, q_head, k_row, k_step, k_head, v_row, v_step, v_head,
    HEADS: tl.constexpr, GROUPS: tl.constexpr, HALF: tl.constexpr, BLOCK_HEADS: tl.constexpr, BLOCK_HALF: tl.constexpr,
):  # fmt: skip
    row, step = (tl.program_id(0) // steps).to(tl.int64), tl.program_id(0) % steps
    head, part = tl.arange(0, BLOCK_HEADS)[:, None], tl.arange(0, BLOCK_HALF)[None, :]
    real = part < HALF
    for_q, for_k = (head < HEADS) & real, (head >= HEADS) & (head < HEADS + GROUPS) & real
    for_v = (head >= HEADS + GROUPS) & (head < HEADS + 2 * GROUPS) & real
    at_q = q + row * q_row + step * q_step + head * q_head + part
    at_k = k + row * k_row + step * k_step + (head - HEADS) * k_head + part
    at_v = v + row * v_row + step * v_step + (head - HEADS - GROUPS) * v_head + part
    first = tl.load(at_q, mask=for_q, other=0.0).to(tl.float32) + tl.load(at_k, mask=for_k, other=0.0).to(tl.float32)
    first += tl.load(at_v, mask=for_v, other=0.0).to(tl.float32)
    second = tl.load(at_q + HALF, mask=for_q, other=0.0).to(tl.float32)
    second += tl.load(at_k + HALF, mask=for_k, other=0.0).to(tl.float32)
    second += tl.load(at_v + HALF, mask=for_v, other=0.0).to(tl.float32)
    c = tl.load(cos + step * HALF + part, mask=real, other=1.0)
    s = tl.load(sin + step * HALF + part, mask=real, other=0.0) * sign
    turned = head < HEADS + GROUPS
    c, s = tl.where(turned, c, 1.0), tl.where(turned, s, 0.0)
    heads = HEADS + 2 * GROUPS
    at = packed + (row * steps + step) * heads * 2 * HALF + head * 2 * HALF + part
    inside = (head < heads) & real
    kind = packed.dtype.element_ty
    tl.store(at, (first * c - second * s).to(kind), mask=inside)
    tl.store(at + HALF, (first * s + second * c).to(kind), mask=inside)


def rotate(q: Tensor, k: Tensor, v: Tensor, table: tuple[Tensor, Tensor], *, back: bool = False) -> Tensor:
    """q [R, H, T, d], k and v [R, G, T, d] side by side [R, T, (H + 2G) d], queries and keys turned by the angles whose
    cosines and sines [T, d/2] `table` has; `back`: by the opposite angles."""
    rows, heads, steps, depth = q.shape
    groups, half = k.size(1), depth // 2
    packed = torch.empty(rows, steps, (heads + 2 * groups) * depth, device=q.device, dtype=q.dtype)
    strides = (part.stride(axis) for part in (q, k, v) for axis in (0, 2, 1))
    _rotate[(rows * steps,)](
        q, k, v, packed, *table, steps, -1.0 if back else 1.0, *strides,
        HEADS=heads, GROUPS=groups, HALF=half, BLOCK_HEADS=triton.next_power_of_2(heads + 2 * groups),
        BLOCK_HALF=triton.next_power_of_2(half), num_warps=2,
    )  # fmt: skip
    return packed


@triton.jit(do_not_specialize=["size"])
def _swiglu(both, out, size, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    place = at // WIDTH * 2 * WIDTH + at % WIDTH
    u = tl.load(both + place, mask=at < size, other=0.0).to(tl.float32)
    v = tl.load(both + place + WIDTH, mask=at < size, other=0.0).to(tl.float32)
    tl.store(out + at, (u * tl.sigmoid(u) * v).to(out.dtype.element_ty), mask=at < size)


@triton.jit(do_not_specialize=["size"])
def _swiglu_backward(both, above, found, size, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    place = at // WIDTH * 2 * WIDTH + at % WIDTH
    u = tl.load(both + place, mask=at < size, other=0.0).to(tl.float32)
    v = tl.load(both + place + WIDTH, mask=at < size, other=0.0).to(tl.float32)
    dy = tl.load(above + at, mask=at < size, other=0.0).to(tl.float32)
    gate = tl.sigmoid(u)
    tl.store(found + place, (dy * v * gate * (1.0 + u * (1.0 - gate))).to(found.dtype.element_ty), mask=at < size)
    tl.store(found + place + WIDTH, (dy * u * gate).to(found.dtype.element_ty), mask=at < size)


def swiglu(both: Tensor) -> Tensor:
    """y [..., F] of [u ; v] [..., 2F], which is contiguous."""
    width = both.size(-1) // 2
    out = both.new_empty(*both.shape[:-1], width)
    _swiglu[(triton.cdiv(out.numel(), BLOCK),)](both, out, out.numel(), WIDTH=width, BLOCK=BLOCK)
    return out


def swiglu_backward(both: Tensor, above: Tensor) -> Tensor:
    """[du ; dv] [..., 2F] from dy [..., F]; both are contiguous."""
    found = torch.empty_like(both)
    size = above.numel()
    _swiglu_backward[(triton.cdiv(size, BLOCK),)](both, above, found, size, WIDTH=above.size(-1), BLOCK=BLOCK)
    return found
