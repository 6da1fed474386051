"""A run that translates: raw sentences in, raw sentences out.

run = regard.load("runs/enfr")
run.translate("They are watching.")                      → "Ils regardent."

state = run.begin("They are watching.")                  the lecture's loop, with a state that comes from a source
prediction, state = run("", state)
prediction, state = run("Ils", state)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Unpack, overload

import torch

from regard.base.arguments import checked
from regard.base.errors import RegardError
from regard.decoding.beam import Beam, Hypothesis
from regard.decoding.beam_engine import GradualEngine, Searcher
from regard.decoding.sampling import Sampling
from regard.decoding.translate import explain_hypotheses, translate
from regard.evaluation.scoring import alone_by_default, pair_losses
from regard.layers.state import State
from regard.runs.lists import GivenPairs, each_line, each_pair
from regard.runs.prediction import Prediction
from regard.runs.run import PairRun, given_state
from regard.runs.tasks.translation.answers import NOTHING, PairScore, Translation
from regard.runs.tasks.translation.evaluation import evaluate_pairs, word_alignment
from regard.runs.tasks.translation.search import Decoding, one_beam, search_or_draw
from regard.systems.translator import Translator
from regard.text.readers.encodings import UTF8

if TYPE_CHECKING:
    from regard.insight.arithmetic.calculation import Calculation
    from regard.insight.arithmetic.equation import WorkedExample
    from regard.insight.trace import Trace


@checked
class TranslationRun(PairRun):
    """A trained translator with its tokenizers.

    `regard.train` and `regard.load` make it.

    Args:
        folder: The folder of the run.
        recipe: Everything that decided the training.
        source: The tokenizer of the source.
        target: The tokenizer of the target.
        model: The model with its weights.
        unseen: Byte pieces that the training text does not contain; they are never written.
    """

    model: Translator
    searcher: Searcher | None = None  # another program that searches in the place of ours

    # -- the lecture's call ------------------------------------------------------------------------------------------

    @torch.no_grad()
    def begin(self, source: str) -> State:
        """Read a source: the first state of `run(words, state)`.

        Args:
            source: The sentence to translate.

        Returns:
            The state after the source.

        Raises:
            RegardError: If an argument is wrong.
        """
        return self.model.begin(torch.tensor([self._read(source)], device=self.model.device))

    @torch.no_grad()
    def __call__(self, words: str, state: Any = None) -> tuple[Prediction, Any]:
        """Read some words of the translation after `state` and predict the next one.

        Args:
            words: The next words of the translation; "" at its beginning.
            state: The state of `begin(source)`, or the one that the previous call returned.

        Returns:
            The prediction of the next token, and the state to give to the next call.

        Raises:
            RegardError: If there is no state, nothing to read, or an argument is wrong.
        """
        state = given_state(state)
        if state is None:
            raise RegardError("A translation begins with its source: state = run.begin(source).")
        ids = self.tokenizer.encode(words)
        if not int(state["seen"].max()):
            ids = [self.tokenizer.eos, *ids]
        if not ids:
            raise RegardError("There is nothing to read: give at least one character.")
        hidden, state = self.model.read(torch.tensor([ids], device=self.model.device), state)
        return Prediction(self.model.predict(hidden[:, -1])[0], self.tokenizer), state

    # -- translating -------------------------------------------------------------------------------------------------

    @property
    def _beam_engine(self) -> Searcher | None:
        """For searches on a GPU. Elsewhere the plain search."""
        if self.searcher is not None:
            return self.searcher
        if self.model.device.type != "cuda":
            return None
        engine: Searcher = self._engine_for("beam", lambda: GradualEngine(self.model, install=self.install))
        return engine

    @overload
    def translate(self, text: str, **how: Unpack[Decoding]) -> str: ...  # type: ignore[overload-overlap]
    @overload
    def translate(self, text: Sequence[str], **how: Unpack[Decoding]) -> list[str]: ...
    def translate(
        self,
        text: str | Sequence[str],
        *,
        beam: int | Beam | None = None,
        length_penalty: float | None = None,
        sampling: Sampling | None = None,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int = 0,
    ) -> str | list[str]:
        """Translate a sentence, or a list of sentences.

        Args:
            text: A sentence, or a list of sentences.
            beam: The number of hypotheses of beam search, 5 unless given, or a Beam.
            length_penalty: The exponent of the length that a log-probability is divided by, 1 unless given.
            sampling: Draw instead of searching; or give the fields of Sampling instead:
            temperature: 0 always writes the most probable token (greedy).
            top_k: Draw from this many of the most probable tokens; 0 is no limit.
            top_p: Draw from the smallest set of tokens that holds this probability; 1 is no limit.
            seed: The seed of the draws.

        Returns:
            The translation as a string; of a list, the list of translations.

        Raises:
            RegardError: If a sentence is longer than any that the model was trained on, or an argument is wrong.
        """
        lines = [text] if isinstance(text, str) else list(text)
        how = search_or_draw(beam, length_penalty, sampling, temperature, top_k, top_p)
        found = [best.text for best, *_ in self._translations(lines, how, seed=seed)]
        return found[0] if isinstance(text, str) else found

    def translations(
        self,
        lines: Iterable[str],
        *,
        beam: int | Beam | None = None,
        length_penalty: float | None = None,
        sampling: Sampling | None = None,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        alignment: bool = False,
        attention: bool = False,
        truncate: bool = False,
        before: tuple[int, int] = (0, 0),
        max_tokens: int | None = None,
        min_tokens: int = 0,
        samples: int = 1,
        seed: int = 0,
        batch_tokens: int | None = None,
        ahead: int | None = None,
    ) -> Iterator[list[Translation]]:
        """Translate many lines. An empty line stays empty, and memory does not grow with their number.

        Args:
            lines: A list of sentences, or an open file.
            beam: The number of hypotheses of beam search, 5 unless given, or a Beam; Beam(5, n_best=3) gives three
                translations of each line.
            length_penalty: The exponent of the length that a log-probability is divided by, 1 unless given.
            sampling: Draw instead of searching; or give the fields of Sampling instead:
            temperature: 0 always writes the most probable token (greedy).
            top_k: Draw from this many of the most probable tokens; 0 is no limit.
            top_p: Draw from the smallest set of tokens that holds this probability; 1 is no limit.
            alignment: Also align the words of source and translation, by the model's attention.
            attention: Also return the attention of each translation.
            truncate: Cut a line that is too long, instead of refusing it.
            before: The number of lines that were translated earlier, and how many of them were not empty.
            max_tokens: The most tokens of a translation; without it, ten more than twice its source's.
            min_tokens: The fewest tokens of a translation.
            samples: The number of draws for each line, where `sampling` or `temperature` is given.
            seed: The seed of the draws.
            batch_tokens: The tokens of a batch; only memory and speed depend on it.
            ahead: The number of lines that are read before the first is translated.

        Yields:
            For each line its translations, best first.

        Raises:
            RegardError: If a line is longer than any that the model was trained on, or an argument is wrong.
        """
        how = search_or_draw(beam, length_penalty, sampling, temperature, top_k, top_p)
        limits = {"max_tokens": max_tokens, "min_tokens": min_tokens, "samples": samples, "seed": seed}
        return self._translations(
            lines, how, alignment, attention, truncate, before, **limits, batch_tokens=batch_tokens, ahead=ahead
        )

    def _translations(
        self,
        lines: Iterable[str],
        how: Beam | Sampling,
        alignment: bool = False,
        attention: bool = False,
        truncate: bool = False,
        before: tuple[int, int] = (0, 0),
        **limits: Any,
    ) -> Iterator[list[Translation]]:
        waiting: deque[tuple[str, list[int]]] = deque()  # lines whose translations are still to come; [] = an empty one

        def sources() -> Iterator[list[int]]:
            for number, line in enumerate(each_line(lines), start=before[0] + 1):
                ids = self.source_tokens(line, number, truncate) if line.strip() else []
                waiting.append((line, ids))
                if ids:
                    yield ids

        limits |= {"forbidden": self.forbidden, "first": before[1]}
        found = translate(self.model, sources(), eos=self.tokenizer.eos, beam=how, engine=self._beam_engine, **limits)
        for hypotheses in found:
            while not waiting[0][1]:
                waiting.popleft()
                yield [NOTHING]
            line, ids = waiting.popleft()
            if alignment or attention:
                yield self._explained(line, ids, hypotheses, attention)
            else:
                yield [self._translation(hypothesis) for hypothesis in hypotheses]
        yield from ([NOTHING] for _ in waiting)

    def _read(self, source: str) -> list[int]:
        return [*self.source_tokenizer.encode(source), self.source_tokenizer.eos]

    def _translation(self, hypothesis: Hypothesis) -> Translation:
        tokens = [self.tokenizer.token(n) for n in hypothesis.tokens]
        text = self.tokenizer.decode(hypothesis.text_tokens).strip()
        return Translation(text, hypothesis.log_probability, hypothesis.score, tokens, hypothesis.finished)

    def _explained(self, line: str, source: list[int], found: list[Hypothesis], attention: bool) -> list[Translation]:
        """The translations with what they looked at, from one more reading of each by the written equation."""
        explained = explain_hypotheses(self.model, [source] * len(found), found, eos=self.tokenizer.eos)
        shown = []
        for hypothesis, seen in zip(found, explained, strict=True):
            plain = self._translation(hypothesis)
            links = None
            if seen.alignment is not None:
                written = self.tokenizer.decode(hypothesis.text_tokens)
                links = word_alignment(self, line, source, written, hypothesis.tokens, seen.alignment)
            shown.append(replace(plain, alignment=links, attention=seen.attention if attention else None))
        return shown

    # -- how good is it ----------------------------------------------------------------------------------------------

    def evaluate(
        self,
        split: str | None = None,
        *,
        data: GivenPairs | None = None,
        columns: str = "",
        encoding: str = UTF8,
        beam: int | Beam | None = None,
        length_penalty: float | None = None,
        lengths: bool = False,
        bleu_tokenizer: str | None = None,
        texts: bool = False,
    ) -> dict[str, Any]:
        """Perplexity of the references, and BLEU and chrF of the model's translations.

        Args:
            split: "train", "valid", "test", or "all": the whole file. Without it, the test split, else the validation
                split; of another file, all of it.
            data: Another corpus, by its name or path, or a list of pairs, which is read whole.
            columns: The two columns of a table to read, by their names or numbers (from 1), as in "1,2".
            encoding: How the file is encoded, such as cp1252.
            beam: The number of hypotheses of beam search, 5 unless given, or a Beam.
            length_penalty: The exponent of the length that a log-probability is divided by, 1 unless given.
            lengths: Also by the length of the source.
            bleu_tokenizer: A tokenizer of sacreBLEU; without it, the script of the references decides.
            texts: Also return the translations.

        Returns:
            A dict: bleu, chrf, perplexity, sentences, …, and alignment_error_rate where gold alignments exist.

        Raises:
            RegardError: If the data cannot be read or an argument is wrong.
        """
        how = one_beam(beam, length_penalty)
        corpus, name = self.chosen(data, split, columns, encoding)
        seen = partial(self._seen_in_training, corpus.splits[name], own=data is None)
        return evaluate_pairs(self, corpus, name, how, seen, bleu_tokenizer, lengths=lengths, texts=texts)

    # -- how probable is this ----------------------------------------------------------------------------------------

    def score(self, pairs: Iterable[tuple[str, str]]) -> Iterator[PairScore]:
        """Compute log P(target | source) of each pair.

        On a CPU it depends on no other pair, to the last bit; on a GPU others may move the last digits.

        Args:
            pairs: Pairs of source and target.

        Yields:
            For each pair its log-probability in nats, as a whole and by token.

        Raises:
            RegardError: If an item is not a pair of strings.
        """
        remaining, alone = each_pair(pairs), alone_by_default(self.model)
        while chunk := list(islice(remaining, 256)):  # constant memory, whatever the size of the file
            sources = [self.source_tokenizer.encode(source) for source, _ in chunk]
            targets = [self.tokenizer.encode(target) for _, target in chunk]
            losses = pair_losses(self.model, sources, targets, self.tokenizer.eos, alone=alone)
            for (source, target), ids, loss in zip(chunk, targets, losses, strict=True):
                tokens = [self.tokenizer.token(n) for n in (*ids, self.tokenizer.eos)]
                yield PairScore(source, target, tokens, [-float(nats) for nats in loss])

    # -- what happens inside -----------------------------------------------------------------------------------------

    def trace(
        self,
        source: str,
        target: str | None = None,
        *,
        prefix: str = "",
        beam: int = 5,
        length_penalty: float = 1.0,
        top: int = 5,
        gradients: bool = False,
        intervene: Mapping[str, Any] | None = None,
    ) -> Trace:
        """Record everything that the model computes while it translates. In a notebook, it displays itself.

        Args:
            source: The sentence to translate.
            target: The translation to read; without it, the best one that beam search finds, with the search's tree.
            prefix: The beginning of that translation.
            beam: The number of hypotheses of beam search.
            length_penalty: The exponent of the length that a log-probability is divided by.
            top: The number of most probable next tokens to record at each step.
            gradients: Also record how much each token influences the loss at each step: a backward pass per token.
            intervene: Changes of the model by place, such as {"self/0[2]": 0.0}; see `regard.intervene`.

        Returns:
            The trace, with NumPy arrays.

        Raises:
            RegardError: If the source is longer than any that the model was trained on, or an argument is wrong.
        """
        from regard.insight.interventions.changing import trace_changed
        from regard.insight.tracing import trace_translation

        self.source_tokens(source, 1)  # refused where it is longer than anything the model has learned from
        made = partial(
            trace_translation,
            *(self.model, self.source_tokenizer, self.tokenizer, source, target),
            prefix=prefix,
            beam=beam,
            length_penalty=length_penalty,
            forbidden=self.forbidden,
            top=top,
            gradients=gradients,
            system=self.recipe.system,
            run=self.folder.resolve().name,
        )
        return trace_changed(self.model, intervene, made)

    def work(
        self,
        source: str,
        step: int | None = None,
        layer: str | int | None = None,
        head: int | None = None,
        *,
        target: str | None = None,
    ) -> WorkedExample:
        """Show the arithmetic of one step, and the sums of beam search, with the model's numbers.

        Args:
            source: The sentence to translate.
            step: The number of the step; step 0 writes the first word. Without it, the last.
            layer: A number, or a name: "cross/0", "self/0", or "encoder/0", whose steps read the source.
            head: The number of an attention head; 0 unless given.
            target: The translation to read; without it, the best one that beam search finds.

        Returns:
            The equations of the step with their numbers; print shows them.

        Raises:
            RegardError: If there is no such step, layer or head.
        """
        return self.calculation(source, target).at(step, layer, head)

    def calculation(
        self,
        source: str,
        target: str | None = None,
        *,
        prefix: str = "",
        beam: int = 5,
        length_penalty: float = 1.0,
        trace: Trace | None = None,
    ) -> Calculation:
        """Translate once, to look at the arithmetic of many steps, layers or heads.

        Args:
            source: The sentence to translate.
            target: The translation to read; without it, the best one that beam search finds.
            prefix: The beginning of that translation.
            beam: The number of hypotheses of beam search.
            length_penalty: The exponent of the length that a log-probability is divided by.
            trace: A trace of the same sentence by the same search, which is then not searched again.

        Returns:
            A Calculation; its method `at(step, layer, head)` returns what `work` does.

        Raises:
            RegardError: If an argument is wrong.
        """
        from regard.insight.arithmetic.calculation import calculate_translation
        from regard.insight.trace import Trace

        if trace is not None and not isinstance(trace, Trace):
            raise RegardError(f"trace must be a Trace or None, not {type(trace).__name__}.")
        self.source_tokens(source, 1)
        return calculate_translation(
            *(self.model, self.source_tokenizer, self.tokenizer, source, target),
            prefix=prefix,
            beam=beam,
            length_penalty=length_penalty,
            forbidden=self.forbidden,
            trace=trace,
            system=self.recipe.system,
            run=self.folder.resolve().name,
        )
