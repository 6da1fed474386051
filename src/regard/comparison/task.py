"""The interface between a comparison and its task (language models or translation).

Comparisons of both tasks share the question, the plan, the processes, the ranking with paired differences, and the
page. This interface defines the differences: how data is read, how a run is evaluated, and what a row shows. It is
implemented in `language_task.py` and `translation_task.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np

from regard.base.errors import RegardError
from regard.runs.recipe import Recipe
from regard.runs.store.folder import Tokenizers
from regard.runs.tasks.task import find_task

if TYPE_CHECKING:
    from regard.comparison.comparison import Comparison
    from regard.comparison.differences import Difference
    from regard.comparison.plan import Entrant, Plan

Results = dict[tuple[str, int], dict[str, Any]]  # (label, seed) → result.json, or {"failed": sentence}


@dataclass(frozen=True)
class Ground:
    """The data and tokenizers that all rows of a comparison share."""

    tokenizers: Tokenizers
    resolved: Recipe  # a recipe with all automatic choices made
    shared: Sequence[str]  # settings of [data] that all rows copy from it
    facts: Mapping[str, Any]
    files: Mapping[str, str] = field(default_factory=dict)  # name → text, saved with the plan


@dataclass(frozen=True)
class Columns:
    """The columns of a table, and the format of their numbers."""

    headings: Mapping[str, str]  # key of a row → heading
    first: Sequence[str]  # the columns shown first on a narrow screen
    csv: Sequence[str]
    digits: Mapping[str, Callable[[float], str]]  # format of a column's numbers
    runs: Mapping[str, str]  # of the table of runs: key of an evaluation → heading


class Scores(ABC):
    """The scores that rank rows, over all their seeds."""

    @property
    @abstractmethod
    def by_document(self) -> Mapping[str, np.ndarray]:
        """Label → scores [S, D] by seed and document (or sentence), whose mean varies as the estimate does."""

    @abstractmethod
    def estimate(self, label: str) -> float:
        """The point estimate."""

    @abstractmethod
    def row(self, label: str, done: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """The entries of a row, except its cost, from the results of its finished runs."""


class Report(Protocol):
    """The task-specific sentences of the page and the notes."""

    def conditions(self, comparison: Comparison) -> list[str]: ...
    def effort(self, comparison: Comparison) -> str: ...
    def methods(self, comparison: Comparison) -> list[str]: ...
    def lead(self, comparison: Comparison) -> str: ...
    def score(self, row: Mapping[str, Any]) -> str: ...
    def ahead(self, difference: Difference) -> str: ...
    def size_of(self, difference: float) -> str: ...
    def paired(self) -> str: ...
    def differences(self, comparison: Comparison) -> str: ...
    def intervals(self, comparison: Comparison) -> str: ...
    def curves(self) -> str: ...
    def samples(self, comparison: Comparison) -> list[str]: ...


class ComparedTask(ABC):
    """The interface of a task for comparisons; `Task.comparison` names its implementation."""

    name: ClassVar[str]  # in the catalogue
    title: ClassVar[str]  # the page's title, before the corpus
    always: ClassVar[tuple[str, ...]] = ()  # systems that every comparison has as a baseline
    reference: ClassVar[str]  # the system whose parameters the others are matched to
    neural: ClassVar[str]  # the name of the trained systems in sentences
    tokens: ClassVar[str]  # the unit of training data that is equal for all systems
    score: ClassVar[str]  # the column that orders the rows …
    score_name: ClassVar[str]  # … in words
    more_is_better: ClassVar[bool]
    documents: ClassVar[str]  # the parts of the test data that intervals are over
    columns: ClassVar[Columns]

    @abstractmethod
    def ground(self, recipe: Recipe, prompt: str) -> Ground:
        """Reads the data and trains the tokenizers, once for all rows."""

    def conditions(self, entrants: Sequence[Entrant], tokenizers: Tokenizers) -> dict[str, Any]:
        """Facts of the test that depend on the participants."""
        return {}

    @abstractmethod
    def measure(self, plan: Plan, entrant: Entrant, run: Any) -> dict[str, Any]:
        """A trained run's part of result.json, in the run's own process."""

    @abstractmethod
    def headline(self, evaluation: Mapping[str, Any]) -> str:
        """A finished run in a few words, for the log."""

    @abstractmethod
    def scores(self, plan: Plan, results: Results) -> Scores: ...

    @property
    @abstractmethod
    def report(self) -> Report: ...


def task_named(name: str) -> ComparedTask:
    """The implementation for this task.

    Raises:
        RegardError: If its systems cannot be compared.
    """
    module, _, label = find_task(name).comparison.partition(":")
    if not module:
        raise RegardError(f"Systems for the task {name} cannot be compared; `regard systems` lists the tasks.")
    compared: ComparedTask = getattr(import_module(module, "regard"), label)
    return compared
