"""In the worker process: a text through a run, what may come next, and the text after a change."""

from __future__ import annotations

import math
from typing import Any, cast

import numpy as np

from regard.base.errors import RegardError
from regard.decoding.sampling import Sampling
from regard.evaluation.perplexity import finite_perplexity
from regard.insight.views.as_json import facts
from regard.insight.words import labels_after
from regard.runs.tasks.language.run import LanguageRun
from regard.runs.tasks.task import task_of
from regard.web.lab import requests
from regard.web.lab.held_out import held_out
from regard.web.lab.runs_folder import RunsFolder
from regard.web.lab.traces import asked_run, cause, fits, matrices, page, trace_of, work

SHOWN = 16  # choices of the next token


def trace(folder: RunsFolder, asked: requests.TraceRequest) -> dict[str, Any]:
    """The results of `regard inspect` without its matrices; for a language model, also the text's probability."""
    found = trace_of(folder, asked)
    told = facts(found)
    run = asked_run(folder, asked)
    if not task_of(run).has_source:
        known = found.probability[np.isfinite(found.probability)]
        text = run.tokenizer.normalise(found.text)
        with np.errstate(divide="ignore"):
            nats = -float(np.log(known).sum())
        told |= {
            "text": text,
            "nats": nats,
            "perplexity": finite_perplexity(nats / max(len(known), 1)) if len(known) else None,
            "bits_per_character": nats / math.log(2) / len(text) if text and run.tokenizer.kind != "word" else None,
        }
    return told


def following(folder: RunsFolder, asked: requests.Following) -> dict[str, Any]:
    """The next tokens: each with the model's probability and the probability of sampling it."""
    run = _writer(folder, asked)
    found = run.choices(asked.text, _sampling(asked), SHOWN)
    before = [run.tokenizer.token(one) for one in run.tokenizer.encode(asked.text)]
    words = labels_after(before, (one.token for one in found))
    return {
        "choices": [
            {"word": word, "token": one.token, "p": one.probability, "drawn": one.drawn}
            for word, one in zip(words, found)
        ],
        "other": max(0.0, 1.0 - sum(one.drawn for one in found)),
    }


def write(folder: RunsFolder, asked: requests.Write) -> dict[str, str]:
    """The text and what `generate` writes after it."""
    run, sampling, lines = _writer(folder, asked), _sampling(asked), int(asked.line)
    written = run.generate(asked.text, max_tokens=asked.tokens, sampling=sampling, seed=asked.seed, lines=lines)
    return {"text": written.rstrip("\n")}


def example(folder: RunsFolder, asked: requests.ExampleRequest) -> dict[str, str]:
    """A held-out sentence of middle length that the run can read whole, always the same for one `seed`; none where the
    corpus is not here."""
    run = asked_run(folder, asked)
    try:
        lines = [line.strip() for line, _ in held_out(run.folder)]
    except RegardError:
        return {"text": ""}
    fitting = [line for line in lines if fits(run, line)]
    good = [line for line in fitting if 4 <= len(line.split()) <= 12] or fitting
    return {"text": good[asked.seed % len(good)] if good else ""}


def edit(folder: RunsFolder, asked: requests.Edit) -> dict[str, str]:
    """The text with another token after a step; the rest goes (`keep` false) or stays."""
    run = _writer(folder, asked)
    read = run.tokenizer.encode(asked.text)
    if asked.token not in run.tokenizer.tokens:
        raise RegardError(f"{asked.token[:40]!r} is not a token of this model.")
    chosen = run.tokenizer.tokens.index(asked.token)
    rest = read[asked.step + 1 :] if asked.keep else []
    return {"text": run.tokenizer.decode([*read[: asked.step], chosen, *rest])}


def _writer(folder: RunsFolder, asked: requests.AboutRun) -> LanguageRun:
    run: Any = asked_run(folder, asked)
    if not hasattr(run, "choices"):
        raise RegardError(f"{asked.run} is not a language model: choose one.")
    return cast("LanguageRun", run)


def _sampling(asked: requests.Following) -> Sampling:
    return Sampling(temperature=asked.temperature, top_k=asked.top_k, top_p=asked.top_p)


WORK = {
    "page": page,
    "cause": cause,
    "work": work,
    "trace": trace,
    "matrix": matrices,
    "following": following,
    "write": write,
    "example": example,
    "edit": edit,
}
