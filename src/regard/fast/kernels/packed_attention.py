"""Short attention in Triton: one program holds all queries, keys and values of one row and head on the chip.

    P = softmax(Q Kᵀ / √d + mask),    O = P V
    dV = Pᵀ dO,    dS = P ∘ (dO Vᵀ − rowsum(P ∘ dO Vᵀ)) / √d,    dQ = dS K,    dK = dSᵀ Q

The backward pass needs only Q, K and V, and no two programs write to the same address. With dropout P becomes
P ∘ m / (1 − p) in the last product of each line; the backward pass makes the mask m again from the same seed.
Imported only on a GPU. See fast/attention/short_attention.py.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _tile(base, row, head, row_stride, columns, BLOCK: tl.constexpr, DEPTH: tl.constexpr, width):
    """Pointers [BLOCK, DEPTH] to one row and head, and the mask of those that exist."""
    column, depth = tl.arange(0, BLOCK), tl.arange(0, DEPTH)
    places = base + row.to(tl.int64) * row_stride + column[:, None] * width + head * DEPTH + depth[None, :]
    return places, (column < columns)[:, None] & (depth < DEPTH)[None, :]


@triton.jit
def _weights(
    query, key, valid, row, head, heads, queries, keys, scale, seed, dropout,
    MASKED: tl.constexpr, CAUSAL: tl.constexpr, DROPS: tl.constexpr, EXACT: tl.constexpr,
    QUERIES: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    """P before and after dropout: [QUERIES, KEYS] in fp32."""
    t, s = tl.arange(0, QUERIES), tl.arange(0, KEYS)
    seen = (s < keys)[None, :] & (t >= 0)[:, None]
    if MASKED:
        seen = seen & (tl.load(valid + row * keys + s, mask=s < keys, other=0) != 0)[None, :]
    if CAUSAL:
        seen = seen & (s[None, :] <= t[:, None])
    scores = tl.dot(query, tl.trans(key), input_precision=EXACT) * scale
    scores = tl.where(seen, scores, float("-inf"))
    weights = tl.exp(scores - tl.max(scores, 1)[:, None])
    weights = weights / tl.sum(weights, 1)[:, None]
    kept = weights
    if DROPS:
        offset = ((row * heads + head) * queries + t[:, None]) * keys + s[None, :]
        kept = tl.where(tl.rand(tl.load(seed), offset) >= dropout, weights / (1 - dropout), 0.0)
    return weights, kept


@triton.jit(do_not_specialize=["queries", "keys", "heads"])
def short_attention_forward(
    q, k, v, out, valid, seed, queries, keys, heads, scale, dropout,
    q_row, q_width, k_row, k_width, out_row, out_width,
    MASKED: tl.constexpr, CAUSAL: tl.constexpr, DROPS: tl.constexpr, EXACT: tl.constexpr,
    QUERIES: tl.constexpr, KEYS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    row, head = tl.program_id(0), tl.program_id(1)
    places, real = _tile(q, row, head, q_row, queries, QUERIES, DEPTH, q_width)
    query = tl.load(places, mask=real, other=0.0)
    places, real = _tile(k, row, head, k_row, keys, KEYS, DEPTH, k_width)
    key = tl.load(places, mask=real, other=0.0)
    places, real = _tile(v, row, head, k_row, keys, KEYS, DEPTH, k_width)
    value = tl.load(places, mask=real, other=0.0)
    _, kept = _weights(
        query, key, valid, row, head, heads, queries, keys, scale, seed, dropout,
        MASKED, CAUSAL, DROPS, EXACT, QUERIES, KEYS,
    )  # fmt: skip
    context = tl.dot(kept.to(value.dtype), value, input_precision=EXACT)
    places, real = _tile(out, row, head, out_row, queries, QUERIES, DEPTH, out_width)
    tl.store(places, context.to(out.dtype.element_ty), mask=real)


@triton.jit(do_not_specialize=["queries", "keys", "heads"])
def short_attention_backward(
    q, k, v, d_out, d_q, d_k, d_v, sums, valid, seed, queries, keys, heads, scale, dropout,
    q_row, q_width, k_row, k_width, out_row, out_width, d_q_row, d_q_width, d_k_row, d_k_width, sums_row,
    SUMMED: tl.constexpr,
    MASKED: tl.constexpr, CAUSAL: tl.constexpr, DROPS: tl.constexpr, EXACT: tl.constexpr,
    QUERIES: tl.constexpr, KEYS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """`sums` [rows, SUMMED · heads · DEPTH] with row stride `sums_row`: sums over a row's words of dQ (SUMMED 1), or of
    dQ, dK and dV (3)."""
    row, head = tl.program_id(0), tl.program_id(1)
    places, real = _tile(q, row, head, q_row, queries, QUERIES, DEPTH, q_width)
    query = tl.load(places, mask=real, other=0.0)
    places, real = _tile(k, row, head, k_row, keys, KEYS, DEPTH, k_width)
    key = tl.load(places, mask=real, other=0.0)
    places, real = _tile(v, row, head, k_row, keys, KEYS, DEPTH, k_width)
    value = tl.load(places, mask=real, other=0.0)
    places, real = _tile(d_out, row, head, out_row, queries, QUERIES, DEPTH, out_width)
    d_context = tl.load(places, mask=real, other=0.0)
    weights, kept = _weights(
        query, key, valid, row, head, heads, queries, keys, scale, seed, dropout,
        MASKED, CAUSAL, DROPS, EXACT, QUERIES, KEYS,
    )  # fmt: skip
    d_value = tl.dot(tl.trans(kept.to(value.dtype)), d_context, input_precision=EXACT)
    places, real = _tile(d_v, row, head, d_k_row, keys, KEYS, DEPTH, d_k_width)
    tl.store(places, d_value.to(d_v.dtype.element_ty), mask=real)
    width = heads * DEPTH
    mine = sums + row.to(tl.int64) * sums_row + head * DEPTH + tl.arange(0, DEPTH)
    if SUMMED == 3:
        tl.store(mine + 2 * width, tl.sum(d_value, 0))
    # rowsum(dO ∘ O) = rowsum(kept ∘ dO Vᵀ); kept = weights without dropout
    d_kept = tl.dot(d_context, tl.trans(value), input_precision=EXACT)
    drift = tl.sum(kept * d_kept, 1)[:, None]
    d_scores = ((kept * d_kept - weights * drift) * scale).to(query.dtype)
    places, real = _tile(d_q, row, head, d_q_row, queries, QUERIES, DEPTH, d_q_width)
    d_query = tl.dot(d_scores, key, input_precision=EXACT)
    tl.store(places, d_query.to(d_q.dtype.element_ty), mask=real)
    if SUMMED >= 1:
        tl.store(mine, tl.sum(d_query, 0))
    places, real = _tile(d_k, row, head, d_k_row, keys, KEYS, DEPTH, d_k_width)
    d_key = tl.dot(tl.trans(d_scores), query, input_precision=EXACT)
    tl.store(places, d_key.to(d_k.dtype.element_ty), mask=real)
    if SUMMED == 3:  # softmax is invariant to the key bias: its gradient is 0
        tl.store(mine + width, tl.zeros([DEPTH], tl.float32))
