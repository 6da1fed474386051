"""Positions: without them, attention sees a set and not a sequence.

    at the input, a vector p_t that is added to the word's or concatenated
        index     t                                        one-hot   e_t
        sine      sin(ω_k t)          (the notes)          sinusoid  sin(ω_k t), cos(ω_k t)    Vaswani et al. 2017
        learned   one trained vector for each t
    inside attention
        rotary    queries and keys are rotated by ω_k t                                        Su et al. 2021
        alibi     −m_h (t_q − t_k) is added to the scores of head h, m_h = 2^(−8h/H)           Press et al. 2022

with ω_k = θ^(−k/n), k = 0 … n−1, θ = 10000 unless a rotary position is given another. Rotations may be slowed down by s
for texts longer than a model was first trained on:

    linear    ω_k / s                                                                          Chen et al. 2023
    llama3    ω_k (m + (1 − m) / s),   m = (C ω_k / 2π − low) / (high − low), between 0 and 1  Grattafiori et al. 2024

where rotations of more than `high` turns in C positions are unchanged, and those of fewer than `low` are divided by s.
Angles are computed in fp32 or better, whatever the model's precision. A kind is one class, which overrides the method
for where it acts, and an entry in POSITIONS.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

THETA = 10000.0
STRETCHES = ("none", "linear", "llama3")


class Position(nn.Module):
    """The base class: no effect, unless a subclass overrides a method."""

    context: int | None = None  # positions beyond the first `context` are indistinguishable; None = no limit

    def __init__(self, width: int = 0, context: int | None = None) -> None:
        super().__init__()
        self.width = width  # components of its vector at the input

    @classmethod
    def components(cls, width: int, context: int) -> int:
        """Components of its vector at the input, at most `width`, for `context` distinct positions."""
        return 0

    def forward(self, positions: Tensor, dtype: torch.dtype) -> Tensor:
        """At the input: positions [R, T] → vectors [R, T, width]."""
        raise NotImplementedError

    def rotate(self, vectors: Tensor, positions: Tensor) -> Tensor:
        """In attention: rotates queries or keys [R, T, H, d] at positions [R, T]."""
        return vectors

    def bias(self, positions: Tensor, slots: int, heads: int) -> Tensor | None:
        """In attention: the bias of the scores of queries at positions [R, T] and keys at 0, 1, …: [R, H, T, S]."""
        return None


class AtInput(Position):
    @classmethod
    def components(cls, width: int, context: int) -> int:
        return width


class Index(AtInput):
    """The number t itself, as one component."""

    @classmethod
    def components(cls, width: int, context: int) -> int:
        return 1

    def forward(self, positions: Tensor, dtype: torch.dtype) -> Tensor:
        return positions[..., None].to(dtype)


class OneHot(AtInput):
    def __init__(self, width: int, context: int | None = None) -> None:
        super().__init__(width)
        self.context = width

    @classmethod
    def components(cls, width: int, context: int) -> int:
        return context

    def forward(self, positions: Tensor, dtype: torch.dtype) -> Tensor:
        places = torch.arange(self.width, device=positions.device)
        return (positions.clamp(max=self.width - 1)[..., None] == places).to(dtype)


class Sine(AtInput):
    def forward(self, positions: Tensor, dtype: torch.dtype) -> Tensor:
        return angles(positions, self.width, dtype).sin().to(dtype)


class Sinusoid(AtInput):
    """Sines on the even components, cosines on the odd ones."""

    def forward(self, positions: Tensor, dtype: torch.dtype) -> Tensor:
        angle = angles(positions, (self.width + 1) // 2, dtype)
        return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(-2)[..., : self.width].to(dtype)


class Learned(AtInput):
    def __init__(self, width: int, context: int) -> None:
        super().__init__(width)
        self.context = context
        self.table = nn.Embedding(context, width)

    def forward(self, positions: Tensor, dtype: torch.dtype) -> Tensor:
        # Padded columns may be beyond the table: their output is unspecified, but the look-up must not fail.
        return self.table(positions.clamp(max=self.table.num_embeddings - 1))


@dataclass(frozen=True)
class Stretch:
    """The scaling of rotary frequencies; the names are those of the equation above."""

    kind: str = "none"
    factor: float = 1.0  # s
    low: float = 1.0
    high: float = 4.0
    context: int = 8192  # C

    def __call__(self, frequency: Tensor) -> Tensor:
        if self.kind == "none":
            return frequency
        if self.kind == "linear":
            return frequency / self.factor
        turns = self.context * frequency / (2 * math.pi)
        stays = ((turns - self.low) / (self.high - self.low)).clamp(0, 1)
        return frequency * (stays + (1 - stays) / self.factor)


UNSTRETCHED = Stretch()


class Rotary(Position):
    def __init__(
        self, width: int = 0, context: int | None = None, *, theta: float = THETA, stretch: Stretch = UNSTRETCHED
    ) -> None:
        super().__init__(width)
        self.theta, self.stretch = theta, stretch

    def rotate(self, vectors: Tensor, positions: Tensor) -> Tensor:
        return rotate(vectors, positions, self.theta, self.stretch)


class ALiBi(Position):
    """Attention with linear biases: the farther a key, the lower its score, with a different slope in each head."""

    def bias(self, positions: Tensor, slots: int, heads: int) -> Tensor:
        slope = 2.0 ** (-8.0 * torch.arange(1, heads + 1, device=positions.device) / heads)  # [H]
        apart = positions[:, None, :, None] - torch.arange(slots, device=positions.device)  # [R, 1, T, S]
        return -slope[:, None, None] * apart.abs()


POSITIONS: dict[str, type[Position]] = {
    "none": Position,
    "index": Index,
    "one-hot": OneHot,
    "sine": Sine,
    "sinusoid": Sinusoid,
    "learned": Learned,
    "rotary": Rotary,
    "alibi": ALiBi,
}
INPUT_POSITIONS = ("none", *(name for name, kind in POSITIONS.items() if issubclass(kind, AtInput)))


def at_input(name: str, width: int, context: int) -> Position | None:
    """The position that the embedding adds or appends; None for a kind that acts elsewhere."""
    return POSITIONS[name](width, context) if name != "none" and name in INPUT_POSITIONS else None


def in_attention(name: str) -> Position:
    """The position that rotates queries and keys or biases scores."""
    return Position() if name in INPUT_POSITIONS else POSITIONS[name]()


def angles(
    positions: Tensor, count: int, dtype: torch.dtype, theta: float = THETA, stretch: Stretch = UNSTRETCHED
) -> Tensor:
    """ω_k t for `count` frequencies: [R, T, count], in fp32 or better."""
    exact = torch.promote_types(dtype, torch.float32)
    frequency = theta ** (-torch.arange(count, device=positions.device, dtype=exact) / count)
    return positions[..., None].to(exact) * stretch(frequency)


def rotate(vectors: Tensor, positions: Tensor, theta: float = THETA, stretch: Stretch = UNSTRETCHED) -> Tensor:
    """Rotate the components k and k + d/2 of [R, T, H, d] by the angle ω_k t: qᵀk then depends on t_q − t_k alone."""
    angle = angles(positions, vectors.size(-1) // 2, vectors.dtype, theta, stretch)[:, :, None]  # [R, T, 1, d/2]
    first, second = vectors.to(angle.dtype).chunk(2, dim=-1)
    cos, sin = angle.cos(), angle.sin()
    return torch.cat([first * cos - second * sin, first * sin + second * cos], dim=-1).to(vectors.dtype)
