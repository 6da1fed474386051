"""How a setting is declared and checked: a field with one line of documentation and its bounds; errors name its key.

@dataclass(frozen=True)
class Settings(CheckedSettings):
    dropout: float = setting(0.1, "rate on the embedding", **RATE)
    norm: str = setting("tanh", "of the hidden layer: {}", choices=("tanh", "relu"))
"""

from __future__ import annotations

import difflib
import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import Field, field, fields
from typing import Any, ClassVar

from regard.base.errors import RegardError
from regard.base.synonyms import OPTIONS, SETTINGS, from_synonym

RATE: dict[str, Any] = {"ge": 0, "lt": 1}  # dropout, label smoothing
MAX_LAYERS = 1000  # deeper than any model that was ever trained; more would never be built
LARGEST = 3.4e38  # a number of 32 bits
BOUNDS = {  # each is false for NaN, which is therefore never within bounds
    "ge": ("at least", "≥", operator.ge),
    "gt": ("above", ">", operator.gt),
    "le": ("at most", "≤", operator.le),
    "lt": ("below", "<", operator.lt),
}


def setting(default: Any, doc: str, *, choices: Sequence[str] = (), unset: float | None = None, **bounds: float) -> Any:
    """A dataclass field with its documentation and what it may be: `ge`, `gt`, `le`, `lt`, or `choices`.

    `{}` in the documentation stands for the choices. `unset` is a value outside the bounds that means "not set: it
    follows from something else".
    """
    assert bounds.keys() <= BOUNDS.keys(), f"unknown bounds: {bounds}"
    doc = doc.replace("{}", f"{', '.join(choices[:-1])} or {choices[-1]}") if choices else doc
    return field(default=default, metadata={"doc": doc, "choices": tuple(choices), "unset": unset, "bounds": bounds})


def documentation(one: Field[Any]) -> str:
    """The line beside a setting in `--print-recipe`, with its bounds."""
    marks = ", ".join(f"{BOUNDS[name][1]} {_plain(number)}" for name, number in one.metadata.get("bounds", {}).items())
    return one.metadata.get("doc", "") + (f" ({marks})" if marks else "")


class CheckedSettings:
    """A frozen dataclass of settings that refuses a wrong value where it is given."""

    section: ClassVar[str] = "model"

    def __post_init__(self) -> None:
        for one in fields(self):  # type: ignore[arg-type]  # subclasses are dataclasses
            key, value, meta = f"{self.section}.{one.name}", getattr(self, one.name), one.metadata
            if meta.get("choices"):
                check_choice(key, value, meta["choices"])
            if value != meta.get("unset"):
                _check_bounds(key, value, meta.get("bounds", {}), meta.get("unset"))
            if isinstance(value, float) and not abs(value) <= LARGEST:
                raise RegardError(f"{key} must be a number of magnitude at most {LARGEST:g}, not {value}.")


def _check_bounds(key: str, value: float, bounds: dict[str, float], unset: float | None) -> None:
    if not all(BOUNDS[name][2](value, number) for name, number in bounds.items()):
        allowed = " and ".join(f"{BOUNDS[name][0]} {_plain(number)}" for name, number in bounds.items())
        raise RegardError(f"{key} must be {allowed}{'' if unset is None else f', or {unset:g}'}, not {value}.")


def _plain(number: float) -> str:
    return str(int(number)) if number == int(number) else str(number)


def check_choice(key: str, value: Any, allowed: Sequence[str]) -> None:
    if not isinstance(value, str) or value not in allowed:
        raise RegardError(f"{key} must be one of {', '.join(allowed)}, not {value!r}.")


def check_range(key: str, value: float, least: float, most: float = 2**31 - 1) -> None:
    """For an option: bounded above as well, since no count that makes sense needs more than 31 bits."""
    if not value >= least:
        raise RegardError(f"{key} must be at least {least}, not {value}.")
    if not value <= most:
        raise RegardError(f"{key} must be at most {most}, not {value}.")


def did_you_mean(word: str, known: Sequence[str] | Mapping[str, str], listed: Sequence[str] = ()) -> str:
    """`: did you mean X?` where something close or of the same meaning is known, else what there is (or is `listed`).

    `known` may say of each in a few words what it is, for a word of another toolkit that means nearly the same.
    """
    by_name = {name.lstrip("-"): name for name in known}
    if found := from_synonym(word, SETTINGS, by_name) or from_synonym(word, OPTIONS, by_name):
        about = known.get(by_name[found], "") if isinstance(known, Mapping) else ""
        return f": did you mean {by_name[found]}{f' ({about})' if about else ''}?"
    last = word.lstrip("-").replace("-", "_")
    if whole := [name for name in known if name.rpartition(".")[2] == last and "." in name]:  # --steps: training.steps
        return f": did you mean {whole[0]}?"
    near = closest(word, known)
    return f": did you mean {near[0]}?" if near else f"; choose one of {', '.join(listed or known)}."


def closest(word: str, known: Iterable[str]) -> list[str]:
    """The known names that are spelled much alike, the nearest first; capitals do not matter."""
    by_letters = {name.casefold(): name for name in known}  # LSTM is lstm
    return [by_letters[near] for near in difflib.get_close_matches(word.casefold(), by_letters)]
