"""Classification: a text in, one of the labels of the training file out."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from regard.base.errors import RegardError
from regard.runs.tasks.pair_task import READING, PairTask
from regard.runs.tasks.task import TRACE

if TYPE_CHECKING:
    from regard.runs.recipe import Recipe
    from regard.runs.store.folder import Tokenizers
    from regard.runs.tasks.classification.data import LabelData
    from regard.runs.tasks.classification.run import ClassificationRun
    from regard.text.tokenizers.tokenizer import Tokenizer


class ClassificationTask(PairTask):
    """A text in, its label out."""

    name, noun = "classification", "a classifier"
    purpose, verb = "which labels", "classify"
    reference = "label"
    options: ClassVar[Mapping[str, Collection[str]]] = {"inspect": ("--target",), "score": READING}
    inside: ClassVar[Mapping[str, Collection[str]]] = {"trace": TRACE, "calculation": ()}

    @property
    def data(self) -> type[LabelData]:
        from regard.runs.tasks.classification.data import LabelData

        return LabelData

    def check(self, recipe: Recipe) -> None:
        for key in ("monolingual", "bpe_dropout"):
            if getattr(recipe.data, key):
                raise RegardError(f"data.{key} applies to translation, not to classification: leave it out.")
        if recipe.training.select == "bleu":
            raise RegardError("BLEU does not apply to labels: leave training.select at loss.")

    def learn_tokenizers(self, recipe: Recipe, corpus: Any) -> Tokenizers:
        from regard.runs.tasks.classification.data import learn_tokenizers

        return learn_tokenizers(recipe, corpus)

    def resolved_data(self, recipe: Recipe, corpus: Any, tokenizers: Tokenizers) -> dict[str, Any]:
        return {"joint": False}

    def reading_tokenizer(self, tokenizers: Tokenizers) -> Tokenizer:
        assert tokenizers.source is not None
        return tokenizers.source

    def make_run(
        self, folder: Path, recipe: Recipe, tokenizers: Tokenizers, model: Any, unseen: Sequence[int]
    ) -> ClassificationRun:
        from regard.runs.tasks.classification.run import ClassificationRun

        assert tokenizers.source is not None
        return ClassificationRun(folder, recipe, tokenizers.source, tokenizers.target, model)

    def answers(self, run: ClassificationRun, sources: Sequence[str]) -> list[str]:
        return [one.label for one in run.labellings(sources, truncate=True)]

    def described_answers(self, run: ClassificationRun, sources: Sequence[str]) -> list[str]:
        shown = run.labellings(sources, truncate=True)
        return [f"{one.label} ({100 * one.labels[one.label]:.0f} %)" for one in shown]

    def score(self, run: ClassificationRun, items: Iterable[Any], before: int | None = None) -> Iterator[Any]:
        """Scores pairs; pairs of a file that cannot be scored are left out."""
        return run.score(run.scorable(items)) if before is None else run.score(items, before=before)


TASK = ClassificationTask()
