"""The matrix products of training on a GPU, each by the fastest kernel for its shape.

    y = s + x Wᵀ + b,   dx = dy W,   dW = dyᵀ x  in fp32;        y = GELU(u),  u = x Wᵀ + b,   du = (dy W) ∘ GELU′(u)

PyTorch takes the first kernel that cuBLAS proposes. Others can be faster, and can fuse an epilogue
(kernels/epilogue.py). For each kind of product all candidates are timed once, PyTorch's call among them, and the choice
is kept. Their results differ only in the order of summation.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor

from regard.fast.kernels.epilogue import Epilogues, epilogues

Found = TypeVar("Found")


class Products:
    """The products of a block, each by the fastest kernel for its shape."""

    def __init__(self, device: torch.device) -> None:
        self.library = epilogues(device) if device.type == "cuda" else None

    def add(self, s: Tensor | None, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """s + x Wᵀ + b, without s or b where it is None."""

        def plain() -> Tensor:
            added = s if bias is None else bias if s is None else s + bias
            return x @ weight.t() if added is None else torch.addmm(added, x, weight.t())

        kind = ("add", s is None, bias is None, x.dtype, *weight.shape)
        return self._quickest(kind, len(x), plain, lambda library: library.add(s, x, weight, bias))

    def back(self, dy: Tensor, weight: Tensor) -> Tensor:
        """dy W."""
        kind = ("back", dy.dtype, *weight.shape)
        return self._quickest(kind, len(dy), lambda: dy @ weight, lambda library: library.back(dy, weight))

    def gradient(self, dy: Tensor, x: Tensor) -> Tensor:
        """dyᵀ x, the gradient of a matrix: a sum over all rows of the batch, so the result is fp32."""

        def plain() -> Tensor:
            if dy.is_cuda and dy.itemsize < 4:
                return torch.mm(dy.t(), x, out_dtype=torch.float32)
            return dy.t() @ x

        kind = ("gradient", dy.dtype, dy.size(1), x.size(1))
        return self._quickest(kind, len(dy), plain, lambda library: library.gradient(dy, x))

    def gelu(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
        """GELU(u) and u = x Wᵀ + b."""
        from regard.fast.kernels.block_norm import gelu

        def plain() -> tuple[Tensor, Tensor]:
            u = self.add(None, x, weight, bias)
            return gelu(u), u

        kind = ("gelu", bias is None, x.dtype, *weight.shape)
        return self._quickest(kind, len(x), plain, lambda library: library.gelu(x, weight, bias))

    def back_through_gelu(self, dy: Tensor, weight: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
        """du = (dy W) · GELU′(u), and its sum over rows."""
        from regard.fast.kernels.block_norm import gelu_backward_, sum_rows

        def plain() -> tuple[Tensor, Tensor]:
            du = self.back(dy, weight)
            return du, gelu_backward_(u, du)

        def fused(library: Epilogues) -> tuple[Tensor, Tensor] | None:
            du = library.slope(dy, weight, u)
            return None if du is None else (du, sum_rows(du))

        kind = ("slope", dy.dtype, *weight.shape)
        return self._quickest(kind, len(dy), plain, fused)

    def _quickest(
        self,
        kind: tuple[object, ...],
        rows: int,
        plain: Callable[[], Found],
        *others: Callable[[Epilogues], Found | None],
    ) -> Found:
        if self.library is None:
            return plain()
        return self.library.quickest(repr(kind), rows, plain, *(partial(other, self.library) for other in others))
