"""Recurrent cells with numbers: Elman's, LSTM, GRU and the minimal GRU, one step at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from regard.insight.arithmetic.equation import (
    Equation,
    Section,
    Term,
    Where,
    add_up,
    components,
    largest_units,
    numbers,
    products,
    which_components,
)  # fmt: skip
from regard.insight.arithmetic.view import LayerView, Sections, SectionsAt, view
from regard.layers.encoder import KINDS
from regard.layers.recurrent import CELLS, Elman, Recurrent, elman, gru, lstm
from regard.layers.scan import MinGRUBlock
from regard.layers.state import State

EQUATIONS = {kind: KINDS[name][1] for name, kind in CELLS.items()}


def recurrent_cell(
    layer: Recurrent, equation: Callable[..., State], x: Tensor, inside: State, first: State, tensor: str,
    names: Callable[[], list[str]] | None = None,
) -> SectionsAt:  # fmt: skip
    weights = layer.fused.all_weights[0]
    activation = layer.activation if isinstance(layer, Elman) else "tanh"
    return cell_steps(equation, weights, x, inside, first, tensor, activation, names)


def cell_steps(
    equation: Callable[..., State], weights: Sequence[Tensor], x: Tensor, inside: State, first: State, tensor: str,
    activation: str = "tanh", names: Callable[[], list[str]] | None = None, back: int = 1,
) -> SectionsAt:  # fmt: skip
    """The cell at each step. Its previous state is that of `back` steps earlier, or `first` at the beginning."""

    def sections(step: int, head: int) -> Sections:
        before_at = step - back
        inside_text = 0 <= before_at < x.size(1)
        before = {name: inside[name][0, before_at] if inside_text else first[name] for name in first}
        now = {name: numbers(part[0, step]) for name, part in inside.items() if part.dim() == 3}
        return cell(
            equation, weights, numbers(x[0, step]), {name: numbers(part) for name, part in before.items()}, now,
            names() if names else components("x", x.size(2)), activation=activation, tensor=tensor, step=step,
        )  # fmt: skip

    return sections


def minimal_block(layer: MinGRUBlock, x: Tensor, inside: State, tensor: str) -> SectionsAt:
    with torch.no_grad():
        read = layer.recurrence_norm(x)

    def sections(step: int, head: int) -> Sections:
        now = {name: numbers(inside[name][0, step]) for name in ("update", "candidate", "memory")}
        before = numbers(inside["memory"][0, step - 1]) if step else np.zeros_like(now["memory"])
        return minimal_gru(layer.recurrence.project, numbers(read[0, step]), before, now, tensor, step)

    return sections


def cell(
    equation: Callable[..., State],
    weights: Sequence[Tensor],
    x: np.ndarray,
    before: dict[str, np.ndarray],
    now: dict[str, np.ndarray],
    names: Sequence[str],
    *,
    activation: str = "tanh",
    tensor: str,
    step: int,
) -> list[Section]:
    """One step of a recurrent cell: one unit in full, and the last lines of others. `names` are the labels of x."""
    w, u, b, b_u = (numbers(part) for part in weights)
    hidden, width = before["hidden"], len(before["hidden"])
    units = largest_units(now["hidden"])
    of_h = components("h", width)

    def at(name: str, unit: int) -> Where:
        return (f"hidden/{tensor}" if name == "hidden" else f"gates/{tensor}/{name}"), (step, unit)

    def gate(letter: str, place: int, function: str, name: str, unit: int) -> Equation:
        row = place * width + unit
        terms = products([*names, *of_h], np.concatenate([w[row], u[row]]), np.concatenate([x, hidden]))
        formula = f"{letter} = {function}(W x + U h + b)"
        bias = Term("b", float(b[row] + b_u[row]))
        return add_up(f"{letter}[{unit}]", formula, terms, float(now[name][unit]), function=function, fixed=[bias],
                      where=at(name, unit))  # fmt: skip

    sections = []
    if equation is elman:
        lines = [gate("h", 0, "σ" if activation == "sigmoid" else activation, "hidden", unit) for unit in units]
        return [Section("the new state", tuple(lines), which_components(now["hidden"]))]
    if equation is lstm:
        one = units[0]
        gates = (("f", 1, "σ", "forget"), ("i", 0, "σ", "store"), ("g", 2, "tanh", "update"), ("o", 3, "σ", "output"))
        sections.append(Section(f"gates of unit {one}", tuple(gate(*how, one) for how in gates), _of(one, now)))
        cells, states = [], []
        for unit in units:
            f, i, g, o = (float(now[name][unit]) for _, _, _, name in gates)
            c, old, h = float(now["cell"][unit]), float(before["cell"][unit]), float(now["hidden"][unit])
            terms = [Term("f·c before", f * old, (f, old)), Term("i·g", i * g, (i, g))]
            cells.append(add_up(f"c[{unit}]", "c = f·c + i·g", terms, c, where=at("cell", unit)))
            shows = Term("o·tanh(c)", o * float(np.tanh(c)), (o, float(np.tanh(c))))
            states.append(add_up(f"h[{unit}]", "h = o·tanh(c)", [shows], h, where=at("hidden", unit)))
        return [*sections, Section("cell and state", (*cells, *states), which_components(now["hidden"]))]
    assert equation is gru
    one = units[0]
    rows = {name: place * width + one for place, name in enumerate(("reset", "update", "candidate"))}
    row = rows["candidate"]
    wx = add_up(f"W x[{one}]", "W_n x + b_n", products(list(names), w[row], x), fixed=[Term("b", float(b[row]))])
    uh = add_up(f"U h[{one}]", "U_n h + b_u", products(of_h, u[row], hidden), fixed=[Term("b", float(b_u[row]))])
    r = float(now["reset"][one])
    n = add_up(f"n[{one}]", "n = tanh(W_n x + b_n + r·(U_n h + b_u))",
               [Term("W x", wx.total), Term("r·U h", r * uh.total, (r, uh.total))], float(now["candidate"][one]),
               function="tanh", where=at("candidate", one))  # fmt: skip
    lines = [gate("r", 0, "σ", "reset", one), gate("z", 1, "σ", "update", one), wx, uh, n]
    sections.append(Section(f"gates of unit {one}", tuple(lines), _of(one, now)))
    return [*sections, Section("the new state", tuple(_mixed(units, now, hidden, at)), which_components(now["hidden"]))]


def _of(unit: int, now: dict[str, np.ndarray]) -> str:
    return f"The unit (of {len(now['hidden'])}) with the largest |h|; x is its input, h its previous state."


def _mixed(
    units: Sequence[int], now: dict[str, np.ndarray], hidden: np.ndarray, at: Callable[[str, int], Where]
) -> Iterator[Equation]:
    """h = z·h + (1 − z)·n of a GRU."""
    for unit in units:
        z, n, old = (float(part[unit]) for part in (now["update"], now["candidate"], hidden))
        terms = [Term("z·h before", z * old, (z, old)), Term("(1 − z)·n", (1 - z) * n, (1 - z, n))]
        h = float(now["hidden"][unit])
        yield add_up(f"h[{unit}]", "h = z·h + (1 − z)·n", terms, h, where=at("hidden", unit))


def minimal_gru(
    project: nn.Linear, x: np.ndarray, before: np.ndarray, now: dict[str, np.ndarray], tensor: str, step: int
) -> list[Section]:
    """z and n depend only on x; h = (1 − z)·h + z·n."""
    weight, bias = numbers(project.weight), numbers(project.bias)
    width, names = len(before), components("x", len(x))
    units = largest_units(now["memory"])
    one = units[0]
    gates = [
        add_up(f"{letter}[{one}]", f"{letter} = {function}(W x + b)" if function else f"{letter} = W x + b",
               products(names, weight[place * width + one], x), float(now[name][one]), function=function,
               fixed=[Term("b", float(bias[place * width + one]))], where=(f"gates/{tensor}/{name}", (step, one)))
        for place, (letter, function, name) in enumerate((("z", "σ", "update"), ("n", "", "candidate")))
    ]  # fmt: skip
    lines = []
    for unit in units:
        z, n, old = float(now["update"][unit]), float(now["candidate"][unit]), float(before[unit])
        terms = [Term("(1 − z)·h before", (1 - z) * old, (1 - z, old)), Term("z·n", z * n, (z, n))]
        lines.append(
            add_up(f"h[{unit}]", "h = (1 − z)·h + z·n", terms, float(now["memory"][unit]),
                   where=(f"gates/{tensor}/memory", (step, unit)))
        )  # fmt: skip
    about = f"The unit (of {width}) with the largest |h|; x is its input."
    return [
        Section(f"gates of unit {one}", tuple(gates), about),
        Section("the new state", tuple(lines), which_components(before)),
    ]


@view.register
def _(layer: Recurrent, x: Tensor, inside: State, name: str, words: tuple[str, ...]) -> tuple[str, LayerView]:
    first = {memory: x.new_zeros(layer.width) for memory in layer.memory}
    sections = recurrent_cell(layer, EQUATIONS[type(layer)], x, inside, first, f"layer/{name}")
    return f"layer/{name}", LayerView(sections, words=words)


@view.register
def _(layer: MinGRUBlock, x: Tensor, inside: State, name: str, words: tuple[str, ...]) -> tuple[str, LayerView]:
    return f"layer/{name}", LayerView(minimal_block(layer, x, inside, f"layer/{name}"), words=words)
