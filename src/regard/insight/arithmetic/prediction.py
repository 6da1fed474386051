"""The prediction with numbers: one logit, and the softmax over the vocabulary."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from regard.insight.arithmetic.averaging import dense, dense_layers, layers_of
from regard.insight.arithmetic.equation import (
    FULL,
    Equation,
    Section,
    Term,
    add_up,
    components,
    exponent,
    numbers,
    products,
)
from regard.insight.arithmetic.view import Sections
from regard.insight.words import labels_after
from regard.layers.state import State
from regard.systems.model import Stack
from regard.systems.nnlm import NNLM, HiddenLayer


def label_after(word: Callable[[int], str], before: Sequence[int]) -> Callable[[int], str]:
    """The label of a token after others."""
    read = [word(token) for token in before]
    return lambda token: labels_after(read, [word(token)])[0]


def stack_predictions(
    model: Stack, parts: State, logits: Tensor, word: Callable[[int], str], then: Sequence[int], x: Tensor
) -> Callable[[int], Sections]:
    hidden = parts["hidden"]
    if not isinstance(model, NNLM):
        predict = predictions(model, hidden[0], logits[0], word, then)
        layers = layers_of(model.finish)
        return lambda step: [*dense_layers(layers, numbers(x[0, step])), *predict(step)]
    finish, width = model.finish, model.settings.width
    assert isinstance(finish, HiddenLayer)
    matrix, bias = model.output.of(model.embedding.table.weight)
    places = [
        name for back in range(model.settings.order - 2, -1, -1)
        for name in components(f"w−{back}" if back else "w", x.size(2) // (model.settings.order - 1))
    ]  # fmt: skip

    def sections(step: int) -> Sections:
        window, out = numbers(x[0, step]), numbers(hidden[0, step])
        asked, named = then[step], label_after(word, then[:step])
        direct = None if model.direct is None else (numbers(model.direct.weight[asked]), window)
        return [
            dense(finish.linear, window, places, "tanh", out[:width], "the tanh layer"),
            prediction(
                matrix, bias, out[:width], numbers(logits[0, step]), named, asked,
                probability=probability_of(logits[0, step], asked), direct=direct,
            ),
        ]  # fmt: skip

    return sections


def predictions(
    model: Any, hidden: Tensor, logits: Tensor, word: Callable[[int], str], then: Sequence[int]
) -> Callable[[int], Sections]:
    """From hidden vectors and logits, a row for each step."""
    matrix, bias = model.output.of(model.embedding.table.weight)

    def sections(step: int) -> Sections:
        return [
            prediction(
                matrix, bias, numbers(hidden[step]), numbers(logits[step]), label_after(word, then[:step]),
                then[step], probability=probability_of(logits[step], then[step]),
            )
        ]  # fmt: skip

    return sections


def probability_of(logits: Tensor, word: int) -> float:
    return float(logits.softmax(-1)[word])


def prediction(
    matrix: Tensor,
    bias: Tensor | None,
    hidden: np.ndarray,
    logits: np.ndarray,
    words: Callable[[int], str],
    asked: int,
    *,
    probability: float,
    direct: tuple[np.ndarray, np.ndarray] | None = None,
) -> Section:
    """The logit of one word and the softmax over all. `logits` are the model's, −∞ for words that cannot be generated;
    `direct` is a row of W and the x it multiplies (nnlm)."""
    row, name = numbers(matrix[asked]), words(asked)
    terms = products(components("h", len(hidden)), row, hidden)
    formula = "z = w·h + b" if bias is not None else "z = w·h"
    if direct is not None:
        terms += products(components("x", len(direct[1])), *direct)
        formula = "z = b + u·h + w·x"
    fixed = [] if bias is None else [Term("b", float(numbers(bias[asked])))]
    logit = add_up(f"z({name})", formula, terms, float(logits[asked]), fixed=fixed)
    return Section("prediction", (logit, *softmax(logits, words, asked, probability)), "One row w for each word.")


def softmax(logits: np.ndarray, words: Callable[[int], str], asked: int, probability: float) -> list[Equation]:
    """Z, and P of one word; `probability` is the model's value."""
    exponents, formula = exponent(logits, "z")
    power = np.exp(exponents)
    can = [int(word) for word in np.argsort(-power, kind="stable") if logits[word] > -np.inf]
    few = can if len(can) <= FULL else can[:5] if asked in can[:5] else [*can[:4], asked]
    terms = tuple(Term(words(word), float(power[word]), (float(exponents[word]),), "exp") for word in few)
    left = [word for word in can if word not in few]
    rest, total = float(power[left].sum()), float(power[can].sum())
    z = Equation("Z", f"Z = Σ {formula}", terms, rest, len(left), total, total)
    share = float(power[asked]) / total
    term = Term("", share, (float(power[asked]), total), "/")
    return [z, add_up(f"P({words(asked)})", f"P = {formula} / Z", [term], probability)]
