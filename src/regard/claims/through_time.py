"""The influence of earlier words on a state: ‖∂h_T/∂x_s‖ by distance T − s, back through time.

‖∂h_T/∂x_s‖ ≈ a e^{λ (T − s)}        λ, the log-slope: below 0 the gradient vanishes, at 0 it stays, above 0 it explodes
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.layers.cell import Cell, unroll
from regard.layers.layer import Layer
from regard.layers.recurrent import LSTM
from regard.layers.state import Span, State
from regard.report.figures import Line

Read = Callable[[Tensor], Tensor]  # inputs [R, T, D] → states [R, T, H]
EXACT = torch.float64  # fp32 ends at 1e-38, which is 60 steps of a default tanh network


def reading(layer: Layer, start: Tensor | None = None) -> Read:
    """The layer from its first state, or from the hidden state `start` [H]."""

    def read(inputs: Tensor) -> Tensor:
        state, span = opening(layer, inputs)
        if start is not None:
            state = {**state, "hidden": start.expand_as(state["hidden"])}
        return layer(inputs, state, span)[0]

    return read


def without(way: str, layer: LSTM) -> Read:
    """An LSTM with one of its two ways through time cut for gradients, "hidden" or "cell"; its values stay the same."""

    def read(inputs: Tensor) -> Tensor:
        def step(word: Tensor, before: State) -> State:
            return layer.step(word, {**before, way: before[way].detach()})

        return unroll(step, inputs, *opening(layer, inputs))[0]

    return read


def opening(layer: Layer, inputs: Tensor) -> tuple[State, Span]:
    """A layer's arguments before any word is read."""
    rows = len(inputs)
    state = layer.begin(rows, device=inputs.device, dtype=inputs.dtype)
    return state, Span(torch.zeros(rows, dtype=torch.int64, device=inputs.device))


def jacobians(read: Read, x: Tensor, width: int) -> Tensor:
    """∂h_T/∂x_s of one text x [T, D], by distance: [T, H, D]. The text is read once for each component of h_T, side by
    side, so that one backward pass is enough."""
    inputs = x.expand(width, -1, -1).clone().requires_grad_()
    components = read(inputs)[:, -1].diagonal()  # row i differentiates component i alone
    (gradient,) = torch.autograd.grad(components.sum(), inputs)
    return gradient.flip(1).transpose(0, 1)


def influence(read: Read, x: Tensor, width: int) -> np.ndarray:
    """‖∂h_T/∂x_s‖ (Frobenius) by distance: [T]."""
    return norms(jacobians(read, x, width))


def norms(jacobian: Tensor) -> np.ndarray:
    return np.asarray(jacobian.flatten(1).norm(dim=1))


def log_slope(sizes: np.ndarray, first: int = 0, last: int | None = None) -> float:
    """λ: the slope of the straight line through log ‖∂h_T/∂x_s‖ between two distances, in nats per step."""
    part = np.asarray(sizes)[first:last]
    return float(np.polyfit(np.arange(len(part)), np.log(part), 1)[0])


def curve(name: str, sizes: np.ndarray, **drawn: Any) -> Line:
    """For a figure, relative to the value at distance 0."""
    return Line(name, [(distance, size / sizes[0]) for distance, size in enumerate(sizes)], **drawn)


def mean_curve(name: str, runs: Sequence[np.ndarray]) -> Line:
    """The geometric mean of several, and a band from the smallest to the largest, while more than 1e-30 is left."""
    shares = np.log(np.stack([run / run[0] for run in runs]))
    middle, low, high = np.exp(shares.mean(0)), np.exp(shares.min(0)), np.exp(shares.max(0))
    shown = int((middle > 1e-30).sum())
    return Line(name, list(enumerate(middle))[:shown], band=list(zip(low, high, strict=True))[:shown])


class Linear(Cell):
    """The recurrence without its nonlinearity: h_t = V h_{t-1} + W x_t (002:17)."""

    def __init__(self, recurrent: Tensor, inputs: Tensor) -> None:
        super().__init__(inputs.size(1), len(recurrent))
        self.recurrent, self.input = recurrent, inputs  # V [H, H], W [H, D]

    def forward(self, x: Tensor, state: State, span: Span) -> tuple[Tensor, State]:
        hidden, states = state["hidden"], []
        for drive in (x @ self.input.T).unbind(1):
            hidden = hidden @ self.recurrent.T + drive
            states.append(hidden)
        return torch.stack(states, 1), {"hidden": hidden}


def radius(matrix: Tensor) -> float:
    """ρ(V), the largest size of an eigenvalue."""
    return float(torch.linalg.eigvals(matrix).abs().max())


def with_radius(matrix: Tensor, value: float) -> Tensor:
    return matrix * (value / radius(matrix))


def orthogonal(width: int) -> Tensor:
    return torch.nn.init.orthogonal_(torch.empty(width, width, dtype=EXACT))
