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
        labels: P(label | text) for every label, the most probable first. Empty if the text is empty.

    Raises:
        RegardError: If `labels` is not a dict.
    """

    labels: dict[str, float] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """The most probable label; "" for an empty text."""
        return next(iter(self.labels), "")

    def top(self, count: int = 5) -> list[tuple[str, float]]:
        """Return the most probable labels.

        Args:
            count: The maximum number of labels to return.

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

    Returned by `regard.train` and `regard.load`.

    Args:
        folder: The folder of the run.
        recipe: The recipe that the model was trained with.
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
        """All labels in the training data."""
        return list(self._numbers)

    # -- labelling ---------------------------------------------------------------------------------------------------

    def __call__(self, text: str) -> Labelling:
        """Label a text.

        Args:
            text: The text.

        Returns:
            The labels with their probabilities.

        Raises:
            RegardError: If the text is too long for the model, or is not a string.
        """
        return next(self.labellings([text]))

    @overload
    def classify(self, text: str) -> str: ...  # type: ignore[overload-overlap]
    @overload
    def classify(self, text: Sequence[str]) -> list[str]: ...
    def classify(self, text: str | Sequence[str]) -> str | list[str]:
        """Return the most probable label of a text, or of each text in a list.

        Args:
            text: A text, or a list of texts.

        Returns:
            The label; for a list of texts, a list of labels.

        Raises:
            RegardError: If a text is too long for the model, or is not a string.
        """
        found = [one.label for one in self.labellings([text] if isinstance(text, str) else text)]
        return found[0] if isinstance(text, str) else found

    def labellings(self, lines: Iterable[str], *, truncate: bool = False, before: int = 0) -> Iterator[Labelling]:
        """Label many lines in constant memory. An empty line has no labels.

        Args:
            lines: A list of texts, or an open file.
            truncate: Truncate a line that is too long, instead of raising an error.
            before: The number of lines labeled in earlier calls, so that errors give the right line number.

        Yields:
            The labels of each line, with their probabilities.

        Raises:
            RegardError: If a line is too long for the model, or an argument is wrong.
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
        """Log-probabilities of the labels only: <eos> and <unk> are not labels."""
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
        """Compute accuracy, F1, cross-entropy and the confusion matrix on held-out lines.

        Texts that are too long are truncated. A line whose label did not occur in training counts as an error, and is
        left out of the cross-entropy.

        Args:
            split: "train", "valid", "test", or "all" for the whole file. Default: the test split, or the validation
                split if there is no test split; for another file, the whole file.
            data: The name or path of another corpus, or a list of pairs, all of which are used.
            columns: The two table columns to read, by name or by number (from 1), such as "1,2".
            encoding: The encoding of the file, such as "cp1252".
            texts: Also return the predicted label of each line.

        Returns:
            A dict with accuracy, macro_f1, cross_entropy, lines, labels, confusion and more.

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
        """The most probable label of each line, and −log P of the true label if it is known."""
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

        On a CPU, the other pairs do not change a result by a single bit; on a GPU, the last digits can differ.

        Args:
            pairs: Pairs of text and label.
            before: If the pairs are lines of a file, the number of lines before them, so that errors give the right
                line number.

        Yields:
            The log-probability of each pair, in nats.

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
        """Skip the pairs of a file that cannot be scored, and print their number at the end.

        Args:
            pairs: Pairs of text and label.

        Returns:
            An iterator over the pairs whose text is not empty or too long and whose label occurred in training.

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
        """Record everything that the model computes while it reads a text. A notebook displays the trace.

        Args:
            text: The text to label.
            label: The true label. Default: the most probable label.
            top: The number of most probable labels to record.
            gradients: Also record the norm of the loss gradient with respect to each word vector.
            intervene: New values for parts of the model, by name, such as {"self/0[2]": 0.0}; see `regard.intervene`.

        Returns:
            The trace, with NumPy arrays.

        Raises:
            RegardError: If the text is too long for the model, or an argument is wrong.
        """
        from regard.insight.interventions.changing import trace_changed
        from regard.insight.tracing import trace_classification

        self.source_tokens(text, 1)  # an error if it is longer than all training texts
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
        """Show the arithmetic behind a label, with the model's numbers.

        Args:
            text: The text to label.
            step: If a layer is given, the number of a word in the text. Default: the last word.
            layer: Also show this layer, given by its number or a name such as "encoder/0".
            head: The number of an attention head. Default: 0.
            label: The true label. Default: the most probable label.

        Returns:
            The equations with their numbers, as printable text.

        Raises:
            RegardError: If there is no such step, layer, head or label.
        """
        return self.calculation(text, label).at(step, layer, head)

    def calculation(self, text: str, label: str | None = None) -> Calculation:
        """Label a text once, to show the arithmetic of many words, layers or heads.

        Args:
            text: The text to label.
            label: The true label. Default: the most probable label.

        Returns:
            A Calculation. Its method `at(step, layer, head)` returns the same as `work`.

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
