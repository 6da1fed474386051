"""How a large number is written for people, everywhere in Regard: 12 400."""

from __future__ import annotations


def grouped(number: float) -> str:
    """Digits in threes; four of them stay together, as in a year."""
    digits = f"{number:,.0f}".replace(",", " ")
    return digits if len(digits.lstrip("-")) > len("9 999") else digits.replace(" ", "")
