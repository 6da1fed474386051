"""Values from outside: whatever comes, it is read within its bounds or refused in one sentence that names the field."""

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.base.fields import (
    FieldError,
    Fields,
    ListField,
    ManyField,
    NumberField,
    ObjectField,
    ScalarField,
    TableField,
    TextField,
    WholeField,
    choice,
    flag,
    list_of,
    many,
    number,
    shown,
    table_of,
    text,
    whole,
    whole_number,
)
from regard.web.lab import requests as lab
from regard.web.serve import requests as serve


@dataclass(frozen=True)
class Inner(Fields):
    a: int = whole(ge=0, le=9)


@dataclass(frozen=True)
class Asked(Fields):
    word: str = text("", max_length=20)
    page: str = text("", max_length=50, lines=True)
    file: str = text("", max_length=20, file=True)
    beam: int = whole(5, ge=-3, le=20)
    rate: float = number(0.5, ge=0, le=1e6)
    on: bool = flag()
    kind: str = choice(("bpe", "char"), "bpe")
    some: tuple = list_of(TextField(max_length=5), max_length=3)
    more: str | tuple = many((), kinds=(TextField(min_length=1, max_length=5),), max_length=3, noun="1 to 3 words")
    inner: tuple = list_of(ObjectField(of=Inner), max_length=2)
    knobs: Mapping = table_of(NumberField(ge=-1e300, le=1e300))
    extra: Mapping = table_of(ScalarField(max_length=10), max_length=3)
    from_: str = text("")


CHARACTERS = st.characters(codec=None) | st.sampled_from("\0\n\r\x85\u2028\ud800\udcff²٣9-.e")
WORDS = st.text(CHARACTERS, max_size=60)
NUMBERS = st.integers() | st.floats() | st.sampled_from([10**400, -(10**4000), 2**63, 1e308, 5.0])
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | WORDS,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(WORDS, inner, max_size=5),
    max_leaves=10,
)
KINDS = {kind for kind in (vars(lab) | vars(serve)).values() if isinstance(kind, type) and issubclass(kind, Fields)}
DECLARED = [Asked, *sorted(KINDS, key=lambda kind: kind.__name__)]


def within(value, kind):
    """What every field that was read must be."""
    if kind == TextField(doc=kind.doc, max_length=None):
        value.encode("utf-8", "surrogatepass")
    elif isinstance(kind, TextField | ScalarField):
        assert len(value) <= max(kind.max_length, 25)
        assert "\0" not in value
        (os.fsencode if getattr(kind, "file", False) else str.encode)(value)
        assert getattr(kind, "lines", False) or len(value.splitlines()) <= 1
    elif isinstance(kind, WholeField | NumberField):
        assert math.isfinite(value)
        assert kind.ge <= value <= kind.le
    elif isinstance(kind, ListField):
        assert len(value) <= kind.max_length
        [within(one, kind.of) for one in value]
    elif isinstance(kind, ManyField) and isinstance(value, tuple):
        assert kind.min_length <= len(value) <= kind.max_length
    elif isinstance(kind, TableField):
        [within(one, kind.of) for one in value.values()]
        [within(one, TextField(max_length=100)) for one in value]


def check(kind, read, body=None):
    try:
        found = read()
    except FieldError as refused:
        found = refused
    if isinstance(found, FieldError):
        sentence = str(found)
        assert sentence.endswith((".", "?"))
        assert len(sentence) < 1500
        assert len(found.field) <= 120
        sentence.encode()
        return
    for field in kind.declared().values():
        value = getattr(found, field.name)
        if value is not None and value != field.default:
            within(value, field.metadata["kind"])
    sent = json.loads(json.dumps(found.as_json()))
    assert kind.read(sent) == found
    validator_of(kind).validate(sent if body is None else body)  # accepted, so the schema allows it


@cache
def validator_of(kind):
    schema = kind.schema()
    validator = jsonschema.validators.validator_for(schema)
    validator.check_schema(schema)
    return validator(schema)


@pytest.mark.parametrize("kind", DECLARED, ids=lambda kind: kind.__name__)
@settings(deadline=None, max_examples=60)
@given(data=st.data(), texts=st.booleans())
def test_arbitrary_json_is_read_within_bounds_or_refused_in_one_sentence(kind, data, texts):
    keys = st.sampled_from([*kind.declared(), "unknown"]) if data.draw(st.integers(0, 9)) else WORDS
    body = data.draw(st.dictionaries(keys, JSON, max_size=4))
    check(kind, lambda: kind.read(body, texts=texts), None if texts else body)


@pytest.mark.parametrize("kind", DECLARED, ids=lambda kind: kind.__name__)
@settings(deadline=None, max_examples=30)
@given(data=st.data())
def test_an_arbitrary_query_is_read_within_bounds_or_refused_in_one_sentence(kind, data):
    keys = st.sampled_from([*kind.declared(), "unknown"])
    pairs = data.draw(st.lists(st.tuples(keys, WORDS | NUMBERS.map(shown) | st.just("9" * 5000)), max_size=5))
    check(kind, lambda: kind.read_query(pairs))


@given(JSON)
def test_any_value_can_be_shown(value):
    assert len(shown(value)) <= 60
    shown(value).encode()


@given(WORDS | st.text("0123456789", max_size=30))
def test_a_whole_number_is_ascii_digits_that_fit_into_64_bits(word):
    found = whole_number(word)
    plain = 0 < len(word) <= 18 and set(word) <= set("0123456789")
    assert found == (int(word) if plain else None)


def test_each_sentence_names_the_field():
    for body, sentence in [
        ({"word": 3}, "word must be a string, not 3."),
        ({"word": "x" * 21}, "word must have at most 20 characters, not 21."),
        ({"word": "a\0"}, "word contains a NUL character: remove it."),
        ({"word": "\ud800"}, "word is not valid Unicode: it contains an unpaired surrogate."),
        ({"word": "a\u2028b"}, "word must be one line: remove the line breaks."),
        ({"beam": "²"}, 'beam must be a whole number, not "²".'),
        ({"beam": True}, "beam must be a whole number, not true."),
        ({"beam": 10**400}, "beam must be from -3 to 20, not a number with too many digits."),
        ({"rate": math.nan}, "rate must be from 0 to 1e+06, not NaN."),
        ({"kind": "word"}, 'kind must be one of bpe, char, not "word".'),
        ({"on": 1}, "on must be true or false, not 1."),
        ({"some": ["a"] * 4}, "some must be a list of at most 3 entries, not list."),
        ({"some": ["a", 3]}, "some[1] must be a string, not 3."),
        ({"more": ["a", ""]}, "more must be 1 to 3 words."),
        ({"more": ["a"] * 4}, "more has 4 texts; at most 3 are accepted at once."),
        ({"inner": [{}]}, "a must be a whole number, but is missing."),
        ({"knobs": {"k": "1"}}, 'knobs.k must be a number, not "1".'),
        ({"form": "x"}, 'There is no field "form": did you mean from?'),
    ]:
        with pytest.raises(FieldError) as error:
            Asked.read(body)
        assert str(error.value) == sentence


def test_numbers_of_a_form_are_digits_and_null_is_a_field_left_out():
    asked = Asked.read({"beam": " 7 ", "rate": "1e3", "on": "1", "from": None}, texts=True)
    assert (asked.beam, asked.rate, asked.on, asked.from_) == (7, 1000.0, True, "")
    assert Asked.read({"beam": 7.0}).beam == 7
    assert Asked.read_query([("some", "a"), ("some", "b"), ("on", ""), ("beam", "-3")]).as_json() | {} == {
        **Asked().as_json(), "some": ["a", "b"], "on": True, "beam": -3,
    }  # fmt: skip
