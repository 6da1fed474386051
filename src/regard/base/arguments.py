"""Arguments of the Python API: a wrong type is refused at the call, in one sentence, by the parameter's name.

@checked                                        of a function, or of every public method of a class
def generate(self, prompt: str = "", *, max_tokens: int = 200) -> str: …

run.generate(5)                                 RegardError: prompt must be a string, not 5.

The annotations define what is allowed. Errors raised inside name command-line options; in Python, `--top-k` is `top_k`.
"""

from __future__ import annotations

import functools
import inspect
import os
import re
import types
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from numbers import Integral, Real
from pathlib import Path
from typing import Any, TypeVar, Union, cast, get_args, get_origin

from regard.base.errors import RegardError
from regard.base.numbers import with_article

LARGEST = 2**63  # whole numbers of the API fit into 64 bits
Target = TypeVar("Target", bound=Callable[..., Any])

on_command_line = False  # `regard.cli` sets it: types are checked there already, and sentences name options
OPTION = re.compile(r"""`[^`]*`|(?<![\w/.'"-])--([a-z][a-z-]*(?:\.[a-z_-]+)*)""")  # not in commands, paths and quotes
ALIASES = {"from": "start", "beam": "width"}  # an option and a parameter that has another name


@dataclass(frozen=True)
class Allowed:
    """The values that an annotation allows."""

    words: str  # "a string"
    many: str  # "strings"
    fits: Callable[[Any], bool]
    items: tuple[Allowed, ...] = ()  # of a list: the kinds its items may have


def checked(target: Target) -> Target:
    """Make a function, or the public methods of a class, check the types of their arguments.

    Args:
        target: A function or a class.

    Returns:
        The function with its checks; the class itself, with its methods replaced.
    """
    if isinstance(target, type):
        special = ("__call__", "__init__") if is_dataclass(target) else ("__call__",)  # others are made by Regard alone
        for name, member in list(vars(target).items()):
            if inspect.isfunction(member) and (not name.startswith("_") or name in special):
                setattr(target, name, _with_checks(member))
        return target
    return cast(Target, _with_checks(target))


def _with_checks(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*given: Any, **named: Any) -> Any:
        if on_command_line:
            return function(*given, **named)
        kinds = kinds_of(function)
        for (name, kind), value in zip(kinds.items(), given):
            _check(name, kind, value)
        for name, value in named.items():
            if name in kinds:  # else Python itself refuses the name
                _check(name, kinds[name], value)
        try:
            result = function(*given, **named)
        except RegardError as error:
            _respell(error, kinds)
            raise
        return _respelled(result, kinds) if isinstance(result, types.GeneratorType) else result

    return call


@functools.cache
def kinds_of(function: Callable[..., Any]) -> dict[str, Allowed]:
    """What each parameter of a function allows, in their order; one without an annotation, such as self, anything, and
    so does one whose class its module imports for type checkers alone."""
    written = inspect.unwrap(function)
    found = {}
    for name, one in inspect.signature(written).parameters.items():
        hint = one.annotation
        if isinstance(hint, str):
            try:
                hint = eval(hint, written.__globals__)
            except NameError:
                hint = Any
        found[name] = kind_of(Any if hint is one.empty else hint)
    return found


def _check(name: str, kind: Allowed, value: Any) -> None:
    if kind.fits(value):
        if isinstance(value, int) and not -LARGEST < value < LARGEST:
            raise RegardError(f"{name} must be below 2^63.")
        return
    if kind.items and isinstance(value, (list, tuple)):
        for number, item in enumerate(value):
            if not any(one.fits(item) for one in kind.items):
                allowed = _either([one.words for one in kind.items])
                raise RegardError(f"Item {number} of {name} must be {allowed}, not {_shown(item)}.")
    raise RegardError(f"{name} must be {kind.words}, not {_shown(value)}.")


def _shown(value: Any) -> str:
    if not isinstance(value, (str, int, float, list, tuple, dict, type(None))):
        return with_article(type(value).__name__)
    try:
        shown = repr(value)
    except ValueError:  # a number of thousands of digits
        return with_article(type(value).__name__)
    return shown if len(shown) <= 50 else f"{shown[:40]}…"


# -- what an annotation allows ---------------------------------------------------------------------------------------


def _is_number(kind: type, value: Any) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


def _is_list_of(item: Allowed, value: Any) -> bool:
    """Also an array, a column of a table or a generator, whose items are checked when they are read."""
    if isinstance(value, (list, tuple)):
        return all(map(item.fits, value))
    return isinstance(value, Iterable) and not isinstance(value, (str, bytes, Mapping))


def _is_dict_of(key: Allowed, item: Allowed, value: Any) -> bool:
    return isinstance(value, Mapping) and all(map(key.fits, value)) and all(map(item.fits, value.values()))


def _is_pair_of(part: Allowed, value: Any) -> bool:
    is_pair = isinstance(value, Sequence) and not isinstance(value, str) and len(value) == 2
    return is_pair and all(map(part.fits, value))


PLAIN: dict[Any, Allowed] = {
    Any: Allowed("anything", "anything", lambda value: True),
    type(None): Allowed("None", "None", lambda value: value is None),
    str: Allowed("a string", "strings", lambda value: isinstance(value, str)),
    bool: Allowed("True or False", "True or False", lambda value: isinstance(value, bool)),
    int: Allowed("a whole number", "whole numbers", functools.partial(_is_number, Integral)),
    float: Allowed("a number", "numbers", functools.partial(_is_number, Real)),
    Path: Allowed("a path", "paths", lambda value: isinstance(value, os.PathLike)),
}


@functools.cache
def kind_of(hint: Any) -> Allowed:
    """The values that an annotation allows."""
    if hint in PLAIN:
        return PLAIN[hint]
    origin, inside = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        kinds = [kind_of(one) for one in inside]
        items = tuple(item for one in kinds for item in one.items)
        words = _either([one.words for one in kinds])
        return Allowed(words, words, lambda value: any(one.fits(value) for one in kinds), items)
    if origin in (Sequence, Iterable):
        item = kind_of(inside[0])
        fits = functools.partial(_is_list_of, item)
        return Allowed(f"a list of {item.many}", "lists", fits, (item,))
    if origin is tuple:
        part, other = map(kind_of, inside)
        assert part is other, "pairs of two kinds are not checked"
        return Allowed(f"a pair of {part.many}", f"pairs of {part.many}", functools.partial(_is_pair_of, part))
    if origin in (Mapping, dict):
        key, item = map(kind_of, inside)
        words = "a dict" if inside[1] is Any else f"a dict of {item.many}"
        return Allowed(words, "dicts", functools.partial(_is_dict_of, key, item))
    if origin is Callable:
        return Allowed("a function", "functions", callable)
    if origin is type:
        name = f"the class {inside[0].__name__} or one derived from it"
        return Allowed(name, name, lambda value: isinstance(value, type) and issubclass(value, inside[0]))
    return Allowed(with_article(hint.__name__), f"{hint.__name__} objects", lambda value: isinstance(value, hint))


def _either(words: Sequence[str]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}" if len(words) > 1 else words[0]


# -- sentences -------------------------------------------------------------------------------------------------------


def in_python(sentence: str, parameters: Container[str] = ()) -> str:
    """A sentence with its options named as a function's parameters: `--top-k` is top_k, `--from` is train's start."""

    def name(found: re.Match[str]) -> str:
        if found[1] is None:
            return found[0]
        plain = found[1].replace("-", "_")
        alias = ALIASES.get(plain, plain)
        return alias if plain not in parameters and alias in parameters else plain

    return OPTION.sub(name, sentence)


def _respell(error: RegardError, parameters: Container[str]) -> None:
    error.args = tuple(in_python(str(part), parameters) for part in error.args)


def _respelled(pieces: Iterator[Any], parameters: Container[str]) -> Iterator[Any]:
    try:
        yield from pieces
    except RegardError as error:
        _respell(error, parameters)
        raise
