"""In the worker process: the lectures' statements, and what was measured of each."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict
from typing import Any

from regard.base.fields import Fields
from regard.claims.all_claims import all_claims, get_claim
from regard.claims.claim import Claim
from regard.claims.documented_verdicts import documented_verdicts
from regard.claims.result import ClaimResult
from regard.claims.runner import read_record, record_of
from regard.web.lab.requests import OneClaim
from regard.web.lab.runs_folder import RunsFolder

HERE = "this machine"  # what `regard claims` keeps in its cache, rather than a folder of results


def every(folder: RunsFolder, asked: Fields) -> list[dict[str, Any]]:
    """All statements, in the lectures' order, each with its documented verdict and its newest one here."""
    found = []
    for claim in all_claims():
        result = next(iter(_results(folder, claim).values()), None)
        found.append(_words(claim) | {key: result[key] if result else "" for key in ("verdict", "label", "quick")})
    return found


def one(folder: RunsFolder, asked: OneClaim) -> dict[str, Any]:
    """One statement with all that its verdict rests on; `from` names the folder whose result is wanted."""
    claim = get_claim(asked.name)
    results = _results(folder, claim)
    source = asked.from_ if asked.from_ in results else next(iter(results), "")
    return _words(claim) | {
        "breaks": claim.breaks,
        "control": claim.control_words,
        "conditions": claim.conditions,
        "knobs": dict(claim.knobs),
        "limits": dict(claim.limits),
        "quick": claim.quick_words,
        "sources": list(results),
        "source": source,
        "report": source not in ("", HERE) and folder.has_report(folder.root / source),
        "result": results.get(source),
    }


WORK = {"every": every, "one": one}


def _words(claim: Claim) -> dict[str, Any]:
    same = ("name", "number", "where", "quote", "statement")
    documented = asdict(documented_verdicts()[claim.name])
    return {key: getattr(claim, key) for key in same} | {"kinds": list(claim.kinds), "documented": documented}


def _results(folder: RunsFolder, claim: Claim) -> dict[str, dict[str, Any]]:
    """By where they are kept: full ones of this machine first, then folders of results, the newest first."""
    kept: dict[str, dict[str, Any]] = {}
    for quick in (False, True):
        if result := read_record(record_of(claim, quick, "cpu", {})):
            kept.setdefault(HERE, result.as_json())
    for name, record in folder.claim_results(claim.name).items():
        with suppress(ValueError, KeyError, TypeError, AttributeError, OverflowError):  # another version, or not ours
            kept[name] = ClaimResult.from_json(record).as_json()
    return kept
