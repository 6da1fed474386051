"""English inflection: plurals, the third person, participles, and *a* or *an*."""

from __future__ import annotations

from dataclasses import dataclass

VOWELS = "aeiou"
NOT_AN = ("uni", "use", "eu", "one")  # begin with a vowel letter but not with a vowel
SILENT_H = ("hour", "honest")


@dataclass(frozen=True)
class EnglishVerb:
    """`look at`, with the forms of its first word."""

    base: str
    third: str
    past: str
    participle: str
    gerund: str
    particle: str = ""


def verb(forms: str) -> EnglishVerb:
    """From `give gave given`, `watch` or `look+at`; a fourth form is the gerund."""
    base, *irregular = forms.split()
    base, _, particle = base.partition("+")
    past = irregular[0] if irregular else regular_past(base)
    participle = irregular[1] if len(irregular) > 1 else past
    gerund = irregular[2] if len(irregular) > 2 else regular_gerund(base, past)
    third = {"have": "has", "be": "is"}.get(base) or ("goes" if base == "go" else plural(base))
    return EnglishVerb(base, third, past, participle, gerund, particle.replace("+", " "))


def plural(noun: str) -> str:
    """Also the third person of a verb: the same ending by the same rule."""
    if noun.endswith(("s", "x", "ch", "sh", "z")):
        return noun + "es"
    if noun.endswith("y") and noun[-2] not in VOWELS:
        return noun[:-1] + "ies"
    return noun + "s"


def regular_past(base: str) -> str:
    if base.endswith("y") and base[-2] not in VOWELS:
        return base[:-1] + "ied"
    return base + ("d" if base.endswith("e") else "ed")


def regular_gerund(base: str, past: str) -> str:
    if past == base + base[-1] + "ed":  # stop, stopped, stopping
        return base + base[-1] + "ing"
    return (base[:-1] if base.endswith("e") and not base.endswith("ee") else base) + "ing"


def takes_an(word: str) -> bool:
    word = word.lower()
    return (word[0] in VOWELS and not word.startswith(NOT_AN)) or word.startswith(SILENT_H)
