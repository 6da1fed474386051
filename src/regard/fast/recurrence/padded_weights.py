"""Weights with a padded copy in bf16 and a padded gradient, which live from one training step to the next.

    forward      products read the copy                              instead of casting and padding each weight
    backward     products leave the padded gradient here             instead of cutting it out into `weight.grad`
    AdamW        reads that gradient and writes weight and copy      padded_step.py

Rows of 650 components are no whole number of 16 bytes, which tensor cores read at a time, so without this every step
copies each matrix twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor

ALIGNMENT = 8  # eight bf16 components are 16 bytes
MAX_WORDS = 4096  # tokens whose gradients are added by word in one small kernel, in a fixed order


class PaddedWeight:
    """A matrix [N, D] in fp32, its copy [N', D'] in bf16 and its gradient [N', D'], which is `factor` · `gradient`."""

    def __init__(self, weight: Tensor) -> None:
        self.weight = weight
        self.half: Tensor | None = None
        self.gradient: Tensor | None = None
        self.factor: Tensor | None = None  # None: 1
        self.version = -1  # of the weight that was copied; −1: none

    def copy(self, rows: int = 1) -> Tensor:
        """The padded copy; its number of rows is a multiple of `rows`. It stays at its address."""
        if self.half is None or len(self.half) % rows:
            shape = round_up(len(self.weight), rows), round_up(self.weight.size(1), ALIGNMENT)
            self.half, self.version = self.weight.new_zeros(shape, dtype=torch.bfloat16), -1
        self.refresh()
        return self.half

    @torch.no_grad()
    def refresh(self) -> None:
        """Copies the weight again if something else than this step has changed it."""
        if self.half is not None and self.version != self.weight._version:
            self.cut(self.half).copy_(self.weight)
            self.version = self.weight._version

    def cut(self, padded: Tensor) -> Tensor:
        """Without the padding, as a view."""
        return padded[: len(self.weight), : self.weight.size(1)]

    def put(self, gradient: Tensor, factor: Tensor | None = None) -> None:
        """Takes the gradient that a backward pass found."""
        if self.gradient is not None:  # the weight was used twice
            gradient, factor = _times(gradient, factor).add_(_times(self.gradient, self.factor)), None
        self.gradient, self.factor = gradient, factor

    @torch.no_grad()
    def add_words(self, words: Tensor, d_vectors: Tensor) -> None:
        """Adds the gradients [R, T, D] of the word vectors of tokens [R, T]."""
        if self.gradient is None:
            self.gradient = torch.zeros_like(self.weight)
        add_words(words, d_vectors, self.gradient, self.factor)

    @torch.no_grad()
    def take(self, one: Tensor) -> tuple[Tensor, Tensor] | None:
        """The gradient and its factor, which is `one` if there is none; together with what autograd left in `grad`."""
        gradient, factor, other = self.gradient, self.factor, self.weight.grad
        self.gradient = self.factor = None
        if gradient is None:
            return None if other is None else (other, one)
        if other is not None:
            self.cut(gradient).addcdiv_(other, one if factor is None else factor)
        return gradient, one if factor is None else factor


def round_up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


def _times(gradient: Tensor, factor: Tensor | None) -> Tensor:
    return gradient if factor is None else gradient * factor


def add_words(words: Tensor, d_vectors: Tensor, gradient: Tensor, factor: Tensor | None) -> None:
    """gradient[w] += Σ d_vectors / factor over the places of w, always in the same order."""
    one = gradient.new_ones(()) if factor is None else factor
    if words.numel() <= MAX_WORDS and d_vectors.stride(-1) == 1:
        from regard.fast.kernels import padded

        return padded.add_words(words.contiguous(), d_vectors, gradient, one)
    found = torch.ops.aten.embedding_dense_backward(d_vectors.float().contiguous(), words, len(gradient), -1, False)
    gradient[:, : found.size(1)].addcdiv_(found, one)


# -- for as long as a step is computed -------------------------------------------------------------------------------

_used: ContextVar[Mapping[int, PaddedWeight]] = ContextVar("padded weights")


@contextmanager
def using(weights: Mapping[int, PaddedWeight]) -> Iterator[None]:
    """In this context, forward passes in this thread find these weights, by `id(weight)`."""
    before = _used.set(weights)
    try:
        yield
    finally:
        _used.reset(before)


def padded_weight(weight: Tensor) -> PaddedWeight | None:
    """This very tensor's padded copy and gradient, if the step uses them."""
    return _used.get({}).get(id(weight))
