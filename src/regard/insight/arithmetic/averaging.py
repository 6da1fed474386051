"""Averages and dense layers with numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn

from regard.insight.arithmetic.equation import (
    Section,
    Term,
    add_up,
    components,
    largest_units,
    named_words,
    numbers,
    products,
    which_components,
)  # fmt: skip
from regard.insight.arithmetic.view import LayerView, Sections, view
from regard.insight.words import labels
from regard.layers.context import Average, Window
from regard.layers.state import State
from regard.systems.classifier import Classifier


def average(
    words: Sequence[str], vectors: np.ndarray, mean: np.ndarray, letter: str, tensor: str, step: int
) -> Section:
    """The mean of the words' vectors [S, D]."""
    lines = [
        add_up(f"c[{u}]", f"c = Σ {letter} / {len(words)}",
               [Term(name, float(one)) for name, one in zip(named_words(words), vectors[:, u])], float(mean[u]),
               function="/", by=len(words), where=(tensor, (step, u)))
        for u in largest_units(mean)
    ]  # fmt: skip
    return Section("average", tuple(lines), f"Every word weighs 1/{len(words)}. {which_components(mean)}".strip())


def dense(
    linear: nn.Linear,
    x: np.ndarray,
    names: Sequence[str],
    function: str,
    out: np.ndarray,
    title: str,
    letter: str = "h",
    tensor: str = "",
    step: int = 0,
) -> Section:
    """f(W x + b)."""
    weight = numbers(linear.weight)
    bias = np.zeros(len(weight)) if linear.bias is None else numbers(linear.bias)
    lines = [
        add_up(f"{letter}[{u}]", f"{letter} = {function}(W x + b)", products(list(names), weight[u], x), float(out[u]),
               function=function, fixed=[Term("b", float(bias[u]))], where=(tensor, (step, u)))
        for u in largest_units(out)
    ]  # fmt: skip
    return Section(title, tuple(lines), which_components(out))


def layers_of(finish: nn.Module) -> list[tuple[nn.Linear, str]]:
    """The feed-forward layers of a deep averaging network, each with its function."""
    modules = [part for part in finish.modules() if not isinstance(part, nn.Sequential | nn.Dropout)]
    return [
        (linear, "tanh" if isinstance(then, nn.Tanh) else "relu")
        for linear, then in pairwise(modules)
        if isinstance(linear, nn.Linear)
    ]


def dense_layers(layers: Iterable[tuple[nn.Linear, str]], x: np.ndarray) -> Sections:
    """Stacked dense layers."""
    found = []
    for number, (linear, function) in enumerate(layers):
        enters = torch.as_tensor(x, dtype=linear.weight.dtype, device=linear.weight.device)
        with torch.no_grad():
            out = numbers(getattr(torch, function)(linear(enters)))
        letter = "h" if number else "c"
        title = f"feed-forward layer {number}"
        found.append(dense(linear, x, components(letter, len(x)), function, out, title))
        x = out
    return found


def pooled_mean(model: Classifier, memory: np.ndarray, whole: np.ndarray, words: Sequence[str]) -> Sections:
    """The mean of a source's vectors."""
    mean = memory.mean(axis=0)
    layers = layers_of(model.deepen) if model.settings.encoder == "dan" else []
    found = mean if layers else whole
    return [
        average(words, memory, found, "m", "" if layers else "hidden/hidden", 0),
        *dense_layers(layers, mean),
    ]


@view.register
def _(layer: Average, x: Tensor, inside: State, name: str, words: tuple[str, ...]) -> tuple[str, LayerView]:
    spoken = labels(words)

    def sections(step: int, head: int) -> Sections:
        vectors, mean = numbers(x[0, : step + 1]), numbers(inside["average"][0, step])
        return [average(spoken[: step + 1], vectors, mean, "e", f"hidden/layer/{name}", step)]

    return f"average/{name}", LayerView(sections, words=words)


@view.register
def _(layer: Window, x: Tensor, inside: State, name: str, words: tuple[str, ...]) -> tuple[str, LayerView]:
    return f"layer/{name}", LayerView(lambda step, head: [], words=words)
