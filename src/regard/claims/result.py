"""The result of a claim: its verdict with all evidence, for display, JSON and the cache."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from regard.claims.claim import Claim, Evidence, Expect, Trial, Worked
from regard.claims.finding_words import words_of_finding
from regard.claims.verdict import HOLDS, SIGNS, Finding, judge, parts
from regard.report.figures import Figure, from_json


@dataclass(frozen=True)
class ClaimResult:
    name: str
    number: str
    kinds: tuple[str, ...]
    quote: str
    where: str
    statement: str
    conditions: str
    control_words: str
    breaks: str
    verdict: str
    expected: tuple[Finding, ...]
    control: tuple[Finding, ...]
    besides: tuple[Finding, ...]
    worked: tuple[Worked, ...]
    figures: tuple[Figure, ...]
    remarks: tuple[str, ...]
    table: tuple[Mapping[str, Any], ...]
    seeds: tuple[int, ...]
    quick: str  # what --quick changed; empty for the full experiment
    device: str
    knobs: Mapping[str, float]
    seconds: float
    code: str  # digest of the code that measured it
    cached: bool = False  # taken from the cache

    @property
    def sign(self) -> str:
        """✓, or ✓ quick: a quick form is smaller than the experiment that decides."""
        return sign_of(self.verdict, self.quick)

    @property
    def label(self) -> str:
        """✓ holds, or ✓ quick: holds at reduced size."""
        return f"{SIGNS[self.verdict]} {verdict_words(self.verdict, self.quick)}"

    @property
    def controlled(self) -> bool:
        return all(finding.verdict == HOLDS for finding in self.control)

    @property
    def parts(self) -> dict[str, str]:
        """The verdict of each part of a statement with several parts."""
        return parts(self.expected, self.control)

    @property
    def decisive(self) -> Finding:
        """The finding behind the verdict: a failed control, else one that does not hold, else the first."""
        doubted = (finding for finding in (*self.control, *self.expected) if finding.verdict != HOLDS)
        return next(doubted, self.expected[0])

    def as_json(self) -> dict[str, Any]:
        """`numbers` holds each quantity by name; `control` is the control's verdict. `verdict` judges the
        measurement, `label` adds whether this was the quick form, and `quick` how that differs."""
        findings = {"expected": self.expected, "control": self.control, "besides": self.besides}
        return {
            "name": self.name,
            "number": self.number,
            "kinds": list(self.kinds),
            "statement": self.statement,
            "quote": self.quote,
            "where": self.where,
            "conditions": self.conditions,
            "verdict": self.verdict,
            "label": self.label,
            "parts": self.parts,
            "control": {"words": self.control_words, "came_out": self.controlled},
            "breaks": self.breaks,
            "numbers": {role: [_finding_json(one) for one in group] for role, group in findings.items()},
            "worked": [vars(one) for one in self.worked],
            "figures": [figure.as_json() for figure in self.figures],
            "remarks": list(self.remarks),
            "table": [{key: _number(value) for key, value in row.items()} for row in self.table],
            "seeds": list(self.seeds),
            "quick": self.quick,
            "device": self.device,
            "knobs": dict(self.knobs),
            "seconds": round(self.seconds, 3),
            "code": self.code,
            "cached": self.cached,
        }

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> ClaimResult:
        numbers = record["numbers"]
        same = ("name", "number", "statement", "quote", "where", "conditions", "verdict", "breaks", "quick", "device")
        return cls(
            **{key: record[key] for key in (*same, "knobs", "seconds", "code", "cached")},
            expected=tuple(map(_finding, numbers["expected"])),
            control=tuple(map(_finding, numbers["control"])),
            besides=tuple(map(_finding, numbers["besides"])),
            kinds=tuple(record["kinds"]),
            control_words=record["control"]["words"],
            worked=tuple(Worked(**one) for one in record["worked"]),
            figures=tuple(from_json(one) for one in record["figures"]),
            remarks=tuple(record["remarks"]),
            table=tuple(record["table"]),
            seeds=tuple(record["seeds"]),
        )

    def again(self) -> ClaimResult:
        return replace(self, cached=True)

    def _repr_html_(self) -> str:
        from regard.claims.claims_page import section

        return section(self)


def sign_of(verdict: str, quick: str) -> str:
    """✓, or ✓ quick."""
    return f"{SIGNS[verdict]} quick" if quick else SIGNS[verdict]


def verdict_words(verdict: str, quick: str) -> str:
    return f"quick: {verdict} at reduced size" if quick else verdict


def result_of(claim: Claim, trial: Trial, evidence: Evidence, *, seconds: float, device: str, code: str) -> ClaimResult:
    judgement = judge(claim, evidence)
    return ClaimResult(
        name=claim.name,
        number=claim.number,
        kinds=claim.kinds,
        quote=claim.quote,
        where=claim.where,
        statement=claim.statement,
        conditions=claim.conditions,
        control_words=claim.control_words,
        breaks=claim.breaks,
        verdict=judgement.verdict,
        expected=judgement.expected,
        control=judgement.control,
        besides=judgement.besides,
        worked=tuple(claim.worked()) if claim.worked else (),
        figures=evidence.figures,
        remarks=evidence.remarks,
        table=evidence.table,
        seeds=trial.seeds,
        quick=claim.quick_words if trial.quick else "",
        device=device,
        knobs=dict(trial.knobs),
        seconds=seconds,
        code=code,
    )


def _finding_json(finding: Finding) -> dict[str, Any]:
    expect = vars(finding.expect)
    measured = {key: _number(getattr(finding, key)) for key in ("value", "low", "high")}
    words = words_of_finding(finding)._asdict()
    return {
        **expect,
        **words,
        **measured,
        "values": [_number(value) for value in finding.values],
        "verdict": finding.verdict,
    }


def _finding(record: Mapping[str, Any]) -> Finding:
    names = ("quantity", "relation", "bound", "tolerance", "over", "unit", "part")
    expect = Expect(**{name: record[name] for name in names})
    value, low, high = (_from(record[key]) for key in ("value", "low", "high"))
    return Finding(expect, tuple(map(_from, record["values"])), value, low, high, record["verdict"])


def _number(value: Any) -> Any:
    """JSON has no infinity and no NaN; they are written as words."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _from(value: Any) -> float:
    return float(value)
