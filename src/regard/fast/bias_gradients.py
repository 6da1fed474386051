"""The gradients of biases and gains, added up once for a whole stack.

    db = Σ_n dz_n,   n = 1 … rows of the batch

A kernel that passes over those rows on the way back sums the ones that each of its programs sees; then the shares of
all programs have to be added up. For one vector that is a kernel which moves next to nothing, and a stack has dozens.
So here all kernels of a stack leave their shares side by side, and one sum at the end of its way back makes them all.

A layer takes its vectors from the tally instead of from the model. The gradients that it returns for them are promises:
views of the sum that is yet to be made. They are kept before anyone can look, since the vectors come from here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple
from weakref import ref

import torch
from torch import Tensor

PROGRAMS, TOGETHER = 528, 8  # which share all rows, so many of them at a time


class Tally:
    """Of the vectors of each part, which lie side by side in the `shares` of so many programs."""

    def __init__(self, parts: Sequence[Sequence[Tensor]], shares: int) -> None:
        self.shares, self.width = shares, 0
        self.places: dict[int, Place] = {}
        for vectors in parts:
            widths = tuple(vector.numel() for vector in vectors)
            self.places[id(vectors[0])] = Place(self, self.width, widths)
            self.width += -(-sum(widths) // 4) * 4  # each part begins on sixteen bytes
        vectors = [vector for part in parts for vector in part]
        handed = HandedOut.apply(self, *vectors) if vectors else ()
        self.handed = {id(vector): out for vector, out in zip(vectors, handed, strict=True)}
        self.found: Tensor | None = None  # [shares, width], from the first part's way back to the end
        self.total: Tensor | None = None

    def take(self, *vectors: Tensor) -> tuple[Place, tuple[Tensor, ...]]:
        """Where the gradients of a part's vectors are added up, and the vectors: once each, for whoever returns these
        gradients."""
        return self.places.pop(id(vectors[0])), tuple(self.handed.pop(id(vector)) for vector in vectors)

    def open(self, device: torch.device) -> tuple[Tensor, Tensor]:
        if self.found is None or self.total is None:
            self.found = torch.empty(self.shares, self.width, device=device, dtype=torch.float32)
            self.total = promised(self.width, device=device, dtype=torch.float32)
        return self.found, self.total

    def close(self) -> None:
        """Keep the promises."""
        if self.found is not None and self.total is not None:
            torch.sum(self.found, 0, out=self.total)
        self.found = self.total = None


class Place(NamedTuple):
    tally: Tally
    first: int
    widths: tuple[int, ...]

    def open(self, device: torch.device) -> tuple[Tensor, list[Tensor]]:
        """Where the programs write [shares, sum of widths], and the gradients to return."""
        found, total = self.tally.open(device)
        columns = slice(self.first, self.first + sum(self.widths))
        return found[:, columns], list(total[columns].split(self.widths))


class HandedOut(torch.autograd.Function):
    """The vectors as they are. Its way back comes when that of all who took one is over."""

    @staticmethod
    def forward(ctx: Any, tally: Tally, *vectors: Tensor) -> tuple[Tensor, ...]:
        ctx.tally, ctx.dtypes = ref(tally), [vector.dtype for vector in vectors]  # those who took one hold it
        ctx.set_materialize_grads(False)
        return tuple(vector.detach().float() for vector in vectors)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        if (tally := ctx.tally()) is not None:
            tally.close()
        return None, *(
            None if part is None else part.to(kept) for part, kept in zip(gradients, ctx.dtypes, strict=True)
        )


def promised(*size: int, **kind: Any) -> Tensor:
    """A gradient that is filled later: with anything until then, unless someone looks for numbers that are none."""
    return torch.zeros(*size, **kind) if torch.is_anomaly_enabled() else torch.empty(*size, **kind)


def deal(rows: int) -> tuple[int, int]:
    """How many rows a program gets, and how many programs that are."""
    each = TOGETHER * -(-rows // (PROGRAMS * TOGETHER))
    return each, -(-rows // each)
