"""A task is a folder of `runs/tasks`; its `__init__` defines TASK. All other code asks `task_of(run)`.

Nothing here imports torch: a task loads its data, its run and its evaluation when they are needed.
"""

from __future__ import annotations

import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from regard.base.errors import RegardError
from regard.systems.catalogue import find

if TYPE_CHECKING:
    from regard.runs.data import Data
    from regard.runs.recipe import Recipe
    from regard.runs.run import Run
    from regard.runs.store.folder import Tokenizers
    from regard.systems.model import Model
    from regard.text.corpus import Corpus
    from regard.text.pairs import PairCorpus, Pairs
    from regard.text.readers.sources import TextLines
    from regard.text.tokenizers.tokenizer import Tokenizer


TRACE = "top", "gradients", "intervene"  # options that the trace of every task has


class Task(ABC):
    """The operations that differ between tasks."""

    name: ClassVar[str]  # as the catalogue of systems calls it
    noun: ClassVar[str]  # a system of this task, with its article
    purpose: ClassVar[str]  # the rest of the sentence "runs/mine is a transformer, …"
    verb: ClassVar[str]  # the command that uses its runs
    has_source: ClassVar[bool]  # it reads a source with its own tokenizer
    data_settings: ClassVar[type]
    training_settings: ClassVar[type]
    fixed: ClassVar[Mapping[str, str]] = {}  # settings of [training] that a resume may not change, and why
    options: ClassVar[Mapping[str, Collection[str]]] = {}  # by verb, the command-line options for this task alone
    inside: ClassVar[Mapping[str, Collection[str]]] = {}  # by method of a run, the options of a look inside that it has
    comparison: ClassVar[str] = ""  # module:object, its `ComparedTask`; "": they cannot be compared
    reference: ClassVar[str] = "reference"  # the name of the right answer to a held-out example, on a page

    # -- data ----------------------------------------------------------------------------------------------------------

    def check(self, recipe: Recipe) -> None:  # noqa: B027  # most tasks can use every setting
        """Refuse settings that this task cannot use."""

    @abstractmethod
    def open_corpus(self, recipe: Recipe) -> Any:
        """The corpus that a recipe names."""

    @abstractmethod
    def corpus_of(self, folder: Path, recipe: Recipe) -> Any:
        """The corpus that a run was trained on, unchanged since."""

    @abstractmethod
    def learn_tokenizers(self, recipe: Recipe, corpus: Any) -> Tokenizers:
        """New tokenizers, from the training split."""

    def resolved_data(self, recipe: Recipe, corpus: Corpus | PairCorpus, tokenizers: Tokenizers) -> dict[str, Any]:
        """The settings of [data] that this task, in addition to those of every task, derives from corpus and
        tokenizers.
        """
        return {}

    def reading_tokenizer(self, tokenizers: Tokenizers) -> Tokenizer:
        """The tokenizer that data.tokenizer and data.vocabulary describe."""
        return tokenizers.target

    @abstractmethod
    def cut(self, recipe: Recipe, corpus: Any, tokenizers: Tokenizers) -> Data:
        """The corpus as tokens."""

    @abstractmethod
    def trained_on(self, folder: Path, recipe: Recipe) -> TextLines | Pairs:
        """The lines or pairs that a run was trained on, if its corpus is unchanged."""

    # -- runs ----------------------------------------------------------------------------------------------------------

    @abstractmethod
    def make_run(
        self, folder: Path, recipe: Recipe, tokenizers: Tokenizers, model: Model, unseen: Sequence[int]
    ) -> Run:
        """The run of a model with its weights."""

    def texts(self, run: Any, count: int) -> list[str]:
        """Texts that a run generates without input; empty if it needs a source."""
        return []

    def answers(self, run: Any, sources: Sequence[str]) -> list[str]:
        """A run's answer to each source."""
        return []

    def described_answers(self, run: Any, sources: Sequence[str]) -> list[str]:
        """`answers`, formatted for a page."""
        return self.answers(run, sources)

    def evaluate(self, run: Any, split: str | None, **options: Any) -> dict[str, Any]:
        """The run's scores; `options` are those of `evaluate` that this task has."""
        return dict(run.evaluate(split, **options))

    def score(self, run: Any, items: Iterable[Any], before: int | None = None) -> Iterator[Any]:
        """The log-probability of each line or pair. `before`: the number of earlier lines of a pipe; None: a file."""
        scores: Iterator[Any] = run.score(items)
        return scores

    def look_inside(self, run: Any, how: str, text: str, target: str | None = None, **options: Any) -> Any:
        """The run's `trace` or `calculation` of a text; options that this task does not have are left out."""
        if how not in self.inside:
            raise RegardError(f"{run.folder} is {self.noun}: `inspect` has nothing to show for it.")
        read = (text, target) if self.has_source else (text,)
        return getattr(run, how)(*read, **{name: value for name, value in options.items() if name in self.inside[how]})


@cache
def _tasks() -> dict[str, Task]:
    folder = Path(__file__).parent
    names = [module.name for module in pkgutil.iter_modules([str(folder)]) if module.ispkg]
    found = [import_module(f"regard.runs.tasks.{name}").TASK for name in names]
    return {task.name: task for task in found}


def register(task: Task) -> None:
    """Add a task from outside `runs/tasks`."""
    _tasks()[task.name] = task


def find_task(name: str) -> Task:
    """The task of this name.

    Raises:
        RegardError: If there is none.
    """
    if name not in _tasks():
        raise RegardError(f"There is no task {name!r}; choose one of {', '.join(_tasks())}.")
    return _tasks()[name]


def task_of(thing: Run | Recipe | str) -> Task:
    """The task of a run, of a recipe, or of a system by its name."""
    recipe: Any = getattr(thing, "recipe", thing)
    return find_task(find(recipe if isinstance(recipe, str) else recipe.system).task)
