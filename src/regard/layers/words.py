"""Words and their places as vectors, with their dropout, in one kernel each way (Triton, on a GPU: kernels/words.py).

    x_t = drop(a E[w_t] + p_t)

As written that is five passes over the batch's vectors, in fp32. `dropout(embedding(tokens, span))` is the reference.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from regard.layers.embedding import Embedding
from regard.layers.position import Sinusoid
from regard.layers.residual import ROWS, SIDES, WARPS, tile

WAVES: dict[tuple[int, int, int, torch.device], Tensor] = {}


def is_plain(embedding: Embedding) -> bool:
    """Are its vectors words and waves, and nothing else? Waves are the same for all rows, and are not learnt."""
    waves = embedding.position is None or (isinstance(embedding.position, Sinusoid) and not embedding.concatenate)
    return waves and not embedding.word_dropout.rate and not hasattr(embedding.table.weight, "full_tensor")


def read_words(embedding: Embedding, tokens: Tensor, dropout: float, dtype: torch.dtype) -> Tensor:
    """Vectors [R, T, D] in `dtype` of tokens [R, T], of which all rows begin at position 0."""
    places = None if embedding.position is None else waves(embedding, tokens.size(1), tokens.device)
    seed = torch.randint(2**62, (1,), device=tokens.device) if dropout else None
    return ReadWords.apply(tokens, embedding.table.weight, places, seed, embedding.scale, dropout, dtype)


def waves(embedding: Embedding, columns: int, device: torch.device) -> Tensor:
    """The vectors [T, D] of the first positions, which never change: computed once for each length. Not kept if a CUDA
    graph is being recorded, whose memory they then are in."""
    assert embedding.position is not None
    key = embedding.position.width, embedding.width, columns, device
    if (found := WAVES.get(key)) is None:
        places = embedding.position(torch.arange(columns, device=device)[None], torch.float32)[0]
        found = torch.nn.functional.pad(places, (0, embedding.width - places.size(-1))).contiguous()
        if device.type != "cuda" or not torch.cuda.is_current_stream_capturing():
            WAVES[key] = found
    return found


class ReadWords(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        tokens: Tensor,
        table: Tensor,
        places: Tensor | None,
        seed: Tensor | None,
        factor: float,
        dropout: float,
        dtype: torch.dtype,
    ) -> Tensor:
        from regard.kernels import words as kernels

        tokens, width = tokens.contiguous(), table.size(1)
        out = torch.empty(*tokens.shape, width, device=table.device, dtype=dtype)
        ctx.coin = (dropped := round(dropout * SIDES)), SIDES / (SIDES - dropped)
        ctx.how = {"DROPS": seed is not None, "ROWS": ROWS, "WIDTH": tile(width), "num_warps": WARPS}
        ctx.factor, ctx.table = factor, (table.size(0), table.dtype)
        ctx.save_for_backward(tokens, seed)
        given = (tokens, table, table if places is None else places, tokens if seed is None else seed, out)
        sizes = tokens.numel(), tokens.size(1), width, factor
        grid = (-(-tokens.numel() // ROWS),)
        kernels.words_forward[grid](*given, *sizes, *ctx.coin, PLACED=places is not None, **ctx.how)
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        from regard.kernels import words as kernels

        tokens, seed = ctx.saved_tensors
        words, dtype = ctx.table
        d_out = gradients[0].contiguous()
        d_words = torch.empty_like(d_out, dtype=dtype)
        given, sizes = (d_out, tokens if seed is None else seed, d_words), (tokens.numel(), d_out.size(-1), ctx.factor)
        kernels.words_backward[(-(-tokens.numel() // ROWS),)](*given, *sizes, *ctx.coin, **ctx.how)
        # in 32 bits sorting the words takes half as many passes
        d_table = torch.ops.aten.embedding_dense_backward(d_words, tokens.int(), words, -1, False)
        return None, d_table, None, None, None, None, None
