"""The state that a model carries from call to call, and the span of a call's columns in each text.

A state is nested dicts of tensors, rows first, and nothing else, so that it can be reordered, exported and captured:

    {"seen": [R] tokens read so far, "past": {...} one row per hypothesis, "source": {...} one row per source}

`seen` alone determines positions. Padding is on the right: of T columns, row r's first lengths[r] are real.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

State = dict[str, Any]  # dict[str, Tensor | State]; a recursive type would make every look-up a cast


class Span(NamedTuple):
    """The position of a call's columns in each row's text; built once by the model, given to every layer."""

    start: Tensor  # [R] tokens the row had seen before this call; [1] = all rows as many
    lengths: Tensor | None = None  # [R] real columns in this call; None = all of them
    host: Tensor | None = None  # the lengths on the CPU, if given there: reading them from a GPU would synchronize

    def positions(self, columns: int) -> Tensor:
        """The position of each column in its row's text: [R, T], or [1, T] if all rows began together."""
        return self.start[:, None] + torch.arange(columns, device=self.start.device)

    def valid(self, columns: int) -> Tensor | None:
        """A mask of the real columns [R, T], or None if all are real."""
        if self.lengths is None:
            return None
        return torch.arange(columns, device=self.lengths.device) < self.lengths[:, None]

    def end(self, columns: int) -> Tensor:
        """The tokens each row has seen after this call: [R], or [1]."""
        return self.start + (columns if self.lengths is None else self.lengths)

    def on_host(self) -> Tensor:
        """The lengths on the CPU, as packing a ragged batch requires."""
        assert self.lengths is not None
        return self.lengths.cpu() if self.host is None else self.host


def span_of(start: Tensor, lengths: Tensor | None) -> Span:
    """The span of a call on the device of `start`; lengths on the CPU are copied there."""
    if lengths is None or lengths.device == start.device:
        return Span(start, lengths)
    return Span(start, lengths.to(start.device, non_blocking=True), lengths if lengths.device.type == "cpu" else None)


def last(sequence: Tensor, initial: Tensor, span: Span) -> Tensor:
    """Each row's value after its own last real column: sequence [R, T, …], initial [R, …] where the length is 0."""
    if span.lengths is None:
        return sequence[:, -1]
    own = span.lengths.view(-1, *[1] * (sequence.dim() - 1))  # [R, 1, …]
    found = sequence.gather(1, (own - 1).clamp(min=0).expand(-1, -1, *sequence.shape[2:]))[:, 0]
    return torch.where(own[:, 0] > 0, found, initial)


def map_state(function: Callable[[Tensor], Tensor], state: State) -> State:
    """The same nested dict with every tensor replaced by function(tensor)."""
    return {
        name: map_state(function, part) if isinstance(part, dict) else function(part) for name, part in state.items()
    }


def select_rows(state: State, index: Tensor) -> State:
    """The hypotheses `index` of a state, as new tensors; the source is unchanged, because hypotheses share it."""
    chosen = map_state(
        lambda leaf: leaf.index_select(0, index), {name: part for name, part in state.items() if name != "source"}
    )
    return {name: state[name] if name == "source" else chosen[name] for name in state}


def select_sources(state: State, sources: Tensor, width: int) -> State:
    """The sources `sources` of a state, each with its `width` hypotheses, as new tensors."""
    rows = (sources[:, None] * width + torch.arange(width, device=sources.device)).flatten()
    return {**select_rows(state, rows), "source": map_state(lambda leaf: leaf[sources], state["source"])}


def spread(state: State, width: int) -> State:
    """Each row repeated `width` times, as new tensors: the initial states of a source's hypotheses."""
    return map_state(lambda leaf: leaf.repeat_interleave(width, dim=0), state)


def detach(state: State) -> State:
    """The same values with no history: gradients stop here (truncated back-propagation through time)."""
    return map_state(Tensor.detach, state)


@torch.no_grad()
def overwrite(state: State, new: State) -> None:
    """Copy every leaf of `new` into the same leaf of `state`, which keeps its shape, dtype and address."""
    for name, part in new.items():
        if isinstance(part, dict):
            overwrite(state[name], part)
        elif part is not state[name]:
            state[name].copy_(part)
