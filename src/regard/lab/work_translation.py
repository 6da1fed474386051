"""In the worker process: a sentence and its translation, how it begins, and where two runs differ on a whole file."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from itertools import islice
from typing import Any

import numpy as np

from regard.base.errors import RegardError
from regard.evaluation.bleu import Statistics
from regard.insight.trace_facts import facts
from regard.lab.opened_runs import number_in, text_in
from regard.lab.runs_folder import RunsFolder
from regard.lab.traces import asked_run, matrices, page, trace_of, work
from regard.runs.translation_run import TranslationRun

SHOWN = 60  # sentences of a file
LOOKED_AT = 60  # held-out pairs that an example is taken from


def trace(folder: RunsFolder, body: Mapping[str, Any]) -> dict[str, Any]:
    _translator(folder, body)
    return facts(trace_of(folder, body))


def begin(folder: RunsFolder, body: Mapping[str, Any]) -> dict[str, str]:
    """How the translation begins if another token stands at a step: what was written before it, and that token."""
    run, found = _translator(folder, body), trace_of(folder, body)
    numbers = {token: number for number, token in enumerate(run.tokenizer.tokens)}
    step, token = int(number_in(body, "step", 0, 0, found.steps - 1)), text_in(body, "token")
    if token not in numbers or numbers[token] == run.tokenizer.eos:
        raise RegardError(f"{token[:40]!r} cannot be written here.")
    return {"prefix": run.tokenizer.decode([numbers[one] for one in (*found.targets[:step], token)])}


def example(folder: RunsFolder, body: Mapping[str, Any]) -> dict[str, str]:
    """A held-out sentence of middle length and its reference; none where the corpus is not here."""
    run, skip = _translator(folder, body), int(number_in(body, "seed", 0, 0, 2**53))
    try:
        pairs = list(islice(run.pairs(None, "valid"), LOOKED_AT))
    except RegardError:
        return {"text": "", "reference": ""}
    good = [pair for pair in pairs if 5 <= len(pair[0].split()) <= 12] or pairs
    source, reference = good[skip % len(good)] if good else ("", "")
    return {"text": source, "reference": reference}


def differences(folder: RunsFolder, body: Mapping[str, Any]) -> dict[str, Any]:
    """Of one or two evaluations with their texts: each sentence's chrF; those they differ on most, or that are worst,
    first."""
    found = [_result(folder, number) for number in body["jobs"]]
    if any(one["sources"] != found[0]["sources"] for one in found):
        raise RegardError("These two runs were evaluated on different sentences.")
    references = found[0]["references"]
    scores = []
    for one in found:
        statistics = Statistics.of("chrf", one["translations"], references)
        scores.append(statistics.score(statistics.counts))
    wanted = np.abs(scores[0] - scores[1]) if len(found) > 1 else -scores[0]
    order = np.argsort(-wanted, kind="stable")[:SHOWN].tolist()
    same = sum(len({one["translations"][n] for one in found}) == 1 for n in range(len(references)))
    return {
        "sentences": len(references),
        "same": same if len(found) > 1 else None,
        "rows": [
            {
                "line": n + 1,
                "source": found[0]["sources"][n],
                "reference": references[n],
                "translations": [one["translations"][n] for one in found],
                "chrf": [round(float(score[n]), 1) for score in scores],
            }
            for n in order
        ],
    }


def _result(folder: RunsFolder, number: Any) -> dict[str, Any]:
    """What an evaluation printed."""
    if not isinstance(number, str) or not re.fullmatch(r"[0-9a-f-]{1,40}", number):
        raise RegardError("There is no such job.")
    try:
        found = json.loads(folder.read_own("jobs", f"{number}.out"))
        return {key: found[key] for key in ("sources", "references", "translations")}
    except (ValueError, KeyError, TypeError, RecursionError):
        raise RegardError("This evaluation printed no sentences: evaluate again.") from None


def _translator(folder: RunsFolder, body: Mapping[str, Any]) -> TranslationRun:
    run = asked_run(folder, body)
    if not isinstance(run, TranslationRun):
        raise RegardError(f"{body['run']} does not translate: choose a translator.")
    return run


WORK = {
    "page": page,
    "work": work,
    "trace": trace,
    "matrix": matrices,
    "begin": begin,
    "example": example,
    "differences": differences,
}
