"""One tensor of which several layers read a piece each, and whose gradient they write side by side.

    x = [x_1 … x_L],        dx = [dx_1 … dx_L]

Left to itself autograd makes a tensor as large as x of every piece's gradient, and adds them all up.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor


class Whole:
    """The gradient of all pieces, from the first that asks for its place to the end."""

    def __init__(self, x: Tensor, count: int) -> None:
        self.shape, self.dtype, self.device, self.count = x.shape, x.dtype, x.device, count
        self.gradient: Tensor | None = None

    def places(self) -> tuple[Tensor, ...]:
        if self.gradient is None:
            self.gradient = torch.empty(self.shape, dtype=self.dtype, device=self.device)
        return self.gradient.chunk(self.count, dim=-1)


class Slot(NamedTuple):
    whole: Whole
    number: int

    def open(self) -> Tensor:
        """Where whoever reads the piece writes its gradient, which it then returns."""
        return self.whole.places()[self.number]


class Piece(NamedTuple):
    value: Tensor
    slot: Slot


def pieces(x: Tensor, count: int) -> list[Piece]:
    """So many, equally wide, of x [..., D]."""
    whole = Whole(x, count)
    return [Piece(value, Slot(whole, number)) for number, value in enumerate(Cut.apply(x, whole))]


class Cut(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, whole: Whole) -> tuple[Tensor, ...]:
        ctx.whole = whole
        ctx.set_materialize_grads(False)
        return x.chunk(whole.count, dim=-1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, None]:
        for place, gradient in zip(ctx.whole.places(), gradients, strict=True):
            if gradient is None:  # nobody read it
                place.zero_()
            elif gradient.data_ptr() != place.data_ptr():  # read without asking for its place
                place.copy_(gradient)
        found, ctx.whole.gradient = ctx.whole.gradient, None
        return found, None
