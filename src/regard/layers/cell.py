"""A cell: a recurrent layer that says only what one step does. Walking through the text is the same for all of them.

h_t, … = step(x_t, h_{t-1}, …)        Elman 1990; the lecture's prediction, hidden_state = my_rnn(word, hidden_state)
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from regard.errors import RegardError
from regard.layers.layer import Layer
from regard.layers.state import Span, State


class Cell(Layer):
    """A subclass says what it carries (`memory`) and how one step changes it (`step`); the rest is inherited.

    class Fading(Cell):
        def __init__(self, inputs, width):
            super().__init__(inputs, width)
            self.input = nn.Linear(inputs, width)

        def step(self, x, state):
            return {"hidden": 0.9 * state["hidden"] + self.input(x).tanh()}
    """

    memory: tuple[str, ...] = ("hidden",)  # the tensors [R, width] it carries; "hidden" is also its output

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.inputs = inputs
        self.width = width

    def step(self, x: Tensor, state: State) -> State:
        """One word: x [R, inputs] and the memory before it → the memory after it.

        Whatever else it returns, [R, …] by name, is shown by `explain` and not carried on.
        """
        raise NotImplementedError

    def begin(self, rows: int, *, capacity: int | None = None, device: torch.device | str, dtype: torch.dtype) -> State:
        return {name: torch.zeros(rows, self.width, device=device, dtype=dtype) for name in self.memory}

    def forward(self, x: Tensor, state: State, span: Span) -> tuple[Tensor, State]:
        hidden, state, _ = walk(self.step, x, state, span)
        return hidden, state

    def explain(self, x: Tensor, state: State, span: Span) -> tuple[Tensor, State, State]:
        return walk(self.step, x, state, span)


def walk(step: Callable[[Tensor, State], State], x: Tensor, state: State, span: Span) -> tuple[Tensor, State, State]:
    """One step for each column of x [R, T, D]: what "hidden" was, the state at the end, and all parts, each [R, T, …].

    A padded column leaves its row's memory as it was, so that the state at the end is each row's own.
    """
    valid = span.valid(x.size(1))
    carried = {name: value.to(x.dtype) for name, value in state.items()}  # may come from a call in another precision
    steps: list[State] = []
    for t in range(x.size(1)):
        new = step(x[:, t], carried)
        if missing := [name for name in carried if name not in new]:
            raise RegardError(f"a step must return everything the cell carries: {', '.join(missing)} is missing.")
        if valid is not None:
            kept = {name: torch.where(valid[:, t, None], new[name], old) for name, old in carried.items()}
            new = {**new, **kept}
        steps.append(new)
        carried = {name: new[name] for name in carried}
    parts: State = {name: torch.stack([new[name] for new in steps], dim=1) for name in steps[0]}
    return parts["hidden"], carried, parts
