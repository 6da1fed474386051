"""Matrices whose rows are padded to 16 bytes, in Triton: cast, marked, added to, and stepped by AdamW.

Tensor cores want rows of whole 16 bytes, and weights of 650 columns have none. So products read a padded bf16 copy of a
weight and write a padded fp32 gradient. The kernels here read and write those where they are:

    norm      |g| over all gradients, g = factor · G, in one pass
    adamw     θ ← θ − η λ θ − η m̂ / (√v̂ + ε), and the bf16 copy of the new θ, in one pass

Each takes several matrices in one launch. The reference is `torch.optim.AdamW` after `clip_grad_norm_`. Imported only
where there is Triton.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log2

import torch
import triton
import triton.language as tl
from torch import Tensor

ROWS, COLUMNS, WARPS = 8, 256, 8  # a program's tile
PROGRAMS = 1024  # that sum squares, eight on each multiprocessor
WORD_COLUMNS = 512  # of a word's gradient, for a program
WORD_PLACES = 8192  # numbers that a program compares at once to find the next places of its word
AT_ONCE = 12  # matrices in a launch: each has its own code in the kernel


# -- copies ----------------------------------------------------------------------------------------------------------


@triton.jit
def _padded(
    x, out, rows, inner, outer_stride, inner_stride, fill,
    columns: tl.constexpr, width: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    start = (row // inner).to(tl.int64) * outer_stride + (row % inner) * inner_stride
    real = (row < rows)[:, None] & (column < columns)[None, :]
    value = tl.load(x + start[:, None] + column[None, :], mask=real, other=0.0).to(tl.float32)
    value = tl.where((column < columns)[None, :], value, fill)
    place = row.to(tl.int64)[:, None] * width + column[None, :]
    tl.store(out + place, value.to(out.dtype.element_ty), mask=(row < rows)[:, None] & (column < width)[None, :])


def padded(x: Tensor, dtype: torch.dtype, multiple: int, fill: float = 0.0) -> Tensor:
    """x [A, B, C] or [B, C] as a new contiguous tensor [A, B, C'], C' a multiple of `multiple`; C has stride 1."""
    outer, inner = (x.stride(0), x.stride(1)) if x.dim() == 3 else (0, x.stride(0))
    width = triton.cdiv(x.size(-1), multiple) * multiple
    out = x.new_empty((*x.shape[:-1], width), dtype=dtype)
    rows = out.numel() // width
    grid = triton.cdiv(rows, ROWS), triton.cdiv(width, COLUMNS)
    _padded[grid](
        x, out, rows, x.size(-2), outer, inner, fill,
        columns=x.size(-1), width=width, ROWS=ROWS, COLUMNS=COLUMNS, num_warps=WARPS,
    )  # fmt: skip
    return out


@triton.jit
def _begun(
    hidden, cell, hiddens, cells, rows, total,
    width: tl.constexpr, aligned: tl.constexpr, KEEPS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    given = (row < rows)[:, None] & (column < width)[None, :]
    read = row[:, None] * width + column[None, :]
    value = tl.load(hidden + read, mask=given, other=0.0).to(tl.bfloat16).to(tl.int16, bitcast=True)
    value = tl.where((row < rows)[:, None], value, -1)  # UNWRITTEN
    place = row.to(tl.int64)[:, None] * aligned + column[None, :]
    tl.store(hiddens + place, value, mask=(row < total)[:, None] & (column < aligned)[None, :])
    if KEEPS:
        tl.store(cells + read, tl.load(cell + read, mask=given, other=0.0), mask=given)


def begun(hidden: Tensor, cell: Tensor | None, hiddens: Tensor, cells: Tensor) -> None:
    """Into hiddens [T + 1, R, H'] in int16: `hidden` [R, H] as bf16 first, then UNWRITTEN; into cells [0]: `cell`."""
    rows, width = hidden.shape
    total, aligned = len(hiddens) * rows, hiddens.size(-1)
    grid = triton.cdiv(total, ROWS), triton.cdiv(aligned, COLUMNS)
    _begun[grid](
        hidden, hidden if cell is None else cell, hiddens, cells, rows, total,
        width=width, aligned=aligned, KEEPS=cell is not None, ROWS=ROWS, COLUMNS=COLUMNS, num_warps=WARPS,
    )  # fmt: skip


@triton.jit
def _marked(out, marks, size, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.where(at < marks, -1, 0).to(tl.int16), mask=at < size)


def marked(out: Tensor) -> None:
    """Into out [T + 1, R, C] in int16: UNWRITTEN, and zeros in the last of the T + 1."""
    size = out.numel()
    _marked[(triton.cdiv(size, 8192),)](out, size - size // len(out), size, BLOCK=8192, num_warps=8)


# -- gradients of word vectors ---------------------------------------------------------------------------------------


@triton.jit
def _add_words(
    words, d_vectors, gradient, factor, amount, inner, outer_stride, inner_stride, stride,
    columns: tl.constexpr, AMOUNT: tl.constexpr, WIDTH: tl.constexpr, SOME: tl.constexpr,
):  # fmt: skip
    own, column = tl.program_id(0), tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    word = tl.load(words + own)
    every = tl.arange(0, AMOUNT)
    alike = tl.load(words + every, mask=every < amount, other=-1) == word
    if tl.min(tl.where(alike, every, AMOUNT)) == own:  # the first place of the word adds up all of them
        at = gradient + word.to(tl.int64) * stride + column
        before = tl.load(at, mask=column < columns, other=0.0)
        rank, times = tl.cumsum(alike.to(tl.int32), 0), tl.sum(alike.to(tl.int32))
        total = tl.zeros([WIDTH], tl.float32)
        for first in range(0, times, SOME):
            number = first + 1 + tl.arange(0, SOME)  # the n-th place of the word
            found = alike[None, :] & (rank[None, :] == number[:, None])
            place = tl.sum(tl.where(found, every[None, :], 0), 1)
            start = (place // inner).to(tl.int64) * outer_stride + (place % inner) * inner_stride
            wanted = (number <= times)[:, None] & (column < columns)[None, :]
            vectors = tl.load(d_vectors + start[:, None] + column[None, :], mask=wanted, other=0.0)
            total += tl.sum(vectors.to(tl.float32), 0)
        tl.store(at, before + total / tl.load(factor), mask=column < columns)


def add_words(words: Tensor, d_vectors: Tensor, gradient: Tensor, factor: Tensor) -> None:
    """gradient[w] += Σ d_vectors / factor over all places [R, T] of the word w, in the order of the places."""
    rows, steps, columns = d_vectors.shape
    amount = triton.next_power_of_2(rows * steps)
    _add_words[(rows * steps, triton.cdiv(columns, WORD_COLUMNS))](
        words, d_vectors, gradient, factor, rows * steps, steps, d_vectors.stride(0), d_vectors.stride(1),
        gradient.stride(0), columns=columns, AMOUNT=amount, WIDTH=WORD_COLUMNS,
        SOME=min(8, max(2, WORD_PLACES // amount)), num_warps=4,
    )  # fmt: skip


# -- the optimizer's step --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Part:
    """One weight of the step. `gradient` and `half` may have more rows and columns than the weight; vectors are
    matrices of one row."""

    weight: Tensor
    gradient: Tensor
    factor: Tensor  # what the gradient is to be multiplied by
    first: Tensor  # m, the mean of gradients
    second: Tensor  # v, the mean of their squares
    step: Tensor
    rate: Tensor
    decay: float
    half: Tensor | None = None  # the weight in bf16, for the next step's products

    @property
    def shape(self) -> tuple[int, int, int, int, float]:
        """Rows and columns, the gradient's and the copy's stride (0: no copy), and the weight decay."""
        rows, columns = (1, len(self.weight)) if self.weight.dim() == 1 else self.weight.shape
        stride = self.gradient.stride(0) if self.gradient.dim() == 2 else columns
        return rows, columns, stride, 0 if self.half is None else self.half.stride(0), self.decay


@triton.jit
def _tile(number, columns: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """The rows [ROWS, 1] and columns [1, COLUMNS] of a matrix's tile."""
    across: tl.constexpr = (columns + COLUMNS - 1) // COLUMNS
    row = (number // across * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    return row[:, None], (number % across * COLUMNS + tl.arange(0, COLUMNS))[None, :]


@triton.jit
def _squares_of(
    gradient, factor, rows: tl.constexpr, columns: tl.constexpr, stride: tl.constexpr,
    PROGRAMS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    total = tl.zeros([ROWS, COLUMNS], tl.float32)
    tiles: tl.constexpr = (rows + ROWS - 1) // ROWS * ((columns + COLUMNS - 1) // COLUMNS)
    for number in range(tl.program_id(0), tiles, PROGRAMS):
        row, column = _tile(number, columns, ROWS, COLUMNS)
        g = tl.load(gradient + row * stride + column, mask=(row < rows) & (column < columns), other=0.0)
        total += g * g
    return total * tl.load(factor) * tl.load(factor)


@triton.jit
def _squares(
    gradients, factors, sums,
    SHAPES: tl.constexpr, PROGRAMS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    total = tl.zeros([ROWS, COLUMNS], tl.float32)
    for part in tl.static_range(len(SHAPES)):
        total += _squares_of(
            gradients[part], factors[part], SHAPES[part][0], SHAPES[part][1], SHAPES[part][2], PROGRAMS, ROWS, COLUMNS
        )
    tl.store(sums + tl.program_id(0), tl.sum(tl.sum(total, 1), 0))


@triton.jit
def _prepare(sums, divisor, steps, most, amount, PARTS: tl.constexpr, CLIPS: tl.constexpr, BLOCK: tl.constexpr):
    """Counts the step, and finds what clipped gradients are divided by: max(1, (|g| + 1e-6) / most)."""
    for part in tl.static_range(PARTS):
        tl.store(steps[part], tl.load(steps[part]) + 1.0)
    if CLIPS:
        total = tl.zeros([BLOCK], tl.float32)
        for start in range(0, amount, BLOCK):
            at = start + tl.arange(0, BLOCK)
            total += tl.load(sums + at, mask=at < amount, other=0.0)
        divided = (tl.sqrt(tl.sum(total, 0)) + 1e-6) / most
        tl.store(divisor, tl.where(divided < 1.0, 1.0, divided))  # NaN stays NaN


@triton.jit
def _update(
    number, weights, gradient, factor, firsts, seconds, count, rate, halves, divisor,
    rows: tl.constexpr, columns: tl.constexpr, stride: tl.constexpr, half_stride: tl.constexpr, decay: tl.constexpr,
    BETA1: tl.constexpr, BETA2: tl.constexpr, LOG2_BETA1: tl.constexpr, LOG2_BETA2: tl.constexpr, EPS: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    row, column = _tile(number, columns, ROWS, COLUMNS)
    inside, place = (row < rows) & (column < columns), row * columns + column
    g = tl.load(gradient + row * stride + column, mask=inside, other=0.0)
    weight = tl.load(weights + place, mask=inside, other=0.0)
    first = tl.load(firsts + place, mask=inside, other=0.0)
    second = tl.load(seconds + place, mask=inside, other=0.0)
    rate, step = tl.load(rate), tl.load(count).to(tl.float64)
    unbias1 = (1.0 - tl.exp2(step * LOG2_BETA1)).to(tl.float32)  # 1 − β₁ᵗ: in fp32 it would lose digits
    unbias2 = tl.sqrt((1.0 - tl.exp2(step * LOG2_BETA2)).to(tl.float32))
    g = g * (tl.load(factor) / tl.load(divisor))
    first = BETA1 * first + (1.0 - BETA1) * g
    second = BETA2 * second + (1.0 - BETA2) * g * g
    weight = weight - rate * decay * weight
    weight = weight - rate / unbias1 * first / (tl.sqrt(second) / unbias2 + EPS)
    tl.store(weights + place, weight, mask=inside)
    tl.store(firsts + place, first, mask=inside)
    tl.store(seconds + place, second, mask=inside)
    if half_stride > 0:
        tl.store(halves + row * half_stride + column, weight.to(halves.dtype.element_ty), mask=inside)


@triton.jit
def _adamw(
    weights, gradients, factors, firsts, seconds, counts, rates, halves, divisor,
    SHAPES: tl.constexpr, TILES: tl.constexpr,
    BETA1: tl.constexpr, BETA2: tl.constexpr, LOG2_BETA1: tl.constexpr, LOG2_BETA2: tl.constexpr, EPS: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    number = tl.program_id(0)
    for part in tl.static_range(len(SHAPES)):
        if (number >= 0) & (number < TILES[part]):
            _update(
                number, weights[part], gradients[part], factors[part], firsts[part], seconds[part], counts[part],
                rates[part], halves[part], divisor,
                SHAPES[part][0], SHAPES[part][1], SHAPES[part][2], SHAPES[part][3], SHAPES[part][4],
                BETA1, BETA2, LOG2_BETA1, LOG2_BETA2, EPS, ROWS, COLUMNS,
            )  # fmt: skip
        number -= TILES[part]


def adamw(parts: Sequence[Part], betas: tuple[float, float], eps: float, clip: float) -> None:
    """One step of AdamW on all parts, their gradient clipped to the norm `clip` (0: not)."""
    groups = [parts[start : start + AT_ONCE] for start in range(0, len(parts), AT_ONCE)]
    device, tile = parts[0].weight.device, {"ROWS": ROWS, "COLUMNS": COLUMNS, "num_warps": WARPS}
    sums = torch.empty(len(groups) * PROGRAMS if clip else 1, device=device)
    divisor = torch.empty(1, device=device) if clip else torch.ones(1, device=device)
    for number, group in enumerate(groups) if clip else ():
        _squares[(PROGRAMS,)](
            *_each(group, "gradient", "factor"), sums[number * PROGRAMS :],
            SHAPES=_shapes(group), PROGRAMS=PROGRAMS, **tile,
        )  # fmt: skip
    _prepare[(1,)](
        sums, divisor, *_each(parts, "step"), clip or 1.0, sums.numel(),
        PARTS=len(parts), CLIPS=clip > 0, BLOCK=PROGRAMS, num_warps=4,
    )  # fmt: skip
    for group in groups:
        shapes = _shapes(group)
        tiles = tuple(triton.cdiv(rows, ROWS) * triton.cdiv(columns, COLUMNS) for rows, columns, *_ in shapes)
        halves = tuple(part.weight if part.half is None else part.half for part in group)
        _adamw[(sum(tiles),)](
            *_each(group, "weight", "gradient", "factor", "first", "second", "step", "rate"), halves, divisor,
            SHAPES=shapes, TILES=tiles, BETA1=betas[0], BETA2=betas[1], EPS=eps,
            LOG2_BETA1=_log2(betas[0]), LOG2_BETA2=_log2(betas[1]), **tile,
        )  # fmt: skip


def _log2(beta: float) -> float:
    return log2(beta) if beta else -2000.0  # 2 to this power is 0


def _each(parts: Sequence[Part], *names: str) -> list[tuple[Tensor, ...]]:
    return [tuple(getattr(part, name) for part in parts) for name in names]


def _shapes(parts: Sequence[Part]) -> tuple[tuple[int, int, int, int, float], ...]:
    return tuple(part.shape for part in parts)
