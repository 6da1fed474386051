"""Language models: they read a text and predict how it continues."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from regard.runs.data_settings import DataSettings
from regard.runs.tasks.task import TRACE, Task
from regard.training.hyperparameters import Training

if TYPE_CHECKING:
    from regard.runs.recipe import Recipe
    from regard.runs.store.folder import Tokenizers
    from regard.runs.tasks.language.data import TextData
    from regard.runs.tasks.language.run import LanguageRun
    from regard.systems.model import Model
    from regard.text.corpus import Corpus
    from regard.text.readers.sources import TextLines

SAMPLE = {"max_tokens": 48, "temperature": 0.8}  # of a text that the run writes for its page


class LanguageTask(Task):
    """Running text in, its probability and its continuation out."""

    name, noun, has_source = "language model", "a language model", False
    purpose, verb = "a language model with no source to translate or label", "generate"
    data_settings, training_settings = DataSettings, Training
    options: ClassVar[Mapping[str, Collection[str]]] = {
        "evaluate": ("--stream", "--segment", "--overlap", "--rows"),
        "chat": ("--prompt",),
    }
    inside: ClassVar[Mapping[str, Collection[str]]] = {"trace": TRACE, "calculation": ()}
    comparison = ".comparison.language_task:LANGUAGE"

    def open_corpus(self, recipe: Recipe) -> Corpus:
        from regard.runs.data_lookup import template_in, text_asked_for

        return text_asked_for(recipe.data, None if recipe.start is None else template_in(Path(recipe.start.run)))

    def corpus_of(self, folder: Path, recipe: Recipe) -> Corpus:
        from regard.runs.data_lookup import corpus_of

        return corpus_of(folder, recipe)

    def learn_tokenizers(self, recipe: Recipe, corpus: Any) -> Tokenizers:
        from regard.runs.tasks.language.data import learn_tokenizer

        return learn_tokenizer(recipe, corpus)

    def cut(self, recipe: Recipe, corpus: Any, tokenizers: Tokenizers) -> TextData:
        from regard.runs.tasks.language.data import TextData
        from regard.text.chat_template import read_template

        return TextData.cut(corpus, tokenizers, "" if recipe.start is None else read_template(Path(recipe.start.run)))

    def trained_on(self, folder: Path, recipe: Recipe) -> TextLines:
        return self.corpus_of(folder, recipe).splits["train"]

    def make_run(
        self, folder: Path, recipe: Recipe, tokenizers: Tokenizers, model: Model, unseen: Sequence[int]
    ) -> LanguageRun:
        from regard.runs.tasks.language.run import LanguageRun

        return LanguageRun(folder, recipe, tokenizers.target, model, unseen)

    def texts(self, run: LanguageRun, count: int) -> list[str]:
        return [run.generate(seed=seed, **SAMPLE) for seed in range(1, count + 1)]  # type: ignore[arg-type]


TASK = LanguageTask()
