"""Comparing translators: the same pairs and tokens, the same search, the same test sentences, by BLEU.

A corpus's BLEU is not a mean over sentences. Its jackknife pseudo-values are (n sentences, BLEU without sentence i),
and their means, variances and pairs enter the interval over sentences and seeds of `evaluation/intervals.py`:

    B_i = n BLEU − (n − 1) BLEU_{−i}
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from regard.base.digests import MAX_SHARED_BYTES
from regard.base.errors import RegardError
from regard.base.reading import read_whole
from regard.comparison.task import Columns, ComparedTask, Ground, Report, Results, Scores
from regard.decoding.beam import BEAM
from regard.evaluation.bleu import Statistics, refuse_escaped
from regard.evaluation.intervals import mean_score
from regard.evaluation.scripts import Cut, bleu_cut, count_words
from regard.report.table import seconds, significant
from regard.runs.data import origin_of
from regard.runs.data_lookup import choose_split
from regard.runs.prepare import open_data
from regard.runs.recipe import Recipe
from regard.runs.tasks.translation.run import TranslationRun
from regard.text.pairs import Pairs

if TYPE_CHECKING:
    from regard.comparison.plan import Entrant, Plan

TEST = "test.json"  # in the comparison's folder: the test sentences and their references
EXAMPLES = 5  # test sentences shown with every system's translation

HEADINGS = {
    "label": "system",
    "year": "year",
    "parameters": "parameters",
    "tokens_seen": "tokens seen",
    "bleu": "BLEU",
    "interval": "95 % interval",
    "chrf": "chrF",
    "perplexity": "perplexity",
    "alignment_error_rate": "align. error",
    "training_tokens_per_second": "train tok/s",
    "sentences_per_second": "sentences/s",
    "memory": "memory",
    "training_seconds": "seconds",
}


class _Translators(ComparedTask):
    name, title, reference = "translation", "Translators", "transformer"
    neural, tokens = "every system", "target tokens"
    score, score_name, more_is_better = "bleu", "BLEU", True
    documents = "the test sentences"
    columns = Columns(
        HEADINGS,
        first=("label", "bleu", "interval", "chrf"),
        csv=(
            "label", "system", "year", "seeds", "width", "parameters", "tokens_seen", "bleu", "bleu_low", "bleu_high",
            "bleu_tokenised_lowercase", "chrf", "chrf_plus_plus", "exact", "perplexity", "alignment_error_rate",
            "training_tokens_per_second", "sentences_per_second", "peak_memory_bytes", "memory_of", "training_seconds",
            "bleu_signature", "chrf_signature", "failed",
        ),
        digits={"bleu": "{:.2f}".format, "chrf": "{:.2f}".format, "perplexity": significant,
                "alignment_error_rate": "{:.3f}".format, "sentences_per_second": "{:.1f}".format,
                "training_seconds": seconds},
        runs={"bleu": "BLEU", "chrf": "chrF", "perplexity": "perplexity"},
    )  # fmt: skip

    @property
    def report(self) -> Report:
        from regard.comparison import translation_report as translating_report

        return translating_report

    # -- before ------------------------------------------------------------------------------------------------------

    def ground(self, recipe: Recipe, prompt: str) -> Ground:
        if prompt:
            raise RegardError(
                "--prompt applies to language models: leave it out. Translators translate the test sentences."
            )
        opened = open_data(recipe)
        data: Any = opened.cut()
        source, target = opened.tokenizers.source, opened.tokenizers.target
        assert source is not None
        corpus, split = data.corpus, choose_split(data.corpus, None)
        test = corpus.splits[split]
        refuse_escaped(test.targets, "The references")  # before training, not after it

        facts = {
            "corpus": origin_of(corpus),
            "direction": f"{corpus.source or 'source'} → {corpus.target or 'target'}",
            "pairs": {name: len(pairs) for name, pairs in corpus.splits.items()},
            "training_pairs": len(data.train),  # without too long ones, with those from back-translation
            "training_tokens": data.tokens,
            "tokenizer": {
                "kind": target.kind,
                "vocabulary": target.vocabulary,
                "source_vocabulary": source.vocabulary,
                "joint": source is target,
                "digest": target.digest,
            },
            "split": split,
            "bleu": asdict(bleu_cut(test.targets)),
            "beam": BEAM.width,
            "length_penalty": BEAM.length_penalty,
            "examples": _examples(test),
        }
        kept = {"sources": list(test.sources), "references": list(test.targets)}
        files = {TEST: json.dumps(kept, indent=1, ensure_ascii=False) + "\n"}
        shared = ("corpus", "tokenizer", "vocabulary", "normalise", "joint")
        return Ground(opened.tokenizers, opened.recipe, shared, facts, files)

    # -- in the run's process ----------------------------------------------------------------------------------------

    def measure(self, plan: Plan, entrant: Entrant, run: TranslationRun) -> dict[str, Any]:
        cut = words_of(plan).tokenizer
        return {"evaluation": run.evaluate(plan.facts["split"], lengths=True, bleu_tokenizer=cut, texts=True)}

    def headline(self, evaluation: Mapping[str, Any]) -> str:
        return f"BLEU {evaluation['bleu']['score']:.2f}, chrF {evaluation['chrf']['score']:.2f}"

    # -- after -------------------------------------------------------------------------------------------------------

    def scores(self, plan: Plan, results: Results) -> Scores:
        return _Bleus(plan, results)


TRANSLATION = _Translators()


def _examples(test: Pairs) -> list[int]:
    """A few test sentences, from short to long: the middle of each of several equal parts of all, sorted by length."""
    order = sorted(range(len(test)), key=lambda n: (count_words(test.sources[n]), n))
    count = min(EXAMPLES, len(order))
    return [order[(2 * part + 1) * len(order) // (2 * count)] for part in range(count)]


def words_of(plan: Plan) -> Cut:
    """BLEU's tokenizer, the same for every run; older comparisons have 13a."""
    return Cut(**plan.facts["bleu"]) if "bleu" in plan.facts else Cut("13a", "13a, words between spaces")


def read_test(plan: Plan) -> tuple[list[str], list[str]]:
    """The test sentences of a comparison, and their references."""
    path = plan.folder / TEST
    try:
        kept = json.loads(read_whole(path, MAX_SHARED_BYTES) if path.exists() else "")
        return kept["sources"], kept["references"]
    except (OSError, ValueError, KeyError):
        raise RegardError(f"{path} is damaged or missing; choose another --run.") from None


class _Bleus(Scores):
    """BLEU of every row, as a mean over its seeds."""

    def __init__(self, plan: Plan, results: Results):
        _, references = read_test(plan)
        self.counts: dict[str, list[Statistics]] = {}  # one per seed
        for entrant in plan.entrants:
            done = [results[entrant.label, seed] for seed in entrant.seeds]
            found = [
                Statistics.of("bleu", result["evaluation"]["translations"], references, words_of(plan).tokenizer)
                for result in done
                if "evaluation" in result
            ]
            if found:
                self.counts[entrant.label] = found

    @cached_property
    def by_document(self) -> dict[str, np.ndarray]:
        """Jackknife pseudo-values (Tukey 1958), as a corpus's BLEU is not a mean over its sentences."""
        return {label: np.stack([_pseudo_values(one) for one in seeds]) for label, seeds in self.counts.items()}

    def _of_seeds(self, label: str) -> list[float]:
        return [float(one.score(one.counts.sum(0))) for one in self.counts[label]]

    def estimate(self, label: str) -> float:
        return float(np.mean(self._of_seeds(label)))

    def row(self, label: str, done: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        facts = [result["evaluation"] for result in done]
        around = mean_score(self.by_document[label]).interval()
        off = self.estimate(label) - float(self.by_document[label].mean())  # the jackknife's bias is not added
        low, high = (max(0.0, around[0] + off), min(100.0, around[1] + off)) if around else (0.0, 100.0)

        def mean(key: str) -> float | None:
            found = [fact[key]["score"] if isinstance(fact[key], dict) else fact[key] for fact in facts if key in fact]
            return float(np.mean(found)) if found else None

        return {
            "bleu": self.estimate(label),
            "bleu_low": low,
            "bleu_high": high,
            "interval": f"{low:.2f} – {high:.2f}",
            "bleus": self._of_seeds(label),
            **{key: mean(key) for key in ("bleu_tokenised_lowercase", "chrf", "chrf_plus_plus", "exact")},
            "perplexity": math.exp(float(np.mean([math.log(fact["perplexity"]) for fact in facts])))
            if all(fact["perplexity"] for fact in facts)
            else None,
            "alignment_error_rate": mean("alignment_error_rate"),
            "sentences_per_second": mean("sentences_per_second"),
            "by_length": _by_length(facts),
            "bleu_signature": facts[0]["bleu"]["signature"],
            "chrf_signature": facts[0]["chrf"]["signature"],
        }


def _pseudo_values(one: Statistics) -> np.ndarray:
    """D · score − (D − 1) · score without the sentence, for each of D sentences."""
    total = one.counts.sum(0)
    return len(one.counts) * one.score(total) - (len(one.counts) - 1) * one.score(total - one.counts)


def _by_length(facts: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Quality by source length as a mean over seeds, whose classes are the same: they read the same sentences."""
    return [
        dict(classes[0]) | {key: float(np.mean([one[key] for one in classes])) for key in ("bleu", "chrf", "accuracy")}
        for classes in zip(*(fact["by_length"] for fact in facts), strict=True)
    ]
