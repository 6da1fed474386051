"""In the worker process: a text through a run, what may come next, and the text after a change."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from regard.base.errors import RegardError
from regard.decoding.sampling import Sampling
from regard.evaluation.alignment_error import spans_in
from regard.insight.trace_facts import facts
from regard.insight.words import labels
from regard.lab.opened_runs import number_in, text_in
from regard.lab.runs_folder import RunsFolder
from regard.lab.traces import asked_run, matrices, page, trace_of, work
from regard.runs.language_run import LanguageRun

SHOWN = 16  # choices of the next token
MOST_WRITTEN = 200  # tokens at once


def trace(folder: RunsFolder, body: Mapping[str, Any]) -> dict[str, Any]:
    """What `regard inspect` computes, without its matrices; of a language model also where its tokens lie."""
    found = trace_of(folder, body)
    told = facts(found)
    run = asked_run(folder, body)
    if isinstance(run, LanguageRun):
        known = found.probability[np.isfinite(found.probability)]
        text = run.tokenizer.normalise(found.text)
        spans = spans_in(run.tokenizer, run.tokenizer.encode(text), text)
        with np.errstate(divide="ignore"):
            nats = -float(np.log(known).sum())
        told |= {
            "text": text,
            "spans": [[0, 0], *spans],
            "nats": nats,
            "perplexity": math.exp(min(nats / max(len(known), 1), 700.0)) if len(known) else None,
            "bits_per_character": nats / math.log(2) / len(text) if text and run.tokenizer.kind != "word" else None,
        }
    return told


def following(folder: RunsFolder, body: Mapping[str, Any]) -> dict[str, Any]:
    """What comes after the text: the model's probability of each token, and the chance that it is drawn."""
    run = _writer(folder, body)
    found = run.choices(text_in(body), _sampling(body), SHOWN)
    words = labels([one.token for one in found])
    return {
        "choices": [
            {"word": word, "token": one.token, "p": one.probability, "drawn": one.drawn}
            for word, one in zip(words, found)
        ],
        "other": max(0.0, 1.0 - sum(one.drawn for one in found)),
    }


def write(folder: RunsFolder, body: Mapping[str, Any]) -> dict[str, str]:
    """The text and what `generate` writes after it."""
    run, text = _writer(folder, body), text_in(body)
    count, seed = int(number_in(body, "tokens", 1, 1, MOST_WRITTEN)), int(number_in(body, "seed", 0, 0, 2**53))
    lines = 1 if body.get("line") else 0
    return {"text": run.generate(text, max_tokens=count, sampling=_sampling(body), seed=seed, lines=lines).rstrip("\n")}


def edit(folder: RunsFolder, body: Mapping[str, Any]) -> dict[str, str]:
    """The text with another token after a step; the rest goes (`keep` false) or stays."""
    run, text = _writer(folder, body), text_in(body)
    read = run.tokenizer.encode(text)
    step = int(number_in(body, "step", 0, 0, len(read)))
    token = text_in(body, "token")
    if token not in run.tokenizer.tokens:
        raise RegardError(f"{token[:40]!r} is no token of this model.")
    chosen = run.tokenizer.tokens.index(token)
    rest = read[step + 1 :] if body.get("keep") else []
    return {"text": run.tokenizer.decode([*read[:step], chosen, *rest])}


def _writer(folder: RunsFolder, body: Mapping[str, Any]) -> LanguageRun:
    run = asked_run(folder, body)
    if not isinstance(run, LanguageRun):
        raise RegardError(f"{body['run']} does not go on with a text: choose a language model.")
    return run


def _sampling(body: Mapping[str, Any]) -> Sampling:
    return Sampling(
        temperature=float(number_in(body, "temperature", 1.0, 0, 5)),
        top_k=int(number_in(body, "top_k", 0, 0, 10**6)),
        top_p=float(number_in(body, "top_p", 1.0, 0.001, 1)),
    )


WORK = {
    "page": page,
    "work": work,
    "trace": trace,
    "matrix": matrices,
    "following": following,
    "write": write,
    "edit": edit,
}
