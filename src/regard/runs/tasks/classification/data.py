"""Labeled lines: pairs whose target is one symbol."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from regard.base.numbers import group_digits, pluralize
from regard.evaluation.accuracy import label_log_probabilities
from regard.runs.recipe import Recipe
from regard.runs.store.folder import Tokenizers
from regard.runs.tasks.translation.data import PairData
from regard.runs.tasks.translation.evaluation import both_sides
from regard.systems.model import Model
from regard.text.cached_text import cached_tokenizer
from regard.text.pairs import PairCorpus
from regard.text.readers.labels import encode_labelled, label_numbers, learn_labels
from regard.text.readers.sources import digest_of
from regard.training.validation import Validation, ValidationResult


@dataclass(frozen=True)
class LabelData(PairData):
    """Pairs whose target is a label: one symbol, the only one predicted."""

    fills_gpu = False
    encode = staticmethod(encode_labelled)

    @property
    def sentence(self) -> str:
        assert self.tokenizers.source is not None
        source, count = self.tokenizers.source, len(label_numbers(self.tokenizers.target))
        return (
            f"{self.corpus.name}: {pluralize(len(self.train), 'labeled training line')}, {pluralize(count, 'label')}, "
            f"{source.kind} vocabulary of {group_digits(source.vocabulary)}"
        )

    def validation(self, recipe: Recipe, model: Model) -> Validation:
        eos, specials = self.tokenizers.target.eos, self.tokenizers.target.specials
        sources, truth = both_sides(self.valid)[0], self.valid.target.astype(np.int64)

        def judge(model: Model) -> ValidationResult:
            found = np.stack([*label_log_probabilities(model, sources, eos=eos)])  # [lines, symbols]
            loss = -found[np.arange(len(truth)), truth].mean()
            found[:, list(specials)] = -np.inf
            return ValidationResult(float(loss), {"accuracy": float((found.argmax(1) == truth).mean())})

        return judge


def learn_tokenizers(recipe: Recipe, corpus: PairCorpus) -> Tokenizers:
    """The tokenizer of the text, and the labels."""
    data, train = recipe.data, corpus.splits["train"]
    source = cached_tokenizer(
        train.sources,
        digest_of(train.checksum(), "source"),
        train.characters,
        corpus.suggested_tokenizer if data.tokenizer == "auto" else data.tokenizer,
        data.vocabulary or None,
        normalise="nfc" if data.normalise == "auto" else data.normalise,
        pretokenised=corpus.pretokenised,
    )
    return Tokenizers(learn_labels(corpus), source)
