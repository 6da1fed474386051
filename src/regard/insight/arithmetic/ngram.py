"""An n-gram's probability with its counts: one equation for each order, from the shortest context to the longest.

    P(w | h) = (a(hw) − D) / a(h·) + γ(h) P(w | h′)       if hw was seen           (systems/kneser_ney.py)
    P(w | h) = β(h) P(w | h′)                             if not, with β = γ, or 1 where h was never seen

The model stores only P and β. Counts and discounts come from the training text, if it is available.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from regard.insight.arithmetic.equation import Equation, Section, Term, add_up
from regard.insight.words import labels, labels_after
from regard.layers.state import State
from regard.systems.kneser_ney import FALLBACK, Counts, adjusted_counts, count_grams, discounts
from regard.systems.ngram import NGram

SEEN = ("seen once", "twice", "3 times or more")
ABSENT = " Its training text is not available, so counts and discounts are shown as one number."


@dataclass(frozen=True)
class Counted:
    """The counts of an n-gram model: all grams of each order, sorted as in the model, with a(g) and the discounts."""

    levels: list[Counts]
    adjusted: list[np.ndarray]
    discounts: list[tuple[float, float, float]]


def count_again(model: NGram, ids: np.ndarray) -> Counted | None:
    """The counts of the training text `ids`; None if the model was trained on another text."""
    levels = count_grams(ids, model.vocabulary, model.order)
    if any(len(level.keys) != len(grams) for level, grams in zip(levels, model.levels)):
        return None
    if model.settings.smoothing == "counts":
        return Counted(levels, [level.count for level in levels], [(0.0, 0.0, 0.0)] * len(levels))
    adjusted = adjusted_counts(levels)
    return Counted(levels, adjusted, [discounts(one) or FALLBACK for one in adjusted])


def ngram_sections(
    model: NGram,
    ids: Sequence[int],
    parts: State,
    word: Callable[[int], str],
    step: int,
    asked: int,
    counted: Counted | None,
) -> list[Section]:
    """Every order's probability of the token `asked` after `ids` up to `step`."""
    chances = parts["probabilities"][0, step, :, asked].double().tolist()  # of each order
    answered = int(parts["answered"][0, step, asked])
    below, sections = 1 / model.vocabulary, []
    (name,) = labels_after([word(token) for token in ids[: step + 1]], [word(asked)])
    for order in range(1, model.order + 1):
        first = step + 2 - order
        if first < 0 or 0 in ids[first + 1 : step + 1]:
            break  # the line is shorter
        before = labels([word(token) for token in ids[first : step + 1]])
        p = f"P({name} | {' '.join(before)})" if before else f"P({name})"
        context = int(parts["contexts"][0, step, order - 2]) if order > 1 else 0
        gram = int(model.levels[order - 1].find(torch.tensor([context * model.vocabulary + asked]).to(
            parts["contexts"].device)))  # fmt: skip
        seen = gram != model.levels[order - 1].nothing
        known = order == 1 or context != model.levels[order - 2].nothing
        value = chances[order - 1]
        if not known:
            line = add_up(p, "P(w | h) = P(w | h′)", [Term("order below", below)], value)
            about = "These words never occurred as a context, so the next lower order is used."
            lines = [line]
        elif not seen:
            weight = float(parts["weights"][0, step, order - 2])
            lines = [] if counted is None else _left_over(model, counted, order, context, weight)
            lines.append(
                add_up(p, "P(w | h) = β(h)·P(w | h′)", [Term("β·P below", weight * below, (weight, below))], value)
            )
            about = f"Never seen: backs off.{ABSENT * (counted is None)}"
        else:
            lines = _seen(model, counted, order, context, gram, p, below, value, parts, step)
            about = f"Seen.{ABSENT * (counted is None)}" if order > 1 else "Its frequency after any word."
        title = f"order {order}" + (", which is used" if order == answered else "")
        sections.append(Section(title, tuple(lines), about))
        below = value
    return sections


def _children(model: NGram, counted: Counted, order: int, context: int) -> np.ndarray:
    """a(g) of all grams that begin with this context."""
    keys = counted.levels[order - 1].keys
    begin, end = np.searchsorted(keys, [context * model.vocabulary, (context + 1) * model.vocabulary])
    return counted.adjusted[order - 1][begin:end]


def _left_over(model: NGram, counted: Counted, order: int, context: int, value: float) -> list[Equation]:
    """γ(h): the probability mass freed by the discounts."""
    if model.settings.smoothing == "counts":
        return []
    after = _children(model, counted, order, context)
    n = np.bincount(np.minimum(after, 3), minlength=4)
    terms = [
        Term(SEEN[j - 1], float(n[j] * d), (float(n[j]), d))
        for j, d in enumerate(counted.discounts[order - 1], start=1)
        if n[j]
    ]
    return [add_up("γ", "γ(h) = Σ D / a(h·)", terms, value, function="/", by=float(after.sum()))]


def _seen(
    model: NGram,
    counted: Counted | None,
    order: int,
    context: int,
    gram: int,
    name: str,
    below: float,
    value: float,
    parts: State,
    step: int,
) -> list[Equation]:
    smooth = model.settings.smoothing == "kneser-ney"
    if counted is None:
        if order == 1 or not smooth:
            return [add_up(name, "P, as stored", [Term("stored", value)], value)]
        weight = float(parts["weights"][0, step, order - 2])
        counts = Term("counted", value - weight * below)
        return [add_up(name, "P(w | h) = … + γ(h)·P(w | h′)", [counts, Term("γ·P below", weight * below,
                                                                             (weight, below))], value)]  # fmt: skip
    a, total = float(counted.adjusted[order - 1][gram]), float(_children(model, counted, order, context).sum())
    if not smooth:
        return [add_up(name, "P(w | h) = a(hw) / a(h·)", [Term("", a / total, (a, total), "/")], value)]
    discount = ((0.0, *counted.discounts[order - 1]))[int(min(a, 3))]
    lines = [] if not a else [_discount(counted, order, int(min(a, 3)), discount)]
    own = add_up("p", "(a(hw) − D) / a(h·)", [Term("a", a), Term("D", -discount)], function="/", by=total)
    stored = float(parts["weights"][0, step, order - 2]) if order > 1 else None
    if stored is None:
        after = _children(model, counted, order, context)
        n = np.bincount(np.minimum(after, 3), minlength=4)[1:]
        stored = float(np.dot(n, counted.discounts[0]) / total)
    gamma = _left_over(model, counted, order, context, stored)
    terms = [Term("p", own.value), Term("γ·P below" if order > 1 else "γ/V", stored * below, (stored, below))]
    return [*lines, own, *gamma, add_up(name, "P(w | h) = p + γ(h)·P(w | h′)", terms, value)]


def _discount(counted: Counted, order: int, j: int, value: float) -> Equation:
    """D_j = j − (j + 1) Y n_{j+1} / n_j, with Y = n_1 / (n_1 + 2 n_2)."""
    sign = "D₃₊" if j == 3 else f"D{'₁₂'[j - 1]}"
    n = np.bincount(np.minimum(counted.adjusted[order - 1], 5), minlength=6).astype(float)
    if counted.discounts[order - 1] == FALLBACK:
        return add_up(sign, "too few counts to estimate it: the default", [Term("", value)], value)
    y = n[1] / (n[1] + 2 * n[2])
    terms = [Term("", float(j)), Term("", -(j + 1) * y * n[j + 1] / n[j], (-(j + 1.0), y, n[j + 1] / n[j]))]
    formula = f"D = j − (j + 1)·Y·n_(j+1)/n_j,   Y = {y:.4g}, n_j = {n[j]:.0f}, n_(j+1) = {n[j + 1]:.0f}"
    return add_up(sign, formula, terms, value)
