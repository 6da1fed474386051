"""The gradients of biases and gains, added up once for a whole stack of layers.

    db = Σ_n dz_n,   n = 1 … rows of the batch

In the backward pass each program of a kernel sums its own rows, and these partial sums must then be added up. One tiny
kernel per vector would be launched dozens of times in a stack. Instead all kernels write their partial sums side by
side into one buffer, and a single sum at the end of the backward pass adds up all of them.

The gradients that layers return are views into a buffer that `finish` fills. Autograd reads them only after that: each
layer gets its vectors through `Deferred`, whose backward pass runs last and calls `finish`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple
from weakref import ref

import torch
from torch import Tensor

PROGRAMS, MULTIPLE = 528, 8  # the most programs that share all rows; rows per program are a multiple of this


class DeferredSums:
    """The partial sums [shares, width] of all vectors, side by side: one row from each program."""

    def __init__(self, parts: Sequence[Sequence[Tensor]], shares: int) -> None:
        self.shares, self.width = shares, 0
        self.places: dict[int, BufferPlace] = {}
        for vectors in parts:
            widths = tuple(vector.numel() for vector in vectors)
            self.places[id(vectors[0])] = BufferPlace(self, self.width, widths)
            self.width += -(-sum(widths) // 4) * 4  # each part is aligned to 16 bytes
        vectors = [vector for part in parts for vector in part]
        outputs = Deferred.apply(self, *vectors) if vectors else ()
        self.outputs = {id(vector): out for vector, out in zip(vectors, outputs, strict=True)}
        self.found: Tensor | None = None  # [shares, width], from the first backward pass of a part until `finish`
        self.total: Tensor | None = None

    def take(self, *vectors: Tensor) -> tuple[BufferPlace, tuple[Tensor, ...]]:
        """For one part: where its layer writes partial sums, and the vectors it must compute with. Once per part."""
        return self.places.pop(id(vectors[0])), tuple(self.outputs.pop(id(vector)) for vector in vectors)

    def open(self, device: torch.device) -> tuple[Tensor, Tensor]:
        if self.found is None or self.total is None:
            self.found = torch.empty(self.shares, self.width, device=device, dtype=torch.float32)
            self.total = unfilled(self.width, device=device, dtype=torch.float32)
        return self.found, self.total

    def finish(self) -> None:
        """Add up the partial sums; from here on the gradients that layers returned are valid."""
        if self.found is not None and self.total is not None:
            torch.sum(self.found, 0, out=self.total)
        self.found = self.total = None


class BufferPlace(NamedTuple):
    deferred: DeferredSums
    first: int
    widths: tuple[int, ...]

    def open(self, device: torch.device) -> tuple[Tensor, list[Tensor]]:
        """The buffer [shares, sum of widths] for the programs, and the gradients to return."""
        found, total = self.deferred.open(device)
        columns = slice(self.first, self.first + sum(self.widths))
        return found[:, columns], list(total[columns].split(self.widths))


class Deferred(torch.autograd.Function):
    """The identity. Its backward pass runs after that of every layer that uses one of the vectors."""

    @staticmethod
    def forward(ctx: Any, deferred: DeferredSums, *vectors: Tensor) -> tuple[Tensor, ...]:
        ctx.deferred, ctx.dtypes = ref(deferred), [vector.dtype for vector in vectors]  # weak: the layers hold it
        ctx.set_materialize_grads(False)
        return tuple(vector.detach().float() for vector in vectors)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        if (deferred := ctx.deferred()) is not None:
            deferred.finish()
        return None, *(
            None if part is None else part.to(kept) for part, kept in zip(gradients, ctx.dtypes, strict=True)
        )


def unfilled(*size: int, **kind: Any) -> Tensor:
    """A gradient to be filled later; zeros in anomaly mode, where autograd checks it for NaNs at once."""
    return torch.zeros(*size, **kind) if torch.is_anomaly_enabled() else torch.empty(*size, **kind)


def split_rows(rows: int) -> tuple[int, int]:
    """Rows per program, and the number of programs."""
    each = MULTIPLE * -(-rows // (PROGRAMS * MULTIPLE))
    return each, -(-rows // each)
