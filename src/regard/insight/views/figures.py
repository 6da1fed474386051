"""Figures of a trace: attention, gradients, and gates over time."""

from __future__ import annotations

import numpy as np

from regard.base.errors import RegardError
from regard.base.settings import did_you_mean
from regard.insight.trace import Matrix, Trace
from regard.insight.words import attention_name, labels, part_name
from regard.report.figures import Heat

MANY = 24  # weights sum to 1: with more words than this, shades use the square root


def attention(trace: Trace, name: str, head: int | None = None) -> Heat:
    """The attention of each word (a row) to the others; without a head, the mean of all heads. Heads count from 0."""
    if name not in trace.attention:
        known = list(trace.attention)
        raise RegardError(
            f"There is no attention {name!r}{did_you_mean(name, known)}"
            if known
            else f"{trace.system} has no attention."
        )
    matrix = trace.attention_matrix(name)
    heads = len(matrix.values)
    if head is not None and not 0 <= head < heads:
        raise RegardError(f"{name} has no head {head}: its heads are 0 to {heads - 1}.")
    asked = f"--layer {name}" + (f" --head {head}" if head is not None else "")
    shown = matrix.seen.mean(0) if head is None else matrix.seen[head]
    return _weights(matrix, shown, f"{attention_name(name, head, heads)} ({asked})")


def alignment(trace: Trace) -> Heat | None:
    """The attention of each written word (a row) to the source."""
    matrix = trace.aligned
    return None if matrix is None else _weights(matrix, matrix.seen, "Where each written word looked in the source")


def _weights(matrix: Matrix, values: np.ndarray, title: str) -> Heat:
    rows, columns = labels(matrix.rows), labels(matrix.columns)
    return Heat(
        title, rows, columns, values.tolist(), "looked at", ROWS[matrix.of_rows], "weight", 0, 1,
        root=len(columns) > MANY,
    )  # fmt: skip


def named(trace: Trace, name: str) -> list[Heat]:
    """The figures of one part: the heads of an attention, the alignment, or a gradient."""
    if name in trace.attention:
        return [attention(trace, name, head) for head in range(len(trace.attention[name]))]
    drawn = gradients(trace) | ({"alignment": one} if (one := alignment(trace)) else {})
    if name not in drawn:
        known = [*trace.attention, *drawn]
        hint = did_you_mean(name, known) if known else f": {trace.system} has neither attention nor gradients here."
        raise RegardError(f"The trace has no part {name!r}{hint}")
    return [drawn[name]]


ROWS = {"read": "word read", "written": "word written", "source": "word of the source"}


def gradients(trace: Trace) -> dict[str, Heat]:
    """‖∂L_t/∂e_s‖ and the other gradients by name, as powers of ten; exact zeros are empty cells."""
    titles = {
        "gradients": "How much each word influences the loss at each step",
        "source_gradients": "How much each word of the source influences the loss at each step",
    }
    return {
        name: Heat(
            titles.get(name, f"How much {part_name(name)} after each word influences the loss at each step"),
            labels(matrix.rows), labels(matrix.columns), powers(matrix.values).tolist(),
            "of word s", "loss of predicting", POWER,
        )
        for name, matrix in trace.gradients_by_name.items()
    }  # fmt: skip


POWER = "log₁₀ of the gradient's norm (nats per unit of length)"


def gates(trace: Trace, encoder: bool = False) -> list[Heat]:
    """The mean of each gate, cell and candidate at each step. Gates are between 0 and 1 and share this scale; values
    that can be larger or negative have their own scale.
    """
    words = labels(trace.source if encoder else trace.tokens)
    strips: dict[str, dict[str, list[float]]] = {}  # scale → row → means
    for name, values in trace.gates.items():
        if name.startswith("encoder") == encoder:
            scale = GATES if values.min(initial=0.0) >= 0 and values.max(initial=0.0) <= 1 else name.rpartition("/")[2]
            strips.setdefault(scale, {})[part_name(name)] = np.abs(values).mean(-1).tolist()
    whose = " of the encoder" if encoder else ""
    return [
        Heat(f"{scale.capitalize()}{whose} over time", tuple(rows), words, list(rows.values()), "word read", "",
             "mean over units" if scale == GATES else "mean of |value| over units", 0, 1 if scale == GATES else None)
        for scale, rows in sorted(strips.items(), key=lambda strip: strip[0] != GATES)
    ]  # fmt: skip


GATES = "gates"


def matrices(trace: Trace) -> list[Heat]:
    """The state of each head of linear attention after the last word: what a key would find."""
    found = []
    for name, heads in trace.matrices.items():
        for head, values in enumerate(heads):
            whose = f"{part_name(name)}, head {head + 1}"
            rows, columns = (tuple(map(str, range(1, size + 1))) for size in values.shape)
            found.append(
                Heat(f"{whose}: its state after the last word", rows, columns, values.tolist(), "component of a value",
                     "feature of a key", "entry of the state", diverging=True)
            )  # fmt: skip
    return found


def powers(matrix: np.ndarray) -> np.ndarray:
    """log10 of positive values; NaN for the rest."""
    above = np.where(matrix > 0, matrix, np.nan)
    return np.log10(above)
