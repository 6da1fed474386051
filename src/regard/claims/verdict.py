"""From numbers to a verdict, by one rule for all claims.

A finding *holds* when its whole interval is where it was expected, *fails* when its whole interval is elsewhere,
and is *inconclusive* otherwise. A claim holds when all it says holds. If its control does not come out the other way,
it is inconclusive whatever else was measured: an experiment that cannot fail shows nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from regard.claims.claim import Claim, Evidence, Expect
from regard.evaluation.intervals import share_interval, student_interval

HOLDS, FAILS, OPEN = "holds", "fails", "inconclusive"
SIGNS = {HOLDS: "✓", FAILS: "✗", OPEN: "?"}
LEVEL = 0.99  # there are many claims: at 95 % one in twenty true ones would not be confirmed


def tally(count: int, verdict: str) -> str:
    """1 holds, 6 hold."""
    return f"{count} {verdict if count == 1 else verdict.removesuffix('s')}"


@dataclass(frozen=True)
class Finding:
    expect: Expect
    values: tuple[float, ...]
    value: float
    low: float
    high: float
    verdict: str


def find(expect: Expect, values: Sequence[float]) -> Finding:
    values = tuple(values)
    if not all(map(math.isfinite, values)):  # a NaN refutes an identity, too
        verdict = FAILS if expect.over == "draws" else OPEN
        return Finding(expect, values, math.nan, math.nan, math.nan, verdict)
    if expect.over == "draws":
        value, low, high = sum(values) / len(values), min(values), max(values)
    elif expect.over == "share":
        value, (low, high) = sum(values) / len(values), share_interval(int(sum(values)), len(values), LEVEL)
    else:
        value, (low, high) = sum(values) / len(values), student_interval(values, LEVEL)
    least, most = expect.range
    if least <= low and high <= most:
        verdict = HOLDS
    elif expect.over == "draws" or high < least or low > most:
        verdict = FAILS  # a single draw refutes an identity
    else:
        verdict = OPEN
    return Finding(expect, values, value, low, high, verdict)


@dataclass(frozen=True)
class Judgement:
    verdict: str
    expected: tuple[Finding, ...]
    control: tuple[Finding, ...]
    besides: tuple[Finding, ...]

    @property
    def controlled(self) -> bool:
        return all(finding.verdict == HOLDS for finding in self.control)


def judge(claim: Claim, evidence: Evidence) -> Judgement:
    def findings(group: tuple[Expect, ...]) -> tuple[Finding, ...]:
        return tuple(find(expect, evidence.measured[expect.quantity]) for expect in group)

    expected, control = findings(claim.expected), findings(claim.control)
    return Judgement(decide(expected, control), expected, control, findings(claim.besides))


def decide(expected: Sequence[Finding], control: Sequence[Finding]) -> str:
    if any(finding.verdict != HOLDS for finding in control):
        return OPEN
    if all(finding.verdict == HOLDS for finding in expected):
        return HOLDS
    return FAILS if any(finding.verdict == FAILS for finding in expected) else OPEN


def parts(expected: Sequence[Finding], control: Sequence[Finding]) -> dict[str, str]:
    """The verdict of each part of the statement, by the same rule; empty if it has no parts."""
    names = dict.fromkeys(finding.expect.part for finding in expected if finding.expect.part)
    return {
        name: decide(
            [finding for finding in expected if finding.expect.part == name],
            [finding for finding in control if finding.expect.part in (name, "")],
        )
        for name in names
    }
