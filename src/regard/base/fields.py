"""Values from outside (JSON, query strings, forms): one declaration per request, and one place that checks it.

    @dataclass(frozen=True)
    class Translate(Fields):
        text: str = text(max_length=5000, lines=True, doc="the sentence")
        beam: int = whole(5, ge=1, le=20, doc="hypotheses that are kept")

    Translate.read({"text": "a cat", "beam": 3}).beam            # 3
    Translate.read_query([("text", "a cat"), ("beam", "3")])     # the same from ?text=a+cat&beam=3

Lengths are checked before anything works on a value: before digits become a number, and before text becomes a path or a
word of a command. For any input, the only exception raised is FieldError, with one sentence that names the field.
`schema` has the same names, bounds, defaults and documentation for an OpenAPI document.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, dataclass, field
from functools import partial
from typing import Any, ClassVar, Self

from regard.base.errors import RegardError
from regard.base.numbers import group_digits
from regard.base.settings import did_you_mean

DIGITS = 18  # of a whole number: it fits into 64 bits
SHOWN = 60  # characters of a value in a sentence
BREAKS = re.compile("[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")  # where str.splitlines ends a line
DECIMAL = re.compile(r"[+-]?(?:[0-9]{1,40}(?:\.[0-9]{0,40})?|\.[0-9]{1,40})(?:[eE][+-]?[0-9]{1,4})?")


class FieldError(RegardError):
    """A field that cannot be used; the sentence names it, and so does `field`."""

    def __init__(self, sentence: str, field: str | None) -> None:
        super().__init__(sentence)
        self.field = field


def is_number(value: Any) -> bool:
    """True for a finite number."""
    return isinstance(value, (int, float)) and math.isfinite(value)


def whole_number(digits: str) -> int | None:
    """The number that 1 to 18 ASCII digits write; None for any other text."""
    return int(digits) if len(digits) <= DIGITS and digits.isascii() and digits.isdecimal() else None


def shown(value: Any) -> str:
    """A value in a sentence, however long it is."""
    if isinstance(value, int) and value.bit_length() > 8 * SHOWN:
        return "a number with too many digits"
    if not isinstance(value, str | int | float):
        return type(value).__name__
    text = json.dumps(value[: 2 * SHOWN] if isinstance(value, str) else value, ensure_ascii=False)
    text = text.encode("utf-8", "backslashreplace").decode()  # half a surrogate pair
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 3]}…"


# -- kinds of fields -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Field(ABC):
    """The kinds of values a field may have."""

    suggested: ClassVar[bool] = True  # for a misspelled name
    doc: str = ""

    @property
    @abstractmethod
    def noun(self) -> str:
        """With its article, for a sentence."""

    @abstractmethod
    def read(self, name: str, value: Any, *, texts: bool = False) -> Any:
        """The value, checked. `texts`: it comes from a query or a form, where numbers are digits."""

    def schema(self) -> dict[str, Any]:
        """JSON Schema of its values; kinds that no document uses allow everything."""
        return {}

    def refuse(self, name: str, value: Any) -> FieldError:
        return FieldError(f"{name} must be {self.noun}, not {shown(value)}.", name)


@dataclass(frozen=True, kw_only=True)
class TextField(Field):
    """One line of at most `max_length` characters, or several with `lines`; None allows any text. `pattern` is a
    regular expression for all of it, and `expected` describes it in the error sentence. `file`: the name of a file or
    folder, which need not be Unicode on every system."""

    max_length: int | None = 300
    min_length: int = 0
    lines: bool = False
    pattern: str = ""
    expected: str = ""
    file: bool = False

    @property
    def noun(self) -> str:
        return self.expected or "a string"

    def read(self, name: str, value: Any, *, texts: bool = False) -> str:
        if not isinstance(value, str) or len(value) < self.min_length:
            raise self.refuse(name, value)
        if self.max_length is None:
            return value
        if len(value) > self.max_length:
            most, length = group_digits(self.max_length), group_digits(len(value))
            raise FieldError(f"{name} must have at most {most} characters, not {length}.", name)
        try:
            os.fsencode(value) if self.file else value.encode()
        except UnicodeEncodeError:
            raise FieldError(f"{name} is not valid Unicode: it contains an unpaired surrogate.", name) from None
        if "\0" in value:
            raise FieldError(f"{name} contains a NUL character: remove it.", name)
        if not self.lines and BREAKS.search(value):
            raise FieldError(f"{name} must be one line: remove the line breaks.", name)
        if self.pattern and not re.fullmatch(self.pattern, value):
            raise self.refuse(name, value)
        return value

    def schema(self) -> dict[str, Any]:
        bounds = {"minLength": self.min_length or None, "maxLength": self.max_length}
        return {"type": "string", **{key: bound for key, bound in bounds.items() if bound is not None}}


@dataclass(frozen=True, kw_only=True)
class WholeField(Field):
    ge: int
    le: int

    noun = "a whole number"

    def read(self, name: str, value: Any, *, texts: bool = False) -> int:
        number = value
        if texts and isinstance(value, str):
            text = value.strip(" ")
            number = whole_number(text.removeprefix("-"))
            number = -number if number is not None and text.startswith("-") else number
        elif isinstance(value, float) and value.is_integer():  # JSON has no other whole numbers
            number = int(value)
        if isinstance(number, bool) or not isinstance(number, int):
            raise self.refuse(name, value)
        if not self.ge <= number <= self.le:
            raise FieldError(f"{name} must be from {self.ge} to {self.le}, not {shown(value)}.", name)
        return number

    def schema(self) -> dict[str, Any]:
        return {"type": "integer", "minimum": self.ge, "maximum": self.le}


@dataclass(frozen=True, kw_only=True)
class NumberField(Field):
    ge: float
    le: float

    noun = "a number"

    def read(self, name: str, value: Any, *, texts: bool = False) -> float:
        number = value
        if texts and isinstance(value, str):
            text = value.strip(" ")
            number = float(text) if DECIMAL.fullmatch(text) else None
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise self.refuse(name, value)
        if not self.ge <= number <= self.le or (isinstance(number, float) and not math.isfinite(number)):
            raise FieldError(f"{name} must be from {self.ge:g} to {self.le:g}, not {shown(value)}.", name)
        return float(number)

    def schema(self) -> dict[str, Any]:
        return {"type": "number", "minimum": self.ge, "maximum": self.le}


@dataclass(frozen=True, kw_only=True)
class FlagField(Field):
    noun = "true or false"

    def read(self, name: str, value: Any, *, texts: bool = False) -> bool:
        if texts and isinstance(value, str):
            found = {"": True, "1": True, "true": True, "0": False, "false": False}.get(value)
        else:
            found = value if isinstance(value, bool) else None
        if found is None:
            raise self.refuse(name, value)
        return found

    def schema(self) -> dict[str, Any]:
        return {"type": "boolean"}


@dataclass(frozen=True, kw_only=True)
class ChoiceField(Field):
    choices: Sequence[str]

    @property
    def noun(self) -> str:
        return f"one of {', '.join(self.choices)}"

    def read(self, name: str, value: Any, *, texts: bool = False) -> str:
        if not isinstance(value, str) or value not in self.choices:
            raise self.refuse(name, value)
        return value

    def schema(self) -> dict[str, Any]:
        return {"enum": list(self.choices)}


@dataclass(frozen=True, kw_only=True)
class ScalarField(Field):
    """A setting as the command line takes it: text, or a number or flag that becomes text."""

    max_length: int = 300

    noun = "a string, a number, or true or false"

    def read(self, name: str, value: Any, *, texts: bool = False) -> str:
        if isinstance(value, bool):
            return str(value).lower()
        if isinstance(value, int | float):
            NumberField(ge=-1e300, le=1e300).read(name, value)
            return str(value)
        if not isinstance(value, str):
            raise self.refuse(name, value)
        return TextField(max_length=self.max_length).read(name, value)


@dataclass(frozen=True, kw_only=True)
class ListField(Field):
    of: Field
    max_length: int
    min_length: int = 0

    @property
    def noun(self) -> str:
        first = f"{self.min_length} to" if self.min_length else "at most"
        return f"a list of {first} {group_digits(self.max_length)} entries"

    def read(self, name: str, value: Any, *, texts: bool = False) -> tuple[Any, ...]:
        if not isinstance(value, list | tuple) or not self.min_length <= len(value) <= self.max_length:
            raise self.refuse(name, value)
        return tuple(self.of.read(f"{name}[{place}]", one, texts=texts) for place, one in enumerate(value))


@dataclass(frozen=True, kw_only=True)
class ManyField(Field):
    """One value of any of the kinds, or a list of such values, which becomes a tuple (`as_tuple`)."""

    kinds: Sequence[Field]
    noun: str = "one value, or several"
    max_length: int
    min_length: int = 0

    def read(self, name: str, value: Any, *, texts: bool = False) -> Any:
        try:
            return self._read_one(name, value)
        except FieldError:
            if not isinstance(value, list) or len(value) < self.min_length:
                raise
        if len(value) > self.max_length:
            raise FieldError(f"{name} has {len(value)} texts; at most {self.max_length} are accepted at once.", name)
        return tuple(self._read_one(name, one) for one in value)

    def _read_one(self, name: str, value: Any) -> Any:
        for kind in self.kinds:
            with suppress(FieldError):
                return kind.read(name, value)
        raise FieldError(f"{name} must be {self.noun}.", name)

    def schema(self) -> dict[str, Any]:
        bounds = ({"minItems": self.min_length} if self.min_length else {}) | {"maxItems": self.max_length}
        ones = [kind.schema() for kind in self.kinds]
        return {"anyOf": [kind for one in ones for kind in (one, {"type": "array", "items": one, **bounds})]}


def as_tuple(value: Any) -> tuple[Any, ...]:
    """The values of a ManyField."""
    return value if isinstance(value, tuple) else (value,)


@dataclass(frozen=True, kw_only=True)
class TableField(Field):
    """An object whose keys are not known before, such as the settings of a system."""

    of: Field
    max_length: int = 200

    @property
    def noun(self) -> str:
        return f"an object of at most {group_digits(self.max_length)} entries"

    def read(self, name: str, value: Any, *, texts: bool = False) -> dict[str, Any]:
        if not isinstance(value, Mapping) or len(value) > self.max_length:
            raise self.refuse(name, value)
        keys = TextField(max_length=100)
        return {keys.read(f"a key of {name}", key): self.of.read(f"{name}.{key}", one) for key, one in value.items()}


@dataclass(frozen=True, kw_only=True)
class ObjectField(Field):
    """An object that is declared by itself."""

    of: type[Fields]

    noun = "an object"

    def read(self, name: str, value: Any, *, texts: bool = False) -> Fields:
        if not isinstance(value, Mapping):
            raise self.refuse(name, value)
        return self.of.read(value)

    def schema(self) -> dict[str, Any]:
        return self.of.schema()


# -- declarations ----------------------------------------------------------------------------------------------------


def declare(kind: type[Field], default: Any = MISSING, **about: Any) -> Any:
    """A field of this kind; a function as its default is called for each request."""
    how: dict[str, Any] = {"default_factory" if callable(default) else "default": default}
    return field(kw_only=True, metadata={"kind": kind(**about)}, **how)


text = partial(declare, TextField)
whole = partial(declare, WholeField)
number = partial(declare, NumberField)
many = partial(declare, ManyField)
flag = partial(declare, FlagField, False)


def choice(choices: Sequence[str], default: Any = MISSING, **about: Any) -> Any:
    return declare(ChoiceField, default, choices=tuple(choices), **about)


def list_of(of: Field, **about: Any) -> Any:
    return declare(ListField, MISSING if about.get("min_length") else (), of=of, **about)


def table_of(of: Field, **about: Any) -> Any:
    return declare(TableField, dict, of=of, **about)


@dataclass(frozen=True)
class Fields:
    """A request; subclasses are frozen dataclasses. A field `from_` has the key `from`. null is a field left out."""

    unsupported: ClassVar[Collection[str]] = ()  # names that other servers know
    ignores_unknown: ClassVar[bool] = False

    @classmethod
    def declared(cls) -> dict[str, dataclasses.Field[Any]]:
        """By key; `metadata["kind"]` has bounds and documentation, `default` is MISSING where a value is required."""
        return {one.name.rstrip("_"): one for one in dataclasses.fields(cls)}

    @classmethod
    def read(cls, given: Mapping[str, Any], *, texts: bool = False) -> Self:
        """From a JSON object. `texts`: numbers may be given as digits, as a form does."""
        known = cls.declared()
        for key in () if cls.ignores_unknown else given:
            word = str(key)[:100]
            if key in cls.unsupported:
                raise FieldError(f"{word} is not supported: remove it.", word)
            if key not in known:
                names = sorted(name for name, one in known.items() if one.metadata["kind"].suggested)
                raise FieldError(f"There is no field {shown(word)}{did_you_mean(word, names)}", word)
        values = {}
        for key, one in known.items():
            kind: Field = one.metadata["kind"]
            if given.get(key) is not None:
                values[one.name] = kind.read(key, given[key], texts=texts)
            elif one.default is MISSING and one.default_factory is MISSING:
                raise FieldError(f"{key} must be {kind.noun}, but is missing.", key)
        return cls(**values)

    @classmethod
    def read_query(cls, pairs: Iterable[tuple[str, str]]) -> Self:
        """From a query string: of a list each entry is a pair, of other fields the last counts."""
        known, given = cls.declared(), dict[str, Any]()
        for key, value in pairs:
            if key in known and isinstance(known[key].metadata["kind"], ListField):
                given.setdefault(key, []).append(value)
            else:
                given[key] = value
        return cls.read(given, texts=True)

    @classmethod
    def schema(cls) -> dict[str, Any]:
        """JSON Schema of what `read` reads."""
        properties, required = {}, []
        for key, one in cls.declared().items():
            kind: Field = one.metadata["kind"]
            schema = kind.schema() | ({"description": kind.doc} if kind.doc else {})
            if one.default is MISSING and one.default_factory is MISSING:
                required.append(key)
            elif "anyOf" in schema:
                schema["anyOf"] = [{"type": "null"}, *schema["anyOf"]]
            elif "enum" in schema:
                schema["enum"] = [*schema["enum"], None]
            elif "type" in schema:
                schema["type"] = [schema["type"], "null"]
            if isinstance(one.default, str | int | float) and one.default != "":
                schema["default"] = one.default
            properties[key] = schema
        made = {"type": "object", "properties": properties} | ({"required": required} if required else {})
        return made if cls.ignores_unknown else {**made, "additionalProperties": False}

    def as_json(self) -> dict[str, Any]:
        """A JSON object that `read` reads as this."""
        return {key: _as_json(getattr(self, one.name)) for key, one in self.declared().items()}


def _as_json(value: Any) -> Any:
    if isinstance(value, Fields):
        return value.as_json()
    return [_as_json(one) for one in value] if isinstance(value, tuple) else value
