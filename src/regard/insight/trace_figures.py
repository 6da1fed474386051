"""What a trace shows, as figures: the words that were looked at, what gradients reach, what gates do over time."""

from __future__ import annotations

import numpy as np

from regard.base.errors import RegardError
from regard.base.settings import meant
from regard.insight.trace import Trace
from regard.report.figures import Heat

MANY = 24  # words share a weight of 1: of more than these, each gets so little that shades go by its square root


def attention(trace: Trace, name: str, head: int | None = None) -> Heat:
    """How much each word (a row) looked at each other; without a head, the mean of all heads. Heads count from 0."""
    if name not in trace.attention:
        known = list(trace.attention)
        raise RegardError(
            f"There is no attention {name!r}{meant(name, known)}" if known else f"{trace.system} has no attention."
        )
    weights = trace.attention[name]
    heads = len(weights)
    if head is not None and not 0 <= head < heads:
        raise RegardError(f"{name} has no head {head}: its heads are 0 to {heads - 1}.")
    which = f"head {head}" if head is not None else "its only head" if heads == 1 else f"mean of {heads} heads"
    looked, looking = trace.looked_at(name), trace.looking(name)
    shown = weights.mean(0) if head is None else weights[head]
    if name.startswith(("self", "average")):
        shown = causal(shown)
    return Heat(
        f"Attention {name}, {which}", looking, looked, shown.tolist(), "looked at", "word read", "weight", 0, 1,
        root=len(looked) > MANY,
    )  # fmt: skip


def alignment(trace: Trace) -> Heat | None:
    """Which word of the source each step looked at; its rows are the words that were written."""
    if trace.alignment is None:
        return None
    return Heat(
        "Which word of the source each word of the translation looked at",
        trace.targets, trace.source, trace.alignment.tolist(), "source", "written", "weight", 0, 1,
        root=len(trace.source) > MANY,
    )  # fmt: skip


def gradients(trace: Trace) -> dict[str, Heat]:
    """‖∂L_t/∂e_s‖ and its kin by name, as powers of ten, for they fade over many; exact zeros are empty cells."""
    found: dict[str, tuple[str, np.ndarray, tuple[str, ...]]] = {}
    if trace.gradients is not None:
        found["words"] = "How much each word weighs in the loss of each step", trace.gradients, trace.tokens
    if trace.source_gradients is not None:
        title = "How much each word of the source weighs in the loss of each step"
        found["source"] = title, trace.source_gradients, trace.source
    for name, matrix in trace.state_gradients.items():
        found[name] = f"How much {name} after each word weighs in the loss of each step", matrix, trace.tokens
    rows = tuple(target or "–" for target in trace.targets)
    return {
        name: Heat(title, rows, columns, powers(matrix).tolist(), "of word s", "loss of predicting", POWER)
        for name, (title, matrix, columns) in found.items()
    }


POWER = "log₁₀ of the gradient's norm"


def gates(trace: Trace, encoder: bool = False) -> Heat | None:
    """The mean size of each gate, cell and candidate at each step: a strip for each."""
    named = {name: values for name, values in trace.gates.items() if name.startswith("encoder") == encoder}
    if not named:
        return None
    words = trace.source if encoder else trace.tokens
    means = [np.abs(values).mean(-1).tolist() for values in named.values()]
    title = "Gates of the encoder over time" if encoder else "Gates over time"
    return Heat(title, tuple(named), words, means, "word read", "", "mean of |value| over units", 0)


def powers(matrix: np.ndarray) -> np.ndarray:
    """Powers of ten of what is above zero; not-a-number for the rest."""
    above = np.where(matrix > 0, matrix, np.nan)
    return np.log10(above)


def causal(weights: np.ndarray) -> np.ndarray:
    """Words after the one that reads are empty cells: it cannot see them, which is more than a weight of zero."""
    return np.where(np.tril(np.ones(weights.shape[-2:], dtype=bool)), weights, np.nan)
