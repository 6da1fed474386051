"""A tensor split into chunks for several layers, whose gradients are written into one shared buffer.

    x = [x_1 … x_L],        dx = [dx_1 … dx_L]

By default autograd would pad each chunk's gradient to the size of x and add them all up.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor


class Buffer:
    """The gradient of x; allocated when the first chunk's backward pass needs it, released when `Split` returns it."""

    def __init__(self, x: Tensor, count: int) -> None:
        self.shape, self.dtype, self.device, self.count = x.shape, x.dtype, x.device, count
        self.gradient: Tensor | None = None

    def chunks(self) -> tuple[Tensor, ...]:
        if self.gradient is None:
            self.gradient = torch.empty(self.shape, dtype=self.dtype, device=self.device)
        return self.gradient.chunk(self.count, dim=-1)


class Slot(NamedTuple):
    buffer: Buffer
    number: int

    def open(self) -> Tensor:
        """The view into which the chunk's reader writes its gradient, and which it returns."""
        return self.buffer.chunks()[self.number]


class Chunk(NamedTuple):
    value: Tensor
    slot: Slot


def chunks(x: Tensor, count: int) -> list[Chunk]:
    """`count` equally wide chunks of x [..., D]."""
    buffer = Buffer(x, count)
    return [Chunk(value, Slot(buffer, number)) for number, value in enumerate(Split.apply(x, buffer))]


class Split(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, buffer: Buffer) -> tuple[Tensor, ...]:
        ctx.buffer = buffer
        ctx.set_materialize_grads(False)
        return x.chunk(buffer.count, dim=-1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, None]:
        for chunk, gradient in zip(ctx.buffer.chunks(), gradients, strict=True):
            if gradient is None:  # the chunk was not used
                chunk.zero_()
            elif gradient.data_ptr() != chunk.data_ptr():  # used by a layer that did not write into the buffer
                chunk.copy_(gradient)
        found, ctx.buffer.gradient = ctx.buffer.gradient, None
        return found, None
