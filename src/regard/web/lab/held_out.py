"""In the worker process: sentences that a run was not trained on, and whether it has learned more than a bigram knows.

A corpus is opened and its checksum compared once for each run; what was read of it is remembered.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from regard.base.errors import RegardError
from regard.evaluation.perplexity import Method, finite_perplexity, likelihood
from regard.runs.data_lookup import corpus_of, pairs_of, tokens_of
from regard.runs.store.facts import WEIGHTS, read_note
from regard.runs.store.folder import has_source, open_recipe, open_tokenizers
from regard.systems.ngram import NGram, Settings
from regard.text.tokenizers.tokenizer import Tokenizer

LOOKED_AT = 200  # held-out lines that a page chooses from
MOST_COUNTED, MOST_VALIDATED = 1_000_000, 100_000  # tokens that the bigram is counted on and validated with


def held_out(path: Path) -> list[tuple[str, str]]:
    """The first sentences that were held out from a run's training, each with its reference or label; "" for a text."""
    return _held_out(path, _changed(path))


@lru_cache(maxsize=32)
def _held_out(path: Path, changed: int) -> list[tuple[str, str]]:
    recipe = open_recipe(path)
    if has_source(recipe):
        pairs = pairs_of(path, recipe).splits
        split = pairs.get("valid") or next(iter(pairs.values()))
        return [pair for pair in islice(zip(split.sources, split.targets), LOOKED_AT) if pair[0].strip()]
    splits = corpus_of(path, recipe).splits
    lines = splits.get("valid") or next(iter(splits.values()))
    return [(line, "") for line in islice(lines, LOOKED_AT) if line.strip()]


def progress_of(path: Path) -> dict[str, Any]:
    """A run's validation perplexity beside that of a bigram of the same tokens, which uses one word of context and no
    source. A model that is not better has hardly learned. `bigram` is None where its data are gone, or where no such
    comparison can be made."""
    weights = path / WEIGHTS
    note = read_note(weights) if weights.is_file() else {}
    loss, step = note.get("validation_loss"), note.get("step")
    if not isinstance(loss, float) or not isinstance(step, int) or not step or "accuracy" in note:  # it only counted
        return {"perplexity": None, "step": None, "bigram": None}
    try:
        bigram = _bigram(path, _changed(path))
    except RegardError:
        bigram = None
    return {"perplexity": finite_perplexity(loss), "step": step, "bigram": bigram}


@lru_cache(maxsize=64)
def _bigram(path: Path, changed: int) -> float | None:
    """The validation perplexity of Kneser-Ney's bigram, counted on the beginning of the training tokens."""
    recipe = open_recipe(path)
    tokenizer = open_tokenizers(path, recipe).target
    if tokenizer.eos != 0:  # as counting needs it; only imported models have another
        return None
    if has_source(recipe):
        pairs = pairs_of(path, recipe).splits
        train, valid = (_tokens(tokenizer, pairs[split].targets) for split in ("train", "valid"))
    else:
        corpus = corpus_of(path, recipe)
        train, valid = (np.asarray(tokens_of(corpus, tokenizer, split).ids) for split in ("train", "valid"))
    if not len(valid):
        return None
    model = NGram(tokenizer.vocabulary, Settings(order=2))
    model.count(train[:MOST_COUNTED])
    *_, whole = likelihood(model, valid[:MOST_VALIDATED], Method.of(model), eos=tokenizer.eos)
    return whole.perplexity


def _tokens(tokenizer: Tokenizer, lines: Any) -> np.ndarray:
    """Lines as one array, each with its <eos>, as many as are counted."""
    found: list[np.ndarray] = []
    size = 0
    for line in lines:
        found.append(np.array([*tokenizer.encode(line), tokenizer.eos]))
        size += len(found[-1])
        if size >= MOST_COUNTED:
            break
    return np.concatenate(found) if found else np.zeros(0, dtype=np.int64)


def _changed(path: Path) -> int:
    """Another run may have this name later."""
    try:
        return (path / "run.json").stat().st_mtime_ns
    except OSError:
        return 0
