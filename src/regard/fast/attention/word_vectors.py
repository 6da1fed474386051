"""Word embedding, position vectors and dropout in one kernel, forward and backward (kernels/word_lookup.py).

    x_t = drop(a E[w_t] + p_t)

As written these are five passes over the batch in fp32. The reference is `dropout(embedding(tokens, span))`.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary, ref

import torch
from torch import Tensor

from regard.fast.attention.bias_gradients import unfilled
from regard.fast.attention.residual import ROWS, WARPS, dropout_threshold, tile
from regard.layers.embedding import Embedding
from regard.layers.position import Sinusoid

WAVES: dict[tuple[int, int, int, torch.device], Tensor] = {}
TABLES: WeakKeyDictionary[Embedding, ref[SharedTable]] = WeakKeyDictionary()  # the last look-up of each


def is_plain(embedding: Embedding) -> bool:
    """Is this a table with sinusoid positions or none, which are not learned and equal for all rows?"""
    if type(embedding) is not Embedding:
        return False
    waves = embedding.position is None or (type(embedding.position) is Sinusoid and not embedding.concatenate)
    return waves and not embedding.word_dropout.rate and not hasattr(embedding.table.weight, "full_tensor")


class SharedTable:
    """An embedding table that is read several times in a step, such as for source and target. All readers write their
    vectors' gradients into one buffer, which is summed by word once, after the last of them."""

    def __init__(self, table: Tensor) -> None:
        self.of, self.count, self.width = table, 0, table.size(1)
        self.parts: list[tuple[Tensor, slice]] = []  # tokens, and where the gradients of their vectors go
        self.gradients: Tensor | None = None
        self.table: Tensor | None = Shared.apply(table, self)  # what all readers use; None after the backward pass

    def register(self, tokens: Tensor) -> slice:
        rows = slice(self.count, self.count + tokens.numel())
        self.count = rows.stop
        return rows

    def place(self, tokens: Tensor, rows: slice) -> Tensor:
        """The view for the gradients of the tokens' vectors."""
        if self.gradients is None:
            self.gradients = torch.empty(self.count, self.width, device=tokens.device, dtype=self.of.dtype)
        self.parts.append((tokens, rows))
        return self.gradients[rows]

    def close(self) -> Tensor | None:
        found, parts = self.gradients, sorted(self.parts, key=lambda part: part[1].start)
        self.gradients, self.parts, self.table = None, [], None
        if found is None:
            return None
        if sum(tokens.numel() for tokens, _ in parts) < len(found):  # some readers had no backward pass
            found = torch.cat([found[rows] for _, rows in parts])
        words = torch.cat([tokens.flatten().int() for tokens, _ in parts])  # sorts in half as many passes as int64
        return torch.ops.aten.embedding_dense_backward(found, words, len(self.of), -1, False)


class Shared(torch.autograd.Function):
    """The identity. Its backward pass runs after that of all readers."""

    @staticmethod
    def forward(ctx: Any, table: Tensor, shared: SharedTable) -> Tensor:
        ctx.shared = ref(shared)  # weak: the readers hold it
        return table.detach()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, None]:
        shared = ctx.shared()
        return None if shared is None else shared.close(), None


def read_words(
    embedding: Embedding, tokens: Tensor, dropout: float, dtype: torch.dtype, *, again: bool = False
) -> Tensor:
    """Vectors [R, T, D] in `dtype` of tokens [R, T]; all rows begin at position 0. `again`: share the gradient buffer
    of the table's last look-up, which was in the same step."""
    last = TABLES.get(embedding)
    shared = last() if again and last is not None else None
    if shared is None or shared.table is None or shared.of is not embedding.table.weight:
        shared = SharedTable(embedding.table.weight)
        TABLES[embedding] = ref(shared)
    places = None if embedding.position is None else waves(embedding, tokens.size(1), tokens.device)
    seed = torch.randint(2**62, (1,), device=tokens.device) if dropout else None
    return ReadWords.apply(tokens, shared.table, shared, places, seed, embedding.scale, dropout, dtype)


def waves(embedding: Embedding, columns: int, device: torch.device) -> Tensor:
    """The sinusoids [T, D] of the first positions, cached by length; not cached while a CUDA graph is recorded, because
    they would lie in the graph's memory."""
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
        shared: SharedTable,
        places: Tensor | None,
        seed: Tensor | None,
        factor: float,
        dropout: float,
        dtype: torch.dtype,
    ) -> Tensor:
        from regard.fast.kernels import word_lookup as kernels

        tokens, width = tokens.contiguous(), table.size(1)
        out = torch.empty(*tokens.shape, width, device=table.device, dtype=dtype)
        ctx.threshold = dropout_threshold(dropout)
        ctx.how = {"DROPS": seed is not None, "ROWS": ROWS, "WIDTH": tile(width), "num_warps": WARPS}
        ctx.factor, ctx.shared, ctx.rows = factor, shared, shared.register(tokens)
        ctx.save_for_backward(tokens, seed)
        given = (tokens, table, table if places is None else places, tokens if seed is None else seed, out)
        sizes = tokens.numel(), tokens.size(1), width, factor
        grid = (-(-tokens.numel() // ROWS),)
        kernels.words_forward[grid](*given, *sizes, *ctx.threshold, PLACED=places is not None, **ctx.how)
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        from regard.fast.kernels import word_lookup as kernels

        tokens, seed = ctx.saved_tensors
        d_out, shared = gradients[0].contiguous(), ctx.shared
        empty = unfilled(1, device=d_out.device, dtype=shared.of.dtype)
        placeholder = None if shared.parts else empty.expand_as(shared.of)  # `Shared` returns the real gradient
        d_words = shared.place(tokens, ctx.rows)
        given, sizes = (d_out, tokens if seed is None else seed, d_words), (tokens.numel(), d_out.size(-1), ctx.factor)
        kernels.words_backward[(-(-tokens.numel() // ROWS),)](*given, *sizes, *ctx.threshold, **ctx.how)
        return None, placeholder, *[None] * 6
