"""A run that knows a language: what can be done with a trained language model (`folder.py` says what is on disk).

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
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

import torch

from regard.base.errors import RegardError
from regard.base.numbers import a, grouped
from regard.base.settings import at_least
from regard.decoding.beam import WIDEST, beam_search
from regard.decoding.engine import Engine, Prompt
from regard.decoding.generate import read_prompts
from regard.decoding.sampling import Sampling
from regard.evaluation.documents import Documents
from regard.evaluation.perplexity import Likelihood, Method, token_losses
from regard.evaluation.scoring import alone_by_default, line_losses
from regard.insight.trace import Trace
from regard.insight.tracing import trace_language
from regard.layers.state import State
from regard.report.progress import progress
from regard.runs.classification_run import ClassificationRun
from regard.runs.folder import (
    Trained,
    average_weights,
    build_model,
    choose_split,
    corpus_of,
    forbidden_tokens,
    open_recipe,
    open_tokenizers,
    pick_device,
    read_weights,
    refuse_columns,
    seen_in_training,
    set_weights,
    tokens_of,
)
from regard.runs.prediction import Prediction
from regard.runs.speed import install
from regard.runs.translation_run import TranslationRun
from regard.systems.classifier import Classifier
from regard.systems.translator import Translator
from regard.text.corpus import Corpus, open_corpus
from regard.text.tokens import TokenArray

ENGINES = 4  # that a run keeps, for different ways to sample


@dataclass(frozen=True)
class LineScore:
    text: str
    tokens: list[str]
    log_probabilities: list[float]  # nats, one per token, <eos> last

    @property
    def log_probability(self) -> float:
        return float(sum(self.log_probabilities))


class Run(Trained):
    """A trained language model with its tokenizer: call it, evaluate it, let it write, let it score."""

    # -- the lecture's call ------------------------------------------------------------------------------------------

    @torch.no_grad()
    def __call__(self, words: str, state: State | None = None) -> tuple[Prediction, State]:
        """Read some text after `state` (None: the beginning of a line) and predict what follows."""
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
        """The text as this model's tokens, each as text: what to loop over."""
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
        data: str | None = None,
        columns: str = "",
        stream: bool = False,
        segment: int | None = None,
        overlap: int | None = None,
        rows: int | None = None,
        documents: bool = False,
    ) -> dict[str, Any]:
        """Perplexity and bits per character on held-out text, with how they were computed; with `documents` also the
        loss of each document of it, for intervals."""
        corpus = self.corpus(data, columns)
        name = choose_split(corpus, split)
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
        seen = {} if data is None else seen_in_training(self, corpus, name)
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
        why_not = self._no_bits_per_character(array)
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

    def _no_bits_per_character(self, array: TokenArray) -> str:
        """Bits per character mean something only where the tokens determine the text."""
        if array.unknown:
            return f"{grouped(array.unknown)} tokens are <unk>, which stands for more than one word"
        if self.tokenizer.kind == "word" and not self.tokenizer.pretokenised:
            return "word tokens do not say where the spaces were"
        return ""

    def corpus(self, data: str | None = None, columns: str = "") -> Corpus:
        """The corpus this run was trained on, or another one."""
        if data is not None:
            return open_corpus(data, columns=columns, usual=self.recipe.data.columns)
        refuse_columns(columns)
        if not self.recipe.data.corpus:
            raise RegardError(f"{self.folder} was imported without a text: say which one with --data.")
        return corpus_of(self.folder, self.recipe)

    # -- what does it write ------------------------------------------------------------------------------------------

    def generate(
        self,
        prompt: str = "",
        *,
        max_tokens: int = 200,
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int = 0,
        lines: int = 0,
        on_reread: Callable[[int], None] | None = None,
    ) -> str:
        """The prompt and what the model writes after it; temperature 0 is greedy, `lines` > 0 ends after so many."""
        opening = self._opening(prompt)
        engine = self._engine(Sampling(temperature, top_k, top_p), rows=1)
        (tokens,) = engine.texts([opening], max_tokens=max_tokens, lines=lines, seed=seed, on_reread=on_reread)
        return self.tokenizer.decode([*opening.tokens[1:], *tokens])

    def stream(
        self,
        prompt: str,
        *,
        max_tokens: int,
        sampling: Sampling,
        seed: int = 0,
        lines: int = 0,
        on_reread: Callable[[int], None] | None = None,
    ) -> Iterator[str]:
        """The text so far, prompt included, each time it has grown by tokens that complete a character."""
        opening = self._opening(prompt)
        read = list(opening.tokens[1:])
        steps = self._engine(sampling, rows=1).stream(
            [opening], max_tokens=max_tokens, lines=lines, seed=seed, on_reread=on_reread
        )
        yield self.tokenizer.decode(read)
        for _, tokens, _ in steps:
            read += tokens
            text = self.tokenizer.decode(read)
            if not text.endswith("\ufffd"):  # a character of several bytes is still being written
                yield text
        yield self.tokenizer.decode(read)

    def completions(
        self,
        prompts: Iterable[str],
        *,
        max_tokens: int = 200,
        sampling: Sampling | None = None,
        seed: int = 0,
        before: int = 0,
        rows: int | None = None,
        on_reread: Callable[[int], None] | None = None,
    ) -> Iterator[str]:
        """For each prompt, a line, the line it becomes, in their order; memory does not grow with their number.

        Many are written at once, `rows` of them, and none depends on the others: what is drawn for a prompt is decided
        by the seed and its number, `before` for the first one.
        """
        taken: deque[list[int]] = deque()  # what was read of the prompts that are still to be answered

        def openings() -> Iterator[Prompt]:
            for prompt in prompts:
                opening = self._opening(prompt)
                taken.append(list(opening.tokens[1:]))
                yield opening

        engine = self._engine(sampling or Sampling(), rows, one_line=True)
        limits: dict[str, Any] = {"max_tokens": max_tokens, "lines": 1, "seed": seed, "first": before}
        for tokens in engine.texts(openings(), on_reread=on_reread, **limits):
            line = tokens[:-1] if tokens[-1:] == [self.tokenizer.eos] else tokens
            yield self.tokenizer.decode([*taken.popleft(), *line])

    def _engine(self, sampling: Sampling, rows: int | None, *, one_line: bool = False) -> Engine:
        """The engine for texts of this kind, kept for the next call: on a GPU it has recorded its steps."""
        key = (sampling, rows, one_line)
        if key not in self._engines:
            while len(self._engines) >= ENGINES:
                del self._engines[next(iter(self._engines))]
            forbidden, eos = forbidden_tokens(self.tokenizer, one_line=one_line), self.tokenizer.eos
            self._engines[key] = Engine(
                self.model, eos=eos, sampling=sampling, forbidden=forbidden, rows=rows, install=install
            )
        return self._engines[key]

    @cached_property
    def _engines(self) -> dict[tuple[Sampling, int | None, bool], Engine]:
        return {}

    def _opening(self, prompt: str) -> Prompt:
        """What is read of a prompt, and the tokens that may not come next.

        Byte pairs keep a word's space with the word, so a prompt that ends in a space would ask for a word without one.
        The space is left out of what is read, and the next token must bring it.
        """
        if self.tokenizer.kind != "bpe" or not prompt.endswith(" ") or not prompt.strip():
            return Prompt([self.tokenizer.eos, *self.tokenizer.encode(prompt)])
        return Prompt([self.tokenizer.eos, *self.tokenizer.encode(prompt[:-1])], self._without_space)

    @cached_property
    def _without_space(self) -> list[int]:
        """Tokens that do not begin with a space."""
        return [n for n, token in enumerate(self.tokenizer.tokens) if not token.startswith(" ")]

    def beam(self, prompt: str = "", *, width: int = 5, max_tokens: int = 200) -> list[tuple[str, float]]:
        """The most probable ways to finish the prompt's line, with their log-probabilities (nats), best first."""
        at_least("--beam", width, 1, WIDEST)
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

    def score(self, lines: Iterable[str]) -> Iterator[LineScore]:
        """Log-probability of each line, in nats, read on its own from the boundary to its <eos>.

        On a CPU it depends on no other line, to the last bit; on a GPU others may move the last digits.
        """
        chunk: list[str] = []
        for line in lines:
            chunk.append(line)
            if len(chunk) == 256:  # constant memory, whatever the size of the file
                yield from self._score(chunk)
                chunk = []
        yield from self._score(chunk)

    def _score(self, lines: Sequence[str]) -> Iterator[LineScore]:
        ids = [[*self.tokenizer.encode(line), self.tokenizer.eos] for line in lines]
        found = line_losses(self.model, ids, self.tokenizer.eos, alone=alone_by_default(self.model))
        for line, tokens, losses in zip(lines, ids, found):
            yield LineScore(line, [self.tokenizer.token(n) for n in tokens], [-float(loss) for loss in losses])

    # -- what happens inside -----------------------------------------------------------------------------------------

    def trace(self, text: str, *, beam: int = 0, max_tokens: int = 20, top: int = 5, gradients: bool = False) -> Trace:
        """Everything that happens inside while the model reads the text, as NumPy arrays; in a notebook, as a view.

        `beam`: also the tree of the search for the best ways to finish the line. `gradients`: also how much each token
        weighs in the loss of each step, which takes a backward pass per token.
        """
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


AnyRun = Run | TranslationRun | ClassificationRun  # what `train` and `load` give, by the system's task


# -- opening a folder ------------------------------------------------------------------------------------------------


def load(folder: str | Path, *, weights: str = "best", average: int | None = None, device: str = "cpu") -> AnyRun:
    """Open a run folder. `weights`: "best" on validation, or "last"; `average`: the mean of the last validations'."""
    folder = Path(folder)
    recipe = open_recipe(folder)
    tokenizers = open_tokenizers(folder, recipe)
    model = build_model(recipe, tokenizers)
    set_weights(model, read_weights(folder, weights) if average is None else average_weights(folder, average), folder)
    model = model.to(pick_device(device))
    install(model)
    if isinstance(model, Classifier):
        assert tokenizers.source is not None
        return ClassificationRun(folder, recipe, tokenizers.source, tokenizers.target, model)
    if isinstance(model, Translator):
        assert tokenizers.source is not None
        return TranslationRun(folder, recipe, tokenizers.source, tokenizers.target, model)
    return Run(folder, recipe, tokenizers.target, model)


def load_language_model(folder: str | Path, *, weights: str = "best", device: str = "cpu") -> Run:
    """Open the run of a language model; any other is refused."""
    run = load(folder, weights=weights, device=device)
    return run if isinstance(run, Run) else _refuse(run)


def load_translator(
    folder: str | Path, *, weights: str = "best", average: int | None = None, device: str = "cpu"
) -> TranslationRun:
    """Open the run of a translator; any other is refused."""
    run = load(folder, weights=weights, average=average, device=device)
    return run if isinstance(run, TranslationRun) else _refuse(run)


def load_classifier(
    folder: str | Path, *, weights: str = "best", average: int | None = None, device: str = "cpu"
) -> ClassificationRun:
    """Open the run of a classifier; any other is refused."""
    run = load(folder, weights=weights, average=average, device=device)
    return run if isinstance(run, ClassificationRun) else _refuse(run)


def _refuse(run: AnyRun) -> NoReturn:
    """What this run is instead, and the verb for that."""
    if isinstance(run, ClassificationRun):
        what, verb = "which labels", "classify"
    elif isinstance(run, TranslationRun):
        what, verb = "which translates", "translate"
    else:
        what, verb = "a language model with no source to translate or label", "generate"
    raise RegardError(f"{run.folder} is {a(run.recipe.system)}, {what}: use `regard {verb} {run.folder}`.")
