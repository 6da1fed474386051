"""The common part of tasks on pairs: a source in, an answer out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from regard.runs.data_settings import PairDataSettings
from regard.runs.tasks.task import Task
from regard.training.hyperparameters import PairTraining

if TYPE_CHECKING:
    from regard.runs.recipe import Recipe
    from regard.runs.store.folder import Tokenizers
    from regard.runs.tasks.translation.data import PairData
    from regard.text.pairs import PairCorpus, Pairs


READING = ("--data", "--split", "--data.columns", "--data.encoding")  # options that name the pairs to score


class PairTask(Task):
    """A task that learns from pairs."""

    has_source = True
    data_settings, training_settings = PairDataSettings, PairTraining
    fixed: ClassVar[Mapping[str, str]] = {
        "capture": "A run on pairs cannot change its training.capture, which decides which pairs share a batch."
    }

    @property
    def data(self) -> type[PairData]:
        """How pairs are cut into tokens."""
        from regard.runs.tasks.translation.data import PairData

        return PairData

    def open_corpus(self, recipe: Recipe) -> PairCorpus:
        from regard.runs.data_lookup import pairs_asked_for

        return pairs_asked_for(recipe.data)

    def corpus_of(self, folder: Path, recipe: Recipe) -> PairCorpus:
        from regard.runs.data_lookup import pairs_of

        return pairs_of(folder, recipe)

    def learn_tokenizers(self, recipe: Recipe, corpus: Any) -> Tokenizers:
        from regard.runs.tasks.translation.data import learn_tokenizers

        return learn_tokenizers(recipe, corpus)

    def cut(self, recipe: Recipe, corpus: Any, tokenizers: Tokenizers) -> PairData:
        return self.data.cut(recipe, corpus, tokenizers)

    def trained_on(self, folder: Path, recipe: Recipe) -> Pairs:
        """The pairs that the run was trained on, without those dropped because a side was empty or too long."""
        from regard.runs.store.folder import open_tokenizers
        from regard.text.tokenizers.pair_tokens import cached_token_pairs

        pairs, tokenizers, data = (
            self.corpus_of(folder, recipe).splits["train"],
            open_tokenizers(folder, recipe),
            recipe.data,
        )
        assert tokenizers.source is not None
        cut = cached_token_pairs(
            self.data.encode, pairs, tokenizers.source, tokenizers.target, longest=data.longest, truncate=data.truncate
        )
        return pairs.take(cut.kept)
