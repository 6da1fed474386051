"""A parallel recurrence: if its gates do not depend on the past, all its steps are one parallel scan.

minGRU    z_t = σ(W_z x_t + b_z)    update     h_t = (1 − z_t) * h_{t-1} + z_t * n_t              Feng et al. 2024
          n_t = W_n x_t + b_n       candidate

It is the GRU without U: no reset gate, no tanh, and nothing of h_{t-1} in z_t and n_t. Two steps h → a h + b are one
step of the same form, a₂(a₁h + b₁) + b₂ = (a₂a₁)h + (a₂b₁ + b₂). So T steps are T/2 pairs, which are T/4 pairs, and so
on: a tree of log₂ T levels instead of a chain of T steps (Blelloch 1990). All factors a = 1 − z are at most 1, so that
products only shrink. Sums are made in fp32 or better.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from regard.layers.blocks import FeedForward, rms_norm
from regard.layers.layer import Layer
from regard.layers.parts import at_step, note
from regard.layers.state import Span, State, last


def scan(keep: Tensor, add: Tensor) -> Tensor:
    """h_t = keep_t * h_{t-1} + add_t with h_0 = 0, for all t of [R, T, …] at once, as a tree of pairs."""
    steps = add.size(1)
    if steps == 1:
        return add
    pairs = slice(0, steps - steps % 2, 2), slice(1, steps, 2)
    (keep_1, keep_2), (add_1, add_2) = ([part[:, which] for which in pairs] for part in (keep, add))
    second = scan(keep_2 * keep_1, torch.addcmul(add_2, keep_2, add_1))  # h after each pair: [R, T // 2, D]
    before = second[:, : (steps - 1) // 2]
    first = torch.cat([add[:, :1], torch.addcmul(add[:, 2::2], keep[:, 2::2], before)], dim=1)  # after its first step
    both = torch.stack([first[:, : steps // 2], second], dim=2).flatten(1, 2)
    return torch.cat([both, first[:, steps // 2 :]], dim=1)


class MinGRU(Layer):
    """The minimal gated recurrent unit: a learned moving average of what it reads, component by component."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.inputs = inputs
        self.width = width
        self.project = nn.Linear(inputs, 2 * width)  # W_z, W_n

    def begin(self, rows: int, *, capacity: int | None = None, device: torch.device | str, dtype: torch.dtype) -> State:
        exact = torch.promote_types(dtype, torch.float32)
        return {"hidden": torch.zeros(rows, self.width, device=device, dtype=exact)}

    def forward(self, x: Tensor, state: State, span: Span) -> tuple[Tensor, State]:
        update, candidate = self.gates(x)
        hidden = self.run(update, candidate, state["hidden"].to(update.dtype))
        return hidden.to(x.dtype), {"hidden": last(hidden, state["hidden"].to(hidden.dtype), span)}

    def explain(self, x: Tensor, state: State, span: Span) -> tuple[Tensor, State, State]:
        """The recurrent form, word by word."""
        update, candidate = self.gates(x)
        update, candidate = note("update", update), note("candidate", candidate)
        hidden, steps = state["hidden"].to(update.dtype), []
        for t, (z, n) in enumerate(zip(update.unbind(dim=1), candidate.unbind(dim=1), strict=True)):
            at_step(t)
            hidden = note("hidden", (1 - z) * hidden + z * n)
            steps.append(hidden)
        at_step(None)
        every = torch.stack(steps, dim=1)
        new = {"hidden": last(every, state["hidden"].to(every.dtype), span)}
        return every.to(x.dtype), new, {"update": update, "candidate": candidate, "hidden": every}

    def gates(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """z and n [R, T, width]."""
        exact = torch.promote_types(x.dtype, torch.float32)
        update, candidate = self.project(x).to(exact).chunk(2, dim=-1)
        return update.sigmoid(), candidate

    def run(self, update: Tensor, candidate: Tensor, hidden: Tensor) -> Tensor:
        """Every h_t [R, T, width], from h_0 [R, width]."""
        keep = 1 - update
        first = torch.addcmul(update[:, :1] * candidate[:, :1], keep[:, :1], hidden[:, None])
        return scan(keep, torch.cat([first, update[:, 1:] * candidate[:, 1:]], dim=1))


class MinGRUBlock(Layer):
    """x = x + W_o minGRU(RMSNorm(x));  x = x + FF(RMSNorm(x)). `inner` is the recurrence's width."""

    def __init__(self, width: int, inner: int, feedforward: FeedForward, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.recurrence = MinGRU(width, inner)
        self.output = nn.Linear(inner, width)
        self.drop_output = nn.Dropout(dropout)
        self.feedforward = feedforward
        self.recurrence_norm = rms_norm(width)
        self.feedforward_norm = rms_norm(width)

    def begin(self, rows: int, *, capacity: int | None = None, device: torch.device | str, dtype: torch.dtype) -> State:
        return self.recurrence.begin(rows, capacity=capacity, device=device, dtype=dtype)

    def forward(self, x: Tensor, state: State, span: Span) -> tuple[Tensor, State]:
        hidden, state = self.recurrence(self.recurrence_norm(x), state, span)
        x = x + self.drop_output(self.output(hidden))
        x = x + self.feedforward(self.feedforward_norm(x))
        return x, state

    def explain(self, x: Tensor, state: State, span: Span) -> tuple[Tensor, State, State]:
        hidden, state, parts = self.recurrence.explain(self.recurrence_norm(x), state, span)
        x = x + self.drop_output(self.output(hidden))
        changed = note("feedforward", self.feedforward(self.feedforward_norm(x)))
        memory = parts.pop("hidden")
        return x + changed, state, {**parts, "memory": memory, "feedforward": changed}
