"""How numbers are written for people, everywhere in Regard: 12,400, 1 sentence, 2 sentences."""

from __future__ import annotations

import math


def group_digits(number: float) -> str:
    """Digits in threes; four of them stay together, as in a year."""
    digits = f"{number:,.0f}"
    return digits if len(digits.lstrip("-")) > len("9,999") else digits.replace(",", "")


def pluralize(number: int, noun: str, plural: str = "") -> str:
    """1 sentence, 12,400 sentences; `plural` where it is not the noun with an s."""
    return f"{group_digits(number)} {noun if number == 1 else plural or noun + 's'}"


def with_article(name: str) -> str:
    """A name with its article, as it is spoken: an lstm, a gpt, an n-gram."""
    spoken = name[:1].lower() in "aeiou" or name in ("lstm", "rnn", "nnlm", "ngram")
    return f"{'an' if spoken else 'a'} {name}"


def format_bytes(size: float) -> str:
    """An amount of bytes as people say it: 512 B, 3.4 MiB, 126 GiB."""
    if size == math.inf:
        return "unknown"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1024
    return f"{size:.3g} TiB"
