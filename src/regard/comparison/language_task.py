"""Comparing language models: trained on the same tokens, tested on the same segments of the same text, by perplexity.

Segments are no longer than the shortest context among the systems, so all see the same context.
Intervals are over documents of the test text and over seeds (`evaluation/intervals.py`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from regard.comparison.task import Columns, ComparedTask, Ground, Report, Results, Scores
from regard.comparison.width import size_of
from regard.decoding.generate import generate
from regard.decoding.sampling import GREEDY
from regard.evaluation.intervals import document_losses, mean_loss, mean_score
from regard.evaluation.perplexity import SEGMENT, Method, likelihood
from regard.report.table import seconds, significant
from regard.runs.data import origin_of
from regard.runs.data_lookup import choose_split, tokens_of
from regard.runs.prepare import open_data
from regard.runs.recipe import Recipe
from regard.runs.store.folder import Tokenizers
from regard.runs.tasks.language.data import check_tokens
from regard.runs.tasks.language.run import LanguageRun

if TYPE_CHECKING:
    from regard.comparison.plan import Entrant, Plan

SAMPLE = {"char": 300, "byte": 300, "bpe": 80, "word": 80}  # tokens of a sample
WRITTEN, AT_MOST = 100, 3.0  # tokens of the speed measurement, and its seconds
TEMPERATURE, SAMPLE_SEED = 0.8, 1


COLUMNS = {
    "label": "system",
    "year": "year",
    "parameters": "parameters",
    "tokens_seen": "tokens seen",
    "perplexity": "perplexity",
    "interval": "95 % interval",
    "bits_per_character": "bits/char",
    "training_tokens_per_second": "train tok/s",
    "generation_tokens_per_second": "write tok/s",
    "memory": "memory",
    "training_seconds": "seconds",
}


class _LanguageModels(ComparedTask):
    name, title, reference, always = "language model", "Language models", "lstm", ("ngram",)
    neural, tokens = "every neural system", "tokens"
    score, score_name, more_is_better = "perplexity", "perplexity", False
    documents = "the test documents"
    columns = Columns(
        COLUMNS,
        first=("label", "perplexity", "interval", "bits_per_character"),
        csv=(
            "label", "system", "year", "seeds", "width", "parameters", "tokens_seen", "perplexity", "perplexity_low",
            "perplexity_high", "nats_per_token", "bits_per_character", "unknown_rate", "training_tokens_per_second",
            "generation_tokens_per_second", "peak_memory_bytes", "memory_of", "training_seconds", "failed",
        ),
        digits={"perplexity": significant, "bits_per_character": "{:.3f}".format,
                "training_seconds": seconds},
        runs={"perplexity": "perplexity"},
    )  # fmt: skip

    @property
    def report(self) -> Report:
        from regard.comparison import language_report

        return language_report

    # -- before ------------------------------------------------------------------------------------------------------

    def ground(self, recipe: Recipe, prompt: str) -> Ground:
        opened = open_data(recipe)
        corpus, tokenizer = opened.corpus, opened.tokenizers.target
        tokens = {split: tokens_of(corpus, tokenizer, split) for split in corpus.splits}
        check_tokens(corpus, {split: tokens[split] for split in ("train", "valid")})
        split = choose_split(corpus, None)
        facts = {
            "corpus": origin_of(corpus),
            "tokens": {name: len(array.ids) for name, array in tokens.items()},
            "characters": tokens[split].characters,
            "unknown": tokens[split].unknown,
            "tokenizer": {"kind": tokenizer.kind, "vocabulary": tokenizer.vocabulary, "digest": tokenizer.digest},
            "split": split,
            "prompt": prompt or _prompt(corpus.splits[split]),
            "sample_tokens": SAMPLE[tokenizer.kind],
        }
        shared = ("corpus", "tokenizer", "vocabulary", "normalise")
        return Ground(opened.tokenizers, opened.recipe, shared, facts)

    def conditions(self, entrants: Sequence[Entrant], tokenizers: Tokenizers) -> dict[str, Any]:
        sizes = [size_of(entrant.recipe, tokenizers.target) for entrant in entrants if not entrant.counted]
        return {"segment": min([SEGMENT, *(context for _, context in sizes if context is not None)])}

    # -- in the run's process ----------------------------------------------------------------------------------------

    def measure(self, plan: Plan, entrant: Entrant, run: LanguageRun) -> dict[str, Any]:
        facts = plan.facts
        return {
            "evaluation": run.evaluate(facts["split"], segment=facts["segment"], documents=True),
            "validation_loss": _validation(plan, run) if entrant.counted else None,
            "generation_tokens_per_second": generation_speed(run),
            "sample": run.generate(
                facts["prompt"], max_tokens=facts["sample_tokens"], temperature=TEMPERATURE, seed=SAMPLE_SEED
            ),
            "notes": list(getattr(run.model, "notes", [])),
        }

    def headline(self, evaluation: Mapping[str, Any]) -> str:
        return f"perplexity {evaluation['perplexity']:.4g}"

    # -- after -------------------------------------------------------------------------------------------------------

    def scores(self, plan: Plan, results: Results) -> Scores:
        return _Losses(plan, results)


LANGUAGE = _LanguageModels()


def _prompt(lines: Any) -> str:
    """The first words of the first line that has at least four."""
    for line in lines:
        words = line.split()
        if len(words) >= 4:
            return " ".join(words[:2]) + " "
    return ""


def _validation(plan: Plan, run: LanguageRun) -> float:
    """A counted system's loss on the validation text of the others."""
    limits = [e.recipe.training.validation_tokens for e in plan.entrants if not e.counted]
    ids = tokens_of(run.corpus(), run.tokenizer, "valid").ids[: max(limits, default=0) or None]
    *_, whole = likelihood(run.model, ids, Method.in_training(run.model), eos=run.tokenizer.eos)
    return whole.mean


def generation_speed(run: LanguageRun) -> float:
    """Tokens written per second: one text at a time, greedily, after a few to warm up."""
    began, written = 0.0, 0
    steps = generate(
        run.model,
        [[run.tokenizer.eos]],
        max_tokens=WRITTEN + 8,
        eos=run.tokenizer.eos,
        sampling=GREEDY,
        forbidden=run.forbidden,
    )
    for number, _ in enumerate(steps):
        if number == 7:
            began = time.perf_counter()
        elif number > 7:
            written = number - 7
            if time.perf_counter() - began > AT_MOST:
                break
    return written / (time.perf_counter() - began)


class _Losses(Scores):
    """Mean losses in nats per token, over documents and seeds."""

    def __init__(self, plan: Plan, results: Results):
        self.nats: dict[str, np.ndarray] = {}  # [S, D] by row
        self.tokens = np.zeros(0)  # [D]
        for entrant in plan.entrants:
            done = [results[entrant.label, seed] for seed in entrant.seeds]
            documents = [result["evaluation"]["documents"] for result in done if "evaluation" in result]
            if documents:
                self.nats[entrant.label] = np.array([each["nats"] for each in documents])
                self.tokens = np.array(documents[0]["tokens"])

    @cached_property
    def by_document(self) -> dict[str, np.ndarray]:
        return {label: document_losses(nats, self.tokens) for label, nats in self.nats.items()}

    def estimate(self, label: str) -> float:
        return mean_loss(self.nats[label], self.tokens)

    def row(self, label: str, done: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        loss, inside = self.estimate(label), mean_score(self.by_document[label]).interval()
        low, high = (None, None) if inside is None else map(_exp, inside)
        facts = [result["evaluation"] for result in done]
        per_character = None
        if facts[0]["bits_per_character"] is not None:
            per_character = loss / math.log(2) * facts[0]["tokens"] / facts[0]["characters"]
        speed = sum(result["generation_tokens_per_second"] for result in done) / len(done)
        return {
            "perplexity": _exp(loss),
            "perplexity_low": low,
            "perplexity_high": high,
            "interval": None if low is None or high is None else f"{significant(low)} – {significant(high)}",
            "perplexities": [fact["perplexity"] for fact in facts],
            "nats_per_token": loss,
            "bits_per_character": per_character,
            "bits_per_character_refused": facts[0].get("bits_per_character_refused"),
            "unknown_rate": facts[0]["unknown_rate"],
            "generation_tokens_per_second": round(speed),
            "sample": done[0]["sample"],
        }


def _exp(loss: float) -> float:
    return math.exp(loss) if loss < 700 else math.inf
