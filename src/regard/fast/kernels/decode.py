"""The kernels of one decoding step of a pre-norm Transformer, in Triton: R rows, one new token each.

    embed      x = E[w] + p_t
    product    y = f(W LN(x) + b) + z            LN, f, b and z where they apply
    add_norm   x = x + Σ parts + b, LN(x)        after a split-K product
    attend     h = softmax(q Kᵀ / √d) V          and stores the new key and value in the cache

At this size launch latency dominates, so there are few kernels (five or seven per block), and each starts while the one
before is still running (programmatic dependent launch). What the step's earlier kernels do not write (weights, `seen`,
older cache slots) is loaded before `gdc_wait`, all else after it. Sums are in fp32; results are stored in the precision
of the weights, as without these kernels, except the partial sums of split-K, which stay in fp32.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


@triton.jit
def normalized(v, inside, gain, shift, epsilon, WIDTH: tl.constexpr, SHIFT: tl.constexpr):
    """LN(v) of one vector, padded with zeros."""
    v = tl.where(inside, v - tl.sum(v, 0) / WIDTH, 0.0)
    v = v * tl.rsqrt(tl.sum(v * v, 0) / WIDTH + epsilon) * gain
    if SHIFT:
        v += shift
    return v


@triton.jit
def embed(
    tokens, seen, words, places, gain, shift, x, normed,
    scale, last_place, epsilon,
    WIDTH: tl.constexpr, BLOCK: tl.constexpr, PLACES: tl.constexpr,
    NORM: tl.constexpr, SHIFT: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """x [R, D] = scale · words[token] + places[seen], and LN(x) if NORM; one program per row."""
    if EARLY:
        gdc_launch_dependents()
    row = tl.program_id(0)
    k = tl.arange(0, BLOCK)
    inside = k < WIDTH
    token = tl.load(tokens + row)
    v = tl.load(words + token * WIDTH + k, mask=inside, other=0.0)
    if scale != 1.0:
        v = (v.to(tl.float32) * scale).to(v.dtype)
    if PLACES:
        place = tl.minimum(tl.load(seen + row), last_place)
        there = tl.load(places + place * WIDTH + k, mask=inside, other=0.0)
        v = (v.to(tl.float32) + there.to(tl.float32)).to(v.dtype)
    tl.store(x + row * WIDTH + k, v, mask=inside)
    if NORM:
        g = tl.load(gain + k, mask=inside, other=0.0).to(tl.float32)
        b = tl.load(shift + k, mask=inside, other=0.0).to(tl.float32) if SHIFT else g
        v = normalized(v.to(tl.float32), inside, g, b, epsilon, WIDTH, SHIFT)
        tl.store(normed + row * WIDTH + k, v.to(normed.dtype.element_ty), mask=inside)


@triton.jit
def activated(y, ACTIVATION: tl.constexpr):
    if ACTIVATION == "gelu":  # tanh form; tanh(u) = 1 − 2 / (1 + exp(2u))
        inner = 1.5957691216057308 * (y + 0.044715 * y * y * y)
        y = y - y / (1.0 + tl.exp(inner))
    if ACTIVATION == "relu":
        y = tl.maximum(y, 0.0)
    return y


@triton.jit
def sum_of_rows(tile):
    """[…, spans, SPAN] summed over both: first within a lane, then within its warp."""
    return tl.sum(tl.sum(tile, 2, keep_dims=True), 3, keep_dims=True)


@triton.jit
def product_of_few_rows(
    x, gain, shift, weight, bias, residual, y, seen,
    columns, epsilon,
    INNER: tl.constexpr, BLOCK_INNER: tl.constexpr, WARPS: tl.constexpr, EACH: tl.constexpr, ROWS: tl.constexpr,
    NORM: tl.constexpr, SHIFT: tl.constexpr, BIAS: tl.constexpr, ACTIVATION: tl.constexpr, RESIDUAL: tl.constexpr,
    ADVANCE: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """y [R, N] for R = ROWS rows: each warp holds EACH rows of W [N, K], so warps need no synchronization.

    Tiles are [WARPS, EACH, spans, SPAN]: a warp's lanes read SPAN components of one row at a time, 16 bytes each.
    """
    if EARLY:
        gdc_launch_dependents()
    SPAN: tl.constexpr = 32 * (128 // weight.dtype.element_ty.primitive_bitwidth)
    warp = tl.arange(0, WARPS)[:, None, None, None]
    n = (tl.program_id(0) * WARPS + warp) * EACH + tl.arange(0, EACH)[None, :, None, None]
    span = tl.arange(0, BLOCK_INNER // SPAN)[None, None, :, None]
    k = span * SPAN + tl.arange(0, SPAN)[None, None, None, :] + warp * 0  # [WARPS, 1, spans, SPAN]
    wanted, inside = n < columns, k < INNER
    w = tl.load(weight + n.to(tl.int64) * INNER + k, mask=wanted & inside, other=0.0)
    if NORM:
        scale = tl.load(gain + k, mask=inside, other=0.0)
        if SHIFT:
            move = tl.load(shift + k, mask=inside, other=0.0)
    if BIAS:
        b = tl.load(bias + n, mask=wanted, other=0.0).to(tl.float32)
    if EARLY:
        gdc_wait()
    for row in tl.static_range(ROWS):
        v = tl.load(x + row * INNER + k, mask=inside, other=0.0).to(tl.float32)
        if RESIDUAL:
            z = tl.load(residual + row * columns + n, mask=wanted, other=0.0).to(tl.float32)
        if NORM:
            v = tl.where(inside, v - sum_of_rows(v) / INNER, 0.0)
            v = v * tl.rsqrt(sum_of_rows(v * v) / INNER + epsilon) * scale.to(tl.float32)
            if SHIFT:
                v += move.to(tl.float32)
            v = v.to(w.dtype).to(tl.float32)  # rounded as LN's output is
        found = sum_of_rows(w.to(tl.float32) * v)
        if BIAS:
            found += b
        found = activated(found, ACTIVATION)
        if RESIDUAL:
            found = found.to(w.dtype).to(tl.float32) + z
        tl.store(y + row * columns + n, found.to(y.dtype.element_ty), mask=wanted)
        if ADVANCE:  # noqa: SIM102  # ADVANCE is a compile-time constant
            if tl.program_id(0) == 0:
                tl.store(seen + row, tl.load(seen + row) + 1)


@triton.jit
def product_of_many_rows(
    x, weight, bias, y, seen,
    rows, columns,
    INNER: tl.constexpr, BLOCK_INNER: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr,
    BIAS: tl.constexpr, ACTIVATION: tl.constexpr, ADVANCE: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """y [R, N] in tiles of ROWS × BLOCK by tensor cores, BLOCK_INNER components of x at a time."""
    if EARLY:
        gdc_launch_dependents()
    n = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    r = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    k = tl.arange(0, BLOCK_INNER)
    wanted, real = n < columns, r < rows
    from_x = x + r[:, None] * INNER + k[None, :]
    from_weight = weight + n[None, :].to(tl.int64) * INNER + k[:, None]
    if EARLY:
        gdc_wait()
    found = tl.zeros([ROWS, BLOCK], tl.float32)
    for start in range(0, INNER, BLOCK_INNER):
        inside = start + k < INNER
        v = tl.load(from_x + start, mask=real[:, None] & inside[None, :], other=0.0)
        w = tl.load(from_weight + start, mask=wanted[None, :] & inside[:, None], other=0.0)
        found = tl.dot(v, w, found, input_precision="ieee")
    if BIAS:
        found += tl.load(bias + n, mask=wanted, other=0.0).to(tl.float32)[None, :]
    found = activated(found, ACTIVATION)
    place = r[:, None].to(tl.int64) * columns + n[None, :]
    tl.store(y + place, found.to(y.dtype.element_ty), mask=real[:, None] & wanted[None, :])
    if ADVANCE:  # noqa: SIM102
        if tl.program_id(0) == 0:
            tl.store(seen + r, tl.load(seen + r, mask=real) + 1, mask=real)


@triton.jit
def split_k_product(
    x, weight, y,
    rows, columns,
    INNER: tl.constexpr, BLOCK_INNER: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """Partial sums y [splits, R, N] in fp32: program (n, p) multiplies the p-th BLOCK_INNER of x and of W."""
    if EARLY:
        gdc_launch_dependents()
    n = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    k = tl.program_id(1) * BLOCK_INNER + tl.arange(0, BLOCK_INNER)
    r = tl.program_id(2) * ROWS + tl.arange(0, ROWS)
    wanted, inside, real = n < columns, k < INNER, r < rows
    w = tl.load(weight + n[:, None] * INNER + k[None, :], mask=wanted[:, None] & inside[None, :], other=0.0)
    if EARLY:
        gdc_wait()
    v = tl.load(x + r[:, None] * INNER + k[None, :], mask=real[:, None] & inside[None, :], other=0.0)
    found = tl.dot(v, tl.trans(w), input_precision="ieee")
    place = (tl.program_id(1) * rows + r)[:, None] * columns + n[None, :]
    tl.store(y + place, found, mask=real[:, None] & wanted[None, :])


@triton.jit
def add_norm(
    x, parts, bias, gain, shift, y, normed,
    rows, epsilon,
    SPLITS: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr,
    SHIFT: tl.constexpr, BIAS: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """y = x + Σ parts + b and LN(y); one program per row of parts [SPLITS, R, D]."""
    if EARLY:
        gdc_launch_dependents()
    row = tl.program_id(0)
    k = tl.arange(0, BLOCK)
    inside = k < WIDTH
    g = tl.load(gain + k, mask=inside, other=0.0).to(tl.float32)
    move = tl.load(shift + k, mask=inside, other=0.0).to(tl.float32) if SHIFT else g
    found = tl.load(bias + k, mask=inside, other=0.0).to(tl.float32) if BIAS else tl.zeros([BLOCK], tl.float32)
    if EARLY:
        gdc_wait()
    z = tl.load(x + row * WIDTH + k, mask=inside, other=0.0)
    for split in tl.static_range(SPLITS):
        found += tl.load(parts + (split * rows + row) * WIDTH + k, mask=inside, other=0.0)
    v = (z.to(tl.float32) + found.to(z.dtype).to(tl.float32)).to(z.dtype)
    tl.store(y + row * WIDTH + k, v, mask=inside)
    v = normalized(v.to(tl.float32), inside, g, move, epsilon, WIDTH, SHIFT)
    tl.store(normed + row * WIDTH + k, v.to(normed.dtype.element_ty), mask=inside)


@triton.jit
def sum_splits(parts, bias, place, stride, mask, SPLITS: tl.constexpr, BIAS: tl.constexpr, like):
    """The result of a split-K product, in the precision of `like`."""
    found = tl.load(parts + place, mask=mask, other=0.0).to(tl.float32)
    for split in tl.static_range(1, SPLITS):
        found += tl.load(parts + place + split * stride, mask=mask, other=0.0)
    if BIAS:
        found += tl.load(bias + place, mask=mask, other=0.0).to(tl.float32)
    return found.to(like.dtype.element_ty)


@triton.jit
def turned(vector, other, position, d, HALF: tl.constexpr):
    """Components k and k + d/2 turned by ω_k t, ω_k = 10000^(−2k/d); `other` holds each component's partner."""
    angle = position.to(tl.float32) * tl.exp2((d % HALF).to(tl.float32) * (-13.287712379549449 / HALF))
    return vector * tl.cos(angle) + tl.where(d < HALF, -other, other) * tl.sin(angle)


@triton.jit
def attend(
    qkv, bias, keys, values, seen, context,
    rows, slots, scale,
    HEADS: tl.constexpr, WIDTH: tl.constexpr, BLOCK_WIDTH: tl.constexpr, PARTS: tl.constexpr, EACH: tl.constexpr,
    SPLITS: tl.constexpr, BIAS: tl.constexpr, ROTARY: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """qkv [SPLITS, R, 3·H·d], keys and values [R, H, S, d], context [R, H·d]; one program per row and head.

    Slot s belongs to part s mod PARTS. A part is the group of lanes that reads one key; each part has its own online
    softmax (maximum, total, sum of values), and they are combined at the end.
    """
    if EARLY:
        gdc_launch_dependents()
    row, head = tl.program_id(0) // HEADS, tl.program_id(0) % HEADS
    part = tl.arange(0, PARTS)[:, None, None]
    d = tl.arange(0, BLOCK_WIDTH)[None, None, :] + part * 0
    inside = d < WIDTH
    position = tl.load(seen + row)
    before = tl.minimum(position, slots - 1).to(tl.int32)  # filled slots; the new token takes the next
    cache = tl.program_id(0).to(tl.int64) * slots * WIDTH
    s = tl.arange(0, EACH)[None, :, None] * PARTS + part
    tile = cache + s * WIDTH + d
    k = tl.load(keys + tile, mask=(s < before) & inside, other=0.0)
    v = tl.load(values + tile, mask=(s < before) & inside, other=0.0)
    at = head * WIDTH + d
    if EARLY:
        gdc_wait()
    stride = rows * 3 * HEADS * WIDTH
    mine = qkv + row * 3 * HEADS * WIDTH
    query = sum_splits(mine, bias, at, stride, inside, SPLITS, BIAS, context)
    key = sum_splits(mine, bias, at + HEADS * WIDTH, stride, inside, SPLITS, BIAS, context)
    value = sum_splits(mine, bias, at + 2 * HEADS * WIDTH, stride, inside, SPLITS, BIAS, context)
    if ROTARY:
        partner = head * WIDTH + tl.where(d < WIDTH // 2, d + WIDTH // 2, d - WIDTH // 2)
        other = sum_splits(mine, bias, partner, stride, inside, SPLITS, BIAS, context).to(tl.float32)
        query = turned(query.to(tl.float32), other, position, d, WIDTH // 2).to(query.dtype)
        other = sum_splits(mine, bias, partner + HEADS * WIDTH, stride, inside, SPLITS, BIAS, context)
        key = turned(key.to(tl.float32), other.to(tl.float32), position, d, WIDTH // 2).to(key.dtype)
    new = cache + before * WIDTH + d
    tl.store(keys + new, key.to(keys.dtype.element_ty), mask=inside & (part == 0))
    tl.store(values + new, value.to(values.dtype.element_ty), mask=inside & (part == 0))
    q = query.to(tl.float32) * (scale * 1.4426950408889634)  # log2(e), for exp2
    highest = tl.sum(q * key.to(tl.float32), 2, keep_dims=True)  # [PARTS, 1, 1]
    total = tl.where(part == 0, 1.0, 0.0)  # the new token belongs to the first part
    found = tl.where(part == 0, value.to(tl.float32), 0.0)  # [PARTS, 1, d]
    for start in range(0, before, PARTS * EACH):
        scores = tl.sum(k.to(tl.float32) * q, 2, keep_dims=True)
        scores = tl.where(start + s < before, scores, float("-inf"))  # [PARTS, EACH, 1]
        higher = tl.maximum(highest, tl.max(scores, 1, keep_dims=True))
        weights = tl.exp2(scores - higher)
        shrunk = tl.exp2(highest - higher)
        total = total * shrunk + tl.sum(weights, 1, keep_dims=True)
        found = found * shrunk + tl.sum(weights * v.to(tl.float32), 1, keep_dims=True)
        highest = higher
        tile += PARTS * EACH * WIDTH
        later = (start + PARTS * EACH + s < before) & inside
        k = tl.load(keys + tile, mask=later, other=0.0)
        v = tl.load(values + tile, mask=later, other=0.0)
    shrunk = tl.exp2(highest - tl.max(highest, 0, keep_dims=True))
    found = tl.sum(found * shrunk, 0, keep_dims=True) / tl.sum(total * shrunk, 0, keep_dims=True)
    d = tl.arange(0, BLOCK_WIDTH)[None, None, :]
    tl.store(context + (row * HEADS + head) * WIDTH + d, found.to(context.dtype.element_ty), mask=d < WIDTH)
