"""Settings, requests and arguments at their bounds: the last value that is allowed, and the first that is not."""

import math
import os
import signal
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from regard.base import arguments, cuckoo, device
from regard.base.arguments import checked, in_python, kind_of, kinds_of
from regard.base.errors import RegardError, Stopped
from regard.base.fields import (
    FieldError,
    Fields,
    FlagField,
    ListField,
    ManyField,
    NumberField,
    ObjectField,
    ScalarField,
    TableField,
    TextField,
    WholeField,
    as_tuple,
    choice,
    flag,
    list_of,
    many,
    number,
    shown,
    table_of,
    text,
    whole,
)
from regard.base.numbers import format_bytes, pluralize
from regard.base.settings import (
    LARGEST,
    MAX_LAYERS,
    RATE,
    CheckedSettings,
    check_choice,
    check_range,
    closest,
    did_you_mean,
    documentation,
    setting,
)
from regard.systems.gpt import Settings as GPTSettings

# -- settings --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bounded(CheckedSettings):
    section = "part"

    least: int = setting(2, "at least two", ge=2)
    above: float = setting(1.0, "above nothing", gt=0)
    most: int = setting(3, "at most three", le=3)
    below: float = setting(0.5, "a rate", **RATE)
    follows: float = setting(-1.0, "follows", ge=0, lt=1, unset=-1.0)
    free: float = setting(0.0, "anything")
    kind: str = setting("a", "one of {}", choices=("a", "b", "c"))


@pytest.mark.parametrize(
    ("name", "allowed", "refused"),
    [
        ("least", [2, 3, 10**9], [1, -2]),
        ("above", [1e-30, 5.0], [0.0, -1.0, math.nan, math.inf]),
        ("most", [3, 0, -5], [4]),
        ("below", [0.0, 0.999], [1.0, -1e-9, math.nan]),
        ("follows", [-1.0, 0.0, 0.5], [-0.5, -2.0, 1.0]),
        ("free", [LARGEST, -LARGEST], [1.01 * LARGEST, -1.01 * LARGEST, math.inf, math.nan]),
        ("kind", ["a", "b", "c"], ["d", "", 3, None]),
    ],
)
def test_a_setting_is_refused_just_outside_its_bounds(name, allowed, refused):
    for value in allowed:
        assert getattr(Bounded(**{name: value}), name) == value
    for value in refused:
        with pytest.raises(RegardError, match=rf"part\.{name} must be"):
            Bounded(**{name: value})


def test_a_refused_setting_is_told_all_that_is_allowed():
    for given, sentence in [
        ({"least": 1}, "part.least must be at least 2, not 1."),
        ({"below": 1.0}, "part.below must be at least 0 and below 1, not 1.0."),
        ({"follows": 1.5}, "part.follows must be at least 0 and below 1, or -1, not 1.5."),
        ({"free": math.inf}, "part.free must be a number of magnitude at most 3.4e+38, not inf."),
        ({"kind": "d"}, "part.kind must be one of a, b, c, not 'd'."),
    ]:
        with pytest.raises(RegardError) as error:
            Bounded(**given)
        assert str(error.value) == sentence
    assert Bounded(most=10**39 * 0 + 3).most == 3
    with pytest.raises(RegardError, match="--x must be one of a, b, not 3"):
        check_choice("--x", 3, ("a", "b"))


def test_a_model_has_at_most_a_thousand_layers():
    assert GPTSettings(layers=1000).layers == MAX_LAYERS
    with pytest.raises(RegardError, match=r"model\.layers must be at least 1 and at most 1000, not 1001"):
        GPTSettings(layers=1001)


def test_the_line_beside_a_setting_has_its_bounds_and_choices():
    lines = {one.name: documentation(one) for one in Bounded.__dataclass_fields__.values()}
    assert lines == {
        "least": "at least two (≥ 2)",
        "above": "above nothing (> 0)",
        "most": "at most three (≤ 3)",
        "below": "a rate (≥ 0, < 1)",
        "follows": "follows (≥ 0, < 1)",
        "free": "anything",
        "kind": "one of a, b or c",
    }


@pytest.mark.parametrize(("value", "fits"), [(1, True), (9, True), (0, False), (10, False), (math.nan, False)])
def test_an_option_is_within_its_range(value, fits):
    if fits:
        check_range("--n", value, 1, 9)
    else:
        with pytest.raises(RegardError, match="--n must be at"):
            check_range("--n", value, 1, 9)
    check_range("--n", 2**31 - 1, 0)
    with pytest.raises(RegardError, match=f"at most {2**31 - 1}"):
        check_range("--n", 2**31, 0)


def test_a_near_name_comes_before_the_list_of_all():
    assert did_you_mean("layrs", ["layers", "width"]) == ": did you mean layers?"
    assert did_you_mean("steps", ["training.steps", "model.width"]) == ": did you mean training.steps?"
    assert did_you_mean("--steps", ["--training.steps"]) == ": did you mean --training.steps?"
    assert did_you_mean("zzz", ["layers", "width"]) == "; choose one of layers, width."
    assert did_you_mean("zzz", ["layers", "width"], ["only"]) == "; choose one of only."
    assert closest("LSTM", ["gru", "lstm"]) == ["lstm"]
    assert closest("Lstm", ["GRU", "LSTM"]) == ["LSTM"]
    assert did_you_mean("--k-v", ["section_of_much.k_v", "other"]) == ": did you mean section_of_much.k_v?"
    known = {"--training.steps": "optimizer steps", "--seed": ""}
    assert did_you_mean("--max-iters", known) == ": did you mean --training.steps (optimizer steps)?"
    assert did_you_mean("--random-seed", known) == ": did you mean --seed?"
    assert did_you_mean("--random-seed", list(known)) == ": did you mean --seed?"
    assert did_you_mean("max_tokens_per_batch", {"training.batch_tokens": "in a step"}) == (
        ": did you mean training.batch_tokens (in a step)?"
    )


# -- requests --------------------------------------------------------------------------------------------------------

AT_THEIR_BOUNDS = [
    (TextField(max_length=3), ["", "abc"], ["abcd", 3]),
    (TextField(min_length=2, max_length=3), ["ab", "abc"], ["a", "abcd"]),
    (TextField(lines=True), ["a\nb"], ["a\0b"]),
    (TextField(), ["x" * 300], ["x" * 301, "a\nb", "a\rb", "a\x85b", "a\u2029b"]),
    (TextField(pattern="[a-z]+"), ["abc"], ["abc1", "1abc", "abc\n"]),
    (WholeField(ge=-2, le=5), [-2, 5, 3.0], [-3, 6, 3.5, True, "3"]),
    (NumberField(ge=0, le=2), [0, 2, 1.5], [-1e-9, 2.0001, math.nan, True, "1"]),
    (ListField(of=WholeField(ge=0, le=9), min_length=1, max_length=3), [[1], [1, 2, 3]], [[], [1] * 4, [10], 1]),
    (ManyField(kinds=(TextField(min_length=1),), max_length=2, min_length=1), ["a", ["a"], ["a", "b"]],
     [[], ["a"] * 3, [""], 3]),
    (TableField(of=WholeField(ge=0, le=9), max_length=2), [{}, {"a": 1, "b": 9}, {"k" * 100: 1}],
     [{"a": 1, "b": 2, "c": 3}, {"a": 10}, {"k" * 101: 1}, []]),
    (FlagField(), [True, False], ["1", "true", 1, 0, ""]),
    (ScalarField(max_length=3), ["abc", True, -3, 1e300, -1e300], ["abcd", 1.1e300, -1.1e300, None, [1]]),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "allowed", "refused"), AT_THEIR_BOUNDS)
def test_a_field_is_refused_just_outside_its_bounds(kind, allowed, refused):
    for value in allowed:
        kind.read("it", value)
    for value in refused:
        with pytest.raises(FieldError, match="it") as error:
            kind.read("it", value)
        assert error.value.field.startswith(("it", "a key of it"))


def test_what_is_refused_is_told_what_was_expected():
    ones = WholeField(ge=-2, le=5)
    for kind, value, sentence in [
        (ListField(of=ones, min_length=1, max_length=3), [], "it must be a list of 1 to 3 entries, not list."),
        (ListField(of=ones, max_length=12_000), "x", 'it must be a list of at most 12,000 entries, not "x".'),
        (ListField(of=ones, max_length=3), [1, 9], "it[1] must be from -2 to 5, not 9."),
        (TableField(of=ones, max_length=2), [], "it must be an object of at most 2 entries, not list."),
        (TableField(of=ones), {"k": 9}, "it.k must be from -2 to 5, not 9."),
        (TableField(of=ones), {"k": 1} | {str(n): 1 for n in range(200)}, "it must be an object of at most 200 "),
        (TextField(expected="a name"), 3, "it must be a name, not 3."),
        (TextField(max_length=20_000), "x" * 20_001, "it must have at most 20,000 characters, not 20,001."),
        (NumberField(ge=0.25, le=2), 3, "it must be from 0.25 to 2, not 3."),
        (NumberField(ge=0, le=math.inf), math.inf, "it must be from 0 to inf, not Infinity."),
        (ManyField(kinds=(ones,), max_length=2), 9, "it must be one value, or several."),
        (ObjectField(of=Asked), [], "it must be an object, not list."),
        (ScalarField(), None, "it must be a string, a number, or true or false, not NoneType."),
    ]:
        with pytest.raises(FieldError) as error:
            kind.read("it", value)
        assert str(error.value).startswith(sentence)
    assert TableField(of=ones).read("it", {str(n): 1 for n in range(200)})["199"] == 1
    assert ManyField(kinds=(ones,), max_length=2).read("it", [1, 2]) == as_tuple((1, 2)) == (1, 2)
    assert as_tuple(3) == (3,)


def test_a_value_in_a_sentence_has_at_most_sixty_characters():
    for fitting in ("x" * 58, "ü" * 58, 10**59, -(10**58)):
        assert len(shown(fitting)) == 60
        assert "…" not in shown(fitting)
    assert shown("x" * 59) == f'"{"x" * 56}…'
    assert shown(10**60) == "1" + "0" * 56 + "…"
    assert shown(2**480 - 1).endswith("…")
    assert shown(2**480) == "a number with too many digits"
    assert shown('a"b') == '"a\\"b"'
    assert shown("\ud800") == r'"\ud800"'


@pytest.mark.parametrize("kind", [WholeField(ge=-(10**18), le=10**18), NumberField(ge=-1e18, le=1e18)])
def test_a_number_of_a_form_is_read_with_all_its_digits_or_refused(kind):
    """However many blanks are around it, and never without its last digits."""
    for number_ in (123, -7, 10**17):
        for blanks in (0, 1, 20, 36, 199, 5000):
            assert kind.read("it", f"{' ' * blanks}{number_}{' ' * blanks}", texts=True) == number_
    for wrong in ("", " ", "-", "--3", "1 2", "3-", "0x3", "9" * 41, "1_000", "\t3", "three"):
        with pytest.raises(FieldError, match="it must be"):
            kind.read("it", wrong, texts=True)
    with pytest.raises(FieldError, match="it must be"):
        kind.read("it", "3")  # JSON has numbers of its own


def test_a_setting_becomes_the_words_of_the_command_line():
    kind = ScalarField()
    assert [kind.read("it", value) for value in (True, False, 3, 0.5, "x")] == ["true", "false", "3", "0.5", "x"]


@dataclass(frozen=True)
class Asked(Fields):
    word: str = text(max_length=9, min_length=2, doc="what to say")
    n: int = whole(2, ge=1, le=5)
    rate: float = number(0.5, ge=0, le=1)
    on: bool = flag()
    kind: str = choice(("a", "b"), "b")
    some: tuple = list_of(TextField(), max_length=2)


def test_the_schema_of_a_request_has_its_bounds_defaults_and_words():
    schema = Asked.schema()
    assert schema["required"] == ["word"]
    assert schema["additionalProperties"] is False
    properties = schema["properties"]
    assert properties["word"] == {"type": "string", "minLength": 2, "maxLength": 9, "description": "what to say"}
    assert properties["n"] == {"type": ["integer", "null"], "minimum": 1, "maximum": 5, "default": 2}
    assert properties["rate"] == {"type": ["number", "null"], "minimum": 0, "maximum": 1, "default": 0.5}
    assert properties["on"] == {"type": ["boolean", "null"], "default": False}
    assert properties["kind"] == {"enum": ["a", "b", None], "default": "b"}
    kind = Asked.declared()["n"].metadata["kind"]
    assert ManyField(kinds=(kind,), min_length=1, max_length=3).schema() == {
        "anyOf": [kind.schema(), {"type": "array", "items": kind.schema(), "minItems": 1, "maxItems": 3}]
    }


@dataclass(frozen=True)
class Rest(Fields):
    """With all that a declaration can say."""

    unsupported = ("logprobs",)

    word: str = text("", doc="may be left out")
    least: tuple = list_of(WholeField(ge=0, le=9), min_length=1, max_length=2)
    table: Mapping = table_of(TextField(), max_length=2)
    stop: str | tuple = many((), kinds=(TextField(max_length=4),), max_length=2, doc="ends")
    hidden: str = text("", min_length=0)
    made: int = whole(lambda: 7, ge=0, le=9)


def test_the_schema_of_a_request_allows_null_where_a_field_may_be_left_out():
    schema = Rest.schema()
    assert schema["required"] == ["least"]
    assert schema["properties"]["word"] == {
        "type": ["string", "null"],
        "maxLength": 300,
        "description": "may be left out",
    }
    texts = {"type": "string", "maxLength": 4}
    assert schema["properties"]["stop"] == {
        "anyOf": [{"type": "null"}, texts, {"type": "array", "items": texts, "maxItems": 2}], "description": "ends",
    }  # fmt: skip
    assert (schema["properties"]["table"], schema["properties"]["least"]) == ({}, {})

    class Lenient(Rest):
        ignores_unknown = True

    assert "additionalProperties" not in Lenient.schema()
    assert Lenient.read({"least": [1], "extra": 3}).as_json() == {
        "word": "", "least": [1], "table": {}, "stop": [], "hidden": "", "made": 7,
    }  # fmt: skip
    for body, sentence, field in [
        ({"least": [1], "logprobs": 3}, "logprobs is not supported: remove it.", "logprobs"),
        ({"least": [1], "wrod": 3}, 'There is no field "wrod": did you mean word?', "wrod"),
        ({"word": "a"}, "least must be a list of 1 to 2 entries, but is missing.", "least"),
    ]:
        with pytest.raises(FieldError) as error:
            Rest.read(body)
        assert (str(error.value), error.value.field) == (sentence, field)


def test_of_a_query_the_last_value_counts_and_a_list_has_all():
    asked = Asked.read_query([("word", "one"), ("some", "a"), ("word", "two"), ("some", "b"), ("on", "false")])
    assert (asked.word, asked.some, asked.on) == ("two", ("a", "b"), False)
    for said, wanted in {"": True, "1": True, "true": True, "0": False, "false": False}.items():
        assert Asked.read({"word": "ab", "on": said}, texts=True).on is wanted
    with pytest.raises(FieldError, match="on must be true or false"):
        Asked.read({"word": "ab", "on": "no"}, texts=True)
    for wrong in ({"n": "3"}, {"rate": "0.5"}, {"on": "1"}):  # JSON has numbers and flags of its own
        with pytest.raises(FieldError, match=f"{next(iter(wrong))} must be "):
            Asked.read({"word": "ab", **wrong})
    with pytest.raises(FieldError, match="word must be a string, but is missing"):
        Asked.read({"word": None})
    with pytest.raises(FieldError) as error:
        Asked.read({"k" * 150: 1})
    assert error.value.field == "k" * 100  # however long a name is


# -- arguments of the Python API -------------------------------------------------------------------------------------


@checked
def told(
    word: str = "",
    *,
    n: int = 0,
    rate: float = 0.0,
    path: str | Path = "",
    words: Sequence[str] = (),
    pair: tuple[int, int] | None = None,
    table: Mapping[str, float] | None = None,
    lines: Iterable[str] = (),
):
    if n == 7:
        raise RegardError("--top-k and --from.x must be less: write `regard --top-k`.")
    return list(lines)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"word": 3}, "word must be a string, not 3."),
        ({"n": 2.0}, "n must be a whole number, not 2.0."),
        ({"n": True}, "n must be a whole number, not True."),
        ({"n": 2**63}, "n must be below 2^63."),
        ({"n": -(2**63)}, "n must be below 2^63."),
        ({"rate": "1"}, "rate must be a number, not '1'."),
        ({"path": 5}, "path must be a string or a path, not 5."),
        ({"words": "abc"}, "words must be a list of strings, not 'abc'."),
        ({"words": ["a", 3]}, "Item 1 of words must be a string, not 3."),
        ({"pair": (1, 2, 3)}, "pair must be a pair of whole numbers or None, not (1, 2, 3)."),
        ({"table": {"a": "b"}}, "table must be a dict of numbers or None, not {'a': 'b'}."),
        ({"table": {1: 2}}, "table must be a dict of numbers or None, not {1: 2}."),
        ({"rate": True}, "rate must be a number, not True."),
        ({"word": 10**5000}, "word must be a string, not an int."),
        ({"word": object()}, "word must be a string, not an object."),
        ({"words": b"ab"}, "words must be a list of strings, not a bytes."),
        ({"words": {"a": 1}}, "words must be a list of strings, not {'a': 1}."),
        ({"words": ["a", ["y" * 46]]}, f"Item 1 of words must be a string, not ['{'y' * 46}']."),
        ({"words": [["y" * 47], "a"]}, f"Item 0 of words must be a string, not ['{'y' * 38}…."),
    ],
)
def test_a_wrong_argument_is_named(given, sentence):
    with pytest.raises(RegardError) as error:
        told(**given)
    assert str(error.value) == sentence


def test_right_arguments_pass_and_options_are_named_as_parameters():
    assert told("a", n=2**63 - 1, rate=1, path=Path("."), words=("a",), pair=[1, 2], table={"a": 1}) == []
    assert told(lines=iter(["a", "b"])) == ["a", "b"]
    with pytest.raises(RegardError, match=r"^top_k and from\.x must be less: write `regard --top-k`\.$"):
        told(n=7)
    assert in_python("--beam is too large.", {"width"}) == "width is too large."
    assert in_python("--beam is too large.", {"beam"}) == "beam is too large."
    assert in_python("--beam is too large.", {"other"}) == "beam is too large."
    assert in_python("--beam is too large.", {"beam", "width"}) == "beam is too large."
    assert in_python("see './--odd-name' and a--b") == "see './--odd-name' and a--b"


@pytest.mark.parametrize(
    ("hint", "words", "fitting", "others"),
    [
        (int, "a whole number", [3, np.int64(3)], [True, 3.0, "3", None]),
        (float, "a number", [3, 0.5, np.float32(1), math.nan], [True, "1", 1j]),
        (bool, "True or False", [True, False], [0, 1, None]),
        (Path, "a path", [Path(".")], ["."]),
        (str | Path | None, "a string, a path or None", ["", Path("."), None], [3, b""]),
        (tuple[str, str], "a pair of strings", [("a", "b"), ["a", "b"]], ["ab", ("a",), ("a", 1), {"a", "b"}]),
        (Sequence[tuple[int, int]], "a list of pairs of whole numbers", [[(1, 2)], []], [[(1, 2, 3)], [1]]),
        (Sequence[Sequence[int]], "a list of lists", [[[1], (2,)]], [[["x"]]]),
        (Sequence[Path | None], "a list of a path or None", [[None]], [["x"]]),
        (Iterable[float], "a list of numbers", [[1, 0.5], iter("ab"), np.zeros(2)], ["ab", b"ab", {1: 2}, 3]),
        (Sequence[Mapping[str, int]], "a list of dicts", [[{"a": 1}]], [[{"a": "b"}], [{1: 1}]]),
        (Mapping[str, Any], "a dict", [{"a": print}, {}], [{1: 2}, [("a", 1)]]),
        (dict[str, int], "a dict of whole numbers", [{"a": 1}], [{"a": True}, {1: 1}]),
        (Callable[[int], int], "a function", [len, int], [3]),
        (type[RegardError], "the class RegardError or one derived from it", [FieldError], [int, RegardError("x")]),
        (RegardError, "a RegardError", [RegardError("x"), FieldError("x", None)], [RegardError, ValueError("x")]),
        (Sequence[RegardError], "a list of RegardError objects", [[]], [[3]]),
        (Any, "anything", [None, 3, print], []),
    ],
)  # fmt: skip
def test_what_an_annotation_allows(hint, words, fitting, others):
    kind = kind_of(hint)
    assert kind.words == words
    assert [kind.fits(value) for value in fitting] == [True] * len(fitting)
    assert [kind.fits(value) for value in others] == [False] * len(others)


def test_what_only_type_checkers_import_allows_anything():
    def other(self, one: "Nowhere" = None, two: "int" = 3, *, three=4):  # noqa: F821
        return one

    assert {name: kind.words for name, kind in kinds_of(other).items()} == {
        "self": "anything", "one": "anything", "two": "a whole number", "three": "anything",
    }  # fmt: skip


@checked
@dataclass(frozen=True)
class Declared:
    n: int = 0


@checked
class Made:
    def __init__(self, n: int):
        self.n = n


def test_a_dataclass_is_checked_when_it_is_made_and_other_classes_are_made_by_regard_alone():
    assert Declared(3).n == 3
    with pytest.raises(RegardError, match="n must be a whole number, not 'x'"):
        Declared("x")
    assert Made("x").n == "x"


def test_on_the_command_line_types_were_checked_before_and_sentences_name_options(monkeypatch):
    monkeypatch.setattr(arguments, "on_command_line", True)
    assert told(word=3, lines="ab") == ["a", "b"]
    with pytest.raises(RegardError, match=r"^--top-k and --from\.x must be less"):
        told(n=7)


def test_a_training_that_was_stopped_says_where_and_by_what():
    assert (str(Stopped(3)), Stopped(3).step, Stopped(3).signal) == ("stopped at step 3", 3, signal.SIGINT)
    assert Stopped(3, signal.SIGTERM).signal == signal.SIGTERM


@checked
def pieces(n: int = 0):
    yield n
    raise RegardError("--top-k is too large.")


@checked
class Told:
    def said(self, n: int, kind: type[RegardError] = RegardError):
        return n

    def __call__(self, n: int):
        return n

    def _own(self, n: int):
        return n


def test_what_comes_piece_by_piece_and_methods_are_checked_too():
    found = pieces(n=3)
    assert next(found) == 3
    with pytest.raises(RegardError, match=r"^top_k is too large"):
        next(found)
    with pytest.raises(RegardError, match="n must be a whole number, not 'x'"):
        pieces(n="x")
    told = Told()
    assert (told.said(1), told(2), told.said(1, FieldError), told._own("x")) == (
        1,
        2,
        1,
        "x",
    )  # the last is Regard's own
    for call in (told.said, told):
        with pytest.raises(RegardError, match="n must be a whole number"):
            call("x")
    with pytest.raises(RegardError, match="kind must be the class RegardError or one derived from it"):
        told.said(1, int)
    with pytest.raises(RegardError, match=r"^n must be a whole number, not 'x{39}…\.$"):
        told("x" * 60)


# -- the machine -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "words"),
    [(0, "0 B"), (999, "999 B"), (1000, "0.977 KiB"), (1 << 20, "1 MiB"), (126 << 30, "126 GiB"),
     (1 << 40, "1 TiB"), (1234 << 40, "1.23e+03 TiB"), (math.inf, "unknown")],
)  # fmt: skip
def test_bytes_are_said_with_their_unit(size, words):
    assert format_bytes(size) == words


def test_the_machine_is_what_the_system_says(monkeypatch):
    assert device.cores() == len(os.sched_getaffinity(0))
    cpu = device.pick_device("cpu")
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert device.device_memory(cpu) <= physical
    monkeypatch.setattr(Path, "is_file", lambda path: True)
    monkeypatch.setattr(Path, "read_text", lambda path, **how: "max\n")
    assert device.device_memory(cpu) == physical
    monkeypatch.setattr(Path, "read_text", lambda path, **how: "1048576\n")
    assert device.device_memory(cpu) == 1048576
    for name in ("tpu", "meta", "cuda:99", ""):
        with pytest.raises(RegardError, match="is not available on this machine"):
            device.pick_device(name)


def test_a_system_that_says_little_has_one_core_and_any_memory(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1, 2} if process == 0 else {0})  # 0: this one
    assert device.cores() == 3
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 5)
    assert device.cores() == 5
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert device.cores() == 1
    monkeypatch.delattr(os, "sysconf")
    assert device.device_memory(device.pick_device("cpu")) == math.inf


def test_the_peak_is_in_bytes_on_every_system(monkeypatch):
    """macOS counts bytes, the others kibibytes, Windows not at all."""
    resource = pytest.importorskip("resource")
    monkeypatch.setattr(resource, "getrusage", lambda who: SimpleNamespace(ru_maxrss=7000 + who))
    cpu, own = device.pick_device("cpu"), 7000 + resource.RUSAGE_SELF
    for system, peak in (("darwin", own), ("freebsd14", 1024 * own), ("win32", 0)):
        monkeypatch.setattr(sys, "platform", system)
        assert device.peak_memory(cpu) == peak


def test_a_gpu_is_chosen_where_there_is_one(monkeypatch):
    for there, kind in ((True, "cuda"), (False, "cpu")):
        monkeypatch.setattr("torch.cuda.is_available", lambda there=there: there)
        assert device.pick_device("auto").type == kind
    assert device.device_name(device.pick_device("cpu")).startswith("cpu (")
    gpu = device.pick_device("auto").__class__("cuda")
    monkeypatch.setattr("torch.cuda.get_device_name", lambda where: f"name of {where}")
    monkeypatch.setattr("torch.cuda.max_memory_allocated", lambda where: 123)
    monkeypatch.setattr("torch.cuda.get_device_properties", lambda where: SimpleNamespace(total_memory=456))
    assert (device.device_name(gpu), device.peak_memory(gpu), device.device_memory(gpu)) == ("name of cuda", 123, 456)


def test_the_peak_is_of_this_process_in_bytes():
    now, peak = device.process_memory("VmRSS"), device.process_memory("VmHWM")
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    assert 1 << 20 < now <= 1.2 * peak
    assert 0.5 < now / (pages * os.sysconf("SC_PAGE_SIZE")) < 2
    assert device.peak_memory(device.pick_device("cpu")) >= 0.9 * peak


def test_a_plural_is_used_for_all_but_one():
    assert [pluralize(n, "match", "matches") for n in (0, 1, 2)] == ["0 matches", "1 match", "2 matches"]


def test_choices_are_listed_as_one_says_them():
    assert [arguments._either(words) for words in (["a"], ["a", "b"], ["a", "b", "c"])] == ["a", "a or b", "a, b or c"]


@pytest.mark.parametrize("count", [0, 1, 3, 8, 9, 1000])
def test_a_table_of_keys_is_a_power_of_two_and_more_than_half_empty(count):
    keys = np.random.default_rng(count).choice(2**40, count, replace=False).astype(np.int64)
    slots = cuckoo.hash_keys(keys)
    assert len(slots) & (len(slots) - 1) == 0
    assert len(slots) == max(16, 1 << (2 * count).bit_length())
    assert sorted(slots[slots < count]) == list(range(count))
    found = [slots[cuckoo.slot_of(keys, factor, len(slots))] == np.arange(count) for factor in cuckoo.FACTORS]
    assert (found[0] | found[1]).all()


def test_a_table_whose_keys_meet_in_both_slots_is_doubled_until_they_do_not(monkeypatch):
    monkeypatch.setattr(cuckoo, "FACTORS", cuckoo.FACTORS[:1] * 2)  # one slot for each key
    keys = np.random.default_rng(1).choice(2**40, 12, replace=False).astype(np.int64)
    alone = [size for size in (32, 64, 128, 256, 512, 1024, 2048)
             if len({*cuckoo.slot_of(keys, cuckoo.FACTORS[0], size).tolist()}) == len(keys)]  # fmt: skip
    assert len(cuckoo.hash_keys(keys)) == alone[0] > 32
