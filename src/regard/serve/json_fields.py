"""What is in a request's JSON: read strictly, refused in one sentence that names the field."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping
from typing import Any

from regard.base.settings import meant


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


def refuse_unknown(given: Mapping[str, Any], known: Collection[str]) -> None:
    for name in given:
        if name not in known:
            raise BadRequest(f"There is no field {shown(name)}{meant(name[:100], sorted(known))}", name[:100])


def shown(value: Any) -> str:
    """A value in a sentence, however long it was."""
    text = (
        json.dumps(value, ensure_ascii=False) if isinstance(value, str | int | float | bool) else type(value).__name__
    )
    return text if len(text) <= 60 else f"{text[:57]}…"


def number(given: Mapping[str, Any], name: str, default: float, least: float, most: float) -> float:
    value = given.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadRequest(f"{name} must be a number, not {shown(value)}.", name)
    if not least <= value <= most or not math.isfinite(value):
        raise BadRequest(f"{name} must be from {least:g} to {most:g}, not {shown(value)}.", name)
    return float(value)


def integer(given: Mapping[str, Any], name: str, default: int, least: int, most: int) -> int:
    value = given.get(name)
    if value is None:
        return default
    if isinstance(value, float) and value.is_integer():  # JSON knows no difference
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadRequest(f"{name} must be a whole number, not {shown(value)}.", name)
    if not least <= value <= most:
        raise BadRequest(f"{name} must be from {least} to {most}, not {shown(value)}.", name)
    return value


def flag(given: Mapping[str, Any], name: str) -> bool:
    value = given.get(name)
    if value is not None and not isinstance(value, bool):
        raise BadRequest(f"{name} must be true or false, not {shown(value)}.", name)
    return bool(value)


def string(given: Mapping[str, Any], name: str, default: str | None = None) -> str:
    value = given.get(name, default)
    if not isinstance(value, str):
        said = f"not {shown(value)}" if name in given else "and is missing"
        raise BadRequest(f"{name} must be a text, {said}.", name)
    return value
