"""The data of a training: a corpus as tokens, as batches, and as validation data.

Each task reads and tokenizes its own kind (`runs/tasks/*/data.py`); from there on training is the same. Settings that
depend on the corpus are decided in `runs/resolve.py`, never here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

from regard.runs.recipe import Recipe
from regard.runs.resolve import CorpusFacts
from regard.runs.store.folder import Tokenizers
from regard.systems.model import Model
from regard.text.corpus import Corpus
from regard.text.pairs import PairCorpus
from regard.training.loop import Batches
from regard.training.validation import Validation


class Data(ABC):
    """The data that a training needs."""

    corpus: Corpus | PairCorpus
    tokenizers: Tokenizers
    made_up = ""  # the checksum of pairs that back-translation added
    chat_template = ""  # saved with the run; "" for none
    unit = ""  # what `tokens` counts, if it differs from what training.batch_tokens counts

    @property
    @abstractmethod
    def origin(self) -> dict[str, Any]:
        """The entry of run.json: name, checksum, notes."""

    @property
    @abstractmethod
    def sentence(self) -> str:
        """The size of the data and its tokenizer, for the log."""

    @property
    @abstractmethod
    def tokens(self) -> int:
        """The number of tokens predicted in one epoch."""

    @property
    def examples(self) -> Iterable[tuple[str, str]]:
        """Held-out sources with their references, for the page of the run."""
        return ()

    @abstractmethod
    def facts(self, recipe: Recipe) -> CorpusFacts:
        """The facts that settings depend on."""

    @abstractmethod
    def batches(self, recipe: Recipe, model: Model) -> Batches: ...

    @abstractmethod
    def validation(self, recipe: Recipe, model: Model) -> Validation: ...


def origin_of(corpus: Corpus | PairCorpus) -> dict[str, Any]:
    return {"name": corpus.name, "checksum": corpus.checksum(), "notes": list(corpus.notes)}
