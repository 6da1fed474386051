"""A run that labels: a text in, one of the labels of its training file out.

run = regard.load("runs/mood")
run.classify("I love it")                                → "good"
run("I love it").labels                                  → {"good": 0.97, "bad": 0.03}
"""

from __future__ import annotations

import math
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from regard.base.arguments import checked
from regard.base.errors import RegardError
from regard.base.numbers import group_digits, pluralize
from regard.base.settings import check_range
from regard.decoding.translate import AHEAD
from regard.evaluation.accuracy import label_log_probabilities, label_quality
from regard.evaluation.scoring import alone_by_default
from regard.report.progress import progress, say
from regard.runs.lists import GivenPairs, each_line, each_pair
from regard.runs.recipe import Recipe
from regard.runs.run import PairRun
from regard.runs.tasks.translation.answers import PairScore
from regard.systems.classifier import Classifier
from regard.text.readers.encodings import UTF8
from regard.text.readers.labels import clean, encode_labelled, label_numbers
from regard.text.tokenizers.pair_tokens import TokenPairs
from regard.text.tokenizers.tokenizer import Tokenizer

if TYPE_CHECKING:
    from regard.insight.arithmetic.calculation import Calculation
    from regard.insight.arithmetic.equation import WorkedExample
    from regard.insight.trace import Trace


@checked
@dataclass(frozen=True)
class Labelling:
    """The labels of a text with their probabilities.

    Attributes:
        labels: P(label | text) of every label, the most probable first; an empty text has none.

    Raises:
        RegardError: If `labels` is not a dict.
    """

    labels: dict[str, float] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """The most probable label; "" for an empty text."""
        return next(iter(self.labels), "")

    def top(self, count: int = 5) -> list[tuple[str, float]]:
        """The most probable labels.

        Args:
            count: The most labels to return, at least 0.

        Returns:
            The labels with their probabilities, best first.

        Raises:
            RegardError: If an argument is wrong.
        """
        check_range("count", count, 0)
        return list(islice(self.labels.items(), count))

    def __repr__(self) -> str:
        return "Labelling(" + ", ".join(f"{label!r} {p:.3f}" for label, p in self.top(3)) + ")"


@checked
class ClassificationRun(PairRun):
    """A trained classifier with its tokenizer and its labels.

    `regard.train` and `regard.load` make it.

    Args:
        folder: The folder of the run.
        recipe: Everything that decided the training.
        source: The tokenizer of the text.
        labels: The tokenizer of the labels.
        model: The model with its weights.
    """

    model: Classifier

    def __init__(self, folder: Path, recipe: Recipe, source: Tokenizer, labels: Tokenizer, model: Classifier):
        super().__init__(folder, recipe, source, labels, model)
        self._numbers = label_numbers(labels)

    @property
    def labels(self) -> list[str]:
        """All labels of the training data."""
        return list(self._numbers)

    # -- labelling ---------------------------------------------------------------------------------------------------

    def __call__(self, text: str) -> Labelling:
        """Label a text.

        Args:
            text: The text.

        Returns:
            The labels with their probabilities.

        Raises:
            RegardError: If the text is longer than any that the model was trained on, or is not a string.
        """
        return next(self.labellings([text]))

    @overload
    def classify(self, text: str) -> str: ...  # type: ignore[overload-overlap]
    @overload
    def classify(self, text: Sequence[str]) -> list[str]: ...
    def classify(self, text: str | Sequence[str]) -> str | list[str]:
        """The most probable label of a text, or of each text of a list.

        Args:
            text: A text, or a list of texts.

        Returns:
            The label as a string; of a list, the list of labels.

        Raises:
            RegardError: If a text is longer than any that the model was trained on, or is not a string.
        """
        found = [one.label for one in self.labellings([text] if isinstance(text, str) else text)]
        return found[0] if isinstance(text, str) else found

    def labellings(self, lines: Iterable[str], *, truncate: bool = False, before: int = 0) -> Iterator[Labelling]:
        """Label many lines. An empty line has no labels, and memory does not grow with their number.

        Args:
            lines: A list of texts, or an open file.
            truncate: Cut a line that is too long, instead of refusing it.
            before: The number of lines that were labelled earlier, for the line numbers in errors.

        Yields:
            For each line its labels with their probabilities.

        Raises:
            RegardError: If a line is longer than any that the model was trained on, or an argument is wrong.
        """
        waiting: deque[bool] = deque()  # lines whose labels are still to come; False = an empty one

        def sources() -> Iterator[list[int]]:
            for number, line in enumerate(each_line(lines), start=before + 1):
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
        self,
        split: str | None = None,
        *,
        data: GivenPairs | None = None,
        columns: str = "",
        encoding: str = UTF8,
        texts: bool = False,
    ) -> dict[str, Any]:
        """Accuracy, F1 and cross-entropy on held-out lines, and which label is taken for which.

        A text that is too long is cut. A label that training has not seen is a mistake, and has no cross-entropy.

        Args:
            split: "train", "valid", "test", or "all": the whole file. Without it, the test split, else the validation
                split; of another file, all of it.
            data: Another corpus, by its name or path, or a list of pairs, which is read whole.
            columns: The two columns of a table to read, by their names or numbers (from 1), as in "1,2".
            encoding: How the file is encoded, such as cp1252.
            texts: Also return each line's label.

        Returns:
            A dict: accuracy, macro_f1, cross_entropy, lines, labels, confusion, …

        Raises:
            RegardError: If the data cannot be read or an argument is wrong.
        """
        corpus, name = self.chosen(data, split, columns, encoding)
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
            **self._seen_in_training(pairs.take(cut.kept), own=data is None),
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
        """Compute log P(label | text) of each pair.

        On a CPU it depends on no other pair, to the last bit; on a GPU others may move the last digits.

        Args:
            pairs: Pairs of text and label.
            before: The number of lines that came earlier, where the pairs are lines of a file: errors name the line.

        Yields:
            For each pair its log-probability in nats.

        Raises:
            RegardError: If an item is not a pair of strings, or a label is unknown.
        """
        what, numbered = "Pair" if before is None else "Line", enumerate(each_pair(pairs), start=(before or 0) + 1)
        while chunk := list(islice(numbered, AHEAD)):
            numbers = [self._known(label, f"{what} {number}") for number, (_, label) in chunk]
            sources = [self.source_tokens(text, line) for line, (text, _) in chunk]
            rows = self._log_probabilities(sources, 1 if alone_by_default(self.model) else AHEAD)
            for (_, (text, label)), number, row in zip(chunk, numbers, rows, strict=True):
                yield PairScore(text, label, [clean(label)], [float(row[number])])

    def scorable(self, pairs: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
        """Leave out the pairs of a file that cannot be scored, and say at the end how many there were.

        Args:
            pairs: Pairs of text and label.

        Returns:
            An iterator over the pairs that have a text and a label that training has seen.

        Raises:
            RegardError: If an argument is wrong.
        """
        left_out, total = Counter[str](), 0
        for text, label in pairs:
            total += 1
            if not text.strip():
                left_out["without a text"] += 1
            elif not clean(label):
                left_out["without a label"] += 1
            elif clean(label) not in self._numbers:
                left_out["with a label not seen in training"] += 1
            elif len(self.source_tokenizer.encode(text)) > self.recipe.data.longest:
                left_out[f"with more than {self.recipe.data.longest} tokens"] += 1
            else:
                yield text, label
        if left_out:
            reasons = ", ".join(f"{group_digits(number)} {why}" for why, number in left_out.items())
            say(f"{group_digits(left_out.total())} of {pluralize(total, 'pair')} left out: {reasons}.")

    def _known(self, label: str, which: str) -> int:
        number = self._numbers.get(clean(label))
        if number is None:
            few = ", ".join(self.labels[:10]) + (", …" if len(self.labels) > 10 else "")
            raise RegardError(
                f"{which} has the label {label!r}, which {self.folder} was not trained on; its labels are {few}."
            )
        return number

    # -- what happens inside -----------------------------------------------------------------------------------------

    def trace(
        self,
        text: str,
        label: str | None = None,
        *,
        top: int = 5,
        gradients: bool = False,
        intervene: Mapping[str, Any] | None = None,
    ) -> Trace:
        """Record everything that the model computes while it reads a text. In a notebook, it displays itself.

        Args:
            text: The text to label.
            label: The true label; without it, the most probable one.
            top: The number of most probable labels to record.
            gradients: Also record how much each word influences the loss of the label.
            intervene: Changes of the model by place, such as {"self/0[2]": 0.0}; see `regard.intervene`.

        Returns:
            The trace, with NumPy arrays.

        Raises:
            RegardError: If the text is longer than any that the model was trained on, or an argument is wrong.
        """
        from regard.insight.interventions.changing import trace_changed
        from regard.insight.tracing import trace_classification

        self.source_tokens(text, 1)  # refused where it is longer than anything the model has learned from
        made = partial(
            trace_classification,
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
        return trace_changed(self.model, intervene, made)

    def work(
        self,
        text: str,
        step: int | None = None,
        layer: str | int | None = None,
        head: int | None = None,
        *,
        label: str | None = None,
    ) -> WorkedExample:
        """Show the arithmetic of a label with the model's numbers.

        Args:
            text: The text to label.
            step: The number of a word of the text, where a layer is given; without it, the last.
            layer: A number, or a name such as "encoder/0": also the arithmetic of that layer.
            head: The number of an attention head; 0 unless given.
            label: The true label; without it, the most probable one.

        Returns:
            The equations with their numbers; print shows them.

        Raises:
            RegardError: If there is no such step, layer, head or label.
        """
        return self.calculation(text, label).at(step, layer, head)

    def calculation(self, text: str, label: str | None = None) -> Calculation:
        """Label once, to look at the arithmetic of many words, layers or heads.

        Args:
            text: The text to label.
            label: The true label; without it, the most probable one.

        Returns:
            A Calculation; its method `at(step, layer, head)` returns what `work` does.

        Raises:
            RegardError: If an argument is wrong.
        """
        from regard.insight.arithmetic.calculation import calculate_classification

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
