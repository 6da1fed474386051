"""Text that every installation has: Python's language reference, a phrasebook, and the lectures' toy tasks.

The phrasebook and the toy tasks are sentence pairs as well (`pairs.py`); here they are lines for a language model.

any-b     A A B A B           the last symbol is B if any before it is         (lecture: the A/B strings)
copy      c a d | c a d       repeat the symbols before the bar
reverse   c a d | d a c       … backwards
recall    c 4 a 9 f 1 ? a 9   the value after the key
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from random import Random
from typing import TYPE_CHECKING

from regard.base.numbers import group_digits
from regard.corpora.split import HashSplit, line_hash

if TYPE_CHECKING:
    from regard.corpora.phrasebook import Pair

BUILTIN: dict[str, str] = {
    "pyref": "the Python language reference of this installation, more than 50,000 words of English",
    "phrasebook": "English sentences with their French translation, from a grammar; a language model reads the English",
    "any-b": "toy task: strings of A and B whose last symbol is B if any before it is",
    "copy": "toy task: a string of letters, a bar, and the string again",
    "reverse": "toy task: a string of letters, a bar, and the string backwards",
    "recall": "toy task: keys with values, a question mark, one of the keys and its value",
}
TOY_LINES = 10_000
PHRASES = 20_000  # pairs of the phrasebook
MAX_PHRASE_WORDS = 15  # words of a sentence of it
LONG = 40  # least characters for a repeated line to count as a duplicate
RULE = re.compile(r"([^\w\s])\1+")  # the rows of stars under headings
WIDTH = 70  # at which the reference's paragraphs are wrapped


@dataclass(frozen=True)
class BuiltIn:
    splits: Mapping[str, list[str]]
    pretokenised: bool
    origin: str
    disjoint: bool


def built_in(name: str) -> BuiltIn:
    if name == "pyref":
        return _pyref()
    if name == "phrasebook":
        return _phrasebook()
    lines = group_digits(TOY_LINES)
    origin = f"{lines} lines generated with seed 0, split by hash: identical lines share a split."
    return BuiltIn(toy_task(name), pretokenised=True, origin=origin, disjoint=True)


@lru_cache(maxsize=4)  # opened several times
def phrases(count: int, longest: int) -> Mapping[str, Sequence[Pair]]:
    """`count` pairs of the phrasebook with at most `longest` words a sentence (0: the defaults), in splits."""
    from regard.corpora.cached_phrasebook import cached_phrasebook  # a large module, imported on demand

    return cached_phrasebook(count or PHRASES, longest or MAX_PHRASE_WORDS)


def _phrasebook() -> BuiltIn:
    splits = {split: [pair.source for pair in pairs] for split, pairs in phrases(0, 0).items()}
    count = group_digits(sum(map(len, splits.values())))
    origin = f"The English side of {count} pairs of the built-in phrasebook, generated with seed 0."
    return BuiltIn(splits, pretokenised=False, origin=origin, disjoint=False)


@lru_cache(maxsize=4)
def toy_task(name: str, *, seed: int = 0, lines: int = TOY_LINES) -> Mapping[str, list[str]]:
    """Lines of space-separated symbols in splits that share no line."""
    random, draw = Random(f"{name} {seed}"), HashSplit()
    splits: dict[str, list[str]] = {"train": [], "valid": [], "test": []}
    for _ in range(lines):
        line = " ".join(TOYS[name](random))
        splits[draw(line)].append(line)
    return splits


def _any_b(random: Random) -> list[str]:
    string = ["A"] * (4 + _below(random, 29))
    for _ in range(_below(random, 4)):
        string[_below(random, len(string))] = "B"
    return [*string, "B" if "B" in string else "A"]


def _copy(random: Random) -> list[str]:
    string = _letters(random, 1 + _below(random, 12))
    return [*string, "|", *string]


def _reverse(random: Random) -> list[str]:
    string = _letters(random, 1 + _below(random, 12))
    return [*string, "|", *reversed(string)]


def _recall(random: Random) -> list[str]:
    keys = list(dict.fromkeys(_letters(random, 2 + _below(random, 7))))
    pairs = [(key, str(_below(random, 10))) for key in keys]
    return [symbol for pair in pairs for symbol in pair] + ["?", *pairs[_below(random, len(pairs))]]


TOYS: dict[str, Callable[[Random], list[str]]] = {
    "any-b": _any_b,
    "copy": _copy,
    "reverse": _reverse,
    "recall": _recall,
}


def _below(random: Random, limit: int) -> int:
    return int(random.random() * limit)  # of Random's methods only random() is guaranteed not to change


def _letters(random: Random, count: int) -> list[str]:
    return [chr(ord("a") + _below(random, 16)) for _ in range(count)]


def _pyref() -> BuiltIn:
    topics = _distinct_topics()
    names = sorted(topics, key=line_hash)
    sizes = {name: sum(map(len, lines)) for name, lines in topics.items()}
    share = sum(sizes.values()) // 20
    split = dict.fromkeys(names, "train")
    for held_out in ("valid", "test"):  # whole topics, so that each split is running text
        room = share
        for name in names:
            if split[name] == "train" and sizes[name] <= room:
                split[name] = held_out
                room -= sizes[name]
    splits = {
        wanted: [line for name in sorted(topics) if split[name] == wanted for line in topics[name]]
        for wanted in ("train", "valid", "test")
    }
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    text = "\n".join(line for lines in splits.values() for line in lines)
    checksum = hashlib.sha256(text.encode()).hexdigest()[:12]
    origin = (
        f"The language reference of Python {version}, {group_digits(len(text.split()))} words, checksum {checksum}, "
        f"split by topic, 5 % each for valid and test."
    )
    return BuiltIn(splits, pretokenised=False, origin=origin, disjoint=False)


def _distinct_topics() -> dict[str, list[str]]:
    """The topics, without those contained in a longer one and without repeated long lines."""
    from pydoc_data.topics import topics

    texts = {name: _unwrapped(text) for name, text in topics.items()}
    seen: set[str] = set()
    distinct: dict[str, list[str]] = {}
    for name in sorted(texts, key=lambda name: (-len(topics[name]), name)):
        lines = texts[name]
        new = [line for line in lines if line not in seen or len(line) < LONG]
        if sum(len(line) for line in lines if line not in seen) > sum(map(len, lines)) / 2:
            distinct[name] = new
        seen.update(lines)
    return distinct


def _unwrapped(text: str) -> list[str]:
    """One line per paragraph: a line break is kept only if the next word would still have fitted on the line."""
    lines: list[str] = []
    room = WIDTH
    for raw in text.split("\n"):
        words = raw.split()
        if not words or RULE.fullmatch(raw.strip()):
            room = WIDTH
            continue
        wrapped = len(words[0]) + 1 > room and "::=" not in raw
        lines[len(lines) - wrapped :] = [" ".join([*lines[len(lines) - wrapped :], *words])]
        room = WIDTH - len(raw.rstrip())
    return lines
