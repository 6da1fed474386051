"""One layer whose arithmetic can be shown, and `view`, which finds it by the layer's class.

A new layer registers a function in the file of its family:

    @view.register(MyLayer)
    def _(layer, x, inside, name, words): return f"layer/{name}", LayerView(sections, words=words)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import singledispatch

from torch import Tensor, nn

from regard.insight.arithmetic.equation import Section
from regard.layers.state import State

Sections = list[Section]
SectionsAt = Callable[[int, int], Sections]  # at a step, for a head


@dataclass(frozen=True)
class LayerView:
    """The arithmetic of one layer at any step."""

    sections: SectionsAt
    heads: int = 0  # 0: it has none
    words: tuple[str, ...] = ()  # the token that each step reads
    before: bool = False  # a translator's encoder: its steps are those of the source


@singledispatch
def view(layer: nn.Module, x: Tensor, inside: State, name: str, words: tuple[str, ...]) -> tuple[str, LayerView]:
    """The name and the arithmetic of layer number `name` of a language model.

    Args:
        layer: the layer; functions are registered by its class.
        x: its input, [1, T, D].
        inside: its parts, as `explain` returned them.
        name: its number as text.
        words: the token of each step.

    Raises:
        NotImplementedError: the layer is a user's own.
    """
    raise NotImplementedError(type(layer).__name__)
