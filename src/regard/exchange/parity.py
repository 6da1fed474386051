"""Comparison of an exported model in another program with Regard's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from regard.base.errors import RegardError
from regard.runs.load import AnyRun
from regard.runs.tasks.task import task_of


@dataclass(frozen=True)
class Parity:
    system: str
    format: str
    program: str  # the program that checked it, with its version
    compared: str  # the compared quantity
    largest_difference: float
    same_text: str = ""  # "8 of 8 greedy texts"; empty where no text was compared


def token_rows(run: AnyRun, rows: int = 4, length: int = 24, *, source: bool = False) -> list[list[int]]:
    """Rows of token ids for the comparison, drawn from the vocabulary with a fixed seed, within the model's context."""
    tokenizer = (run.source_tokenizer if source else None) or run.tokenizer
    first = len(tokenizer.specials)
    if tokenizer.vocabulary <= first:
        raise RegardError("The vocabulary contains only special symbols, so there is nothing to compare.")
    draw = np.random.default_rng(0)
    length = min(length, run.model.context or length)
    return [draw.integers(first, tokenizer.vocabulary, length).tolist() for _ in range(rows)]


def texts(run: AnyRun, count: int = 8) -> list[str]:
    """Lines for the comparison: from the run's own test or validation split, or else made from its tokens."""
    try:
        splits: Any = run.corpus().splits
        held_out = splits["test" if "test" in splits else "valid"]
        lines = iter(held_out.sources if task_of(run).has_source else held_out)
        chosen = [line for line, _ in zip(lines, range(count))]
    except RegardError:  # the data are not on this machine
        chosen = []
    return chosen or [_spelt(run, row) for row in token_rows(run, count, 8, source=True)]


def without_parts(text: str) -> str:
    """Another program's text without its marks for partial characters, which Regard leaves out."""
    return text.replace("\ufffd", "")


def _spelt(run: AnyRun, row: Sequence[int]) -> str:
    return (run.source_tokenizer or run.tokenizer).decode(row)
