"""Context without recurrence or attention: the average of all words, or the last words concatenated.

average     c_t = (x_1 + … + x_t) / t                 any length, no order        Iyyer et al. 2015
window      c_t = [x_{t-n+2} ; … ; x_{t-1} ; x_t]     n − 1 words, in order       Bengio et al. 2003
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from regard.layers.layer import Layer
from regard.layers.state import Span, State, last


class Average(Layer):
    """The uniform average of everything read so far; it carries the running sum, in fp32 or better."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width

    def begin(self, rows: int, *, capacity: int | None = None, device: torch.device | str, dtype: torch.dtype) -> State:
        exact = torch.promote_types(dtype, torch.float32)
        return {"sum": torch.zeros(rows, self.width, device=device, dtype=exact)}

    def forward(self, x: Tensor, state: State, span: Span) -> tuple[Tensor, State]:
        exact = torch.promote_types(x.dtype, torch.float32)
        before = state["sum"].to(exact)
        sums = before[:, None] + x.cumsum(dim=1, dtype=exact)  # [R, T, D]; padding comes last
        count = span.positions(x.size(1)) + 1
        return (sums / count[..., None]).to(x.dtype), {"sum": last(sums, before, span)}

    def explain(self, x: Tensor, state: State, span: Span) -> tuple[Tensor, State, State]:
        average, state = self(x, state, span)
        count = span.positions(x.size(1)) + 1
        return average, state, {"average": average, "weight": 1.0 / count}  # the same weight for every word so far


class Window(Layer):
    """The last `words` vectors, oldest first, concatenated; before the start of the text there is a trained vector."""

    def __init__(self, inputs: int, words: int) -> None:
        super().__init__()
        self.inputs = inputs
        self.words = words
        self.width = inputs * words
        self.start = nn.Parameter(torch.empty(inputs).uniform_(-0.1, 0.1))

    def begin(self, rows: int, *, capacity: int | None = None, device: torch.device | str, dtype: torch.dtype) -> State:
        return {"window": torch.zeros(rows, self.words, self.inputs, device=device, dtype=dtype)}

    def forward(self, x: Tensor, state: State, span: Span) -> tuple[Tensor, State]:
        words, new = self._slide(x, state, span)
        return words.flatten(2), new

    def explain(self, x: Tensor, state: State, span: Span) -> tuple[Tensor, State, State]:
        words, new = self._slide(x, state, span)
        return words.flatten(2), new, {"window": words}

    def _slide(self, x: Tensor, state: State, span: Span) -> tuple[Tensor, State]:
        """The window at each column, [R, T, n − 1, D], and the one after each row's last real column."""
        before = state["window"].to(x.dtype)
        windows = torch.cat([before, x], dim=1).unfold(1, self.words, 1).transpose(2, 3)  # [R, T + 1, n − 1, D]
        back = torch.arange(self.words - 1, -1, -1, device=x.device)  # distance of each place of the window
        read = span.positions(x.size(1))[..., None] >= back  # [R, T, n − 1]
        words = torch.where(read[..., None], windows[:, 1:], self.start.to(x.dtype))
        return words, {"window": last(windows[:, 1:], before, span)}
