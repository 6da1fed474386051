"""In the worker process: what a corpus is made of, and how a sentence is cut by tokenizers that were made from it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from regard.base.errors import RegardError
from regard.base.word_spans import find_words
from regard.insight.words import labels
from regard.text.corpus import Corpus, is_named, open_corpus
from regard.text.pairs import PairCorpus, is_pairs, open_pairs
from regard.text.tokenizers.tokenizer import Tokenizer
from regard.text.tokenizers.word_counts import count_words
from regard.web.lab import requests
from regard.web.lab.new_run import corpus
from regard.web.lab.runs_folder import RunsFolder

MOST_TRAINING, MOST_HELD_OUT = 10_000_000, 1_000_000  # characters that a tokenizer is made from, and is tried on

_made: OrderedDict[tuple[str, float, str, int], tuple[Tokenizer, dict[str, Any]]] = OrderedDict()


def statistics(folder: RunsFolder, asked: requests.AboutCorpus) -> dict[str, Any]:
    """For each side of a corpus: its splits, Zipf's curve, lengths, coverage; and what is shared between splits."""
    found = _opened(*_key(folder, asked))
    return {
        "name": found.name,
        "pairs": len(found.sides) > 1,
        "notes": list(found.notes),
        "sides": [{"label": label, **asdict(count_words(splits))} for label, splits in found.sides.items()],
    }


def tokens(folder: RunsFolder, asked: requests.Tokens) -> dict[str, Any]:
    """A sentence split by one kind of tokenizer, and that tokenizer's statistics on the held-out text."""
    name, changed = _key(folder, asked)
    key = name, changed, asked.kind, asked.vocabulary
    if key not in _made:
        _made[key] = _make(_opened(name, changed), asked.kind, asked.vocabulary)
    _made.move_to_end(key)
    while len(_made) > 12:
        _made.popitem(last=False)
    tokenizer, facts = _made[key]
    text = tokenizer.normalise(asked.text)
    ids = tokenizer.encode(text)
    return {
        **facts,
        "kind": asked.kind,
        "pieces": [
            {"word": word, "id": one, "special": one in tokenizer.specials}
            for word, one in zip(labels([tokenizer.token(one) for one in ids]), ids)
        ],
        "characters": len(text),
        "words": len(find_words(text)),
        "lossless": tokenizer.decode(ids) == text,
        "decoded": tokenizer.decode(ids),
    }


WORK = {"statistics": statistics, "tokens": tokens}


def _key(folder: RunsFolder, asked: requests.AboutCorpus) -> tuple[str, float]:
    name = corpus(folder, asked.corpus)
    return name, 0.0 if is_named(name) else Path(name).stat().st_mtime


@lru_cache(maxsize=3)
def _opened(name: str, changed: float) -> Corpus | PairCorpus:
    return open_pairs(name) if is_pairs(name) else open_corpus(name)


def _make(found: Corpus | PairCorpus, kind: str, vocabulary: int) -> tuple[Tokenizer, dict[str, Any]]:
    """A tokenizer of the training text, of both sides if it has two; tried on the validation text."""
    splits = list(found.sides.values())
    if 0 < vocabulary < 300 and kind == "bpe":
        raise RegardError("A byte-pair vocabulary contains all 256 bytes: choose a size of at least 300.")
    training = (line for side in splits for line in _beginning(side["train"], MOST_TRAINING))
    tokenizer = Tokenizer.train(training, kind, vocabulary or None, pretokenised=found.pretokenised)
    held_out = [line for side in splits for line in _beginning(side.get("valid", ()), MOST_HELD_OUT)]
    return tokenizer, {"vocabulary": tokenizer.vocabulary, "held_out": _tried(tokenizer, held_out)}


def _tried(tokenizer: Tokenizer, lines: Sequence[str]) -> dict[str, float] | None:
    ids = tokenizer.encode_lines(lines)
    words = sum(len(find_words(line)) for line in lines)
    if not ids or not words:
        return None
    every = np.concatenate(ids)
    unknown = 0.0 if tokenizer.unk is None else float((every == tokenizer.unk).mean())
    return {"tokens_per_word": len(every) / words, "unknown": unknown, "used": len(np.unique(every))}


def _beginning(lines: Iterable[str], most: int) -> Iterator[str]:
    for line in lines:
        yield line
        most -= len(line)
        if most < 0:
            return
