"""The run of a language model: predict, evaluate, generate, score (`folder.py` describes its files).

The lecture's loop works on it with plain strings:

    run, state = regard.load("runs/mine"), None
    for word in run.words("I love nebully"):
        prediction, state = run(word, state)
    prediction.top(5)

`run.words` splits a text into the model's tokens: a word model gives ["I", "love", "nebully"], byte pairs keep their
spaces.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import count, islice, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from regard.base.arguments import checked
from regard.base.errors import RegardError
from regard.base.settings import check_range
from regard.evaluation.perplexity import Method
from regard.evaluation.scoring import line_losses, text_losses
from regard.layers.state import State
from regard.runs.data_lookup import (
    ALL,
    choose_split,
    corpus_of,
    is_whole_file,
    refuse_reading,
    tokens_of,
    with_data_found,
)
from regard.runs.lists import GivenLines, each_line, lines_of
from regard.runs.prediction import Prediction
from regard.runs.run import GIVEN, WHOLE, given_state
from regard.runs.tasks.language.evaluation import evaluate_text
from regard.runs.tasks.language.scores import LineScore, ScoredLines
from regard.runs.tasks.language.writing import WritingRun
from regard.systems.ngram import NGram
from regard.text.corpus import Corpus, open_corpus, open_whole
from regard.text.readers import sources
from regard.text.readers.encodings import UTF8

if TYPE_CHECKING:
    from regard.insight.arithmetic.calculation import Calculation
    from regard.insight.arithmetic.equation import WorkedExample
    from regard.insight.arithmetic.ngram import Counted
    from regard.insight.trace import Trace

COLUMNS = 256  # tokens per batch of predictions


@checked
class LanguageRun(WritingRun):
    """A trained language model with its tokenizer: predicts, generates, scores and evaluates text.

    Returned by `regard.train` and `regard.load`.

    Args:
        folder: The folder of the run.
        recipe: The recipe that the model was trained with.
        tokenizer: The tokenizer of the model.
        model: The model with its weights.
        unseen: Byte pieces that the training text does not contain. They are never generated.
    """

    # -- the lecture's call ------------------------------------------------------------------------------------------

    @torch.no_grad()
    def __call__(self, words: str, state: Any = None) -> tuple[Prediction, Any]:
        """Read some text after `state` and predict what follows.

        Args:
            words: The text to read.
            state: The state that the previous call returned. None is the beginning of a line, and so are zeros, as the
                lecture writes it: hidden_state = [0, 0, 0, 0].

        Returns:
            The prediction of the next token, and the state to give to the next call.

        Raises:
            RegardError: If there is nothing to read, the model's context is full, or an argument is wrong.
        """
        state = given_state(state)
        ids = self.tokenizer.encode(words)
        if state is None:
            ids = [self.tokenizer.begin, *ids]
        if not ids:
            raise RegardError("There is nothing to read: give at least one character.")
        context = self.model.context
        if context is not None and (0 if state is None else int(state["seen"].max())) + len(ids) > context:
            raise RegardError(f"This model remembers at most {context} tokens: start again with state=None.")
        hidden, state = self.model.read(torch.tensor([ids], device=self.model.device), state)
        return Prediction(self.model.predict(hidden[:, -1])[0], self.tokenizer), state

    def words(self, text: str) -> list[str]:
        """Split a text into the model's tokens.

        Args:
            text: Any text.

        Returns:
            The tokens, each as a string.

        Raises:
            RegardError: If an argument is wrong.
        """
        if self.tokenizer.kind == "char":
            return list(self.tokenizer.normalise(text))
        pieces: list[str] = []
        pending: list[int] = []
        for token in self.tokenizer.encode(text):
            pending.append(token)
            piece = self.tokenizer.decode(pending)
            if self.tokenizer.encode(piece) == pending:  # else it is part of a character, which needs the next token
                pieces.append(piece)
                pending = []
        return pieces

    # -- how good is it ----------------------------------------------------------------------------------------------

    def evaluate(
        self,
        split: str | None = None,
        *,
        data: GivenLines | None = None,
        columns: str = "",
        encoding: str = UTF8,
        stream: bool = False,
        segment: int | None = None,
        overlap: int | None = None,
        rows: int | None = None,
        documents: bool = False,
    ) -> dict[str, Any]:
        """Compute perplexity and bits per character on held-out text.

        Args:
            split: "train", "valid", "test", or "all" for the whole file. Default: the test split, or the validation
                split if there is no test split; for another file, the whole file.
            data: The name or path of another corpus, or a list of lines, all of which are used.
            columns: The table column to read, by name or by number (from 1).
            encoding: The encoding of the file, such as "cp1252".
            stream: Read the text from beginning to end with a carried state, instead of in segments.
            segment: The number of tokens in a segment.
            overlap: The number of tokens at the beginning of a segment that are context only: they are read, but not
                scored.
            rows: The number of segments in a batch. It affects only memory and speed.
            documents: Also return the loss of each document, for confidence intervals.

        Returns:
            A dict with perplexity, bits_per_character, nats_per_token, tokens, and the method of computing them.

        Raises:
            RegardError: If the data cannot be read or an argument is wrong.
        """
        corpus = self._whole_or_split(data, columns, split, encoding)
        name = choose_split(corpus, None if split == ALL else split)
        method = Method.of(self.model, segment, overlap, stream)
        seen = partial(self._seen_in_training, corpus.splits[name], own=data is None)
        return evaluate_text(self, corpus, name, method, seen, rows=rows, documents=documents)

    def corpus(self, data: GivenLines | None = None, columns: str = "", encoding: str = UTF8) -> Corpus:
        """Open the corpus that this run was trained on, or another one.

        Args:
            data: The name or path of another corpus, or a list of lines. Default: the run's own corpus.
            columns: The table column to read, by name or by number (from 1).
            encoding: The encoding of the file, such as "cp1252".

        Returns:
            The corpus with its splits.

        Raises:
            RegardError: If the data cannot be read.
        """
        if data is not None and not isinstance(data, (str, Path)):
            refuse_reading(columns, encoding)
            return Corpus("a list", {GIVEN: sources.GivenLines(lines_of(data))}, disjoint=True)
        if data is not None:
            return open_corpus(data, columns=columns, usual=self.recipe.data.columns, encoding=encoding)
        refuse_reading(columns, encoding)
        return corpus_of(self.folder, self.recipe)

    def _whole_or_split(self, data: GivenLines | None, columns: str, split: str | None, encoding: str) -> Corpus:
        """Another file as a whole, unless a split is named; for the run's own file, its splits."""
        if is_whole_file(data, split) and (split == ALL or (split is None and not self._owns(data))):
            usual = self.recipe.data.columns
            return open_whole(Path(data), WHOLE, columns=columns, usual=usual, encoding=encoding)
        return self.corpus(data, columns, encoding)

    def _owns(self, file: str | Path) -> bool:
        """True if the run was trained on this file."""
        try:
            return Path(with_data_found(self.folder, self.recipe).data.corpus).resolve() == Path(file).resolve()
        except RegardError:  # it was imported, or its training data were deleted
            return False

    # -- how probable is this ----------------------------------------------------------------------------------------

    def score(self, lines: str | Iterable[str]) -> Iterator[LineScore]:
        """Compute the log-probability of each line, including its final `<eos>`. Lines are independent of each other.

        On a CPU, the other lines do not change a result by a single bit; on a GPU, the last digits can differ.

        Args:
            lines: A list of lines, an open file, or one line. A line break inside a line is read as <eos>.

        Yields:
            The log-probability of each line in nats, in total and for each token.

        Raises:
            RegardError: If an item is not a string.
        """
        remaining = each_line(lines)
        at_once = 8192 if isinstance(self.model, NGram) else 256  # constant memory, whatever the size of the file
        while chunk := [*islice(remaining, at_once)]:
            ids, ends = self.tokenizer.encode_text(chunk)
            scores = -text_losses(self.model, ids, ends, self.tokenizer.begin)
            yield from map(LineScore, chunk, repeat(ScoredLines(ids, ends, scores, self.tokenizer.tokens)), count())

    @torch.no_grad()
    def token_scores(
        self, ids: Sequence[int], top: int = 0
    ) -> tuple[list[float | None], list[list[tuple[int, float]] | None]]:
        """Compute the log-probability of each token of a text.

        Args:
            ids: The token ids of the text. They may begin with the boundary `<eos>`, which is not predicted: both
                results are None there.
            top: Also return this many of the most probable tokens at each position.

        Returns:
            The log-probabilities in nats, as `score` computes them; and, if `top` is above 0, the most probable tokens
            at each position with their log-probabilities.

        Raises:
            RegardError: If an argument is wrong.
        """
        check_range("--top", top, 0)
        eos, begin = self.tokenizer.eos, self.tokenizer.begin
        bounded = list(ids[:1]) == [begin]
        text = list(ids[1:] if bounded else ids)
        (losses,) = line_losses(self.model, [[*text, eos]], begin, alone=True)
        scores = [-float(nats) for nats in losses[:-1]]
        found: list[list[tuple[int, float]] | None] = []
        state: State | None = None
        for start in range(0, len(text) if top else 0, COLUMNS):
            piece = [begin, *text[:-1]][start : start + COLUMNS]
            hidden, state = self.model.read(torch.tensor([piece], device=self.model.device), state)
            best = self.model.predict(hidden[0]).double().log_softmax(-1).topk(min(top, self.tokenizer.vocabulary))
            for numbers, values in zip(best.indices.tolist(), best.values.tolist()):
                token, score = text[len(found)], scores[len(found)]  # one token has one number, in both lists
                found.append([(number, score if number == token else value) for number, value in zip(numbers, values)])
        none: list[None] = [None] * bounded
        return [*none, *scores], [*none, *found] if top else []

    # -- what happens inside -----------------------------------------------------------------------------------------

    def trace(
        self,
        text: str,
        *,
        beam: int = 0,
        max_tokens: int = 20,
        top: int = 5,
        gradients: bool = False,
        intervene: Mapping[str, Any] | None = None,
    ) -> Trace:
        """Record everything that the model computes while it reads a text. A notebook displays the trace.

        Args:
            text: The text to read.
            beam: Also complete the line by beam search with this many hypotheses; 0 means no search.
            max_tokens: The maximum number of tokens that the search generates.
            top: The number of most probable next tokens to record at each step.
            gradients: Also record the norm of each step's loss gradient with respect to each input embedding. This
                takes one backward pass per token.
            intervene: New values for parts of the model, by name, such as {"self/0[2]": 0.0}; see `regard.intervene`.

        Returns:
            The trace, with NumPy arrays.

        Raises:
            RegardError: If an argument is wrong.
        """
        from regard.insight.interventions.changing import trace_changed
        from regard.insight.tracing import trace_language

        made = partial(
            trace_language,
            self.model,
            self.tokenizer,
            text,
            beam=beam,
            max_tokens=max_tokens,
            forbidden=self.forbidden,
            top=top,
            gradients=gradients,
            system=self.recipe.system,
            run=self.folder.resolve().name,
        )
        return trace_changed(self.model, intervene, made)

    def work(
        self, text: str, step: int | None = None, layer: str | int | None = None, head: int | None = None
    ) -> WorkedExample:
        """Show the arithmetic of one step, with the model's numbers.

        Args:
            text: The text to read.
            step: The number of the step; step 0 reads the boundary `<eos>`. Default: the last step.
            layer: A number, or a name such as "self/0". Default: the last layer.
            head: The number of an attention head. Default: 0.

        Returns:
            The equations of the step with their numbers, as printable text.

        Raises:
            RegardError: If there is no such step, layer or head.
        """
        return self.calculation(text).at(step, layer, head)

    def calculation(self, text: str) -> Calculation:
        """Read a text once, to show the arithmetic of many steps, layers or heads.

        Args:
            text: The text to read.

        Returns:
            A Calculation. Its method `at(step, layer, head)` returns the same as `work`.

        Raises:
            RegardError: If an argument is wrong.
        """
        from regard.insight.arithmetic.calculation import calculate_language

        return calculate_language(
            self.model,
            self.tokenizer,
            text,
            counts=self._counted,
            system=self.recipe.system,
            run=self.folder.resolve().name,
        )

    def _counted(self) -> Counted | None:
        """The counts of an n-gram, from its training text; None if that is not available."""
        from regard.insight.arithmetic.ngram import count_again

        assert isinstance(self.model, NGram)
        try:
            ids = tokens_of(corpus_of(self.folder, self.recipe), self.tokenizer, "train").ids
        except RegardError:
            return None
        return count_again(self.model, ids)
