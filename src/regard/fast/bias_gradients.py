"""The gradients of biases and gains, added up once for a whole stack of layers.

    db = Σ_n dz_n,   n = 1 … rows of the batch

In the backward pass each program of a kernel sums the rows that it sees; these partial sums then have to be added up.
For one vector that is a kernel which moves next to nothing, and a stack has dozens. So all kernels of a stack write
their partial sums side by side into one buffer, and one sum at the end of the backward pass adds up all of them.

The gradients that a layer returns meanwhile are views of a buffer that `finish` fills. Autograd reads them only after
that, because a layer gets its vectors through `HandOut`, whose backward pass comes last and calls `finish`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple
from weakref import ref

import torch
from torch import Tensor

PROGRAMS, TOGETHER = 528, 8  # which share all rows, so many of them at a time


class DeferredSums:
    """The partial sums of each part's vectors, side by side, of so many programs (`shares`)."""

    def __init__(self, parts: Sequence[Sequence[Tensor]], shares: int) -> None:
        self.shares, self.width = shares, 0
        self.places: dict[int, Place] = {}
        for vectors in parts:
            widths = tuple(vector.numel() for vector in vectors)
            self.places[id(vectors[0])] = Place(self, self.width, widths)
            self.width += -(-sum(widths) // 4) * 4  # each part begins on sixteen bytes
        vectors = [vector for part in parts for vector in part]
        handed = HandOut.apply(self, *vectors) if vectors else ()
        self.handed = {id(vector): out for vector, out in zip(vectors, handed, strict=True)}
        self.found: Tensor | None = None  # [shares, width], from the first part's way back to the end
        self.total: Tensor | None = None

    def take(self, *vectors: Tensor) -> tuple[Place, tuple[Tensor, ...]]:
        """Where the gradients of a part's vectors are added up, and the vectors, for the layer that returns these
        gradients; once each."""
        return self.places.pop(id(vectors[0])), tuple(self.handed.pop(id(vector)) for vector in vectors)

    def open(self, device: torch.device) -> tuple[Tensor, Tensor]:
        if self.found is None or self.total is None:
            self.found = torch.empty(self.shares, self.width, device=device, dtype=torch.float32)
            self.total = unfilled(self.width, device=device, dtype=torch.float32)
        return self.found, self.total

    def finish(self) -> None:
        """Add up the partial sums: the gradients that were returned are right from here on."""
        if self.found is not None and self.total is not None:
            torch.sum(self.found, 0, out=self.total)
        self.found = self.total = None


class Place(NamedTuple):
    deferred: DeferredSums
    first: int
    widths: tuple[int, ...]

    def open(self, device: torch.device) -> tuple[Tensor, list[Tensor]]:
        """Where the programs write [shares, sum of widths], and the gradients to return."""
        found, total = self.deferred.open(device)
        columns = slice(self.first, self.first + sum(self.widths))
        return found[:, columns], list(total[columns].split(self.widths))


class HandOut(torch.autograd.Function):
    """The vectors as they are. Its backward pass comes after that of every layer that took one."""

    @staticmethod
    def forward(ctx: Any, deferred: DeferredSums, *vectors: Tensor) -> tuple[Tensor, ...]:
        ctx.deferred, ctx.dtypes = ref(deferred), [vector.dtype for vector in vectors]  # those who took one hold it
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
    """A gradient that is filled later; zeros where autograd looks for NaNs on the way."""
    return torch.zeros(*size, **kind) if torch.is_anomaly_enabled() else torch.empty(*size, **kind)


def deal(rows: int) -> tuple[int, int]:
    """How many rows a program gets, and how many programs that are."""
    each = TOGETHER * -(-rows // (PROGRAMS * TOGETHER))
    return each, -(-rows // each)
