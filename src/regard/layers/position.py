"""Where a word stands, as a vector: without it, attention sees a set and not a sequence.

    index     t                                        one-hot   e_t
    sine      sin(ω_k t)          (the notes)          sinusoid  sin(ω_k t), cos(ω_k t)    Vaswani et al. 2017
    learned   one trained vector for each t            rotary    q and k turned by ω_k t   Su et al. 2021

with ω_k = 10000^(−k/n), k = 0 … n−1. Angles are computed in fp32 or better, whatever the model's precision.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

POSITIONS = ("none", "index", "one-hot", "sine", "sinusoid", "learned", "rotary")


class Position(nn.Module):
    """positions [R, T] → encodings [R, T, width]."""

    def __init__(self, width: int, context: int | None = None) -> None:
        super().__init__()
        self.width = width
        self.context = context  # the first `context` positions can be told apart; None = all

    def forward(self, positions: Tensor, dtype: torch.dtype) -> Tensor:
        raise NotImplementedError


class Index(Position):
    """The number t itself, as one more component."""

    def __init__(self) -> None:
        super().__init__(width=1)

    def forward(self, positions: Tensor, dtype: torch.dtype) -> Tensor:
        return positions[..., None].to(dtype)


class OneHot(Position):
    def __init__(self, context: int) -> None:
        super().__init__(width=context, context=context)

    def forward(self, positions: Tensor, dtype: torch.dtype) -> Tensor:
        places = torch.arange(self.width, device=positions.device)
        return (positions.clamp(max=self.width - 1)[..., None] == places).to(dtype)


class Sine(Position):
    def forward(self, positions: Tensor, dtype: torch.dtype) -> Tensor:
        return angles(positions, self.width, dtype).sin().to(dtype)


class Sinusoid(Position):
    """Sines on the even components, cosines on the odd ones."""

    def forward(self, positions: Tensor, dtype: torch.dtype) -> Tensor:
        angle = angles(positions, (self.width + 1) // 2, dtype)
        return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(-2)[..., : self.width].to(dtype)


class Learned(Position):
    def __init__(self, context: int, width: int) -> None:
        super().__init__(width, context)
        self.table = nn.Embedding(context, width)

    def forward(self, positions: Tensor, dtype: torch.dtype) -> Tensor:
        # Padded columns may lie beyond the table: their output is unspecified, but the look-up must not fail.
        return self.table(positions.clamp(max=self.table.num_embeddings - 1))


def angles(positions: Tensor, count: int, dtype: torch.dtype) -> Tensor:
    """ω_k t for `count` frequencies: [R, T, count], in fp32 or better."""
    exact = torch.promote_types(dtype, torch.float32)
    frequency = 10000.0 ** (-torch.arange(count, device=positions.device, dtype=exact) / count)
    return positions[..., None].to(exact) * frequency


def rotate(vectors: Tensor, positions: Tensor) -> Tensor:
    """Turn the components k and k + d/2 of [R, T, H, d] by the angle ω_k t: qᵀk then depends on t_q − t_k alone."""
    angle = angles(positions, vectors.size(-1) // 2, vectors.dtype)[:, :, None]  # [R, T, 1, d/2]
    first, second = vectors.to(angle.dtype).chunk(2, dim=-1)
    cos, sin = angle.cos(), angle.sin()
    return torch.cat([first * cos - second * sin, first * sin + second * cos], dim=-1).to(vectors.dtype)
