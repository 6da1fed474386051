"""In the worker process: a sentence and its translation, how it begins, and where two runs differ on a whole file."""

from __future__ import annotations

import json
from typing import Any, cast

import numpy as np

from regard.base.errors import RegardError
from regard.evaluation.bleu import Statistics
from regard.insight.views.as_json import facts
from regard.runs.tasks.translation.run import TranslationRun
from regard.web.lab import requests
from regard.web.lab.held_out import held_out
from regard.web.lab.runs_folder import RunsFolder
from regard.web.lab.traces import asked_run, cause, matrices, own_translation, page, trace_of, work

SHOWN = 60  # sentences of a file


def trace(folder: RunsFolder, asked: requests.TraceRequest) -> dict[str, Any]:
    """The reading of a translation; a changed model reads the unchanged one's, and `own` is what it would write."""
    _translator(folder, asked)
    told = facts(trace_of(folder, asked))
    return {**told, "own": own_translation(folder, asked)} if asked.changes else told


def begin(folder: RunsFolder, asked: requests.BeginRequest) -> dict[str, str]:
    """The start of the translation with another token at a step: the text before it, and that token."""
    run, found = _translator(folder, asked), trace_of(folder, asked)
    numbers = {token: number for number, token in enumerate(run.tokenizer.tokens)}
    step, token = min(asked.step, found.steps - 1), asked.token
    if token not in numbers or numbers[token] == run.tokenizer.eos:
        raise RegardError(f"{token[:40]!r} cannot be inserted here.")
    return {"prefix": run.tokenizer.decode([numbers[one] for one in (*found.targets[:step], token)])}


def example(folder: RunsFolder, asked: requests.ExampleRequest) -> dict[str, str]:
    """A held-out sentence of middle length and its reference; none where the corpus is not here."""
    run = _translator(folder, asked)
    try:
        pairs = held_out(run.folder)
    except RegardError:
        return {"text": "", "reference": ""}
    good = [pair for pair in pairs if 5 <= len(pair[0].split()) <= 12] or pairs
    source, reference = good[asked.seed % len(good)] if good else ("", "")
    return {"text": source, "reference": reference}


def differences(folder: RunsFolder, asked: requests.Differences) -> dict[str, Any]:
    """Of one or two evaluations with their texts: each sentence's chrF; those they differ on most, or that are worst,
    first."""
    found = [_result(folder, number) for number in asked.jobs]
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


def _result(folder: RunsFolder, number: str) -> dict[str, Any]:
    """The output of an evaluation."""
    try:
        found = json.loads(folder.read_own("jobs", f"{number}.out"))
        return {key: found[key] for key in ("sources", "references", "translations")}
    except (ValueError, KeyError, TypeError, RecursionError):
        raise RegardError("This evaluation did not save its sentences: evaluate again.") from None


def _translator(folder: RunsFolder, asked: requests.AboutRun) -> TranslationRun:
    run: Any = asked_run(folder, asked)
    if not hasattr(run, "translate"):
        raise RegardError(f"{asked.run} is not a translator: choose one.")
    return cast("TranslationRun", run)


WORK = {
    "page": page,
    "cause": cause,
    "work": work,
    "trace": trace,
    "matrix": matrices,
    "begin": begin,
    "example": example,
    "differences": differences,
}
