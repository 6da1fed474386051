"""A run that translates: raw sentences in, raw sentences out.

run = regard.load("runs/enfr")
run.translate("They are watching.")                      → "Ils regardent."

state = run.begin("They are watching.")                  the lecture's loop, with a state that comes from a source
prediction, state = run("", state)
prediction, state = run("Ils", state)
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from regard.base.errors import RegardError
from regard.base.word_spans import find_words
from regard.decoding.beam import BEAM, Beam, Hypothesis
from regard.decoding.beam_engine import GradualEngine, Searcher
from regard.decoding.sampling import Sampling, one_sampling
from regard.decoding.translate import explain_hypotheses, translate
from regard.evaluation.alignment_error import alignment_error_rate, spans_in, word_links
from regard.evaluation.bleu import accuracy, by_length, quality, refuse_escaped
from regard.evaluation.scoring import alone_by_default, pair_losses
from regard.evaluation.scripts import bleu_cut
from regard.layers.state import State
from regard.report.progress import progress
from regard.runs.lists import GivenPairs, each_pair
from regard.runs.prediction import Prediction
from regard.runs.run import PairRun, given_state
from regard.systems.translator import Translator
from regard.text.pair_tokens import TokenPairs, encode_pairs
from regard.text.pairs import Pairs

if TYPE_CHECKING:
    from regard.insight.calculation import Calculation
    from regard.insight.trace import Trace
    from regard.insight.work import Work


@dataclass(frozen=True)
class Translation:
    """One way to say it, its log-probability (nats, of exactly these tokens), and the score it was ranked by."""

    text: str
    log_probability: float
    score: float
    tokens: list[str] = field(repr=False)
    alignment: list[tuple[int, int]] | None = None  # (source word, target word), numbered as `words` cuts them
    attention: dict[str, np.ndarray] | None = field(default=None, repr=False)  # name → [heads, target, source tokens]


@dataclass(frozen=True)
class PairScore:
    source: str
    target: str
    tokens: list[str]
    log_probabilities: list[float]  # nats, one per target token, <eos> last

    @property
    def log_probability(self) -> float:
        return float(sum(self.log_probabilities))


NOTHING = Translation("", 0.0, 0.0, [])  # of an empty line


class TranslationRun(PairRun):
    """A trained translator with its tokenizers."""

    model: Translator
    searcher: Searcher | None = None  # another program that searches in the place of ours

    # -- the lecture's call ------------------------------------------------------------------------------------------

    @torch.no_grad()
    def begin(self, source: str) -> State:
        """The state that a source leaves behind: what `run(words, state)` starts from."""
        return self.model.begin(torch.tensor([self._read(source)], device=self.model.device))

    @torch.no_grad()
    def __call__(self, words: str, state: State | None = None) -> tuple[Prediction, State]:
        """Read some of the translation after `state` and predict how it goes on; first, nothing: `run("", state)`."""
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
    ) -> Any:
        """The translation of a sentence as a string, or those of several as a list.

        Beam search with 5 hypotheses, unless `sampling` or its fields (temperature, …) ask for a draw.
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
        **limits: Any,
    ) -> Iterator[list[Translation]]:
        """For each line its translations, best first; an empty line stays empty. Memory does not grow with the file.

        How to search or to draw is said as in `translate`; Beam(5, n_best=3) gives three translations of each line.
        `before`: lines that were translated earlier, and how many of them were not empty. `limits`: max_tokens,
        min_tokens, samples, seed, as `decoding.translate` has them.
        """
        how = search_or_draw(beam, length_penalty, sampling, temperature, top_k, top_p)
        return self._translations(lines, how, alignment, attention, truncate, before, **limits)

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
            for number, line in enumerate(lines, start=before[0] + 1):
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
        return Translation(text, hypothesis.log_probability, hypothesis.score, tokens)

    def _explained(self, line: str, source: list[int], found: list[Hypothesis], attention: bool) -> list[Translation]:
        """The translations with what they looked at, from one more reading of each by the written equation."""
        explained = explain_hypotheses(self.model, [source] * len(found), found, eos=self.tokenizer.eos)
        shown = []
        for hypothesis, seen in zip(found, explained, strict=True):
            plain = self._translation(hypothesis)
            links = None
            if seen.alignment is not None:
                written = self.tokenizer.decode(hypothesis.text_tokens)
                links = self._links(line, source, written, hypothesis.tokens, seen.alignment)
            shown.append(replace(plain, alignment=links, attention=seen.attention if attention else None))
        return shown

    # -- how good is it ----------------------------------------------------------------------------------------------

    def evaluate(
        self,
        split: str | None = None,
        *,
        data: GivenPairs | None = None,
        columns: str = "",
        beam: int | Beam | None = None,
        length_penalty: float | None = None,
        lengths: bool = False,
        bleu_tokenizer: str | None = None,
        texts: bool = False,
    ) -> dict[str, Any]:
        """Perplexity of the references, BLEU and chrF of translations, alignment error where gold alignments exist.

        With `lengths`, all that also by source length; with `texts`, the translations themselves. `bleu_tokenizer` is
        one of sacreBLEU's; without it the script of the references decides. `data`: another corpus, or a list of pairs.
        """
        how = one_beam(beam, length_penalty)
        corpus, name = self.chosen(data, split, columns)
        pairs = corpus.splits[name]
        cut_words = bleu_cut(pairs.targets, bleu_tokenizer)  # what is wrong is better known before the translating
        refuse_escaped(pairs.targets, "The references")
        began = time.perf_counter()
        hypotheses = self._translate_all(pairs.sources, how, name)
        seconds = time.perf_counter() - began
        cut = encode_pairs(pairs, self.source_tokenizer, self.tokenizer, longest=self.recipe.data.longest)
        losses = pair_losses(self.model, *both_sides(cut), self.tokenizer.eos)
        nats, tokens = float(sum(loss.sum() for loss in losses)), sum(map(len, losses))
        facts: dict[str, Any] = {
            "system": self.recipe.system,
            "corpus": corpus.name,
            "split": name,
            "direction": f"{corpus.source or 'source'} → {corpus.target or 'target'}",
            "sentences": len(pairs),
            **({} if data is None else self._seen_in_training(corpus, name)),
            **quality(hypotheses, pairs.targets, cut_words.tokenizer),
            "bleu_tokenizer": cut_words.why,
            "exact": accuracy(hypotheses, pairs.targets),
            "perplexity": math.exp(min(nats / tokens, 700.0)) if tokens else None,
            "tokens": tokens,
            **({"left_out_of_perplexity": len(pairs) - len(cut)} if len(cut) < len(pairs) else {}),
            **({"truncated_sources": truncated} if (truncated := self._too_long(pairs)) else {}),
        }
        if pairs.alignments is not None:
            facts |= self._alignment_error(pairs.take(cut.kept))
        facts |= {
            "search": f"beam {how.width}, length penalty {how.length_penalty:g}" if how.width > 1 else "greedy",
            "tokenizer": f"{self.tokenizer.kind}, {self.tokenizer.vocabulary} symbols",
            "parameters": self.parameters,
            "seconds": round(seconds, 3),
            "sentences_per_second": round(len(pairs) / max(seconds, 1e-9), 1),
        }
        if lengths:
            classes = by_length(pairs.sources, hypotheses, pairs.targets, tokenizer=cut_words.tokenizer)
            facts["by_length"] = [asdict(found) for found in classes]
        if texts:
            facts["translations"] = hypotheses
        return facts

    def _translate_all(self, sources: Sequence[str], how: Beam, name: str) -> list[str]:
        found = []
        with progress(f"translating {name}", len(sources), unit=" sentences") as bar:
            for best, *_ in self._translations(sources, how, truncate=True):
                found.append(best.text)
                bar.advance(1)
        return found

    def _too_long(self, pairs: Pairs) -> int:
        """Sources of which only the beginning is translated."""
        return sum(len(self.source_tokenizer.encode(line)) > self.recipe.data.longest for line in pairs.sources)

    def _alignment_error(self, pairs: Pairs) -> dict[str, float]:
        """Of what the model looks at while it reads the references, against the gold alignments; {} if it looks not."""
        assert pairs.alignments is not None
        sources = [self.source_tokenizer.encode(line) for line in pairs.sources]
        targets = [[*self.tokenizer.encode(line), self.tokenizer.eos] for line in pairs.targets]
        explained = explain_hypotheses(self.model, sources, targets, eos=self.tokenizer.eos)
        found = []
        for number, seen in enumerate(explained):
            if seen.alignment is None:
                return {}
            texts = pairs.sources[number], pairs.targets[number]
            found.append(self._links(texts[0], sources[number], texts[1], targets[number], seen.alignment))
        return {"alignment_error_rate": alignment_error_rate(pairs.alignments, found)}

    def _links(
        self, source: str, source_ids: list[int], target: str, target_ids: list[int], matrix: np.ndarray
    ) -> list[tuple[int, int]]:
        """The source word each target word looks at most, from the weights of tokens [target, source].

        Words are numbered in the text as it was given, also where the vocabulary lacks some of them.
        """
        written = [n for n in target_ids if n != self.tokenizer.eos]
        links = word_links(
            matrix,
            spans_in(self.source_tokenizer, source_ids, source),
            spans_in(self.tokenizer, written, target),
            find_words(self.source_tokenizer.normalise(source)),
            find_words(self.tokenizer.normalise(target)),
        )
        return sorted(links)

    # -- how probable is this ----------------------------------------------------------------------------------------

    def score(self, pairs: Iterable[tuple[str, str]]) -> Iterator[PairScore]:
        """log P(target | source) of each pair, in nats, token by token.

        On a CPU it depends on no other pair, to the last bit; on a GPU others may move the last digits.
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
    ) -> Trace:
        """Everything that happens inside while the model writes the target, or without one the best translation that
        beam search finds, with the tree of that search; `prefix`: one that begins so. NumPy arrays; in a notebook, a
        view."""
        from regard.insight.tracing import trace_translation

        self.source_tokens(source, 1)  # refused where it is longer than anything the model has learned from
        return trace_translation(
            self.model,
            self.source_tokenizer,
            self.tokenizer,
            source,
            target,
            prefix=prefix,
            beam=beam,
            length_penalty=length_penalty,
            forbidden=self.forbidden,
            top=top,
            gradients=gradients,
            system=self.recipe.system,
            run=self.folder.resolve().name,
        )

    def work(
        self,
        source: str,
        step: int | None = None,
        layer: str | int | None = None,
        head: int | None = None,
        *,
        target: str | None = None,
    ) -> Work:
        """The arithmetic of one step with the model's numbers, and the sums of beam search; step 0 writes the first
        word. `layer` is a number or a name ("cross/0", "encoder/0", whose steps are the words of the source)."""
        return self.calculation(source, target).at(step, layer, head)

    def calculation(
        self,
        source: str,
        target: str | None = None,
        *,
        prefix: str = "",
        beam: int = 5,
        length_penalty: float = 1.0,
    ) -> Calculation:
        """What `work` looks at, for many steps, layers or heads of one sentence."""
        from regard.insight.calculation import calculate_translation

        self.source_tokens(source, 1)
        return calculate_translation(
            self.model,
            self.source_tokenizer,
            self.tokenizer,
            source,
            target,
            prefix=prefix,
            beam=beam,
            length_penalty=length_penalty,
            forbidden=self.forbidden,
            system=self.recipe.system,
            run=self.folder.resolve().name,
        )


def one_beam(beam: int | Beam | None, length_penalty: float | None) -> Beam:
    """How to search, said by a Beam or by its fields; what is None is as in Beam()."""
    if isinstance(beam, Beam) and length_penalty is not None:
        raise RegardError("Beam(…) says the length penalty already: leave length_penalty out.")
    if isinstance(beam, Beam):
        return beam
    return Beam(BEAM.width if beam is None else beam, BEAM.length_penalty if length_penalty is None else length_penalty)


def search_or_draw(
    beam: int | Beam | None,
    length_penalty: float | None,
    sampling: Sampling | None,
    temperature: float | None,
    top_k: int | None,
    top_p: float | None,
) -> Beam | Sampling:
    """Beam search, unless one says how to draw."""
    if sampling is None and temperature is None and top_k is None and top_p is None:
        return one_beam(beam, length_penalty)
    if beam is not None or length_penalty is not None:
        raise RegardError("beam searches, and sampling or temperature draw: choose one of them.")
    return one_sampling(sampling, temperature, top_k, top_p)


def both_sides(pairs: TokenPairs) -> tuple[list[list[int]], list[list[int]]]:
    """Encoded pairs as lists of ids, sources and targets."""
    numbers = range(len(pairs))
    return [pairs.source_of(n).tolist() for n in numbers], [pairs.target_of(n).tolist() for n in numbers]
