"""A trace: everything that a model computed while it read one text, in one form for every system.

It is filled through `explain`, the written equation, which the laws hold equal to the fast path. Arrays are NumPy; T
counts the steps (a step reads one token and predicts the next), S the tokens that are attended to.

    trace = run.trace("the dog ran")
    trace.attention["self/0"][head, t, s]      the attention of step t to token s
    trace.looked("self/0")                     the same with the words of its rows and columns
    trace.gradients[t, s]                      ‖∂L_t/∂e_s‖: how much token s weighs in the loss of step t
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from regard.base.numbers import counted


@dataclass(frozen=True)
class Choice:
    """A possible next word."""

    token: str
    probability: float


@dataclass(frozen=True)
class Branch:
    """A candidate of beam search: a node of its tree."""

    parent: int  # index of the branch it extends; -1 for the root's children
    step: int  # from 1
    token: str
    log_probability: float  # of the whole path
    kept: bool  # among the width best of its step; else it was pruned
    finished: bool = False  # it wrote <eos>
    rank: int = 0  # of a returned hypothesis' last branch: 1 = best; 0 = none
    score: float | None = None  # of the same: what it was ranked by, log_probability / length^length_penalty
    text: str = ""  # of the same: the whole hypothesis


@dataclass(frozen=True, eq=False)
class Matrix:
    """An array with labels for rows and columns, for terminal, page and JSON."""

    values: np.ndarray  # [rows, columns], or [heads, rows, columns]
    rows: tuple[str, ...]  # the token of each row
    columns: tuple[str, ...]
    of_rows: str  # "source", "read" or "written": what the rows are
    of_columns: str  # "source" or "read"
    causal: bool = False  # a row sees no later column

    @property
    def seen(self) -> np.ndarray:
        """The values; NaN where a row cannot see a column, to distinguish it from a weight of zero."""
        if not self.causal:
            return self.values
        return np.where(np.tril(np.ones(self.values.shape[-2:], dtype=bool)), self.values, np.nan)

    def as_json(self) -> dict[str, Any]:
        return {"rows": list(self.rows), "columns": list(self.columns), "values": listed(self.values)}


@dataclass(frozen=True, eq=False, repr=False)
class Trace:
    system: str
    task: str  # "language model", "translation", "classification"
    tokens: tuple[str, ...]  # what was read, step by step; begins with the boundary <eos>
    targets: tuple[str, ...]  # what truly followed each; "" where nothing is known to follow
    probability: np.ndarray  # [T] of the true next token; nan where there is none
    rank: np.ndarray  # [T] of the true next token among all, 1 = best; 0 where there is none
    entropy: np.ndarray  # [T] of the distribution, nats
    top: tuple[tuple[Choice, ...], ...]  # [T] the most probable next tokens, best first
    source: tuple[str, ...] = ()  # translation and classification: the tokens of the source
    # What happened inside, by name; what begins with "encoder" has a row for each token of the source, not for a step.
    # [heads, T, S] "self/0", "cross/0", "encoder/0"; "average/0" where all earlier words weigh the same
    attention: Mapping[str, np.ndarray] = field(default_factory=dict)
    # [T, D] "embedding", "layer/0", "layer/0/feedforward", "encoder/0/forward", …; "hidden" is what predicts
    hidden: Mapping[str, np.ndarray] = field(default_factory=dict)
    # [T, D] what a cell goes through: "layer/0/forget", "layer/0/cell", "encoder/0/backward/forget", …
    gates: Mapping[str, np.ndarray] = field(default_factory=dict)
    # [heads, features, D] "layer/0": the state of linear attention after the last step
    matrices: Mapping[str, np.ndarray] = field(default_factory=dict)
    alignment: np.ndarray | None = None  # [T, S] translation: which source word each step looked at
    order: np.ndarray | None = None  # [T] n-gram: the order whose probability was used
    backoff: np.ndarray | None = None  # [T] n-gram: the back-off weight that multiplied its answer; 1 = none
    gradients: np.ndarray | None = None  # [T, S] ‖∂L_t/∂e_s‖, with e_s the input embedding of token s
    source_gradients: np.ndarray | None = None  # [T, S] the same for the source's embeddings
    state_gradients: Mapping[str, np.ndarray] = field(default_factory=dict)  # "layer/0/hidden", "layer/0/cell": [T, T]
    beam: tuple[Branch, ...] = ()
    label: str = ""  # classification: what it answers
    text: str = ""  # what was given to read
    translation: str = ""  # what was written of it
    run: str = ""  # the name of the run's folder
    notes: tuple[str, ...] = ()  # sentences about what this system lacks, and why

    @property
    def steps(self) -> int:
        return len(self.tokens)

    def looking(self, name: str) -> tuple[str, ...]:
        """The tokens that the rows of `hidden[name]` or `gates[name]` stand for."""
        return self.source if name.startswith("encoder") else self.tokens

    def looked(self, name: str) -> Matrix:
        """`attention[name]` with its words. For cross-attention a row's word is the one that the step writes."""
        weights = self.attention[name]
        match name.partition("/")[0]:
            case "cross":
                return Matrix(weights, self.targets, self.source, "written", "source")
            case "encoder":
                return Matrix(weights, self.source, self.source, "source", "source")
        return Matrix(weights, self.tokens, self.tokens, "read", "read", causal=True)

    @property
    def aligned(self) -> Matrix | None:
        """`alignment` with its words."""
        return self.alignment if self.alignment is None else self._losses(self.alignment, "source")

    @property
    def slopes(self) -> dict[str, Matrix]:
        """All gradients with their words: "gradients", "source_gradients", and those of recurrent states by name."""
        found = {"gradients": (self.gradients, "read"), "source_gradients": (self.source_gradients, "source")}
        found |= {name: (matrix, "read") for name, matrix in self.state_gradients.items()}
        return {name: self._losses(matrix, of) for name, (matrix, of) in found.items() if matrix is not None}

    def _losses(self, values: np.ndarray, of: str) -> Matrix:
        """With a row for each word that is predicted."""
        return Matrix(values, self.targets, self.source if of == "source" else self.tokens, "written", of)

    def as_json(self, arrays: bool = True) -> dict[str, Any]:
        """Lists for arrays, null for NaN; `arrays` False leaves out hidden states and gates."""
        facts: dict[str, Any] = {
            "system": self.system,
            "task": self.task,
            "run": self.run,
            "text": self.text,
            "translation": self.translation,
            "tokens": list(self.tokens),
            "targets": list(self.targets),
            "source": list(self.source),
            "probability": listed(self.probability),
            "rank": [int(rank) for rank in self.rank],
            "entropy": listed(self.entropy),
            "top": [[vars(choice) for choice in choices] for choices in self.top],
            "attention": {name: self.looked(name).as_json() for name in self.attention},
            "alignment": None if self.aligned is None else self.aligned.as_json(),
            "gradients": None,
            "source_gradients": None,
            "state_gradients": {},
            "beam": [vars(branch) for branch in self.beam],
            "label": self.label,
            "notes": list(self.notes),
        }
        for name, matrix in self.slopes.items():
            (facts["state_gradients"] if name in self.state_gradients else facts)[name] = matrix.as_json()
        for name in ("order", "backoff"):
            value = getattr(self, name)
            facts[name] = None if value is None else listed(value)
        if arrays:
            facts["hidden"] = {name: listed(value) for name, value in self.hidden.items()}
            facts["gates"] = {name: listed(value) for name, value in self.gates.items()}
            facts["matrices"] = {name: listed(value) for name, value in self.matrices.items()}
        return facts

    def __repr__(self) -> str:
        inside = ", ".join([*self.attention, *self.hidden, *self.gates, *(f"matrix {name}" for name in self.matrices)])
        return f"Trace({self.system}, {counted(self.steps, 'step')}: {inside or 'nothing inside'})"

    def _repr_html_(self) -> str:
        from regard.insight.trace_page import fragment

        return fragment(self)


def listed(array: np.ndarray, digits: int = 5) -> Any:
    """Nested lists of numbers with that many significant digits."""
    if array.ndim:
        return [listed(part, digits) for part in array]
    value = float(array)
    return float(f"{value:.{digits}g}") if math.isfinite(value) else None
