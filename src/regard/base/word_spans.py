"""The word positions of a text, in any script: Unicode's word boundaries (UAX #29), and what apostrophes stand for.

    don't → don't      l'eau → l' eau      Jill's → Jill 's      est-ce → est ce      3.14 → 3.14      किताब → किताब

Punctuation and spaces are not words. An elided word of French, Italian or Catalan stands alone, and so does the English
possessive. Where a script writes no spaces, words cannot be separated without a dictionary: in Chinese, Japanese
(except Katakana, which is kept together), Thai, Lao, Khmer and Burmese each character with its marks counts as a word.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

import regex

Span = tuple[int, int]  # characters from … up to

_MARKS = r"[\p{WB=Extend}\p{WB=Format}\p{WB=ZWJ}]*"
_LETTER = rf"[\p{{WB=ALetter}}\p{{WB=Hebrew_Letter}}]{_MARKS}"
_RUN = rf"(?:[\p{{WB=ALetter}}\p{{WB=Hebrew_Letter}}\p{{WB=Numeric}}\p{{WB=ExtendNumLet}}\p{{WB=Katakana}}]{_MARKS})"
_INSIDE = r"[\p{WB=MidLetter}\p{WB=MidNumLet}\p{WB=Single_Quote}]"  # of letters: ' ’ · :
_DECIMAL = r"[\p{WB=MidNum}\p{WB=MidNumLet}\p{WB=Single_Quote}]"  # of numbers: . , '
WORD = regex.compile(
    rf"""{_RUN}+
    (?:(?:{_INSIDE}(?<={_LETTER}{_INSIDE}){_MARKS}(?=[\p{{WB=ALetter}}\p{{WB=Hebrew_Letter}}])
         |"(?<=\p{{WB=Hebrew_Letter}}{_MARKS}")(?=\p{{WB=Hebrew_Letter}})
         |{_DECIMAL}(?<=\p{{WB=Numeric}}{_MARKS}{_DECIMAL}){_MARKS}(?=\p{{WB=Numeric}}))
       {_RUN}+)*
    |[\p{{L}}\p{{N}}]{_MARKS}""",
    regex.VERBOSE | regex.VERSION1,
)
ASCII_WORD = re.compile(  # the same without other alphabets, three times as fast
    r"\w+(?:(?:(?<=[A-Za-z])[':.](?=[A-Za-z])|(?<=\d)[';,.](?=\d))\w+)*", re.ASCII
)
ELIDED = frozenset(
    (
        *("l", "d", "j", "m", "t", "s", "n", "c", "v", "qu", "jusqu", "lorsqu", "puisqu", "quoiqu", "quelqu", "presqu"),
        *("entr", "un", "all", "dell", "nell", "sull", "dall", "coll", "quest", "quell", "bell", "sant", "tutt", "com"),
        *("dov", "anch", "senz"),
    )
)
WHOLE = frozenset(("aujourd'hui",))
VOWELS = frozenset("aeiouyhœæ")  # h may be silent


def find_words(text: str) -> list[Span]:
    """The spans of a text's words, in their order."""
    spans: list[Span] = []
    for match in (ASCII_WORD if text.isascii() else WORD).finditer(text):
        start, end = match.span()
        if "'" in match[0] or "’" in match[0]:
            spans.extend(_at_apostrophes(text, start, end))
        elif match[0].strip("_"):
            spans.append((start, end))
    return spans


def _at_apostrophes(text: str, start: int, end: int) -> Iterator[Span]:
    word = text[start:end].lower().replace("’", "'")
    before, _, after = word.partition("'")
    if word not in WHOLE and before in ELIDED and unicodedata.normalize("NFD", after[:1])[:1] in VOWELS:
        yield start, start + len(before) + 1
        yield from _at_apostrophes(text, start + len(before) + 1, end)
    elif word.endswith("'s") and len(word) > 2:
        yield start, end - 2
        yield end - 2, end
    else:
        yield start, end
