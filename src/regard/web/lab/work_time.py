"""In the worker process: the snapshots of a run, and how its word vectors form.

The plane is the same for all snapshots: the two directions in which the last moment's vectors vary most (principal
components). Each snapshot's vectors are centered on their mean and projected onto that plane, so what moves has moved.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import safe_open

from regard.base.errors import RegardError
from regard.base.reading import check_tensor_file
from regard.insight.views.page import trace_page
from regard.insight.words import labels
from regard.report.packed_arrays import pack
from regard.runs.store.folder import has_source, moments, open_recipe, open_tokenizers
from regard.text.tokenizers.tokenizer import Tokenizer
from regard.web.lab.requests import CauseRequest, HeadsInTime, OneRun, TraceRequest
from regard.web.lab.runs_folder import RunsFolder
from regard.web.lab.traces import cause, trace_of

MOST_WORDS = 160
NEIGHBOURS = 6
MOST_FRAMES = 24  # of a film on a page
SHOWN = ("loss", "perplexity", "bleu", "tokens")  # of a validation
SCORES = ("previous", "positional", "duplicate", "induction", "syntactic")  # of a head


def about(folder: RunsFolder, asked: OneRun) -> dict[str, Any]:
    """The saved snapshots, with the validation loss at each."""
    path = folder.plain_run(asked.run)
    valid, (steps, *columns) = folder.curve(path).taken("step", *SHOWN)
    losses = {
        int(step): {key: value for key, value in zip(SHOWN, row) if math.isfinite(value)}
        for is_valid, step, *row in zip(valid, steps, *columns)
        if is_valid and math.isfinite(step)
    }
    found = [{"step": step, **losses.get(step, {})} for step in moments(path)]
    return {"moments": found, "translates": has_source(open_recipe(path))}


def vectors(folder: RunsFolder, asked: OneRun) -> bytes:
    """At each moment where common words lie in the plane [moments, words, 2], and their nearest [moments, words, n]."""
    path = folder.plain_run(asked.run)
    kept = moments(path)
    if not kept:
        raise RegardError("This run has no snapshots of its training.")
    tokenizer = open_tokenizers(path, open_recipe(path)).target
    chosen = common_words(tokenizer)
    if len(chosen) < 2:
        raise RegardError("The vocabulary of this run has no words to show.")
    tables = [_table(file)[chosen] for file in kept.values()]
    places, share = in_one_plane(tables)
    nearest = np.stack([neighbours(table, NEIGHBOURS) for table in tables])
    words = labels([tokenizer.token(n) for n in chosen])
    return pack(
        {"places": places.astype(np.float32), "nearest": nearest.astype(np.int32)},
        {"words": words, "steps": list(kept), "share": round(share, 3)},
    )


def heads(folder: RunsFolder, asked: HeadsInTime) -> dict[str, Any]:
    """Every head's scores at each snapshot, as `inspect --head-scores` gives them: {score: [moments, heads]}; the
    syntactic one only where the model reads the phrasebook's English."""
    kept = list(moments(folder.plain_run(asked.run)))
    if not kept:
        raise RegardError("This run has no snapshots of its training.")
    last = CauseRequest(run=asked.run, text=asked.text, weights=str(kept[-1]), ask="head_scores")
    target = trace_of(folder, last).translation  # the same words at every moment
    found = [cause(folder, replace(last, weights=str(step), target=target)) for step in kept]
    names = [one["name"] for one in found[0]["heads"]]
    chance = {score: value for score in SCORES if (value := found[-1]["chance"][score]) is not None}
    scores = {score: [[head[score] for head in one["heads"]] for one in found] for score in chance}
    return {"steps": kept, "heads": names, "scores": scores, "chance": chance}


def film(folder: RunsFolder, asked: HeadsInTime) -> dict[str, str]:
    """What every snapshot reads and writes, as one page that plays; of many snapshots some, evenly chosen."""
    kept = about(folder, OneRun(run=asked.run))["moments"]
    if not kept:
        raise RegardError("This run has no snapshots of its training.")
    count = min(len(kept), MOST_FRAMES)
    chosen = [kept[round(place * (len(kept) - 1) / max(1, count - 1))] for place in range(count)]
    traces, frames = [], []
    for one in chosen:
        reading = TraceRequest(run=asked.run, text=asked.text, weights=str(one["step"]))
        traces.append(trace_of(folder, reading))
        loss = f" · validation loss {one['loss']:.4g} nats per token" if "loss" in one else ""
        frames.append(f"step {one['step']} of {kept[-1]['step']}{loss}")
    return {"page": trace_page(*traces, frames=frames)}


def common_words(tokenizer: Tokenizer) -> list[int]:
    """Tokens that are words, the most frequent first, as vocabularies are ordered; letters where there are too few."""
    words = [n for n, token in enumerate(tokenizer.tokens) if re.fullmatch(r" ?[^\W\d_]{2,}", token)]
    letters = [n for n, token in enumerate(tokenizer.tokens) if re.fullmatch(r"[^\W_]", token)]
    return (words if len(words) >= 20 else [*words, *letters])[:MOST_WORDS]


def in_one_plane(tables: list[np.ndarray]) -> tuple[np.ndarray, float]:
    """[moments, words, 2] in the plane of the last moment, and the share of its variance that the plane shows."""
    centred = [table - table.mean(0) for table in tables]
    _, sizes, axes = np.linalg.svd(centred[-1], full_matrices=False)
    signs = np.where(axes[:2, np.abs(axes[:2]).argmax(1)].diagonal() < 0, -1.0, 1.0)  # the same picture each time
    plane = (axes[:2] * signs[:, None]).T
    whole = float((sizes**2).sum()) or 1.0
    return np.stack([table @ plane for table in centred]), float((sizes[:2] ** 2).sum()) / whole


def neighbours(table: np.ndarray, count: int) -> np.ndarray:
    """The words whose vectors point most nearly the same way, [words, count]."""
    unit = table / np.maximum(np.linalg.norm(table, axis=1, keepdims=True), 1e-12)
    alike = unit @ unit.T
    np.fill_diagonal(alike, -np.inf)
    return np.argsort(-alike, axis=1, kind="stable")[:, :count]


def _table(file: Path) -> np.ndarray:
    """The word vectors of a snapshot; nothing else is read."""
    check_tensor_file(file)
    with safe_open(file, "pt") as stream:
        names = set(stream.keys())
        if (name := "embedding.table.weight") not in names:
            raise RegardError("This system has no word vectors.")
        return stream.get_tensor(name).double().numpy()


WORK = {"about": about, "vectors": vectors, "heads": heads, "film": film}
