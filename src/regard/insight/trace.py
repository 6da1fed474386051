"""A trace: everything that a model computed while it read one text, in one form for every system.

It is filled by `explain`, the reference implementation, which equals the fast path (a law). Arrays are NumPy; T is the
number of steps (a step reads one token and predicts the next), S the number of tokens attended to.

    trace = run.trace("the dog ran")
    trace.attention["self/0"][head, t, s]      the attention of step t to token s
    trace.attention_matrix("self/0")           the same with the words of its rows and columns
    trace.gradients[t, s]                      ‖∂L_t/∂e_s‖: the influence of token s on the loss of step t
    trace.show("self/0")                       its heads as figures, in a notebook
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from regard.base.arguments import checked
from regard.base.errors import RegardError
from regard.base.numbers import pluralize
from regard.base.settings import did_you_mean


@dataclass(frozen=True)
class Candidate:
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
    kept: bool  # among the `width` best of its step; otherwise it was pruned
    finished: bool = False  # it wrote <eos>
    rank: int = 0  # of a returned hypothesis' last branch: 1 = best; 0 = none
    score: float | None = None  # of the same: its ranking score, log_probability / length^length_penalty
    text: str = ""  # of the same: the whole hypothesis


@dataclass(frozen=True, eq=False)
class Matrix:
    """An array with labels for rows and columns, for terminal, page and JSON."""

    values: np.ndarray  # [rows, columns], or [heads, rows, columns]
    rows: tuple[str, ...]  # the token of each row
    columns: tuple[str, ...]
    of_rows: str  # the kind of the rows: "source", "read" or "written"
    of_columns: str  # "source" or "read"
    causal: bool = False  # a row cannot see later columns

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
    """Everything that a model computed while it read one text. Returned by `run.trace`.

    T is the number of steps, S the number of tokens attended to. Arrays whose names begin with "encoder" have a row for
    each source token, not for each step.

    Attributes:
        system: The name of the system.
        task: "language model", "translation" or "classification".
        tokens: The tokens that were read, step by step; the first is the boundary <eos>.
        targets: The true next token of each step; "" if it is not known.
        probability: The probability of the true next token [T]; NaN where there is none.
        rank: The rank of the true next token among all [T], 1 = best; 0 where there is none.
        entropy: The entropy of the distribution in nats [T].
        top: The most probable next tokens at each step, best first [T].
        source: The tokens of the source, in translation and classification.
        attention: [heads, T, S] by name: "self/0", "cross/0", "encoder/0"; "average/0" if all earlier words have the
            same weight.
        hidden: [T, D] by name: "embedding", "layer/0", "layer/0/feedforward", "encoder/0/forward", …; "hidden" is the
            vector that predicts the next token.
        gates: [T, D] by name, in recurrent cells: "layer/0/forget", "layer/0/cell", "encoder/0/backward/forget", …
        matrices: [heads, features, D] by name, such as "layer/0": the state of linear attention after the last step.
        alignment: In translation: which source word each step attended to [T, S].
        order: In an n-gram: the order whose probability was used [T].
        backoff: In an n-gram: the back-off weight that multiplied it [T]; 1 = none.
        gradients: ‖∂L_t/∂e_s‖ [T, S], with e_s the input embedding of token s.
        source_gradients: The same for the embeddings of the source [T, S].
        state_gradients: The same for recurrent states [T, T], by name: "layer/0/hidden", "layer/0/cell".
        beam: The tree of beam search.
        written: In translation: the token ids of `targets`.
        spans: In a language model: where each token is in the (normalized) text.
        label: In classification: the most probable label.
        text: The text that was read.
        translation: The generated translation.
        run: The name of the run's folder.
        notes: Sentences on which of these parts the system does not have, and why.
    """

    system: str
    task: str
    tokens: tuple[str, ...]
    targets: tuple[str, ...]
    probability: np.ndarray
    rank: np.ndarray
    entropy: np.ndarray
    top: tuple[tuple[Candidate, ...], ...]
    source: tuple[str, ...] = ()
    attention: Mapping[str, np.ndarray] = field(default_factory=dict)
    hidden: Mapping[str, np.ndarray] = field(default_factory=dict)
    gates: Mapping[str, np.ndarray] = field(default_factory=dict)
    matrices: Mapping[str, np.ndarray] = field(default_factory=dict)
    alignment: np.ndarray | None = None
    order: np.ndarray | None = None
    backoff: np.ndarray | None = None
    gradients: np.ndarray | None = None
    source_gradients: np.ndarray | None = None
    state_gradients: Mapping[str, np.ndarray] = field(default_factory=dict)
    beam: tuple[Branch, ...] = ()
    written: tuple[int, ...] = ()
    spans: tuple[tuple[int, int], ...] = ()
    label: str = ""
    text: str = ""
    translation: str = ""
    run: str = ""
    notes: tuple[str, ...] = ()

    @property
    def steps(self) -> int:
        """The number of steps T."""
        return len(self.tokens)

    @checked
    def row_tokens(self, name: str) -> tuple[str, ...]:
        """The token of each row of `hidden[name]` or `gates[name]`.

        Args:
            name: A key of `hidden` or `gates`.

        Returns:
            For an encoder, the tokens of the source; otherwise the tokens that were read.

        Raises:
            RegardError: If `name` is not a string.
        """
        return self.source if name.startswith("encoder") else self.tokens

    @checked
    def attention_matrix(self, name: str) -> Matrix:
        """`attention[name]` with the words of its rows and columns.

        Args:
            name: A key of `attention`, such as "self/0" or "cross/0".

        Returns:
            The weights with their words. In cross-attention, a row's word is the one that the step predicts.

        Raises:
            RegardError: If there is no attention with this name.
        """
        if name not in self.attention:
            known = did_you_mean(name, list(self.attention)) if self.attention else f": {self.system} has no attention."
            raise RegardError(f"There is no attention {name!r}{known}")
        weights = self.attention[name]
        match name.partition("/")[0]:
            case "cross":
                return Matrix(weights, self.targets, self.source, "written", "source")
            case "encoder":
                return Matrix(weights, self.source, self.source, "source", "source")
        return Matrix(weights, self.tokens, self.tokens, "read", "read", causal=True)

    @property
    def aligned(self) -> Matrix | None:
        """`alignment` with its words, or None if the trace has none."""
        return self.alignment if self.alignment is None else self._losses(self.alignment, "source")

    @property
    def gradients_by_name(self) -> dict[str, Matrix]:
        """All gradients with their words: "gradients", "source_gradients", and those of recurrent states by name."""
        found = {"gradients": (self.gradients, "read"), "source_gradients": (self.source_gradients, "source")}
        found |= {name: (matrix, "read") for name, matrix in self.state_gradients.items()}
        return {name: self._losses(matrix, of) for name, (matrix, of) in found.items() if matrix is not None}

    def _losses(self, values: np.ndarray, of: str) -> Matrix:
        """The matrix with a row for each predicted word."""
        return Matrix(values, self.targets, self.source if of == "source" else self.tokens, "written", of)

    @checked
    def show(self, name: str) -> None:
        """Draw one part of the trace in a notebook.

        Args:
            name: A key of `attention` (a figure for each head), "alignment", or a key of `gradients_by_name`.

        Returns:
            None.

        Raises:
            RegardError: If the trace has no part with this name.
        """
        from regard.insight.views.figures import named
        from regard.report.notebook import show

        show(*named(self, name))

    @checked
    def as_json(self, arrays: bool = True) -> dict[str, Any]:
        """The trace as lists and dicts, for JSON; NaN becomes None.

        Args:
            arrays: Include hidden states, gates and matrices.

        Returns:
            A dict with the attributes of the trace.

        Raises:
            RegardError: If `arrays` is not True or False.
        """
        from regard.insight.views.as_json import trace_json

        return trace_json(self, arrays)

    def __repr__(self) -> str:
        inside = ", ".join([*self.attention, *self.hidden, *self.gates, *(f"matrix {name}" for name in self.matrices)])
        return f"Trace({self.system}, {pluralize(self.steps, 'step')}: {inside or 'nothing inside'})"

    def _repr_html_(self) -> str:
        from regard.insight.views.page import fragment

        return fragment(self)


def listed(array: np.ndarray, digits: int = 5) -> Any:
    """Nested lists of numbers with that many significant digits."""
    if array.ndim:
        return [listed(part, digits) for part in array]
    value = float(array)
    return float(f"{value:.{digits}g}") if math.isfinite(value) else None
