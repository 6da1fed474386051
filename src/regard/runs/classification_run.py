"""A run that labels: a text in, one of the labels of its training file out.

run = regard.load("runs/mood")
run.classify("I love it")                                → "good"
run("I love it").labels                                  → {"good": 0.97, "bad": 0.03}
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from regard.base.errors import RegardError
from regard.decoding.translate import AHEAD
from regard.evaluation.accuracy import label_log_probabilities, label_quality
from regard.evaluation.scoring import alone_by_default
from regard.report.progress import progress
from regard.runs.lists import GivenPairs, each_pair
from regard.runs.recipe import Recipe
from regard.runs.run import PairRun
from regard.runs.translation_run import PairScore
from regard.systems.classifier import Classifier
from regard.text.labels import clean, encode_labelled, label_numbers
from regard.text.pair_tokens import TokenPairs
from regard.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from regard.insight.calculation import Calculation
    from regard.insight.trace import Trace
    from regard.insight.work import Work


@dataclass(frozen=True)
class Labelling:
    """P(label | text) of every label, the most probable first; an empty text has none."""

    labels: dict[str, float] = field(default_factory=dict)

    @property
    def label(self) -> str:
        return next(iter(self.labels), "")

    def top(self, count: int = 5) -> list[tuple[str, float]]:
        return list(islice(self.labels.items(), count))

    def __repr__(self) -> str:
        return "Labelling(" + ", ".join(f"{label!r} {p:.3f}" for label, p in self.top(3)) + ")"


class ClassificationRun(PairRun):
    """A trained classifier with its tokenizer and its labels."""

    model: Classifier

    def __init__(self, folder: Path, recipe: Recipe, source: Tokenizer, labels: Tokenizer, model: Classifier):
        super().__init__(folder, recipe, source, labels, model)
        self._numbers = label_numbers(labels)

    @property
    def labels(self) -> list[str]:
        return list(self._numbers)

    # -- labelling ---------------------------------------------------------------------------------------------------

    def __call__(self, text: str) -> Labelling:
        """The labels of a text with their probabilities."""
        return next(self.labellings([text]))

    def classify(self, text: str | Sequence[str]) -> Any:
        """The label of a text as a string, or those of several as a list."""
        found = [one.label for one in self.labellings([text] if isinstance(text, str) else text)]
        return found[0] if isinstance(text, str) else found

    def labellings(self, lines: Iterable[str], *, truncate: bool = False, before: int = 0) -> Iterator[Labelling]:
        """For each line its labels; an empty line stays empty. Memory does not grow with the file.

        `before`: lines that were labelled earlier; a line that is refused is named by its number.
        """
        waiting: deque[bool] = deque()  # lines whose labels are still to come; False = an empty one

        def sources() -> Iterator[list[int]]:
            for number, line in enumerate(lines, start=before + 1):
                waiting.append(bool(line.strip()))
                if waiting[-1]:
                    yield self.source_tokens(line, number, truncate)

        for row in self._log_probabilities(sources()):
            while not waiting.popleft():
                yield Labelling()
            ranked = sorted(self._numbers.items(), key=lambda pair: -row[pair[1]])
            yield Labelling({label: math.exp(row[number]) for label, number in ranked})
        yield from (Labelling() for _ in waiting)

    def _log_probabilities(self, sources: Iterable[Sequence[int]], ahead: int = AHEAD) -> Iterator[np.ndarray]:
        """Among the labels alone: <eos> and <unk> stand for none."""
        return label_log_probabilities(
            self.model, sources, eos=self.tokenizer.eos, forbidden=self.tokenizer.specials, ahead=ahead
        )

    # -- how good is it ----------------------------------------------------------------------------------------------

    def evaluate(
        self, split: str | None = None, *, data: GivenPairs | None = None, columns: str = "", texts: bool = False
    ) -> dict[str, Any]:
        """Accuracy, F1 and cross-entropy on held-out lines, and which label is taken for which.

        A text that is too long is cut. A label that training has not seen is a mistake, and has no cross-entropy. With
        `texts` also each line's label.
        """
        corpus, name = self.chosen(data, split, columns)
        pairs = corpus.splits[name]
        cut = encode_labelled(
            pairs, self.source_tokenizer, self.tokenizer, longest=self.recipe.data.longest, truncate=True
        )
        gold = [clean(pairs.targets[index]) for index in cut.kept]
        began = time.perf_counter()
        predicted, nats = self._label_all(cut, name)
        seconds = time.perf_counter() - began
        quality = label_quality(gold, predicted)
        labels, table = quality.pop("labels"), quality.pop("confusion")
        return {
            "system": self.recipe.system,
            "encoder": self.recipe.model.encoder,
            "corpus": corpus.name,
            "split": name,
            "lines": len(gold),
            **({} if data is None else self._seen_in_training(corpus, name)),
            **quality,
            "always_the_commonest": max(numbers["lines"] for numbers in labels.values()) / len(gold),
            "cross_entropy": sum(nats) / len(nats) if nats else None,
            **({"unseen_labels": cut.unknown} if cut.unknown else {}),
            **({"left_out": sum(cut.dropped.values())} if cut.dropped else {}),
            **({"truncated": cut.truncated} if cut.truncated else {}),
            "tokenizer": f"{self.source_tokenizer.kind}, {self.source_tokenizer.vocabulary} symbols",
            "parameters": self.parameters,
            "seconds": round(seconds, 3),
            "lines_per_second": round(len(gold) / max(seconds, 1e-9), 1),
            "labels": labels,
            "confusion": table,
            **({"predictions": predicted} if texts else {}),
        }

    def _label_all(self, cut: TokenPairs, name: str) -> tuple[list[str], list[float]]:
        """Each line's most probable label, and −log P of its true one where that is known."""
        predicted, nats = [], []
        sources = (cut.source_of(number).tolist() for number in range(len(cut)))
        with progress(f"labelling {name}", len(cut), unit=" lines") as bar:
            for row, truth in zip(self._log_probabilities(sources), cut.target.tolist(), strict=True):
                predicted.append(self.tokenizer.token(int(row.argmax())))
                if truth != self.tokenizer.unk:
                    nats.append(-float(row[truth]))
                bar.advance(1)
        return predicted, nats

    # -- how probable is this ----------------------------------------------------------------------------------------

    def score(self, pairs: Iterable[tuple[str, str]], *, before: int | None = None) -> Iterator[PairScore]:
        """log P(label | text) of each pair, in nats; on a CPU each is read alone, as `evaluation/scoring.py` says.
        `before`: pairs are lines, and so many came earlier."""
        what, numbered = "Pair" if before is None else "Line", enumerate(each_pair(pairs), start=(before or 0) + 1)
        while chunk := list(islice(numbered, AHEAD)):
            numbers = [self._known(label, f"{what} {number}") for number, (_, label) in chunk]
            sources = [self.source_tokens(text, line) for line, (text, _) in chunk]
            rows = self._log_probabilities(sources, 1 if alone_by_default(self.model) else AHEAD)
            for (_, (text, label)), number, row in zip(chunk, numbers, rows, strict=True):
                yield PairScore(text, label, [clean(label)], [float(row[number])])

    def _known(self, label: str, which: str) -> int:
        number = self._numbers.get(clean(label))
        if number is None:
            few = ", ".join(self.labels[:10]) + (", …" if len(self.labels) > 10 else "")
            raise RegardError(f"{which} has the label {label!r}, which {self.folder} does not know; it knows {few}.")
        return number

    # -- what happens inside -----------------------------------------------------------------------------------------

    def trace(self, text: str, label: str | None = None, *, top: int = 5, gradients: bool = False) -> Trace:
        """Everything that happens inside while the model reads the text. NumPy arrays; in a notebook, a view.

        `gradients`: also how much each word weighs in the loss of `label`, or without one of the label it answers.
        """
        from regard.insight.tracing import trace_classification

        self.source_tokens(text, 1)  # refused where it is longer than anything the model has learned from
        return trace_classification(
            self.model,
            self.source_tokenizer,
            self.tokenizer,
            text,
            label,
            top=top,
            gradients=gradients,
            system=self.recipe.system,
            run=self.folder.resolve().name,
        )

    def work(
        self,
        text: str,
        step: int | None = None,
        layer: str | int | None = None,
        head: int | None = None,
        *,
        label: str | None = None,
    ) -> Work:
        """The arithmetic of a label with the model's numbers; with a layer ("encoder/0") that of a word, too."""
        return self.calculation(text, label).at(step, layer, head)

    def calculation(self, text: str, label: str | None = None) -> Calculation:
        """What `work` looks at, for many words, layers or heads of one text."""
        from regard.insight.calculation import calculate_classification

        self.source_tokens(text, 1)
        return calculate_classification(
            self.model,
            self.source_tokenizer,
            self.tokenizer,
            text,
            label,
            system=self.recipe.system,
            run=self.folder.resolve().name,
        )
