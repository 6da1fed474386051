"""Perplexity and bits per character of a language model on held-out text."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from regard.base.numbers import group_digits
from regard.evaluation.documents import Documents
from regard.evaluation.perplexity import Likelihood, Method, token_losses
from regard.report.progress import progress
from regard.runs.data_lookup import tokens_of
from regard.runs.tasks.language.data import boundary
from regard.text.corpus import Corpus
from regard.text.tokenizers.tokenizer import Tokenizer
from regard.text.tokenizers.tokens import TokenArray

SAID = "the assistant's turns, including the end of each"

if TYPE_CHECKING:
    from regard.runs.tasks.language.writing import WritingRun


def evaluate_text(
    run: WritingRun,
    corpus: Corpus,
    split: str,
    method: Method,
    seen: Callable[[], Mapping[str, Any]],
    *,
    rows: int | None,
    documents: bool,
) -> dict[str, Any]:
    """The scores of a split; `seen` returns how much of it was trained on."""
    array, eos = tokens_of(corpus, run.tokenizer, split), run.tokenizer.eos
    begin = boundary(run.tokenizer, array)
    began = time.perf_counter()
    result, read, cut = Likelihood(0.0, 0), 0, Documents.cut(array.ids, eos) if documents else None
    with progress(f"evaluating {split}", len(array.ids), unit=" tokens") as bar:
        for losses in token_losses(run.model, array.ids, method, eos=eos, begin=begin, rows=rows):
            if cut is not None:
                cut.add(read, losses)
            read += len(losses)
            result = result.plus(losses if array.counted is None else losses[array.counted[read - len(losses) : read]])
            bar.advance(len(losses))
    seconds = time.perf_counter() - began
    why_not = no_bits_per_character(run.tokenizer, array)
    facts = {
        "system": run.recipe.system,
        "corpus": corpus.name,
        "split": split,
        **seen(),
        "perplexity": result.perplexity,
        "nats_per_token": result.mean,
        "bits_per_character": None if why_not else result.nats / math.log(2) / array.characters,
        **({"bits_per_character_refused": why_not} if why_not else {}),
        "tokens": result.tokens,
        "characters": array.characters,
        "unknown_tokens": array.unknown,
        "unknown_rate": array.unknown / max(result.tokens, 1),
        **({"impossible_tokens": result.impossible} if result.impossible else {}),
        "counted": "every token, with <eos> at the end of each line" if array.counted is None else SAID,
        "method": method.sentence,
        "tokenizer": f"{run.tokenizer.kind}, {run.tokenizer.vocabulary} symbols",
        "parameters": run.parameters,
        "seconds": round(seconds, 3),
    }
    if cut is not None:
        facts["documents"] = {
            "tokens": cut.tokens.tolist(), "nats": cut.nats.tolist(), "whole_lines": cut.whole_lines
        }  # fmt: skip
    return facts


def no_bits_per_character(tokenizer: Tokenizer, array: TokenArray) -> str:
    """Why bits per character are not defined for a text: its tokens do not determine it; "" if they do."""
    if array.unknown:
        return f"{group_digits(array.unknown)} tokens are <unk>, which stands for more than one word"
    if tokenizer.kind == "word" and not tokenizer.pretokenised:
        return "word tokens do not record where the spaces were"
    return ""
