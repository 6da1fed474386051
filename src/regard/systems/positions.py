"""The settings of a system that reads where words stand: which encoding, and whether it is added or concatenated."""

from __future__ import annotations

from regard.errors import RegardError
from regard.layers.position import Index, Learned, OneHot, Position, Sine, Sinusoid
from regard.settings import Checked


class PositionSettings(Checked):
    """For a `Settings` that has these fields."""

    width: int
    context: int
    position: str
    combine: str
    tied: bool

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.combine == "concatenate":
            self._check_concatenation()
        elif self.position == "one-hot" and self.context > self.width:
            raise RegardError(
                f"model.position one-hot needs a component for each place: model.context ({self.context}) "
                f"must not exceed model.width ({self.width})."
            )

    def _check_concatenation(self) -> None:
        if self.position in ("none", "rotary"):
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
        """Components of a position's vector; where it is free to choose and concatenated, a quarter of the width."""
        own = {"none": 0, "rotary": 0, "index": 1, "one-hot": self.context}
        return own.get(self.position, self.width if self.combine == "add" else max(1, self.width // 4))

    def encoding(self) -> Position | None:
        """The position's part of the embedding; rotary has none, it acts inside attention."""
        match self.position:
            case "index":
                return Index()
            case "one-hot":
                return OneHot(self.context)
            case "sine":
                return Sine(self.position_width)
            case "sinusoid":
                return Sinusoid(self.position_width)
            case "learned":
                return Learned(self.context, self.position_width)
        return None


def check_heads(width: int, heads: int, position: str) -> None:
    """Heads share the width equally, and rotary positions turn the components of a head in pairs."""
    if width % heads:
        raise RegardError(f"model.heads ({heads}) must divide model.width ({width}).")
    if position == "rotary" and width // heads % 2:
        raise RegardError(
            f"model.position rotary turns pairs of components: model.width / model.heads must be even, "
            f"not {width // heads}."
        )
