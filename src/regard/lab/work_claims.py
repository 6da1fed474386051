"""In the worker process: the lectures' statements, and what was measured of each."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from regard.claims.all_claims import all_claims, get_claim
from regard.claims.claim import Claim
from regard.claims.result import Result
from regard.claims.runner import read_record, record_of
from regard.lab.opened_runs import text_in
from regard.lab.runs_folder import RunsFolder

HERE = "this machine"  # what `regard claims` keeps in its cache, rather than a folder of results


def every(folder: RunsFolder, body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """All statements, in the lectures' order, each with its newest verdict."""
    found = []
    for claim in all_claims():
        result = next(iter(_results(folder, claim).values()), None)
        found.append(_words(claim) | {key: result[key] if result else "" for key in ("verdict", "quick")})
    return found


def one(folder: RunsFolder, body: Mapping[str, Any]) -> dict[str, Any]:
    """One statement with all that its verdict rests on; `from` names the folder whose result is wanted."""
    claim = get_claim(text_in(body, "name", 60))
    results = _results(folder, claim)
    wanted = text_in(body, "from", 400)
    source = wanted if wanted in results else next(iter(results), "")
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
    return {key: getattr(claim, key) for key in same} | {"kinds": list(claim.kinds)}


def _results(folder: RunsFolder, claim: Claim) -> dict[str, dict[str, Any]]:
    """By where they are kept: full ones of this machine first, then folders of results, the newest first."""
    kept: dict[str, dict[str, Any]] = {}
    for quick in (False, True):
        if result := read_record(record_of(claim, quick, "cpu", {})):
            kept.setdefault(HERE, result.as_json())
    for name, record in folder.claim_results(claim.name).items():
        with suppress(ValueError, KeyError, TypeError, AttributeError):  # from another version, or not ours
            kept[name] = Result.from_json(record).as_json()
    return kept
