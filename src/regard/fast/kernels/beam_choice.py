"""The selection step of beam search on the GPU: each hypothesis's best words, then each source's best hypotheses.

    total(y, w) = total(y) + log softmax(z_y)_w        the W largest over the W open y of a source and all w

Two Triton kernels. `best_words` reads a row of logits once, in blocks of words, and returns each block's W largest
logits, its maximum and its sum of exponentials, for the softmax. `choose` then selects among the W × blocks × W
candidates of a source, one program per source. The reference is `Slots.choose` in decoding/beam_slots.py. Ties go to
the lower slot, then to the lower word.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

IMPOSSIBLE = tl.constexpr(-1e30)  # below this a log probability counts as log 0 (n-gram models have a finite one)
NOWHERE = tl.constexpr(2147483647)  # larger than any index
BLOCK, GROUPS = 2048, 128  # words of one program, and the groups it splits them into
BLOCKS = 32  # at most, of a row of logits


@triton.jit
def _best_words(
    logits, forbidden, lengths, values, places, peaks, masses, vocabulary, eos, min_tokens,
    WIDTH: tl.constexpr, RANKS: tl.constexpr, BLOCK: tl.constexpr, GROUPS: tl.constexpr, FORBIDDEN: tl.constexpr,
):  # fmt: skip
    """One row and block of words. Words are split into groups: only the W groups with the highest maxima can hold any
    of the W best words, and these are few enough to be searched W times."""
    each: tl.constexpr = BLOCK // GROUPS
    row = tl.program_id(0)
    block = tl.program_id(1)
    here = row * tl.num_programs(1) + block
    line = logits + row.to(tl.int64) * vocabulary
    early = tl.load(lengths + row // WIDTH) + 1 < min_tokens
    group = tl.arange(0, GROUPS)
    word = block * BLOCK + tl.arange(0, each)[:, None] * GROUPS + group[None, :]
    inside = word < vocabulary
    score = tl.load(line + word, mask=inside, other=float("-inf")).to(tl.float32)
    peak = tl.max(tl.max(score, axis=0), axis=0)
    finite = tl.where(peak == float("-inf"), 0.0, peak)
    tl.store(peaks + here, peak)
    tl.store(masses + here, tl.sum(tl.sum(tl.exp(score - finite), axis=0), axis=0))
    banned = (word == eos) & early
    if FORBIDDEN:
        banned = banned | (tl.load(forbidden + word, mask=inside, other=0) != 0)
    score = tl.where(banned, float("-inf"), score)
    first = tl.max(score, axis=0)  # each group's maximum, and its first position
    first_word = tl.min(tl.where(score == first[None, :], word, NOWHERE), axis=0)
    rank_of = tl.arange(0, RANKS)
    chosen = tl.zeros([RANKS], tl.int32)
    for rank in tl.static_range(WIDTH):
        best = tl.max(first, axis=0)
        at = tl.min(tl.where(first == best, first_word, NOWHERE), axis=0)
        chosen = tl.where(rank_of == rank, at % GROUPS, chosen)
        gone = first_word == at
        first = tl.where(gone, float("-inf"), first)
        first_word = tl.where(gone, NOWHERE, first_word)
    word = block * BLOCK + tl.arange(0, each)[:, None] * GROUPS + chosen[None, :]
    inside = (word < vocabulary) & (rank_of < WIDTH)[None, :]
    score = tl.load(line + word, mask=inside, other=float("-inf")).to(tl.float32)
    banned = (word == eos) & early
    if FORBIDDEN:
        banned = banned | (tl.load(forbidden + word, mask=inside, other=0) != 0)
    score = tl.reshape(tl.where(banned, float("-inf"), score), [each * RANKS])
    word = tl.reshape(tl.where(inside, word, NOWHERE), [each * RANKS])
    for rank in tl.static_range(WIDTH):
        best = tl.max(score, axis=0)
        at = tl.min(tl.where(score == best, word, NOWHERE), axis=0)  # the first of equals
        tl.store(values + here * WIDTH + rank, best)
        tl.store(places + here * WIDTH + rank, at)
        gone = word == at
        score = tl.where(gone, float("-inf"), score)
        word = tl.where(gone, NOWHERE, word)


def best_words(
    logits: Tensor, forbidden: Tensor | None, lengths: Tensor, *, width: int, eos: int, min_tokens: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Logits [N·W, V] → each block's W best values and their words [N·W, B, W], its maximum and sum of exp [N·W, B].

    `forbidden` [V] marks words that are never chosen; nor is `eos` while a hypothesis has fewer than `min_tokens`.
    """
    rows, vocabulary = logits.shape
    block, groups, warps = BLOCK, GROUPS, 1  # one warp: its reductions need no shared memory
    while block * BLOCKS < vocabulary:
        block, groups, warps = 2 * block, 2 * groups, min(2 * warps, 8)
    blocks = triton.cdiv(vocabulary, block)
    values = torch.empty(rows, blocks, width, device=logits.device, dtype=torch.float32)
    places = torch.empty(rows, blocks, width, device=logits.device, dtype=torch.int32)
    peaks = torch.empty(rows, blocks, device=logits.device, dtype=torch.float32)
    masses = torch.empty_like(peaks)
    _best_words[(rows, blocks)](
        logits, logits if forbidden is None else forbidden, lengths, values, places, peaks, masses,
        vocabulary, eos, min_tokens,
        WIDTH=width, RANKS=triton.next_power_of_2(width), BLOCK=block, GROUPS=groups, FORBIDDEN=forbidden is not None,
        num_warps=warps,
    )  # fmt: skip
    return values, places, peaks, masses


@triton.jit
def _choose(
    values, places, peaks, masses,
    lengths, limits, counts, totals, tokens, parents, going, damaged,
    ended_totals, ended_scores, ended_lengths, ended_words,
    words, ancestors, common, worths, room, everything, eos,
    WIDTH: tl.constexpr, SLOTS: tl.constexpr, BLOCKS: tl.constexpr, CANDIDATES: tl.constexpr, N_BEST: tl.constexpr,
    LONGER_IS_BETTER: tl.constexpr, ANCESTORS: tl.constexpr, STRIDE: tl.constexpr,
):  # fmt: skip
    """One source: the whole selection step."""
    number = tl.program_id(0)
    each: tl.constexpr = BLOCKS * WIDTH
    candidate = tl.arange(0, CANDIDATES)
    there = candidate < WIDTH * each
    slot_of = candidate // each
    row = number * WIDTH + tl.minimum(slot_of, WIDTH - 1)
    value = tl.load(values + number * WIDTH * each + candidate, mask=there, other=float("-inf"))
    word = tl.load(places + number * WIDTH * each + candidate, mask=there, other=0)
    # log softmax = z − max − log Σ exp(z − max), combined from the blocks
    peak = tl.full([CANDIDATES], float("-inf"), tl.float32)
    for block in tl.static_range(BLOCKS):
        peak = tl.maximum(peak, tl.load(peaks + row * BLOCKS + block))
    mass = tl.zeros([CANDIDATES], tl.float32)
    for block in tl.static_range(BLOCKS):
        part = tl.load(peaks + row * BLOCKS + block)
        weight = tl.where(part == float("-inf"), 0.0, tl.exp(part - peak))
        mass += tl.load(masses + row * BLOCKS + block) * weight
    step = ((value - peak) - tl.log(mass)).to(tl.float64)
    step = tl.where(step < IMPOSSIBLE, float("-inf"), step)
    before = tl.load(totals + number * WIDTH + slot_of, mask=there, other=float("-inf"))
    total = tl.where(before > float("-inf"), before + step, float("-inf"))  # a closed slot's logits are undefined
    broken = tl.max((total != total).to(tl.int32), axis=0)
    tl.store(damaged + number, 1, mask=broken > 0)
    total = tl.where(total == total, total, float("-inf"))

    length = tl.load(lengths + number) + 1
    limit = tl.load(limits + number)
    count = tl.load(counts + number)
    free = WIDTH - count
    slot = tl.arange(0, SLOTS)
    scores = tl.load(ended_scores + number * (WIDTH + 1) + slot, mask=slot < WIDTH, other=float("-inf"))
    worth = tl.load(worths + length)
    new_total = tl.full([SLOTS], float("-inf"), tl.float64)
    new_parent = tl.zeros([SLOTS], tl.int64)
    new_token = tl.zeros([SLOTS], tl.int64)
    opened = count * 0  # open slots
    # Double-buffered by even and odd steps: no program reads what another writes.
    old = words + ((length - 1) % 2) * everything
    new = words + (length % 2) * everything
    best_open = tl.max(new_total, axis=0)
    for rank in tl.static_range(WIDTH):
        best = tl.max(total, axis=0)
        at = tl.min(tl.where(total == best, candidate, CANDIDATES), axis=0)
        token = tl.sum(tl.where(candidate == at, word, 0), axis=0).to(tl.int64)
        parent = (at // each).to(tl.int64)
        total = tl.where(candidate == at, float("-inf"), total)
        kept = (best > float("-inf")) & (rank < free)
        ends = token == eos
        last = kept & (ends | (length >= limit))
        score = tl.where(ends, best / worth, float("-inf"))
        there_ended = number * (WIDTH + 1) + count
        tl.store(ended_totals + there_ended, best, mask=last)
        tl.store(ended_scores + there_ended, score, mask=last)
        tl.store(ended_lengths + there_ended, length, mask=last)
        if last:
            for begin in range(0, length, STRIDE):
                position = begin + tl.arange(0, STRIDE)
                written = tl.load(
                    old + (number * WIDTH + parent) * room + position, mask=position < length - 1, other=0
                )
                written = tl.where(position == length - 1, token.to(tl.int32), written)
                tl.store(ended_words + there_ended * room + position, written, mask=position < length)
        scores = tl.where(slot == tl.where(last, count, SLOTS), score, scores)
        count += last.to(tl.int64)
        live = kept & (last == 0)
        mine = slot == tl.where(live, opened, SLOTS)
        new_total = tl.where(mine, best, new_total)
        new_parent = tl.where(mine, parent, new_parent)
        new_token = tl.where(mine, token, new_token)
        best_open = tl.where(live & (opened == 0), best, best_open)
        opened += live.to(tl.int64)
    # settled: even with log probability 0 from here on, the best open one could not overtake the n-best finished
    for _ in tl.static_range(N_BEST - 1):
        at = tl.min(tl.where(scores == tl.max(scores, axis=0), slot, SLOTS), axis=0)
        scores = tl.where(slot == at, float("-inf"), scores)
    worst = tl.max(scores, axis=0)
    settled = worst >= best_open / tl.load(worths + (limit if LONGER_IS_BETTER else length + 1))
    new_total = tl.where(settled, float("-inf"), new_total)
    tl.store(totals + number * WIDTH + slot, new_total, mask=slot < WIDTH)
    tl.store(parents + number * WIDTH + slot, new_parent, mask=slot < WIDTH)
    tl.store(tokens + number * WIDTH + slot, new_token, mask=slot < WIDTH)
    tl.store(counts + number, count)
    tl.store(lengths + number, tl.minimum(length, room - 1))
    tl.store(going + number, (tl.max(new_total, axis=0) > float("-inf")).to(tl.int8))
    # each open hypothesis copies its parent's words and ancestors, and appends its token and the parent
    old_ancestors = ancestors + ((length - 1) % 2) * everything
    new_ancestors = ancestors + (length % 2) * everything
    same = length  # first positions for which all open hypotheses have the same ancestor
    for begin in range(0, length, STRIDE):
        position = begin + tl.arange(0, STRIDE)[None, :]
        mask = (slot < WIDTH)[:, None] & (position < length)
        theirs = (number * WIDTH + new_parent)[:, None] * room + position
        own = (number * WIDTH + slot)[:, None] * room + position
        line = tl.load(old + theirs, mask=mask & (position < length - 1), other=0)
        tl.store(new + own, tl.where(position == length - 1, new_token[:, None].to(tl.int32), line), mask=mask)
        if ANCESTORS:
            line = tl.load(old_ancestors + theirs, mask=mask & (position < length - 1), other=0)
            line = tl.where(position == length - 1, new_parent[:, None].to(tl.uint8), line)
            tl.store(new_ancestors + own, line, mask=mask)
            line = line.to(tl.int32)
            lowest = tl.min(tl.where((new_total > float("-inf"))[:, None], line, 255), axis=0)[None, :]
            differ = ((new_total > float("-inf"))[:, None] & (line != lowest)) & mask
            same = tl.minimum(same, tl.min(tl.min(tl.where(differ, position, NOWHERE), axis=1), axis=0).to(tl.int64))
    if ANCESTORS:
        tl.store(common + number, same)


def choose(slots: Any, logits: Tensor, ancestors: Tensor | None = None, common: Tensor | None = None) -> None:
    """`Slots.choose` by these kernels; also updates the table of ancestors [2, N, W, room], if given, and the number of
    first positions that all open hypotheses share [N]."""
    terms = slots.terms
    forbidden = slots.forbidden if terms.forbidden else None
    found = best_words(logits, forbidden, slots.length, width=terms.width, eos=terms.eos, min_tokens=terms.min_tokens)
    blocks = found[0].size(1)
    candidates = triton.next_power_of_2(terms.width * blocks * terms.width)
    _choose[(len(slots.length),)](
        *found,
        slots.length, slots.limit, slots.count, slots.total, slots.token, slots.parent, slots.going, slots.damaged,
        slots.ended_total, slots.ended_score, slots.ended_length, slots.ended_words,
        slots.words, slots.words if ancestors is None else ancestors, slots.length if common is None else common,
        slots.worth,
        slots.room, slots.words[0].numel(), terms.eos,
        WIDTH=terms.width, SLOTS=triton.next_power_of_2(terms.width), BLOCKS=blocks,
        CANDIDATES=candidates, N_BEST=terms.n_best,
        LONGER_IS_BETTER=terms.length_penalty > 0, ANCESTORS=ancestors is not None, STRIDE=64,
        num_warps=1 if candidates <= 1024 else 4,
    )  # fmt: skip
