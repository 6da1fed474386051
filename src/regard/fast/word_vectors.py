"""Words and their places as vectors, with their dropout, in one kernel each way (kernels/word_lookup.py).

    x_t = drop(a E[w_t] + p_t)

As written that is five passes over the batch's vectors, in fp32. `dropout(embedding(tokens, span))` is the reference.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary, ref

import torch
from torch import Tensor

from regard.fast.bias_gradients import unfilled
from regard.fast.residual import ROWS, WARPS, coin, tile
from regard.layers.embedding import Embedding
from regard.layers.position import Sinusoid

WAVES: dict[tuple[int, int, int, torch.device], Tensor] = {}
READINGS: WeakKeyDictionary[Embedding, ref[Reading]] = WeakKeyDictionary()  # the last of each, while it is known


def is_plain(embedding: Embedding) -> bool:
    """Are its vectors words and waves, and nothing else? Waves are the same for all rows, and are not learnt."""
    if type(embedding) is not Embedding:
        return False
    waves = embedding.position is None or (type(embedding.position) is Sinusoid and not embedding.concatenate)
    return waves and not embedding.word_dropout.rate and not hasattr(embedding.table.weight, "full_tensor")


class Reading:
    """A table that is read several times in a step, as for a source and its translation. The gradients of all vectors
    lie one below the other, and are added up by word once, when the last of them is there."""

    def __init__(self, table: Tensor) -> None:
        self.of, self.count, self.width = table, 0, table.size(1)
        self.parts: list[tuple[Tensor, slice]] = []  # tokens, and where the gradients of their vectors go
        self.gradients: Tensor | None = None
        self.table: Tensor | None = Handed.apply(table, self)  # for all who read; None when it is over

    def register(self, tokens: Tensor) -> slice:
        rows = slice(self.count, self.count + tokens.numel())
        self.count = rows.stop
        return rows

    def place(self, tokens: Tensor, rows: slice) -> Tensor:
        """Where to write the gradients of the tokens' vectors."""
        if self.gradients is None:
            self.gradients = torch.empty(self.count, self.width, device=tokens.device, dtype=self.of.dtype)
        self.parts.append((tokens, rows))
        return self.gradients[rows]

    def close(self) -> Tensor | None:
        found, parts = self.gradients, sorted(self.parts, key=lambda part: part[1].start)
        self.gradients, self.parts, self.table = None, [], None
        if found is None:
            return None
        if sum(tokens.numel() for tokens, _ in parts) < len(found):  # somebody's were not asked for
            found = torch.cat([found[rows] for _, rows in parts])
        words = torch.cat([tokens.flatten().int() for tokens, _ in parts])  # half as many passes to sort as of int64
        return torch.ops.aten.embedding_dense_backward(found, words, len(self.of), -1, False)


class Handed(torch.autograd.Function):
    """The table as it is. Its way back comes when that of all who read it is over."""

    @staticmethod
    def forward(ctx: Any, table: Tensor, reading: Reading) -> Tensor:
        ctx.reading = ref(reading)  # whose readers hold it
        return table.detach()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, None]:
        reading = ctx.reading()
        return None if reading is None else reading.close(), None


def read_words(
    embedding: Embedding, tokens: Tensor, dropout: float, dtype: torch.dtype, *, again: bool = False
) -> Tensor:
    """Vectors [R, T, D] in `dtype` of tokens [R, T], of which all rows begin at position 0. `again`: in the same step
    as the last."""
    last = READINGS.get(embedding)
    reading = last() if again and last is not None else None
    if reading is None or reading.table is None or reading.of is not embedding.table.weight:
        reading = Reading(embedding.table.weight)
        READINGS[embedding] = ref(reading)
    places = None if embedding.position is None else waves(embedding, tokens.size(1), tokens.device)
    seed = torch.randint(2**62, (1,), device=tokens.device) if dropout else None
    return ReadWords.apply(tokens, reading.table, reading, places, seed, embedding.scale, dropout, dtype)


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
        reading: Reading,
        places: Tensor | None,
        seed: Tensor | None,
        factor: float,
        dropout: float,
        dtype: torch.dtype,
    ) -> Tensor:
        from regard.fast.kernels import word_lookup as kernels

        tokens, width = tokens.contiguous(), table.size(1)
        out = torch.empty(*tokens.shape, width, device=table.device, dtype=dtype)
        ctx.coin = coin(dropout)
        ctx.how = {"DROPS": seed is not None, "ROWS": ROWS, "WIDTH": tile(width), "num_warps": WARPS}
        ctx.factor, ctx.reading, ctx.rows = factor, reading, reading.register(tokens)
        ctx.save_for_backward(tokens, seed)
        given = (tokens, table, table if places is None else places, tokens if seed is None else seed, out)
        sizes = tokens.numel(), tokens.size(1), width, factor
        grid = (-(-tokens.numel() // ROWS),)
        kernels.words_forward[grid](*given, *sizes, *ctx.coin, PLACED=places is not None, **ctx.how)
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        from regard.fast.kernels import word_lookup as kernels

        tokens, seed = ctx.saved_tensors
        d_out, reading = gradients[0].contiguous(), ctx.reading
        empty = unfilled(1, device=d_out.device, dtype=reading.of.dtype)
        promise = None if reading.parts else empty.expand_as(reading.of)  # the real one comes with the last reader
        d_words = reading.place(tokens, ctx.rows)
        given, sizes = (d_out, tokens if seed is None else seed, d_words), (tokens.numel(), d_out.size(-1), ctx.factor)
        kernels.words_backward[(-(-tokens.numel() // ROWS),)](*given, *sizes, *ctx.coin, **ctx.how)
        return None, promise, *[None] * 6
