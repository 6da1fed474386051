"""Attention in a beam-search step: one query per hypothesis, and a key-value cache that is never reordered.

    own words   h_r = softmax(q_r K_rᵀ / √d) V_r,   (K_r, V_r)[t] = cache[ancestor(r, t)][t]      of each hypothesis
    source      h_r = softmax(q_r K_nᵀ / √d) V_n,   n the source of r                             of all hypotheses

Hypotheses change slots, so a cache ordered by hypothesis would be copied at every step. Here a table of ancestors says
which slot of the same source wrote each earlier position, and a query finds its keys through it. All hypotheses of a
source share a recent common ancestor; the keys up to it are read once for all. A step's cost grows with the words
written so far, not with the cache's capacity. Kernels in Triton (Tillet et al. 2019); the references in PyTorch are
`own_words` and `source`.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


def own_words(query: Tensor, keys: Tensor, values: Tensor, ancestors: Tensor, seen: Tensor) -> Tensor:
    """Queries [N, W, H, d], caches [N, W, C, H, d] with the new word's in place, ancestors [N, W, C] → [N, W, H, d].

    Position seen[n] is the last; its key and value are the row's own, whatever the table says there.
    """
    sources, width, room = ancestors.shape
    positions = torch.arange(room, device=query.device)
    own = torch.arange(width, device=query.device)[:, None]
    slots = torch.where(positions == seen[:, None, None], own, ancestors.long())  # [N, W, C]
    rows = torch.arange(sources, device=query.device)[:, None, None]
    mine = [cache[rows, slots, positions].float() for cache in (keys, values)]  # [N, W, C, H, d]
    scores = torch.einsum("nwhd,nwchd->nwhc", query.float(), mine[0]) / query.size(-1) ** 0.5
    scores = scores.masked_fill(positions > seen[:, None, None, None], -torch.inf)
    return torch.einsum("nwhc,nwchd->nwhd", scores.softmax(-1), mine[1]).to(query.dtype)


def source(query: Tensor, keys: Tensor, values: Tensor, lengths: Tensor) -> Tensor:
    """Queries [N, W, H, d], keys and values [N, S, H, d] of which lengths[n] are real → [N, W, H, d]."""
    scores = torch.einsum("nwhd,nshd->nwhs", query.float(), keys.float()) / query.size(-1) ** 0.5
    places = torch.arange(keys.size(1), device=query.device)
    scores = scores.masked_fill(places >= lengths[:, None, None, None], -torch.inf)
    return torch.einsum("nwhs,nshd->nwhd", scores.softmax(-1), values.float()).to(query.dtype)


@triton.jit
def _own_words(
    asked, keys, values, ancestors, common, seen, found, room, total,
    WIDTH: tl.constexpr, ROWS: tl.constexpr, HEADS: tl.constexpr, SIZE: tl.constexpr, BLOCK: tl.constexpr,
    PLACES: tl.constexpr, TAIL: tl.constexpr,
):  # fmt: skip
    """One source and head; the queries of its hypotheses are the rows of small matrix products."""
    number = tl.program_id(0) // HEADS
    head = tl.program_id(0) % HEADS
    width = HEADS * SIZE
    part = tl.arange(0, BLOCK)
    row = tl.arange(0, ROWS)
    inside = part[None, :] < SIZE
    mine = (row < WIDTH)[:, None] & inside
    line = (number * WIDTH + row).to(tl.int64)[:, None]
    here = asked + line * 3 * width + head * SIZE + part[None, :]
    query = tl.load(here, mask=mine, other=0.0)
    key = tl.load(here + width, mask=mine, other=0.0)
    value = tl.load(here + 2 * width, mask=mine, other=0.0)
    written = tl.load(seen + number)
    # A new source must not use the entry of the slot's previous one.
    shared = tl.minimum(tl.load(common + number), written)
    place = (line * room + written) * width + head * SIZE + part[None, :]
    tl.store(keys + place, key, mask=mine)
    tl.store(values + place, value, mask=mine)
    # online softmax: over the new word, the shared words, and the last few, which differ between hypotheses
    scale = 1.4426950408889634 / tl.sqrt(SIZE * 1.0)
    peak = tl.sum(query.to(tl.float32) * key.to(tl.float32), axis=1) * scale
    mass = tl.full([ROWS], 1.0, tl.float32)
    context = value.to(tl.float32)
    table = ancestors + (written % 2) * total + number * WIDTH * room  # double-buffered: even and odd steps
    start = number.to(tl.int64) * WIDTH * room * width + head * SIZE
    for begin in range(0, shared, PLACES):
        position = begin + tl.arange(0, PLACES)
        real = position < shared
        slot = tl.load(table + position, mask=real, other=0).to(tl.int32)
        at = start + (slot * room + position)[:, None].to(tl.int64) * width + part[None, :]
        block = tl.load(keys + at, mask=real[:, None] & inside, other=0.0)
        other = tl.load(values + at, mask=real[:, None] & inside, other=0.0)
        scores = tl.dot(query, tl.trans(block), input_precision="ieee") * scale
        scores = tl.where(real[None, :], scores, float("-inf"))
        higher = tl.maximum(peak, tl.max(scores, axis=1))
        weights = tl.exp2(scores - higher[:, None])
        shrink = tl.exp2(peak - higher)
        mass = mass * shrink + tl.sum(weights, axis=1)
        context = tl.dot(weights.to(other.dtype), other, context * shrink[:, None], input_precision="ieee")
        peak = higher
    for begin in range(shared, written, TAIL):
        position = begin + tl.arange(0, TAIL)
        known = (row < WIDTH)[:, None] & (position < written)[None, :]
        slot = tl.load(table + row[:, None] * room + position[None, :], mask=known, other=255).to(tl.int32)
        at = start + position[:, None].to(tl.int64) * width + part[None, :]
        scores = tl.full([ROWS, TAIL], float("-inf"), tl.float32)
        for number_of in tl.static_range(WIDTH):  # each slot's keys are loaded once, if any hypothesis needs them
            theirs = slot == number_of
            needed = tl.max(theirs.to(tl.int32), axis=0)[:, None] > 0
            block = tl.load(keys + number_of * room * width + at, mask=needed & inside, other=0.0)
            scores = tl.where(theirs, tl.dot(query, tl.trans(block), input_precision="ieee") * scale, scores)
        higher = tl.maximum(peak, tl.max(scores, axis=1))
        weights = tl.exp2(scores - higher[:, None])
        shrink = tl.exp2(peak - higher)
        mass = mass * shrink + tl.sum(weights, axis=1)
        context = context * shrink[:, None]
        for number_of in tl.static_range(WIDTH):
            theirs = slot == number_of
            needed = tl.max(theirs.to(tl.int32), axis=0)[:, None] > 0
            block = tl.load(values + number_of * room * width + at, mask=needed & inside, other=0.0)
            their_weights = tl.where(theirs, weights, 0.0).to(block.dtype)
            context = tl.dot(their_weights, block, context, input_precision="ieee")
        peak = higher
    out = found + line * width + head * SIZE + part[None, :]
    tl.store(out, (context / mass[:, None]).to(found.dtype.element_ty), mask=mine)


def attend_to_own_words(
    asked: Tensor, keys: Tensor, values: Tensor, ancestors: Tensor, common: Tensor, seen: Tensor
) -> Tensor:
    """`asked` [N·W, 3·D]: query, key and value of the new word of each row, which is position seen[n] of its source.

    Key and value are written into the caches [N, W, C, H, d]; of ancestors [2, N, W, C], entry seen[n] % 2 is read. In
    the first common[n] positions all hypotheses have the first slot's ancestors. Returns [N·W, D].
    """
    sources, width, room, heads, size = keys.shape
    found = torch.empty(len(asked), heads * size, device=asked.device, dtype=asked.dtype)
    # One warp, so that reductions need no shared memory; four in fp32, whose products need more registers. One stage:
    # prefetching blocks would leave no shared memory for other sources.
    exact = asked.dtype == torch.float32
    _own_words[(sources * heads,)](
        asked, keys, values, ancestors, common, seen, found, room, sources * width * room,
        WIDTH=width, ROWS=max(16, triton.next_power_of_2(width)), HEADS=heads, SIZE=size,
        BLOCK=max(16, triton.next_power_of_2(size)), PLACES=16 if exact else 32, TAIL=16,
        num_warps=4 if exact else 1, num_stages=1,
    )  # fmt: skip
    return found


@triton.jit
def _source(
    asked, memory, lengths, found, longest,
    WIDTH: tl.constexpr, ROWS: tl.constexpr, HEADS: tl.constexpr, SIZE: tl.constexpr, BLOCK: tl.constexpr,
    PLACES: tl.constexpr,
):  # fmt: skip
    """One source and head: the queries of all hypotheses are the rows of one small matrix product."""
    number = tl.program_id(0) // HEADS
    head = tl.program_id(0) % HEADS
    width = HEADS * SIZE
    part = tl.arange(0, BLOCK)
    inside = part < SIZE
    row = tl.arange(0, ROWS)
    at = (number * WIDTH + row)[:, None].to(tl.int64) * width + head * SIZE + part[None, :]
    mine = (row < WIDTH)[:, None] & inside[None, :]
    query = tl.load(asked + at, mask=mine, other=0.0)
    scale = 1.4426950408889634 / tl.sqrt(SIZE * 1.0)
    real = tl.load(lengths + number)
    peak = tl.full([ROWS], float("-inf"), tl.float32)
    mass = tl.zeros([ROWS], tl.float32)
    context = tl.zeros([ROWS, BLOCK], tl.float32)
    start = memory + number.to(tl.int64) * longest * 2 * width + head * SIZE
    for begin in range(0, real, PLACES):
        place = begin + tl.arange(0, PLACES)
        there = place < real
        both = there[:, None] & inside[None, :]
        here = start + place[:, None] * 2 * width + part[None, :]
        key = tl.load(here, mask=both, other=0.0)
        value = tl.load(here + width, mask=both, other=0.0)
        scores = tl.dot(query, tl.trans(key), input_precision="ieee") * scale
        scores = tl.where(there[None, :], scores, float("-inf"))
        higher = tl.maximum(peak, tl.max(scores, axis=1))
        weights = tl.exp2(scores - higher[:, None])
        shrink = tl.exp2(peak - higher)
        context = context * shrink[:, None] + tl.dot(weights.to(value.dtype), value, input_precision="ieee")
        mass = mass * shrink + tl.sum(weights, axis=1)
        peak = higher
    tl.store(found + at, (context / mass[:, None]).to(found.dtype.element_ty), mask=mine)


def attend_to_source(asked: Tensor, memory: Tensor, lengths: Tensor, width: int) -> Tensor:
    """Queries [N·W, D] of all hypotheses; memory [N, S, 2, H, d], keys and values, of which lengths[n] ≥ 1 are real."""
    _, longest, _, heads, size = memory.shape
    asked = asked.contiguous()
    found = torch.empty_like(asked)
    _source[(len(asked) // width * heads,)](
        asked, memory, lengths, found, longest,
        WIDTH=width, ROWS=max(16, triton.next_power_of_2(width)), HEADS=heads, SIZE=size,
        BLOCK=max(16, triton.next_power_of_2(size)), PLACES=16, num_warps=1, num_stages=3,
    )  # fmt: skip
    return found
