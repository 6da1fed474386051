"""Attention for short sentences: one Triton program per row and head, forward and backward.

    O = softmax(Q Kᵀ / √d + mask) V

PyTorch's fused kernels are made for long sequences. With some 32 words, all that matters is to read Q, K, V once and to
write O once, and likewise backward. Q, K and V are read packed, as the projections return them, and their gradients are
written packed, without a copy. The reference is `attention_reference`; the kernels are in kernels/packed_attention.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from regard.fast.attention.bias_gradients import BufferPlace, DeferredSums
from regard.fast.attention.causal_attention import precision
from regard.fast.table import has_triton
from regard.fast.training.gradient_buffer import Chunk, Slot

MAX_WORDS = 64  # the most words of a side that fit on the chip
DEPTHS = (16, 32, 64, 128)  # components of a head
WARPS = 4


def is_short(x: Tensor, queries: int, keys: int, depth: int) -> bool:
    """True if these sizes fit the kernels: on a GPU in half precision only, where they were measured to pay."""
    return (
        x.is_cuda
        and precision(x) in (torch.bfloat16, torch.float16)
        and 1 < queries <= MAX_WORDS
        and 1 <= keys <= MAX_WORDS
        and depth in DEPTHS
        and has_triton()
    )


def attend_packed(
    queries: Tensor,
    memory: Tensor | Chunk | None,
    heads: int,
    *,
    valid: Tensor | None = None,
    causal: bool = False,
    dropout: float = 0.0,
    biases: Sequence[Tensor] = (),
    deferred: DeferredSums | None = None,
) -> Tensor:
    """Context [N, T, H·d] of queries [N, T, H·d] and a memory [N, S, 2·H·d] of keys and values; valid [N, S] masks
    padding. Without a memory, `queries` [N, T, 3·H·d] holds queries, keys and values.

    `biases` of the projections (all three, or the query's alone) were added before, but get their gradients here, where
    the terms are already loaded. `deferred` holds them, with one share per sentence.
    """
    seed = torch.randint(2**62, (1,), device=queries.device) if dropout else None
    place = None
    if biases:
        place, biases = (deferred or DeferredSums([biases], len(queries))).take(*biases)
    memory, slot = memory if isinstance(memory, Chunk) else (memory, None)
    return ShortAttention.apply(queries, memory, valid, seed, heads, causal, dropout, slot, place, *biases)


class ShortAttention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        queries: Tensor,
        memory: Tensor | None,
        valid: Tensor | None,
        seed: Tensor | None,
        heads: int,
        causal: bool,
        dropout: float,
        slot: Slot | None = None,
        place: BufferPlace | None = None,
        *biases: Tensor,
    ) -> Tensor:
        from regard.fast.kernels import packed_attention as kernels

        ctx.save_for_backward(queries, memory, valid, seed)
        ctx.how = heads, causal, dropout
        ctx.slot, ctx.place = slot, place
        q, k, v = _parts(queries, memory)
        out = q.new_empty(q.shape)
        _launch(kernels.short_attention_forward, (q, k, v, out), (q, k, out), valid, seed, *ctx.how)
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        from regard.fast.kernels import packed_attention as kernels

        queries, memory, valid, seed = ctx.saved_tensors
        d_out = gradients[0].contiguous()
        d_queries = queries.new_empty(queries.shape)  # the kernel fills this and the next
        d_memory = ctx.slot.open() if ctx.slot is not None else None if memory is None else torch.empty_like(memory)
        q, k, v = _parts(queries, memory)
        d_q, d_k, d_v = _parts(d_queries, d_memory)
        tensors, strided = (q, k, v, d_out, d_q, d_k, d_v), (q, k, d_out, d_q, d_k)
        sums, views = (q[:, 0, :0], []) if ctx.place is None else ctx.place.open(q.device)
        summed = {"SUMMED": sums.size(1) // q.size(2), "sums_row": sums.stride(0)}
        _launch(kernels.short_attention_backward, (*tensors, sums), strided, valid, seed, *ctx.how, **summed)
        return d_queries, d_memory, *[None] * 7, *views


def _parts(queries: Tensor | None, memory: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Q, K and V as views."""
    assert queries is not None
    q, k, v = queries.chunk(3, dim=-1) if memory is None else (queries, *memory.chunk(2, dim=-1))
    return q, k, v


def _launch(
    kernel: Any,
    tensors: tuple[Tensor, ...],
    strided: tuple[Tensor, ...],
    valid: Tensor | None,
    seed: Tensor | None,
    heads: int,
    causal: bool,
    dropout: float,
    **summed: int,
) -> None:
    q, k = tensors[:2]
    rows, queries, width = q.shape
    keys, depth = k.size(1), width // heads
    assert all(part.stride(-1) == 1 for part in tensors)
    kernel[(rows, heads)](
        *tensors,
        q if valid is None else valid.contiguous().view(torch.uint8),
        q if seed is None else seed,
        queries,
        keys,
        heads,
        depth**-0.5,
        dropout,
        *(stride for part in strided for stride in part.stride()[:2]),
        **summed,
        MASKED=valid is not None,
        CAUSAL=causal,
        DROPS=seed is not None,
        EXACT="ieee" if q.dtype == torch.float32 else "tf32",
        QUERIES=_tile(queries),
        KEYS=_tile(keys),
        DEPTH=depth,
        num_warps=WARPS,
    )


def _tile(columns: int) -> int:
    """The next power of two, at least 16, as `tl.dot` requires."""
    return max(16, 1 << (columns - 1).bit_length())
