"""A cell: a recurrent layer defined by one step. The loop over the text is the same for all cells.

h_t, … = step(x_t, h_{t-1}, …)        Elman 1990; the lecture's prediction, hidden_state = my_rnn(word, hidden_state)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from regard.base.errors import RegardError
from regard.layers.layer import Layer
from regard.layers.parts import at_step, note
from regard.layers.state import Span, State


class Cell(Layer):
    """The base class of recurrent layers: a subclass defines its state (`memory`) and one step (`step`).

    Example:
        class Fading(Cell):
            def __init__(self, inputs, width):
                super().__init__(inputs, width)
                self.input = nn.Linear(inputs, width)

            def step(self, x, state):
                return {"hidden": 0.9 * state["hidden"] + self.input(x).tanh()}

    Args:
        inputs: The width of the input vectors.
        width: The width of the state.
    """

    memory: tuple[str, ...] = ("hidden",)  # the tensors [R, width] it carries; "hidden" is also its output

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.inputs = inputs
        self.width = width

    def step(self, x: Tensor, state: State) -> State:
        """Read one word.

        Args:
            x: Its vectors [R, inputs].
            state: The memory before it, by name, each [R, width].

        Returns:
            The memory after it. Anything else, [R, …] by name, is shown by `explain` and is not part of the state.
        """
        raise NotImplementedError

    def begin(self, rows: int, *, capacity: int | None = None, device: torch.device | str, dtype: torch.dtype) -> State:
        if isinstance(self.memory, str):
            raise RegardError(f'memory = "{self.memory}" is a string, not a tuple: write memory = ("hidden",).')
        if "hidden" not in self.memory:
            wanted = ", ".join(f'"{name}"' for name in ("hidden", *self.memory))
            raise RegardError(f'memory must contain "hidden", which is also the output: write memory = ({wanted}).')
        return {name: torch.zeros(rows, self.width, device=device, dtype=dtype) for name in self.memory}

    def forward(self, x: Tensor, state: State, span: Span) -> tuple[Tensor, State]:
        hidden, state, _ = unroll(self.step_function(), x, state, span)
        return hidden, state

    def explain(self, x: Tensor, state: State, span: Span) -> tuple[Tensor, State, State]:
        return unroll(self.step_function(), x, state, span)

    def step_function(self) -> Callable[[Tensor, State], State]:
        """The step for one call; random choices that hold for all steps of a call are made here.

        Returns:
            A function of the vectors and the memory, as `step` is.
        """
        return self._checked_step

    def _checked_step(self, x: Tensor, state: State) -> State:
        """The step, with clear errors if it reads or returns something wrong."""
        new = self.step(x, StepState(state))
        if not isinstance(new, dict):
            raise RegardError(
                f'a step must return a dict of tensors such as {{"hidden": …}}, not a {type(new).__name__}.'
            )
        if missing := [name for name in state if name not in new]:
            raise RegardError(f"a step must return everything the cell carries: {', '.join(missing)} is missing.")
        for name, before in state.items():
            if not isinstance(new[name], Tensor):
                raise RegardError(f"a step must return {name} as a tensor, not as a {type(new[name]).__name__}.")
            if new[name].shape != before.shape:
                raise RegardError(
                    f"a step must return {name} in the shape it was given, here {list(before.shape)}, "
                    f"not {list(new[name].shape)}."
                )
        return new


class StepState(dict[str, Any]):
    """The state given to a step: a copy of the dict, so that a step cannot change the caller's."""

    def __missing__(self, name: str) -> Tensor:
        carried = ", ".join(f'"{each}"' for each in (*self, name))
        raise RegardError(f"step requires '{name}', which the cell does not carry: write memory = ({carried}).")


def unroll(step: Callable[[Tensor, State], State], x: Tensor, state: State, span: Span) -> tuple[Tensor, State, State]:
    """One step for each column of x [R, T, D]: "hidden" at each, the state at the end, and all parts, each [R, T, …].

    A padded column leaves its row's memory as it was, so that the state at the end is each row's own.
    """
    valid = span.valid(x.size(1))
    carried = {name: value.to(x.dtype) for name, value in state.items()}  # may come from a call in another precision
    steps: list[State] = []
    columns = x.unbind(1)  # each x[:, t] would have a gradient as large as x
    for t in range(x.size(1)):
        at_step(t)
        new = step(columns[t], carried)
        new = {**new, **{name: note(name, new[name]) for name in carried}}  # a user's own step notes nothing itself
        if valid is not None:
            kept = {name: torch.where(valid[:, t, None], new[name], old) for name, old in carried.items()}
            new = {**new, **kept}
        steps.append(new)
        carried = {name: new[name] for name in carried}
    at_step(None)
    parts: State = {name: torch.stack([new[name] for new in steps], dim=1) for name in steps[0]}
    return parts["hidden"], carried, parts
