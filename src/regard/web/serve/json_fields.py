"""What is in a request's JSON: read strictly, refused in one sentence that names the field."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any, TypeVar

from regard.base.fields import Field, FieldError, FlagField, NumberField, WholeField, shown
from regard.base.settings import did_you_mean

T = TypeVar("T")


class BadRequest(Exception):
    """The request cannot be answered; the sentence says what to change, `field` where."""

    def __init__(self, sentence: str, field: str | None = None, status: int = 400, code: str | None = None) -> None:
        super().__init__(sentence)
        self.sentence, self.field, self.status, self.code = sentence, field, status, code


def read_object(body: bytes) -> dict[str, Any]:
    """The JSON object of a body; NaN, half characters and what nests too deep are refused."""
    try:
        found = json.loads(
            body.decode("utf-8-sig"), parse_constant=_no_constant
        )  # of bytes, UTF-16 and UTF-32 would be read
        json.dumps(found, ensure_ascii=False).encode()  # half a surrogate pair is no text
    except UnicodeError:
        raise BadRequest("The body is not valid Unicode: send UTF-8, and no half surrogate pairs.") from None
    except (ValueError, RecursionError):
        raise BadRequest(
            "The body is not JSON: send one object, with the header Content-Type: application/json."
        ) from None
    if not isinstance(found, dict):
        raise BadRequest("The body must be one JSON object.")
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(name)


def refuse_unknown(
    given: Mapping[str, Any], known: Collection[str], neutral: Collection[str] = (), unsupported: Collection[str] = ()
) -> None:
    """`neutral` fields are accepted but never suggested: only their neutral value is. `unsupported` ones are those of
    other servers without a counterpart here."""
    for name in given:
        if name in unsupported:
            raise BadRequest(f"{name} is not supported: leave it out.", name)
        if name not in known and name not in neutral:
            raise BadRequest(f"There is no field {shown(name)}{did_you_mean(name[:100], sorted(known))}", name[:100])


def number(given: Mapping[str, Any], name: str, default: float, least: float, most: float) -> float:
    return _read(NumberField(least=least, most=most), given, name, default)


def integer(given: Mapping[str, Any], name: str, default: int, least: int, most: int) -> int:
    return _read(WholeField(least=least, most=most), given, name, default)


def flag(given: Mapping[str, Any], name: str) -> bool:
    return _read(FlagField(), given, name, False)


def _read(kind: Field, given: Mapping[str, Any], name: str, default: T) -> T:
    try:
        return default if given.get(name) is None else kind.read(name, given[name])
    except FieldError as error:
        raise BadRequest(str(error), error.field) from None


def string(given: Mapping[str, Any], name: str, default: str | None = None) -> str:
    value = given.get(name, default)
    if not isinstance(value, str):
        said = f"not {shown(value)}" if name in given else "and is missing"
        raise BadRequest(f"{name} must be a text, {said}.", name)
    return value
