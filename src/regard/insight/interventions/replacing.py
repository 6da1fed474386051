"""Changes by name, as sent by a page: "zero self/0[2]" removes a head, "mean layer/0/cell@3" replaces a state by its
mean over the words of the text, "swap embedding@2" uses the value from another text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torch import Tensor

from regard.base.errors import RegardError
from regard.base.settings import check_choice, did_you_mean
from regard.insight.interventions.changing import BY_HEAD, Change, Place, names_of
from regard.insight.interventions.reading import Reading

WAYS = ("zero", "mean", "swap")


def replacements(wanted: Sequence[str], reading: Reading, other: Reading | None = None) -> dict[str, Change]:
    """For `intervene`: the new value of each place. `other` is the text that values are swapped with."""
    own = reading.parts() if any(not one.startswith("zero ") for one in wanted) else {}
    theirs = other.parts() if other is not None else {}
    found: dict[str, Change] = {}
    for one in wanted:
        way, _, name = one.partition(" ")
        check_choice("a change", way, WAYS)
        place = Place.parse(name)
        if way != "zero" and name.startswith("order/"):
            raise RegardError("An n-gram order can only be removed, not changed.")
        if way == "zero":
            found[name] = 0.0
            continue
        if way == "swap" and other is None:
            raise RegardError("Swapping needs a second text of equal length: enter one.")
        parts = own if way == "mean" else theirs
        if place.part not in parts:
            raise RegardError(f"There is no place {place.name!r}{did_you_mean(place.name, names_of(list(parts)))}")
        found |= dict(_values(name, place, parts[place.part], None if way == "mean" else own[place.part]))
    return found


def _values(name: str, place: Place, part: Tensor, own: Tensor | None) -> Iterator[tuple[str, Change]]:
    """The mean of a part over its columns; where `own` is given, the part's value at each column that is replaced."""
    axis = 2 if place.part.rpartition("/")[2] in BY_HEAD else 1
    place.region(part)  # raises an error for a column or component that does not exist
    if part.dim() < 3:  # the vector of a whole text has no columns
        yield name, _component(part, place, axis)
    elif own is None:
        yield name, _component(part.float().mean(axis), place, axis, everywhere=place.column is None)
    elif place.column is None and part.shape != own.shape:
        raise RegardError(
            f"The texts have {own.size(axis)} and {part.size(axis)} tokens: swap {place.name} at one word, or choose a "
            "text of equal length."
        )
    else:
        for column in range(part.size(axis)) if place.column is None else [place.column]:
            yield f"{name.partition('@')[0]}@{column}", _component(part.select(axis, column), place, axis)


def _component(value: Tensor, place: Place, axis: int, everywhere: bool = False) -> Tensor:
    """The head, the unit or all of one column [1, H, d] or [1, D]; `everywhere`: for all columns."""
    if place.index is None:
        return value[0, :, None] if axis == 2 and everywhere else value[0]
    return value[0, place.index] if axis == 2 else value[0, ..., place.index]
