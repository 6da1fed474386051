"""A layer: a sequence of vectors in, a sequence of context-aware vectors out, and the state for the next call.

y, state = layer(x, state, span)        the lecture's prediction, state = model(word, state), for one layer
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from regard.layers.state import Span, State


class Layer(nn.Module):
    """The base class and the contract of all layers. Layers of equal width can be stacked.

    - Splitting a sequence into several calls does not change the result, and column t never depends on later columns.
    - The output of padded columns is finite. The returned state of row r is its state after span.lengths[r] columns.
    - A call does not modify the given state, unless `begin` was given a capacity: then caches are updated in place.
    - Nothing is stored on the module between calls, and no Python branch depends on the value of a tensor.
    """

    caches = False  # its state is only a cache, so {} suffices for a text that is read in one call
    exact: tuple[str, ...] = ()  # methods that sum over a whole text, in fp32 also when a model is trained in bf16

    def begin(self, rows: int, *, capacity: int | None = None, device: torch.device | str, dtype: torch.dtype) -> State:
        """The state before any token.

        Args:
            rows: The number of texts R.
            capacity: Room for this many tokens in tensors of fixed shape; without it, the state grows.
            device: The device of its tensors.
            dtype: Their precision.

        Returns:
            The state: nested dicts of tensors, rows first.
        """
        raise NotImplementedError

    def forward(self, x: Tensor, state: State, span: Span) -> tuple[Tensor, State]:
        """Read columns of vectors.

        Args:
            x: The vectors [R, T, D].
            state: The state before them.
            span: The position of the columns in each row's text, and how many are real.

        Returns:
            y [R, T, D'], and the state after each row's last real column.
        """
        raise NotImplementedError

    def explain(self, x: Tensor, state: State, span: Span) -> tuple[Tensor, State, State]:
        """`forward` by the written equation, step by step.

        Args:
            x: The vectors [R, T, D].
            state: The state before them.
            span: The position of the columns in each row's text, and how many are real.

        Returns:
            y, the state, and the parts of the computation by name, rows first.
        """
        raise NotImplementedError
