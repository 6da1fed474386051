"""What systems are for, and so how they are compared: the one interface between a comparison and its kind.

A comparison of language models and one of translators share the question, the plan, the runs in processes of their own,
the order with its paired differences, and the page. What they do not share is here by name, and in `language.py` and
`translating.py` by deed: how the data is read, how a trained run is measured, and what a row then says.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np

from regard.base.errors import RegardError
from regard.runs.folder import Tokenizers
from regard.runs.recipe import Recipe
from regard.runs.run import Run

if TYPE_CHECKING:
    from regard.compare.comparison import Comparison
    from regard.compare.differences import Difference
    from regard.compare.plan import Entrant, Plan

Results = dict[tuple[str, int], dict[str, Any]]  # (label, seed) → result.json, or {"failed": sentence}


@dataclass(frozen=True)
class Ground:
    """What all rows of a comparison stand on."""

    tokenizers: Tokenizers
    resolved: Recipe  # a recipe with what was left to choose filled in
    shared: Sequence[str]  # settings of [data] that all take over from it
    steps: Callable[[Recipe, float], int]  # optimiser steps in which a recipe reads so many tokens
    facts: Mapping[str, Any]
    files: Mapping[str, str] = field(default_factory=dict)  # name → text, kept beside the plan


@dataclass(frozen=True)
class Columns:
    """What a table's columns are called, and how their numbers are shown."""

    headings: Mapping[str, str]  # key of a row → heading
    first: Sequence[str]  # of these, what a narrow screen shows
    csv: Sequence[str]
    digits: Mapping[str, Callable[[float], str]]  # how a reader sees a column's numbers
    runs: Mapping[str, str]  # of the table of runs: key of an evaluation → heading


class Scores(ABC):
    """The numbers by which rows are ordered, over all their seeds, and draws of them."""

    @property
    @abstractmethod
    def draws(self) -> Mapping[str, np.ndarray]:
        """Label → [draws] of the estimate; what is drawn anew is the same for every row, so differences are paired."""

    @abstractmethod
    def estimate(self, label: str) -> float:
        """What the draws are draws of."""

    @abstractmethod
    def row(self, label: str, done: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """What a row says besides its effort, from the results of its finished runs."""


class Report(Protocol):
    """What the page and the notes say in a task's own words."""

    def conditions(self, comparison: Comparison) -> list[str]: ...
    def effort(self, comparison: Comparison) -> str: ...
    def methods(self, comparison: Comparison) -> list[str]: ...
    def lead(self, comparison: Comparison) -> str: ...
    def score(self, row: Mapping[str, Any]) -> str: ...
    def ahead(self, difference: Difference) -> str: ...
    def paired(self) -> str: ...
    def differences(self, comparison: Comparison) -> str: ...
    def intervals(self, comparison: Comparison) -> str: ...
    def curves(self) -> str: ...
    def samples(self, comparison: Comparison) -> list[str]: ...


class Task(ABC):
    name: ClassVar[str]  # in the catalogue
    title: ClassVar[str]  # of the page, before the corpus
    reference: ClassVar[str]  # the system whose parameters the others are matched to
    neural: ClassVar[str]  # what a sentence calls the systems that are trained
    tokens: ClassVar[str]  # what they are given equally many of
    score: ClassVar[str]  # the column that orders the rows …
    score_name: ClassVar[str]  # … in words
    more_is_better: ClassVar[bool]
    columns: ClassVar[Columns]

    @abstractmethod
    def ground(self, recipe: Recipe, prompt: str) -> Ground:
        """Read the data and make the tokenizers, once for all; `prompt` as the question has it."""

    def conditions(self, entrants: Sequence[Entrant], tokenizers: Tokenizers) -> dict[str, Any]:
        """Facts of the test that depend on who takes part."""
        return {}

    @abstractmethod
    def measure(self, plan: Plan, entrant: Entrant, run: Run) -> dict[str, Any]:
        """A trained run's part of result.json, in the run's own process."""

    @abstractmethod
    def headline(self, evaluation: Mapping[str, Any]) -> str:
        """A finished run in a few words, for the log."""

    @abstractmethod
    def scores(self, plan: Plan, results: Results) -> Scores: ...

    @property
    @abstractmethod
    def report(self) -> Report: ...


def task_named(name: str) -> Task:
    if name == "translation":
        from regard.compare.translation_task import TRANSLATION

        return TRANSLATION
    if name == "language model":
        from regard.compare.language_task import LANGUAGE

        return LANGUAGE
    raise RegardError(f"Systems for the task {name} cannot be compared; `regard systems` lists the tasks.")
