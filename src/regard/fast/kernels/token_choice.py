"""Sampling the next word of every row in one kernel; the reference is `sampling.pick`.

    greedy    w = argmax_v x_v                            ties: the first
    drawn     w = min { v : Σ_{u ≤ v} e_u > r Σ_u e_u },  e_v = exp((x_v − max x) / temperature), in fp64; r in [0, 1)
    top p     e_v = 0 unless Σ_{u: x_u > x_v} e_u < p Σ_u e_u: the bound on x is found bit by bit, without sorting

One program per row: reading V logits is cheap compared with reading the model's weights.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def load(logits, banned, at, vocabulary, BANNED: tl.constexpr):
    """The logits of some words in fp32: −∞ for a banned or missing word, +∞ for a NaN."""
    x = tl.load(logits + at, mask=at < vocabulary, other=-float("inf")).to(tl.float32)
    x = tl.where(x != x, float("inf"), x)
    if BANNED:
        x = tl.where(tl.load(banned + at, mask=at < vocabulary, other=1) != 0, -float("inf"), x)
    return x


@triton.jit
def rank(x, BITS: tl.constexpr):
    """An integer of BITS bits for each float, in the same order; 16 bits are enough for bf16."""
    bits = x.to(tl.int32, bitcast=True)
    bits = tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    return (bits.to(tl.int64) + 2147483648) >> (32 - BITS)


@triton.jit
def heaviest(
    logits, banned, weights, words, share, vocabulary,
    BANNED: tl.constexpr, BLOCK: tl.constexpr, BITS: tl.constexpr,
):  # fmt: skip
    """The largest rank with at least `share` of the weight above it; each pass finds two of its bits."""
    found = share.to(tl.int64) * 0
    for place in range(BITS // 2):
        bit = tl.full([], 1, tl.int64) << (BITS - 2 - 2 * place)
        one, two, three = share * 0.0, share * 0.0, share * 0.0
        for start in range(0, vocabulary, BLOCK):
            at = start + words
            ranks = rank(load(logits, banned, at, vocabulary, BANNED), BITS)
            weight = tl.load(weights + at, mask=at < vocabulary, other=0.0)
            one += tl.sum(tl.where(ranks > found + bit, weight, 0.0), 0)
            two += tl.sum(tl.where(ranks > found + 2 * bit, weight, 0.0), 0)
            three += tl.sum(tl.where(ranks > found + 3 * bit, weight, 0.0), 0)
        found += bit * ((one >= share).to(tl.int64) + (two >= share).to(tl.int64) + (three >= share).to(tl.int64))
    return found


@triton.jit
def weigh(
    logits, banned, at, highest, floor, bound, heat, vocabulary,
    BANNED: tl.constexpr, LEAST: tl.constexpr, CUT: tl.constexpr, BITS: tl.constexpr,
):  # fmt: skip
    """e_v of some words; 0 for those below `floor`, and if CUT for those whose rank is not above `bound`."""
    x = load(logits, banned, at, vocabulary, BANNED)
    weight = tl.exp((x.to(tl.float64) - highest.to(tl.float64)) / heat)
    if LEAST:
        weight = tl.where(x < floor, 0.0, weight)
    if CUT:
        weight = tl.where(rank(x, BITS) > bound, weight, 0.0)
    return weight


@triton.jit
def choose(
    logits, banned, uniform, least, weights, limits, written, highest, vocabulary,
    BANNED: tl.constexpr, DRAW: tl.constexpr, LEAST: tl.constexpr, TOP_P: tl.constexpr, BITS: tl.constexpr,
    BLOCK: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    logits += row.to(tl.int64) * vocabulary
    words = tl.arange(0, BLOCK)
    best = tl.full([BLOCK], -float("inf"), tl.float32)
    place = words
    for start in range(0, vocabulary, BLOCK):
        x = load(logits, banned, start + words, vocabulary, BANNED)
        place = tl.where(x > best, start + words, place)
        best = tl.where(x > best, x, best)
    top = tl.max(best, 0)
    tl.store(highest + row, top.to(tl.float64))
    if not DRAW:
        tl.store(written + row, tl.min(tl.where(best == top, place, vocabulary - 1), 0).to(tl.int64))
    else:
        floor = tl.load(least + row).to(tl.float32) if LEAST else 0.0
        heat = tl.load(limits)
        bound = row.to(tl.int64) * 0
        if TOP_P:
            weights += row.to(tl.int64) * vocabulary
            total = heat * 0.0
            for start in range(0, vocabulary, BLOCK):
                at = start + words
                weight = weigh(logits, banned, at, top, floor, bound, heat, vocabulary, BANNED, False, False, BITS)
                tl.store(weights + at, weight, mask=at < vocabulary)
                total += tl.sum(weight, 0)
            tl.debug_barrier()  # wait until all of the row's weights are written
            bound = heaviest(
                logits, banned, weights, words, tl.load(limits + 1) * total, vocabulary, BANNED, BLOCK, BITS
            )
        numbers = tl.arange(0, BLOCKS)
        sums = tl.zeros([BLOCKS], tl.float64)
        for start in range(0, vocabulary, BLOCK):
            at = start + words
            weight = weigh(logits, banned, at, top, floor, bound, heat, vocabulary, BANNED, LEAST, TOP_P, BITS)
            sums = tl.where(numbers == start // BLOCK, tl.sum(weight, 0), sums)
        after = tl.cumsum(sums, 0)
        drawn = tl.load(uniform + row) * tl.max(after, 0)
        number = tl.sum((after <= drawn).to(tl.int32), 0)
        number = tl.minimum(number, tl.max(tl.where(sums > 0, numbers, 0), 0))  # r · sum may round up to the sum
        before = tl.max(tl.where(numbers < number, after, 0.0), 0)
        at = number * BLOCK + words
        weight = weigh(logits, banned, at, top, floor, bound, heat, vocabulary, BANNED, LEAST, TOP_P, BITS)
        inside = tl.sum((before + tl.cumsum(weight, 0) <= drawn).to(tl.int32), 0)
        inside = tl.minimum(inside, tl.max(tl.where(weight > 0, words, 0), 0))
        tl.store(written + row, (number * BLOCK + inside).to(tl.int64))


def choose_into(
    written: Tensor,
    highest: Tensor,
    logits: Tensor,
    uniform: Tensor,
    *,
    limits: Tensor | None = None,
    top_p: bool = False,
    banned: Tensor | None = None,
    least: Tensor | None = None,
) -> None:
    """Writes the chosen words [R] and the highest logits [R] (fp64; +∞ = a NaN) of logits [R, V].

    `limits` [2] fp64: temperature and top p, on the device because kernel arguments would be rounded; None = greedy.
    `banned` [V] int8: 1 = never chosen. `least` [R, 1]: the smallest logit that may be drawn; not with `top_p`.
    """
    rows, vocabulary = logits.shape
    block = min(16384 if limits is None else 4096, triton.next_power_of_2(vocabulary))
    choose[(rows,)](
        logits.contiguous(),
        written if banned is None else banned,
        uniform,
        uniform if least is None else least.contiguous(),
        torch.empty(rows, vocabulary, dtype=torch.float64, device=logits.device) if top_p else uniform,
        uniform if limits is None else limits,
        written,
        highest,
        vocabulary,
        BANNED=banned is not None,
        DRAW=limits is not None,
        LEAST=least is not None,
        TOP_P=top_p,
        BITS=16 if logits.element_size() == 2 and logits.dtype != torch.float16 else 32,
        BLOCK=block,
        BLOCKS=triton.next_power_of_2(-(-vocabulary // block)),
        num_warps=16,
    )
