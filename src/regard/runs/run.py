"""What every run has, whatever its task: a folder, a recipe, tokenizers, a model, and what was measured in training.

`LanguageRun`, `TranslationRun` and `ClassificationRun` add what can be done with it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import numpy as np

from regard.base.errors import RegardError
from regard.base.install import Install, as_written
from regard.base.numbers import grouped
from regard.layers.state import State
from regard.runs.data_lookup import ALL, choose_split, corpus_of, is_whole_file, pairs_of, refuse_columns
from regard.runs.folder import count_parameters, forbidden_tokens, pick_device
from regard.runs.history import History, read_metrics
from regard.runs.lists import GivenPairs, sides
from regard.runs.recipe import Recipe
from regard.runs.speed import install
from regard.systems.model import Model
from regard.text.corpus import Corpus, count_overlap
from regard.text.pair_split import count_pair_overlap
from regard.text.pairs import PairCorpus, Pairs, open_pairs, read_pairs
from regard.text.tokenizer import Tokenizer

WHOLE, GIVEN = "whole file", "whole list"  # the split of data that are taken as they stand
ENGINES = 4  # that a run keeps, for different ways to decode


class Run:
    """A trained model with its tokenizer, as it came out of its folder."""

    def __init__(self, folder: Path, recipe: Recipe, tokenizer: Tokenizer, model: Model):
        self.folder, self.recipe, self.tokenizer, self.model = folder, recipe, tokenizer, model
        self._engines: dict[Hashable, Any] = {}
        self.install: Install = install  # given to engines
        model.eval()

    def __repr__(self) -> str:
        size = f"{grouped(self.parameters)} parameters"
        return f"{type(self).__name__}({str(self.folder)!r}: {self.recipe.system}, {size}, on {self.model.device})"

    @property
    def parameters(self) -> int:
        """Numbers learned from the text: weights, or what an n-gram stores."""
        return count_parameters(self.model)

    @property
    def history(self) -> History:
        """What was measured while it was trained, a dict for each line of metrics.jsonl; `history.plot()` draws it."""
        return History(read_metrics(self.folder / "metrics.jsonl"))

    @property
    def forbidden(self) -> list[int]:
        """Tokens that may be read but are never written."""
        return forbidden_tokens(self.tokenizer)

    def to(self, device: str) -> Self:
        """Move the model to cpu, cuda, …, or with auto to a GPU if there is one. A state stays where it was made."""
        self.model.to(pick_device(device))
        install(self.model)
        self._engines.clear()
        return self

    @contextmanager
    def for_few(self) -> Iterator[None]:
        """Within it, engines that are not there yet run as written: on a GPU, compiling and recording faster steps
        takes longer than a few texts do."""
        if self._engines:
            yield
            return
        self.install = as_written
        try:
            yield
        finally:
            self.install = install
            self._engines.clear()

    def _engine_for(self, how: Hashable, build: Callable[[], Any]) -> Any:
        """The engine that decodes in this way, kept for the next call: on a GPU it has recorded its steps."""
        if how not in self._engines:
            while len(self._engines) >= ENGINES:
                del self._engines[next(iter(self._engines))]
            self._engines[how] = build()
        return self._engines[how]

    def _seen_in_training(self, corpus: Corpus | PairCorpus, split: str) -> dict[str, Any]:
        """How much of a split of another corpus it was trained on: a sentence, and the share where it can be known."""
        if not self.recipe.data.corpus:
            return {"seen_in_training": "unknown: the run was imported", "share_seen_in_training": None}
        try:
            if isinstance(corpus, Corpus):
                own = corpus_of(self.folder, self.recipe)
                (found,) = count_overlap({"train": own.splits["train"], "asked for": corpus.splits[split]})
                seen, count, what = found.shared, found.lines, "lines"
            else:
                trained_on, asked_for = pairs_of(self.folder, self.recipe).splits["train"], corpus.splits[split]
                pairs = {"train": trained_on, "asked for": asked_for}
                (both,) = count_pair_overlap({name: (some.sources, some.targets) for name, some in pairs.items()})
                seen, count, what = both.both, both.pairs, "pairs"
        except RegardError as error:
            return {"seen_in_training": f"unknown: {error}", "share_seen_in_training": None}
        share = seen / max(count, 1)
        sentence = f"{grouped(seen)} of {grouped(count)} {what} ({100 * share:.1f} %) were trained on"
        return {"seen_in_training": sentence, "share_seen_in_training": share}


class PairRun(Run):
    """A run that reads a source: what translators and classifiers have in common."""

    def __init__(self, folder: Path, recipe: Recipe, source: Tokenizer, target: Tokenizer, model: Model):
        super().__init__(folder, recipe, target, model)
        self.source_tokenizer = source

    def corpus(self, data: GivenPairs | None = None, columns: str = "") -> PairCorpus:
        """The pairs this run was trained on, or others."""
        if data is None:
            refuse_columns(columns)
            return pairs_of(self.folder, self.recipe)
        mine = self.recipe.data
        if not isinstance(data, (str, Path)):
            refuse_columns(columns)
            return PairCorpus("a list", {GIVEN: Pairs(*sides(data))}, mine.source, mine.target, disjoint=True)
        swap = mine.swap and not columns  # columns that are asked for are source and target already
        return open_pairs(data, source=mine.source, target=mine.target, columns=columns, usual=mine.columns, swap=swap)

    def chosen(self, data: GivenPairs | None, split: str | None, columns: str = "") -> tuple[PairCorpus, str]:
        """A corpus and its split to look at; a single file with no split named, or `all`, is taken as it stands."""
        if not is_whole_file(data, split) or split not in (None, ALL):
            corpus = self.corpus(data, columns)
            return corpus, choose_split(corpus, split)
        mine = self.recipe.data
        found = read_pairs(data, source=mine.source, target=mine.target, columns=columns, usual=mine.columns)
        whole = PairCorpus(Path(data).name, {WHOLE: found}, mine.source, mine.target, disjoint=True)
        return whole.swapped() if mine.swap and not columns else whole, WHOLE

    def pairs(self, data: str | None, split: str | None = None, columns: str = "") -> Iterator[tuple[str, str]]:
        """The pairs of a file as they stand in it, or of one split of a corpus."""
        corpus, name = self.chosen(data, split, columns)
        found = corpus.splits[name]
        return zip(found.sources, found.targets)

    @property
    def forbidden(self) -> list[int]:
        return forbidden_tokens(self.tokenizer, one_line=True)

    def source_tokens(self, line: str, number: int, truncate: bool = False) -> list[int]:
        """A line's tokens, refused where it is longer than anything the model was trained on."""
        ids, longest = self.source_tokenizer.encode(line), self.recipe.data.longest
        if len(ids) <= longest or truncate:
            return ids[:longest]
        raise RegardError(
            f"Line {grouped(number)} has {grouped(len(ids))} tokens, and this model was trained on at most {longest}: "
            "split the line into sentences, or let --truncate cut it."
        )


def given_state(state: Any) -> State | None:
    """The state that a run was called with; None, or the lecture's hidden_state = [0, 0, 0, 0], is the beginning."""
    if state is None or (isinstance(state, dict) and "seen" in state):
        return state
    if not isinstance(state, (str, dict)):
        try:
            numbers = np.asarray(state, dtype=float)
        except (TypeError, ValueError):
            numbers = np.ones(1)
        if numbers.size and not numbers.any():
            return None
    raise RegardError(
        f"{type(state).__name__!r} is no state: begin with None or zeros, and then give back the state you were given."
    )
