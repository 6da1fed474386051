"""The numbers of a finding in words, with enough digits to show on which side of its bound each is."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from regard.claims.verdict import Finding

DIGITS = 4  # of a measured number, at least
BOUND_DIGITS = 6


class FindingWords(NamedTuple):
    measured: str  # 0.0121 [0.00544, 0.0187]
    expected: str  # at most 0.05 nats


def words_of_finding(finding: Finding) -> FindingWords:
    expect = finding.expect
    numbers = (finding.low, finding.high) if expect.over == "draws" else (finding.low, finding.high, finding.value)
    for digits in range(DIGITS, 18):
        low, high, *mean = texts = [_plain(number, digits) for number in numbers]
        bound, tolerance = _plain(expect.bound, max(digits, BOUND_DIGITS)), _plain(expect.tolerance, max(3, digits - 3))
        shown = replace(expect, bound=float(bound), tolerance=float(tolerance)).range
        if [_side(float(text), shown) for text in texts] == [_side(number, expect.range) for number in numbers]:
            break
    if mean:
        measured = f"{mean[0]} [{low}, {high}]"
    else:
        measured = low if low == high else f"{low} to {high}"
    within = f" ± {tolerance}" if expect.relation == "within" else ""
    return FindingWords(measured, f"{expect.relation} {bound}{within}{' ' + expect.unit if expect.unit else ''}")


def sentence_of(finding: Finding) -> str:
    """As in a terminal: 0 to 2e-17 in 12 draws, expected at most 1e-12."""
    measured, expected = words_of_finding(finding)
    count = len(finding.values)
    draws = f" in {count} draw{'s' * (count != 1)}" if finding.expect.over == "draws" else ""
    return f"{measured}{draws}, expected {expected}"


def _plain(number: float, digits: int) -> str:
    """That many digits, and at least all before the point of a number below a million: 22027, not 2.203e+04."""
    whole = len(str(int(abs(number)))) if abs(number) < 1e6 else 0
    return f"{number:.{max(digits, whole)}g}"


def _side(number: float, expected: tuple[float, float]) -> tuple[bool, bool]:
    return number >= expected[0], number <= expected[1]
