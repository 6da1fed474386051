"""The settings of positions: which kind, and whether it is added or concatenated."""

from __future__ import annotations

from regard.base.errors import RegardError
from regard.base.settings import CheckedSettings
from regard.layers.position import POSITIONS, Position, Rotary, at_input


class PositionSettings(CheckedSettings):
    """A mixin for `Settings` with these fields."""

    width: int
    context: int
    position: str
    combine: str
    tied: bool

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.combine == "concatenate":
            self._check_concatenation()
        elif self.position_width > self.width:
            raise RegardError(
                f"model.position {self.position} needs a component for each position: model.context ({self.context}) "
                f"must not exceed model.width ({self.width})."
            )

    def _check_concatenation(self) -> None:
        if not self.position_width:
            raise RegardError(
                f"model.combine concatenate has nothing to concatenate with model.position {self.position}; use add."
            )
        if self.tied:
            raise RegardError(
                "model.combine concatenate makes word vectors narrower than model.width, so they cannot predict: "
                "set model.tied to false."
            )
        if self.position_width >= self.width:
            raise RegardError(
                f"model.position {self.position} takes {self.position_width} components and leaves none of model.width "
                f"({self.width}) for the word: make model.width larger or model.context smaller."
            )

    @property
    def position_width(self) -> int:
        """Components of a position's vector; if concatenated and not fixed by its kind, a quarter of the width."""
        free = self.width if self.combine == "add" else max(1, self.width // 4)
        return POSITIONS[self.position].components(free, self.context)

    def encoding(self) -> Position | None:
        """The position for the embedding; None if it acts inside attention, or not at all."""
        return at_input(self.position, self.position_width, self.context)


def check_heads(width: int, heads: int, position: str) -> None:
    """Checks that heads divide the width, and that rotary positions get an even number of components per head."""
    if width % heads:
        raise RegardError(f"model.heads ({heads}) must divide model.width ({width}).")
    if POSITIONS[position] is Rotary and width // heads % 2:
        raise RegardError(
            f"model.position {position} rotates pairs of components, so model.width / model.heads must be even, "
            f"not {width // heads}."
        )
