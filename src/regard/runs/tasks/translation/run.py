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

    Returned by `regard.train` and `regard.load`.

    Args:
        folder: The folder of the run.
        recipe: The recipe that the model was trained with.
        source: The tokenizer of the source.
        target: The tokenizer of the target.
        model: The model with its weights.
        unseen: Byte pieces that the training text does not contain. They are never generated.
    """

    model: Translator
    searcher: Searcher | None = None  # another program that searches instead of Regard

    # -- the lecture's call ------------------------------------------------------------------------------------------

    @torch.no_grad()
    def begin(self, source: str) -> State:
        """Read a source and return the initial state for `run(words, state)`.

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
        """The engine for searches on a GPU; other devices use the plain search."""
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
            beam: The beam size, or a Beam. Default: 5.
            length_penalty: The exponent p in log P / length^p, the score of a hypothesis. Default: 1.
            sampling: Sample instead of searching. Alternatively, give some of its fields:
            temperature: The divisor of the logits; 0 always chooses the most probable token (greedy).
            top_k: Sample from this many of the most probable tokens; 0 means no limit.
            top_p: Sample from the smallest set of most probable tokens whose total probability reaches this value; 1
                means no limit.
            seed: The random seed of sampling.

        Returns:
            The translation; for a list of sentences, a list of translations.

        Raises:
            RegardError: If a sentence is too long for the model, or an argument is wrong.
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
        """Translate many lines in constant memory. An empty line stays empty.

        Args:
            lines: A list of sentences, or an open file.
            beam: The beam size, or a Beam; Beam(5, n_best=3) gives three translations of each line. Default: 5.
            length_penalty: The exponent p in log P / length^p, the score of a hypothesis. Default: 1.
            sampling: Sample instead of searching. Alternatively, give some of its fields:
            temperature: The divisor of the logits; 0 always chooses the most probable token (greedy).
            top_k: Sample from this many of the most probable tokens; 0 means no limit.
            top_p: Sample from the smallest set of most probable tokens whose total probability reaches this value; 1
                means no limit.
            alignment: Also align the words of source and translation, using the model's attention.
            attention: Also return the attention of each translation.
            truncate: Truncate a line that is too long, instead of raising an error.
            before: The number of lines translated in earlier calls, and how many of them were not empty.
            max_tokens: The maximum number of tokens in a translation. Default: twice the tokens of its source plus 10.
            min_tokens: The minimum number of tokens in a translation.
            samples: The number of samples for each line, if `sampling` or `temperature` is given.
            seed: The random seed of sampling.
            batch_tokens: The number of tokens in a batch. It affects only memory and speed.
            ahead: The number of lines to read before the first one is translated.

        Yields:
            The translations of each line, best first.

        Raises:
            RegardError: If a line is too long for the model, or an argument is wrong.
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
        """The translations with their attention, from one more pass over each with the reference implementation."""
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
        """Compute the perplexity of the references, and BLEU and chrF of the model's translations.

        Args:
            split: "train", "valid", "test", or "all" for the whole file. Default: the test split, or the validation
                split if there is no test split; for another file, the whole file.
            data: The name or path of another corpus, or a list of pairs, all of which are used.
            columns: The two table columns to read, by name or by number (from 1), such as "1,2".
            encoding: The encoding of the file, such as "cp1252".
            beam: The beam size, or a Beam. Default: 5.
            length_penalty: The exponent p in log P / length^p, the score of a hypothesis. Default: 1.
            lengths: Also report BLEU, chrF and accuracy by the length of the source.
            bleu_tokenizer: A sacreBLEU tokenizer. Default: chosen by the script of the references.
            texts: Also return the translations.

        Returns:
            A dict with bleu, chrf, perplexity, sentences and more, including alignment_error_rate if there are gold
            alignments.

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

        On a CPU, the other pairs do not change a result by a single bit; on a GPU, the last digits can differ.

        Args:
            pairs: Pairs of source and target.

        Yields:
            The log-probability of each pair in nats, in total and for each token.

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
        """Record everything that the model computes while it translates. A notebook displays the trace.

        Args:
            source: The sentence to translate.
            target: The translation to read. Default: the best one found by beam search; the trace then includes the
                search tree.
            prefix: The beginning of that translation.
            beam: The beam size.
            length_penalty: The exponent p in log P / length^p, the score of a hypothesis.
            top: The number of most probable next tokens to record at each step.
            gradients: Also record the norm of each step's loss gradient with respect to each input embedding. This
                takes one backward pass per token.
            intervene: New values for parts of the model, by name, such as {"self/0[2]": 0.0}; see `regard.intervene`.

        Returns:
            The trace, with NumPy arrays.

        Raises:
            RegardError: If the source is too long for the model, or an argument is wrong.
        """
        from regard.insight.interventions.changing import trace_changed
        from regard.insight.tracing import trace_translation

        self.source_tokens(source, 1)  # an error if it is longer than all training texts
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
        """Show the arithmetic of one step and the scores of beam search, with the model's numbers.

        Args:
            source: The sentence to translate.
            step: The number of the step; step 0 predicts the first word. Default: the last step.
            layer: A number, or a name such as "cross/0" or "self/0"; for "encoder/0", the steps are those of the
                source.
            head: The number of an attention head. Default: 0.
            target: The translation to read. Default: the best one found by beam search.

        Returns:
            The equations of the step with their numbers, as printable text.

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
        """Translate a sentence once, to show the arithmetic of many steps, layers or heads.

        Args:
            source: The sentence to translate.
            target: The translation to read. Default: the best one found by beam search.
            prefix: The beginning of that translation.
            beam: The beam size.
            length_penalty: The exponent p in log P / length^p, the score of a hypothesis.
            trace: A trace of the same sentence and the same search, to avoid searching again.

        Returns:
            A Calculation. Its method `at(step, layer, head)` returns the same as `work`.

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
