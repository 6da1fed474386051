"""The run of a language model: call it, evaluate it, let it write, let it score (its files: `store/folder.py`).

In Python the lecture's loop works on it with plain strings:

    run, state = regard.load("runs/mine"), None
    for word in run.words("I love nebully"):
        prediction, state = run(word, state)
    prediction.top(5)

`run.words` cuts a text as the model does: a word model gives ["I", "love", "nebully"], byte pairs keep their spaces.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import count, islice, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from regard.base.arguments import checked
from regard.base.errors import RegardError
from regard.base.numbers import group_digits
from regard.base.settings import check_range
from regard.decoding.beam import WIDEST, beam_search
from regard.decoding.engine import Engine, Prompt
from regard.decoding.generate import read_prompts
from regard.decoding.sampling import Sampling, chances, mask_tokens, one_sampling
from regard.evaluation.documents import Documents
from regard.evaluation.perplexity import Likelihood, Method, token_losses
from regard.evaluation.scoring import line_losses, line_sums, text_losses
from regard.layers.state import State
from regard.report.progress import progress
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
from regard.runs.run import GIVEN, WHOLE, Run, given_state
from regard.runs.store.folder import forbidden_tokens
from regard.systems.ngram import NGram
from regard.text.corpus import Corpus, open_corpus, open_whole
from regard.text.readers import sources
from regard.text.readers.encodings import UTF8
from regard.text.tokenizers.tokenizer import Tokenizer
from regard.text.tokenizers.tokens import TokenArray

if TYPE_CHECKING:
    from regard.insight.arithmetic.calculation import Calculation
    from regard.insight.arithmetic.equation import Work
    from regard.insight.arithmetic.ngram import Counted
    from regard.insight.trace import Trace

COLUMNS = 256  # tokens whose predictions are looked at together


@dataclass(frozen=True)
class ScoredLines:
    """Many lines one after the other. Lists are made when they are asked for, since n-grams score a line in
    microseconds."""

    ids: np.ndarray
    ends: np.ndarray  # of each line among them
    scores: np.ndarray  # log P of each
    vocabulary: list[str]

    @cached_property
    def log_probabilities(self) -> list[float]:
        return self.scores.tolist()

    @cached_property
    def sums(self) -> list[float]:
        return line_sums(self.scores, self.ends)

    @cached_property
    def bounds(self) -> list[int]:
        return [0, *self.ends.tolist()]


class LineScore:
    __slots__ = ("_line", "_scored", "text")

    def __init__(self, text: str, scored: ScoredLines, line: int) -> None:
        self.text, self._scored, self._line = text, scored, line

    @property
    def log_probabilities(self) -> list[float]:
        """In nats, one per token, <eos> last."""
        return self._scored.log_probabilities[self._scored.bounds[self._line] : self._scored.bounds[self._line + 1]]

    @property
    def tokens(self) -> list[str]:
        start, end = self._scored.bounds[self._line : self._line + 2]
        return [self._scored.vocabulary[number] for number in self._scored.ids[start:end].tolist()]

    @property
    def log_probability(self) -> float:
        return self._scored.sums[self._line]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LineScore):
            return NotImplemented
        return (self.text, self.log_probabilities) == (other.text, other.log_probabilities)

    def __repr__(self) -> str:
        return f"LineScore(text={self.text!r}, log_probabilities={self.log_probabilities!r})"


@dataclass(frozen=True)
class NextToken:
    """A token that may come next."""

    number: int
    token: str
    text: str  # what it adds to the text
    probability: float  # by the model
    drawn: float  # with temperature, top-k and top-p


def no_bits_per_character(tokenizer: Tokenizer, array: TokenArray) -> str:
    """Why a text has no bits per character, which mean something only where the tokens determine the text."""
    if array.unknown:
        return f"{group_digits(array.unknown)} tokens are <unk>, which stands for more than one word"
    if tokenizer.kind == "word" and not tokenizer.pretokenised:
        return "word tokens do not say where the spaces were"
    return ""


@checked
class LanguageRun(Run):
    """A trained language model with its tokenizer: call it, evaluate it, let it write, let it score.

    `regard.train` and `regard.load` make it.

    Args:
        folder: The folder of the run.
        recipe: Everything that decided the training.
        tokenizer: The tokenizer of the model.
        model: The model with its weights.
        unseen: Byte pieces that the training text does not contain; they are never written.
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
            ids = [self.tokenizer.eos, *ids]
        if not ids:
            raise RegardError("There is nothing to read: give at least one character.")
        context = self.model.context
        if context is not None and (0 if state is None else int(state["seen"].max())) + len(ids) > context:
            raise RegardError(f"This model remembers at most {context} tokens: start again with state=None.")
        hidden, state = self.model.read(torch.tensor([ids], device=self.model.device), state)
        return Prediction(self.model.predict(hidden[:, -1])[0], self.tokenizer), state

    def words(self, text: str) -> list[str]:
        """Cut a text as the model does, to loop over.

        Args:
            text: Any text.

        Returns:
            The model's tokens, each as text.

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
        """Perplexity and bits per character on held-out text.

        Args:
            split: "train", "valid", "test", or "all": the whole file. Without it, the test split, else the validation
                split; of another file, all of it.
            data: Another corpus, by its name or path, or a list of lines, which is read whole.
            columns: The column of a table to read, by its name or number (from 1).
            encoding: How the file is encoded, such as cp1252.
            stream: Read the text from end to end and carry the state, instead of segments.
            segment: The tokens that are read at once.
            overlap: The tokens at the beginning of a segment that are read and not counted.
            rows: The segments that are read side by side; only memory and speed depend on it.
            documents: Also return the loss of each document, for confidence intervals.

        Returns:
            A dict: perplexity, bits_per_character, nats_per_token, tokens, and how they were computed.

        Raises:
            RegardError: If the data cannot be read or an argument is wrong.
        """
        corpus = self._whole_or_split(data, columns, split, encoding)
        name = choose_split(corpus, None if split == ALL else split)
        array = tokens_of(corpus, self.tokenizer, name)
        method = Method.of(self.model, segment, overlap, stream)
        began = time.perf_counter()
        result, cut = Likelihood(0.0, 0), Documents.cut(array.ids, self.tokenizer.eos) if documents else None
        with progress(f"evaluating {name}", len(array.ids), unit=" tokens") as bar:
            for losses in token_losses(self.model, array.ids, method, eos=self.tokenizer.eos, rows=rows):
                if cut is not None:
                    cut.add(result.tokens, losses)
                result = result.plus(losses)
                bar.advance(len(losses))
        seconds = time.perf_counter() - began
        seen = self._seen_in_training(corpus.splits[name], own=data is None)
        facts = self._report(result, array, corpus, name, method, seconds, seen)
        if cut is not None:
            facts["documents"] = {
                "tokens": cut.tokens.tolist(), "nats": cut.nats.tolist(), "whole_lines": cut.whole_lines
            }  # fmt: skip
        return facts

    def _report(
        self,
        result: Likelihood,
        array: TokenArray,
        corpus: Corpus,
        split: str,
        method: Method,
        seconds: float,
        seen: Mapping[str, Any],
    ) -> dict[str, Any]:
        why_not = no_bits_per_character(self.tokenizer, array)
        bits = None if why_not else result.nats / math.log(2) / array.characters
        return {
            "system": self.recipe.system,
            "corpus": corpus.name,
            "split": split,
            **seen,
            "perplexity": result.perplexity,
            "nats_per_token": result.mean,
            "bits_per_character": bits,
            **({"bits_per_character_refused": why_not} if why_not else {}),
            "tokens": result.tokens,
            "characters": array.characters,
            "unknown_tokens": array.unknown,
            "unknown_rate": array.unknown / max(result.tokens, 1),
            **({"impossible_tokens": result.impossible} if result.impossible else {}),
            "counted": "every token, with <eos> at the end of each line",
            "method": method.sentence,
            "tokenizer": f"{self.tokenizer.kind}, {self.tokenizer.vocabulary} symbols",
            "parameters": self.parameters,
            "seconds": round(seconds, 3),
        }

    def corpus(self, data: GivenLines | None = None, columns: str = "", encoding: str = UTF8) -> Corpus:
        """Open the corpus that this run was trained on, or another one.

        Args:
            data: The name or path of another corpus, or a list of lines; without it, the run's own.
            columns: The column of a table to read, by its name or number (from 1).
            encoding: How the file is encoded, such as cp1252.

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
        """Another file as it stands, unless a split is named; of the run's own, what was held out."""
        if is_whole_file(data, split) and (split == ALL or (split is None and not self._owns(data))):
            usual = self.recipe.data.columns
            return open_whole(Path(data), WHOLE, columns=columns, usual=usual, encoding=encoding)
        return self.corpus(data, columns, encoding)

    def _owns(self, file: str | Path) -> bool:
        """Was it trained on this file?"""
        try:
            return Path(with_data_found(self.folder, self.recipe).data.corpus).resolve() == Path(file).resolve()
        except RegardError:  # it was imported, or what it was trained on is gone
            return False

    # -- what does it write ------------------------------------------------------------------------------------------

    def generate(
        self,
        prompt: str = "",
        *,
        max_tokens: int = 200,
        sampling: Sampling | None = None,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int = 0,
        lines: int = 0,
        on_reread: Callable[[int], None] | None = None,
    ) -> str:
        """Continue a prompt.

        Args:
            prompt: The beginning of the text.
            max_tokens: The most tokens to write.
            sampling: How to draw, as one object; or give its fields instead:
            temperature: 0 always writes the most probable token (greedy); 1 unless given.
            top_k: Draw from this many of the most probable tokens; 0 is no limit.
            top_p: Draw from the smallest set of tokens that holds this probability; 1 is no limit.
            seed: The seed of the draws.
            lines: Stop after this many lines; 0 is no limit.
            on_reread: Called with the number of tokens that are read again when the model's context is full.

        Returns:
            The prompt and what the model writes after it.

        Raises:
            RegardError: If an argument is wrong.
        """
        opening = self.opening(prompt)
        engine = self._engine(one_sampling(sampling, temperature, top_k, top_p), rows=1)
        (tokens,) = engine.texts([opening], max_tokens=max_tokens, lines=lines, seed=seed, on_reread=on_reread)
        return self.tokenizer.decode([*opening.tokens[1:], *tokens])

    def stream(
        self,
        prompt: str = "",
        *,
        max_tokens: int = 200,
        sampling: Sampling | None = None,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int = 0,
        lines: int = 0,
        on_reread: Callable[[int], None] | None = None,
    ) -> Iterator[str]:
        """Continue a prompt, and give each piece of the text as soon as it is written.

        Args:
            prompt: The beginning of the text.
            max_tokens: The most tokens to write.
            sampling: How to draw, as one object; or give its fields instead:
            temperature: 0 always writes the most probable token (greedy); 1 unless given.
            top_k: Draw from this many of the most probable tokens; 0 is no limit.
            top_p: Draw from the smallest set of tokens that holds this probability; 1 is no limit.
            seed: The seed of the draws.
            lines: Stop after this many lines; 0 is no limit.
            on_reread: Called with the number of tokens that are read again when the model's context is full.

        Yields:
            The new text, without the prompt. A piece ends where a character does.

        Raises:
            RegardError: If an argument is wrong.
        """
        opening = self.opening(prompt)
        read, written = list(opening.tokens[1:]), self.as_read(prompt)
        engine = self._engine(one_sampling(sampling, temperature, top_k, top_p), rows=1)
        steps = engine.stream([opening], max_tokens=max_tokens, lines=lines, seed=seed, on_reread=on_reread)
        for _, tokens, _ in steps:
            read += tokens
            text = self.tokenizer.decode(read)
            if len(text) > len(written):  # else a character has bytes to come
                yield text[len(written) :]
                written = text

    @torch.no_grad()
    def choices(
        self, prompt: str = "", sampling: Sampling | None = None, top: int = 20, *, writable: bool = False
    ) -> list[NextToken]:
        """The tokens that `generate` chooses the next one from.

        Args:
            prompt: The text so far. If it is longer than the model's context, its end is read.
            sampling: How to draw.
            top: The most tokens to return.
            writable: Leave out tokens that would not be drawn, and parts of characters.

        Returns:
            The most probable tokens, best first.

        Raises:
            RegardError: If an argument is wrong.
        """
        check_range("--top", top, 0)
        opening = self.opening(prompt)
        read, written = list(opening.tokens[1:]), self.as_read(prompt)
        end = opening.tokens[-self.model.context :] if self.model.context else opening.tokens
        logits, _ = read_prompts(self.model, [end], None)
        allowed = mask_tokens(logits, [*self.forbidden, *opening.unfit])
        drawn = chances(allowed, sampling or Sampling())[0]
        whole = logits.double().softmax(-1)[0]
        found: list[NextToken] = []
        for number in allowed[0].sort(descending=True, stable=True).indices.tolist():
            if len(found) == top:
                break
            text = self.tokenizer.decode([*read, number])[len(written) :]
            if not writable or (drawn[number] and text):
                token, chance = self.tokenizer.token(number), float(drawn[number])
                found.append(NextToken(number, token, text, float(whole[number]), chance))
        return found

    def as_read(self, text: str) -> str:
        """Spell a text as the model's tokens do.

        Args:
            text: Any text.

        Returns:
            The text after normalization, without spaces that no token holds.

        Raises:
            RegardError: If an argument is wrong.
        """
        return self.tokenizer.decode(self.tokenizer.encode(text))

    def completions(
        self,
        prompts: str | Iterable[str],
        *,
        max_tokens: int = 200,
        sampling: Sampling | None = None,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int = 0,
        before: int = 0,
        rows: int | None = None,
        on_reread: Callable[[int], None] | None = None,
    ) -> Iterator[str]:
        """Finish many lines. They are written side by side, and none depends on the others.

        Memory does not grow with their number. The draws of a line depend on the seed and on its number.

        Args:
            prompts: The beginnings of the lines: a list, an open file, or one string.
            max_tokens: The most tokens to write for each.
            sampling: How to draw, as one object; or give its fields instead:
            temperature: 0 always writes the most probable token (greedy); 1 unless given.
            top_k: Draw from this many of the most probable tokens; 0 is no limit.
            top_p: Draw from the smallest set of tokens that holds this probability; 1 is no limit.
            seed: The seed of the draws.
            before: The number of the first line, where lines before it were completed earlier.
            rows: The lines that are written at once; only memory and speed depend on it.
            on_reread: Called with the number of tokens that are read again when the model's context is full.

        Yields:
            The whole line for each prompt, in their order.

        Raises:
            RegardError: If an argument is wrong.
        """
        taken: deque[list[int]] = deque()  # what was read of the prompts that are still to be answered

        def openings() -> Iterator[Prompt]:
            for prompt in each_line(prompts):
                opening = self.opening(prompt)
                taken.append(list(opening.tokens[1:]))
                yield opening

        engine = self._engine(one_sampling(sampling, temperature, top_k, top_p), rows, one_line=True)
        limits: dict[str, Any] = {"max_tokens": max_tokens, "lines": 1, "seed": seed, "first": before}
        for tokens in engine.texts(openings(), on_reread=on_reread, **limits):
            line = tokens[:-1] if tokens[-1:] == [self.tokenizer.eos] else tokens
            yield self.tokenizer.decode([*taken.popleft(), *line])

    def _engine(self, sampling: Sampling, rows: int | None, *, one_line: bool = False) -> Engine:
        build = partial(self.new_engine, sampling, rows, one_line=one_line)
        engine: Engine = self._engine_for((sampling, rows, one_line), build)
        return engine

    def new_engine(self, sampling: Sampling, rows: int | None = None, *, one_line: bool = False) -> Engine:
        """Build an engine that writes many texts at once, for a caller who submits texts and steps it.

        Args:
            sampling: How to draw.
            rows: The texts that are written at once.
            one_line: Write no line breaks but the one that ends a text.

        Returns:
            The engine.

        Raises:
            RegardError: If an argument is wrong.
        """
        if rows is not None:
            check_range("--rows", rows, 1)
        forbidden, eos = forbidden_tokens(self.tokenizer, self.unseen, one_line=one_line), self.tokenizer.eos
        return Engine(self.model, eos=eos, sampling=sampling, forbidden=forbidden, rows=rows, install=self.install)

    def opening(self, prompt: str) -> Prompt:
        """Encode a prompt.

        Byte pairs keep a word's space with the word, so a prompt that ends in a space would ask for a word without one.
        The space is left out of what is read, and the next token must bring it, if any may that is written.

        Args:
            prompt: The beginning of a text.

        Returns:
            The tokens to read, and the tokens that may not come next.

        Raises:
            RegardError: If an argument is wrong.
        """
        if not prompt.endswith(" ") or not prompt.strip() or not self._without_space:
            return Prompt([self.tokenizer.eos, *self.tokenizer.encode(prompt)])
        return Prompt([self.tokenizer.eos, *self.tokenizer.encode(prompt[:-1])], self._without_space)

    @cached_property
    def _without_space(self) -> list[int]:
        """Tokens that do not begin with a space, of byte pairs; none where all others are forbidden."""
        with_space = {n for n, token in enumerate(self.tokenizer.tokens) if token.startswith(" ")}
        if self.tokenizer.kind != "bpe" or with_space <= {*self.forbidden}:
            return []
        return [n for n in range(self.tokenizer.vocabulary) if n not in with_space]

    def beam(self, prompt: str = "", *, width: int = 5, max_tokens: int = 200) -> list[tuple[str, float]]:
        """Search for the most probable ways to finish the prompt's line.

        Args:
            prompt: The beginning of the line.
            width: The number of hypotheses that each step keeps.
            max_tokens: The most tokens to write.

        Returns:
            The lines with their log-probabilities in nats, best first.

        Raises:
            RegardError: If prompt and `max_tokens` exceed the model's context, or an argument is wrong.
        """
        check_range("--beam", width, 1, WIDEST)
        check_range("--max-tokens", max_tokens, 1)
        read = [self.tokenizer.eos, *self.tokenizer.encode(prompt)]
        limit = self.model.context
        if limit is not None and len(read) + max_tokens > limit:
            raise RegardError(
                f"Beam search keeps everything in the model's {limit} tokens: ask for fewer --max-tokens."
            )
        with torch.no_grad():
            logits, state = read_prompts(self.model, [read], None)
            (found,) = beam_search(
                self.model,
                logits,
                state,
                width=width,
                max_tokens=max_tokens,
                eos=self.tokenizer.eos,
                forbidden=self.forbidden,
            )
        return [
            (self.tokenizer.decode([*read[1:], *hypothesis.tokens]).removesuffix("\n"), hypothesis.log_probability)
            for hypothesis in found
        ]

    # -- how probable is this ----------------------------------------------------------------------------------------

    def score(self, lines: str | Iterable[str]) -> Iterator[LineScore]:
        """Compute the log-probability of each line, read on its own from the boundary to its <eos>.

        On a CPU it depends on no other line, to the last bit; on a GPU others may move the last digits.

        Args:
            lines: A list of lines, an open file, or one line. A line break inside a line is read as <eos>.

        Yields:
            For each line its log-probability in nats, as a whole and by token.

        Raises:
            RegardError: If an item is not a string.
        """
        remaining = each_line(lines)
        at_once = 8192 if isinstance(self.model, NGram) else 256  # constant memory, whatever the size of the file
        while chunk := [*islice(remaining, at_once)]:
            ids, ends = self.tokenizer.encode_text(chunk)
            scores = -text_losses(self.model, ids, ends, self.tokenizer.eos)
            yield from map(LineScore, chunk, repeat(ScoredLines(ids, ends, scores, self.tokenizer.tokens)), count())

    @torch.no_grad()
    def token_scores(
        self, ids: Sequence[int], top: int = 0
    ) -> tuple[list[float | None], list[list[tuple[int, float]] | None]]:
        """Compute the log-probability of each token of a text.

        Args:
            ids: The token numbers of the text. A leading <eos> is the boundary that every text begins with: nothing
                predicts it, so both results are None there.
            top: Also return this many of the most probable tokens at each place.

        Returns:
            The log-probabilities in nats, as `score` computes them; and for each place its most probable tokens with
            theirs, where `top` is above 0.

        Raises:
            RegardError: If an argument is wrong.
        """
        check_range("--top", top, 0)
        eos = self.tokenizer.eos
        bounded = list(ids[:1]) == [eos]
        text = list(ids[1:] if bounded else ids)
        (losses,) = line_losses(self.model, [[*text, eos]], eos, alone=True)
        scores = [-float(nats) for nats in losses[:-1]]
        found: list[list[tuple[int, float]] | None] = []
        state: State | None = None
        for start in range(0, len(text) if top else 0, COLUMNS):
            piece = [eos, *text[:-1]][start : start + COLUMNS]
            hidden, state = self.model.read(torch.tensor([piece], device=self.model.device), state)
            best = self.model.predict(hidden[0]).double().log_softmax(-1).topk(min(top, self.tokenizer.vocabulary))
            for numbers, values in zip(best.indices.tolist(), best.values.tolist()):
                token, score = text[len(found)], scores[len(found)]  # one token has one number, in both lists
                found.append([(number, score if number == token else value) for number, value in zip(numbers, values)])
        none: list[None] = [None] * bounded
        return [*none, *scores], [*none, *found] if top else []

    # -- what happens inside -----------------------------------------------------------------------------------------

    def trace(self, text: str, *, beam: int = 0, max_tokens: int = 20, top: int = 5, gradients: bool = False) -> Trace:
        """Record everything that the model computes while it reads a text. In a notebook, it displays itself.

        Args:
            text: The text to read.
            beam: Also search for the best ways to finish the line, with this many hypotheses; 0 does not.
            max_tokens: The most tokens that this search writes.
            top: The number of most probable next tokens to record at each step.
            gradients: Also record how much each token weighs in the loss of each step: a backward pass per token.

        Returns:
            The trace, with NumPy arrays.

        Raises:
            RegardError: If an argument is wrong.
        """
        from regard.insight.tracing import trace_language

        return trace_language(
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

    def work(self, text: str, step: int | None = None, layer: str | int | None = None, head: int | None = None) -> Work:
        """Show the arithmetic of one step with the model's numbers.

        Args:
            text: The text to read.
            step: The number of the step; step 0 reads the boundary. Without it, the last.
            layer: A number, or a name such as "self/0"; without it, the last.
            head: The number of an attention head; 0 unless given.

        Returns:
            The equations of the step with their numbers; print shows them.

        Raises:
            RegardError: If there is no such step, layer or head.
        """
        return self.calculation(text).at(step, layer, head)

    def calculation(self, text: str) -> Calculation:
        """Read a text once, to look at the arithmetic of many steps, layers or heads.

        Args:
            text: The text to read.

        Returns:
            A Calculation; its method `at(step, layer, head)` returns what `work` does.

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
        """What an n-gram counted, from its training text; None where that is not at hand."""
        from regard.insight.arithmetic.ngram import count_again

        assert isinstance(self.model, NGram)
        try:
            ids = tokens_of(corpus_of(self.folder, self.recipe), self.tokenizer, "train").ids
        except RegardError:
            return None
        return count_again(self.model, ids)
