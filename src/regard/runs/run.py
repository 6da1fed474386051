"""The base of all runs: a folder, a recipe, tokenizers, a model and its training metrics.

`LanguageRun`, `TranslationRun` and `ClassificationRun` add the operations of their tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import numpy as np

from regard.base.arguments import checked
from regard.base.device import pick_device
from regard.base.errors import RegardError
from regard.base.install import Install, as_written
from regard.base.numbers import group_digits
from regard.base.settings import check_choice
from regard.layers.state import State
from regard.report.progress import say
from regard.runs.ancestors import seen_in_training
from regard.runs.data_lookup import ALL, choose_split, is_whole_file, pairs_of, refuse_reading
from regard.runs.embedding import POOLS, embed_rows
from regard.runs.lists import GivenPairs, each_line, sides
from regard.runs.recipe import Recipe
from regard.runs.speed import install
from regard.runs.store.folder import count_parameters, forbidden_tokens
from regard.runs.store.history import History, read_metrics
from regard.systems.model import Model
from regard.text.pairs import PairCorpus, Pairs, open_pairs, read_pairs
from regard.text.readers.encodings import UTF8
from regard.text.readers.sources import TextLines
from regard.text.tokenizers.tokenizer import Tokenizer

WHOLE, GIVEN = "whole file", "whole list"  # the split of data that are used whole
ENGINES = 4  # engines that a run keeps, for different ways of decoding


@checked
class Run:
    """A trained model with its tokenizer: what LanguageRun, TranslationRun and ClassificationRun have in common.

    Args:
        folder: The folder of the run.
        recipe: The recipe that the model was trained with.
        tokenizer: The tokenizer of the model; for a translator, the target's.
        model: The model with its weights.
        unseen: Byte pieces that the training text does not contain. They are never generated.
    """

    def __init__(
        self, folder: Path, recipe: Recipe, tokenizer: Tokenizer, model: Model, unseen: Sequence[int] = ()
    ) -> None:
        """`unseen`: byte pieces that the training text does not contain; they are never generated."""
        self.folder, self.recipe, self.tokenizer, self.model = folder, recipe, tokenizer, model
        self.source_tokenizer: Tokenizer | None = None  # that of a run that reads a source
        self.unseen = tuple(unseen)
        self._engines: dict[Hashable, Any] = {}
        self.install: Install = install  # given to engines
        model.eval()

    def __repr__(self) -> str:
        size = f"{group_digits(self.parameters)} parameters"
        return f"{type(self).__name__}({str(self.folder)!r}: {self.recipe.system}, {size}, on {self.model.device})"

    @property
    def parameters(self) -> int:
        """The number of parameters: weights, or the numbers that an n-gram stores."""
        return count_parameters(self.model)

    @property
    def history(self) -> History:
        """The learning curve, with a dict for each line of metrics.jsonl; `history.plot()` draws it."""
        return History(read_metrics(self.folder / "metrics.jsonl"))

    @property
    def forbidden(self) -> list[int]:
        """The ids of tokens that may be read but are never generated."""
        return forbidden_tokens(self.tokenizer, self.unseen)

    def to(self, device: str) -> Self:
        """Move the model to another device. Existing states are not moved.

        Args:
            device: "cpu", "cuda", …, or "auto": a GPU if there is one.

        Returns:
            This run.

        Raises:
            RegardError: If the device is not available.
        """
        self.model.to(pick_device(device))
        install(self.model)
        self._engines.clear()
        return self

    @contextmanager
    def for_few(self) -> Iterator[None]:
        """A context in which new engines use the reference implementation.

        On a GPU, compiling and capturing faster steps takes longer than generating a few texts.

        Yields:
            None.
        """
        if self._engines:
            yield
            return
        self.install = as_written
        try:
            yield
        finally:
            self.install = install
            self._engines.clear()

    def embed(self, texts: str | Iterable[str], *, layer: int | None = None, pool: str = "mean") -> np.ndarray:
        """Embed texts as vectors of length 1, for search and clustering. Dot products are cosine similarities.

        Args:
            texts: A list of texts, an open file, or one text.
            layer: The number of a layer, from 1. None means the last layer, after the final normalization.
            pool: "mean" for the mean of all tokens' states, or "last" for the last state.

        Returns:
            An array with a row for each text.

        Raises:
            RegardError: If a text is empty or too long, the model is an n-gram, or an argument is wrong.
        """
        check_choice("--pool", pool, POOLS)
        rows = [self._tokens_to_embed(text, number) for number, text in enumerate(each_line(texts), start=1)]
        return embed_rows(self.model, rows, layer, pool)

    def _tokens_to_embed(self, text: str, number: int) -> list[int]:
        tokens = [self.tokenizer.begin, *self.tokenizer.encode(text)]
        if len(tokens) < 2:
            raise RegardError(f"Text {number} is empty, so it has no vector: leave it out.")
        if self.model.context is not None and len(tokens) > self.model.context:
            raise RegardError(
                f"Text {number} has {len(tokens)} tokens, but the model reads at most {self.model.context}: shorten it."
            )
        return tokens

    def _engine_for(self, how: Hashable, build: Callable[[], Any]) -> Any:
        """The engine for this way of decoding, reused by later calls: on a GPU it has captured its steps."""
        if how not in self._engines:
            while len(self._engines) >= ENGINES:
                del self._engines[next(iter(self._engines))]
            self._engines[how] = build()
        return self._engines[how]

    def _seen_in_training(self, asked: TextLines | Pairs, *, own: bool) -> dict[str, Any]:
        """How much of a text the run was trained on. For its `own` held-out text, this is reported only if the run was
        fine-tuned: its parent may have been trained on the text.
        """
        return {} if own and self.recipe.start is None else seen_in_training(self.folder, self.recipe, asked)


@checked
class PairRun(Run):
    """A run that reads a source: what translators and classifiers have in common.

    Args:
        folder: The folder of the run.
        recipe: The recipe that the model was trained with.
        source: The tokenizer of the source.
        target: The tokenizer of the target.
        model: The model with its weights.
        unseen: Byte pieces that the training text does not contain. They are never generated.
    """

    source_tokenizer: Tokenizer

    def __init__(
        self,
        folder: Path,
        recipe: Recipe,
        source: Tokenizer,
        target: Tokenizer,
        model: Model,
        unseen: Sequence[int] = (),
    ) -> None:
        super().__init__(folder, recipe, target, model, unseen)
        self.source_tokenizer = source

    def corpus(self, data: GivenPairs | None = None, columns: str = "", encoding: str = UTF8) -> PairCorpus:
        """Open the pairs that this run was trained on, or others.

        Args:
            data: The name or path of another corpus, or a list of pairs. Default: the run's own corpus.
            columns: The two table columns to read, by name or by number (from 1), such as "1,2".
            encoding: The encoding of the file, such as "cp1252".

        Returns:
            The corpus with its splits.

        Raises:
            RegardError: If the data cannot be read.
        """
        if data is None:
            refuse_reading(columns, encoding)
            return pairs_of(self.folder, self.recipe)
        mine = self.recipe.data
        if not isinstance(data, (str, Path)):
            refuse_reading(columns, encoding)
            return PairCorpus("a list", {GIVEN: Pairs(*sides(data))}, mine.source, mine.target, disjoint=True)
        swap = mine.swap and not columns  # requested columns are already in the order source, target
        return open_pairs(
            data,
            source=mine.source,
            target=mine.target,
            columns=columns,
            usual=mine.columns,
            swap=swap,
            encoding=encoding,
        )

    def chosen(
        self, data: GivenPairs | None, split: str | None, columns: str = "", encoding: str = UTF8
    ) -> tuple[PairCorpus, str]:
        """Open a corpus and choose its split.

        Args:
            data: The name or path of another corpus, or a list of pairs. None means the run's own corpus.
            split: "train", "valid", "test", or "all" for the whole file. Default: the test split, or the validation
                split if there is no test split; for another file, the whole file.
            columns: The two table columns to read, by name or by number (from 1), such as "1,2".
            encoding: The encoding of the file, such as "cp1252".

        Returns:
            The corpus, and the name of the split.

        Raises:
            RegardError: If the data cannot be read or has no such split.
        """
        if not is_whole_file(data, split) or split not in (None, ALL):
            corpus = self.corpus(data, columns, encoding)
            return corpus, choose_split(corpus, split)
        mine = self.recipe.data
        found = read_pairs(
            data,
            source=mine.source,
            target=mine.target,
            columns=columns,
            usual=mine.columns,
            encoding=encoding,
            say=say,
        )
        whole = PairCorpus(Path(data).name, {WHOLE: found}, mine.source, mine.target, disjoint=True)
        return whole.swapped() if mine.swap and not columns else whole, WHOLE

    def pairs(
        self, data: GivenPairs | None, split: str | None = None, columns: str = "", encoding: str = UTF8
    ) -> Iterator[tuple[str, str]]:
        """Read the pairs of a file, or of one split of a corpus.

        Args:
            data: The name or path of a corpus, or a list of pairs. None means the run's own corpus.
            split: "train", "valid", "test", or "all" for the whole file. Default: the test split, or the validation
                split if there is no test split; for another file, the whole file.
            columns: The two table columns to read, by name or by number (from 1), such as "1,2".
            encoding: The encoding of the file, such as "cp1252".

        Returns:
            An iterator over the pairs of source and target, or of text and label.

        Raises:
            RegardError: If the data cannot be read or has no such split.
        """
        corpus, name = self.chosen(data, split, columns, encoding)
        found = corpus.splits[name]
        return zip(found.sources, found.targets)

    @property
    def forbidden(self) -> list[int]:
        """The ids of tokens that may be read but are never generated."""
        return forbidden_tokens(self.tokenizer, self.unseen, one_line=True)

    def _tokens_to_embed(self, text: str, number: int) -> list[int]:
        if not text.strip():
            raise RegardError(f"Text {number} is empty, so it has no vector: leave it out.")
        tokens = self.source_tokens(text, number)
        return tokens if tokens[-1:] == [self.source_tokenizer.eos] else [*tokens, self.source_tokenizer.eos]

    def source_tokens(self, line: str, number: int, truncate: bool = False) -> list[int]:
        """Encode a line of the source.

        Args:
            line: The line.
            number: The line number (from 1), for the error message.
            truncate: Truncate a line that is too long, instead of raising an error.

        Returns:
            The token ids.

        Raises:
            RegardError: If the line is too long for the model.
        """
        ids, longest = self.source_tokenizer.encode(line), self.recipe.data.longest
        if len(ids) <= longest or truncate:
            return ids[:longest]
        raise RegardError(
            f"Line {group_digits(number)} has {group_digits(len(ids))} tokens, but this model was trained "
            f"on at most {longest}: split the line into sentences, or use --truncate."
        )


def given_state(state: Any) -> State | None:
    """The state that a run was called with; None or the lecture's hidden_state = [0, 0, 0, 0] is the initial state."""
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
        f"{type(state).__name__!r} is not a state: start with None or zeros, then pass back the state you were given."
    )
