"""A sentence pair with its gold word alignment, and how two lists of linked words become one.

While a sentence grows, a word is its text and the keys of what it stands for; an English and a French word are linked
if they share a key. Orthography comes last: capitals, *an*, elision, commas.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache

from regard.base.word_spans import find_words
from regard.corpora.phrasebook import english, french

Word = tuple[str, tuple[int, ...]]


@dataclass(frozen=True)
class Pair:
    source: str
    target: str
    alignment: tuple[tuple[int, int], ...]  # (source word, target word), which `find_words` finds
    agreement: tuple[tuple[int, int], ...] = field(default=(), compare=False)  # (subject, its finite verb), English


@cache
def count_words(text: str) -> int:
    return len(find_words(text))


def length(phrase: list[Word]) -> int:
    return sum(count_words(text) for text, _ in phrase)


@dataclass(frozen=True)
class Draft:
    """A pair as two lists of linked words, of which many are drawn and few are written."""

    english: list[Word]
    french: list[Word]
    end: str = "."
    agreeing: tuple[tuple[int, int], ...] = ()

    @property
    def size(self) -> int:
        return length(self.english)

    def written(self) -> Pair:
        return make_pair(self.english, self.french, self.end, self.agreeing)


def make_pair(source: list[Word], target: list[Word], end: str = ".", agreeing: Sequence[tuple[int, int]] = ()) -> Pair:
    places: dict[int, list[int]] = {}
    place = 0
    for text, keys in source:
        for _ in range(count_words(text)):
            for key in keys:
                places.setdefault(key, []).append(place)
            place += 1
    links: set[tuple[int, int]] = set()
    place = 0
    for text, keys in target:
        for _ in range(count_words(text)):
            for key in keys:
                links.update((left, place) for left in places.get(key, ()))
            place += 1
    target_end = " " + end if end == "?" else end  # French sets a space before a question mark
    said = sorted({(places[one][-1], places[other][0]) for one, other in agreeing if {one, other} <= places.keys()})
    return Pair(_write(_english(source)) + end, _write(_french(target)) + target_end, tuple(sorted(links)), tuple(said))


def _english(phrase: list[Word]) -> list[str]:
    texts = [text for text, _ in phrase]
    return [
        "an" if text == "a" and english.takes_an(following) else text
        for text, following in zip(texts, [*texts[1:], "."])
    ]


def _french(phrase: list[Word]) -> list[str]:
    texts = [text for text, _ in phrase]
    return [french.elide(text, following) for text, following in zip(texts, [*texts[1:], "."])]


def _write(texts: list[str]) -> str:
    """Commas, possessives and hyphens lean on the word before them, elided words on the word behind."""
    written = texts[0]
    for text in texts[1:]:
        written += text if text[0] in ",'-" or written[-1] == "'" else " " + text
    return written[0].upper() + written[1:]
