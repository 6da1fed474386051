"""The equations of the layers, with numbers: attention, recurrent cells, averages, and the prediction at the end.

Each function gets the vectors of one step and what the model computed from them, and returns sections of a `Work`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from regard.insight.work import (
    FULL,
    Section,
    Sum,
    Term,
    Where,
    add_up,
    components,
    largest_units,
    named_words,
    numbers,
    products,
    shown,
)
from regard.layers.matrix_state import LinearAttention
from regard.layers.recurrent import elman, gru, lstm
from regard.layers.scores import Additive, Bilinear, Bounded, Dot, Gaussian, Kernel, Score
from regard.layers.state import Span, State

LARGE = 30.0  # a score whose exponential is too long to read
SCORES = 6  # words whose score is shown

Lines = Iterator[Sum]


# -- attention -------------------------------------------------------------------------------------------------------


def look(
    words: Sequence[str],
    scores: list[Sum],
    weights: np.ndarray,
    values: np.ndarray,
    found: np.ndarray | None,
    *,
    bounded: bool = False,
    tensors: tuple[str, str] = ("", ""),
    step: int,
    head: int = 0,
    letters: tuple[str, str] = ("c", "v"),
) -> list[Section]:
    """Scores → weights → the weighted average. `scores` has a line for each word that is seen; `tensors` name the
    weights and the average in a Trace, `found` is the average that the model computed."""
    names, count = named_words(words), len(words)
    s = np.array([line.value for line in scores])
    strongest = sorted(np.argsort(-weights, kind="stable")[:SCORES].tolist())
    if bounded:
        total = add_up("Z", "Z = Σ K", [Term(name, float(one)) for name, one in zip(names, s)])
        ratio, formula = s, "α = K / Z"
    else:
        power, formula = exponent(s, "s")
        ratio = np.exp(power)
        each = [Term(name, float(one), (float(at),), "exp") for name, at, one in zip(names, power, ratio)]
        total, formula = add_up("Z", f"Z = Σ {formula}", each), f"α = {formula} / Z"
    if total.total == 0:  # of a kernel that ends
        formula, parts = "α = 1/n: no key is near, 0/0", [Term(name, 1 / count) for name in names]
    else:
        parts = [Term(name, float(r / total.total), (float(r), total.total), "/") for name, r in zip(names, ratio)]
    each_share = [
        add_up(f"α({names[j]})", formula, [replace(parts[j], name="")], float(weights[j]),
               where=(tensors[0], (head, step, j)))
        for j in strongest
    ]  # fmt: skip
    shares = add_up("Σ α", "Σ α", [Term(part.name, part.value) for part in parts])
    c, v = letters
    made = weights @ values if found is None else found
    averages = [
        add_up(f"{c}[{u}]", f"{c} = Σ α {v}", products(names, weights, values[:, u]), float(made[u]),
               where=(tensors[1], (step, u)))
        for u in largest_units(made)
    ]  # fmt: skip
    seen = f" The {len(strongest)} words with the largest weights of {count}." if count > SCORES else ""
    return [
        Section("scores", tuple(scores[j] for j in strongest), f"How well each key fits the query.{seen}"),
        Section("softmax" if not bounded else "weights", (total, *each_share, shares), "They sum to 1."),
        Section("average", tuple(averages), _which(made)),
    ]


def projected(
    name: str, weight: np.ndarray, bias: np.ndarray | None, x: np.ndarray, vector: np.ndarray, function: str = ""
) -> list[Sum]:
    """A query, key or value, W x + b: its largest component, or both of two. `name` is q, k(word), …"""
    formula = f"W_{name[0]} x" + (" + b" if bias is not None else "")
    formula = f"{name[0]} = {function}({formula})" if function else f"{name[0]} = {formula}"
    return [
        add_up(f"{name}[{u}]", formula, products(components("x", len(x)), weight[u], x), float(vector[u]),
               function=function, fixed=[] if bias is None else [Term("b", float(bias[u]))])
        for u in largest_units(vector, 1)
    ]  # fmt: skip


def exponent(scores: np.ndarray, letter: str) -> tuple[np.ndarray, str]:
    """What exp is taken of: the scores, or where they are large what they differ from the largest by."""
    most = float(scores.max())
    if abs(most) <= LARGE:
        return scores, f"exp({letter})"
    return scores - most, f"exp({letter} − {shown(most)})"


def _which(vector: np.ndarray) -> str:
    few = len(largest_units(vector))
    return "" if few == len(vector) else f"Its {few} largest components of {len(vector)}."


def scaled_scores(query: np.ndarray, keys: np.ndarray, words: Sequence[str], scores: np.ndarray) -> list[Sum]:
    """q·k / √d of every key; where a position adds to it (ALiBi), that too."""
    width = len(query)
    lines = []
    for word, key, score in zip(named_words(words), keys, scores):
        every = products(components("", width), query, key)
        line = add_up(f"s({word})", f"s = q·k / √d,   d = {width}", every, function="/", by=width**0.5)
        bias = float(score) - line.value
        if abs(bias) > 1e-4:  # of ALiBi: at least 2⁻⁸; else only rounding
            terms = [Term("q·k / √d", line.value, (line.total, width**0.5), "/"), Term("position", bias)]
            lines.append(add_up(line.name, "s = q·k / √d − m·distance", terms, float(score)))
        else:
            lines.append(replace(line, value=float(score)))
    return lines


def named_scores(score: Score, query: Tensor, prepared: Tensor, words: Sequence[str], found: np.ndarray) -> list[Sum]:
    """Any score of the family: of a query [d] and what it prepared of the keys [S, …]."""
    q, keys = numbers(query), numbers(prepared)
    function, by = "", 1.0
    if isinstance(score, Additive):
        asked, judge = numbers(score.query(query)), numbers(score.judge.weight[0])
        formula = "s = v·tanh(W_q q + W_k k)"
        factors = [(judge, np.tanh(asked + key)) for key in keys]
    elif isinstance(score, Bilinear):
        formula, factors = "s = q·(M k)", [(q, key) for key in keys]
    elif isinstance(score, Dot):
        formula, factors = "s = q·k", [(q, key) for key in keys]
        if score.scale != 1.0:
            formula, function, by = f"s = q·k / √d,   d = {len(q)}", "/", len(q) ** 0.5
    elif isinstance(score, Kernel):
        factors = [(q - key, q - key) for key in keys]
        if isinstance(score, Gaussian):
            formula, function, by = "s = −‖q − k‖² / 2h²", "/", -2 * score.bandwidth**2
        else:
            kind = type(score).__name__.lower()
            formula, function, by = f"K = {kind}(‖q − k‖² / h²)", kind, score.bandwidth
    else:
        raise NotImplementedError(type(score).__name__)
    letter = "K" if isinstance(score, Bounded) else "s"
    return [
        add_up(f"{letter}({word})", formula, products(components("", len(one[0])), *one), float(value),
               function=function, by=by)
        for word, one, value in zip(named_words(words), factors, found)
    ]  # fmt: skip


def heads_joined(attention: nn.Module, contexts: np.ndarray, output: np.ndarray, tensor: str, step: int) -> Section:
    """W_o of all heads side by side: what each head adds to a component. `contexts` is [heads, d]."""
    joined: nn.Linear = attention.output  # type: ignore[assignment]
    weight, bias = numbers(joined.weight), joined.bias
    width = contexts.shape[1]
    lines = []
    for u in largest_units(output, 1):
        adds = [float(weight[u, h * width : (h + 1) * width] @ one) for h, one in enumerate(contexts)]
        fixed = [] if bias is None else [Term("b", float(numbers(bias)[u]))]
        terms = [Term(f"head {h}", one) for h, one in enumerate(adds, 1)]
        lines.append(
            add_up(f"a[{u}]", "a = W_o [c of all heads] + b", terms, float(output[u]), fixed=fixed,
                   where=(tensor, (step, u)))
        )  # fmt: skip
    return Section("heads together", tuple(lines), _which_one(output))


def _which_one(vector: np.ndarray) -> str:
    return "" if len(vector) <= 2 else f"The largest of its {len(vector)} components."


def residual(parts: dict[str, np.ndarray], out: np.ndarray, tensor: str, step: int) -> Section:
    """x + what each sublayer adds."""
    lines = [
        add_up(f"x[{u}]", f"x = {' + '.join(parts)}", [Term(name, float(part[u])) for name, part in parts.items()],
               float(out[u]), where=(tensor, (step, u)))
        for u in largest_units(out, 1)
    ]  # fmt: skip
    return Section("what the layer hands on", tuple(lines), _which_one(out))


def linear_look(layer: LinearAttention, read: Tensor, words: Sequence[str], head: int) -> list[Section]:
    """Linear attention: the matrix before and after the step, and what the query reads from it. `read` [1, T, D] is
    what the layer read up to and with this step."""

    def state_after(columns: int) -> dict[str, np.ndarray]:
        new = layer.begin(1, device=read.device, dtype=read.dtype)
        if columns:
            _, new, _ = layer.explain(read[:, :columns], new, _from_start(read))
        return {name: numbers(part[0, head]) for name, part in new.items()}

    query, key, value, decay, write = layer.prepare(read, _from_start(read))
    t = read.size(1) - 1
    q, k, v = (numbers(part[0, head, t]) for part in (query, key, value))
    kept = float(numbers(decay[0, head, t].exp()))
    before, after = state_after(t), state_after(t + 1)
    m, width = len(k), before["matrix"].shape[1]
    new, put = v[:width], []
    if write is not None:
        beta = float(numbers(write[0, head, t]))
        stored = kept * (k @ before["matrix"])
        put = [
            add_up(f"w[{u}]", "w = β (v − λ Sᵀφ(k))", [Term("v", float(v[u])), Term("stored", -float(stored[u]))],
                   function="·", by=beta)
            for u in largest_units(v[:width], 1)
        ]  # fmt: skip
        new = beta * (v[:width] - stored)
    i, u = (int(place) for place in np.unravel_index(np.abs(after["matrix"]).argmax(), (m, width)))
    what = "w" if put else "v"
    terms = [
        Term("λ·S before", kept * float(before["matrix"][i, u]), (kept, float(before["matrix"][i, u]))),
        Term(f"φ(k)[{i}]·{what}[{u}]", float(k[i] * new[u]), (float(k[i]), float(new[u]))),
    ]
    put.append(add_up(f"S[{i}, {u}]", f"S = λ S + φ(k) {what}ᵀ", terms, float(after["matrix"][i, u])))
    over, read_off = 1.0, q @ after["matrix"]
    if write is None:
        z = after["normaliser"]
        put.append(
            add_up(f"z[{i}]", "z = λ z + φ(k)",
                   [Term("λ·z before", kept * float(before["normaliser"][i]), (kept, float(before["normaliser"][i]))),
                    Term(f"φ(k)[{i}]", float(k[i]))], float(z[i]))
        )  # fmt: skip
        line = add_up("n", "n = φ(q)·z", products(components("φ(q)", m), q, z))
        put.append(line)
        over = max(line.total, 1e-6)
    averages = [
        add_up(f"y[{u}]", "y = Sᵀφ(q) / n" if write is None else "y = Sᵀφ(q)",
               products(components("φ(q)", m), q, after["matrix"][:, u]),
               function="" if write is not None else "/", by=over)
        for u in largest_units(read_off)
    ]  # fmt: skip
    sections = [
        Section("the state", tuple(put), f"A matrix of {m} × {width}: its largest entry."),
        Section("what the query reads", tuple(averages), _which(read_off)),
    ]
    if write is None:
        reach = numbers(decay[0, head]).cumsum()
        past = np.exp(reach[t] - reach) * (numbers(key[0, head]) @ q)
        names = named_words(words)
        shares = [Term(name, float(one / over), (float(one), over), "/") for name, one in zip(names, past)]
        sections.append(
            Section("what each word weighs", (add_up("Σ α", "α = λ… φ(q)·φ(k) / n", shares),), "The same, as weights.")
        )
    return sections


def _from_start(read: Tensor) -> Span:
    return Span(torch.zeros(1, dtype=torch.int64, device=read.device))


# -- recurrent cells -------------------------------------------------------------------------------------------------


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
    """One step of a recurrent cell: one unit in full, and the last lines of others. `names` are those of x."""
    w, u, b, b_u = (numbers(part) for part in weights)
    hidden, width = before["hidden"], len(before["hidden"])
    units = largest_units(now["hidden"])
    of_h = components("h", width)

    def at(name: str, unit: int) -> Where:
        return (f"hidden/{tensor}" if name == "hidden" else f"gates/{tensor}/{name}"), (step, unit)

    def gate(letter: str, place: int, function: str, name: str, unit: int) -> Sum:
        row = place * width + unit
        terms = products([*names, *of_h], np.concatenate([w[row], u[row]]), np.concatenate([x, hidden]))
        formula = f"{letter} = {function}(W x + U h + b)"
        bias = Term("b", float(b[row] + b_u[row]))
        return add_up(f"{letter}[{unit}]", formula, terms, float(now[name][unit]), function=function, fixed=[bias],
                      where=at(name, unit))  # fmt: skip

    sections = []
    if equation is elman:
        lines = [gate("h", 0, "σ" if activation == "sigmoid" else activation, "hidden", unit) for unit in units]
        return [Section("the new state", tuple(lines), _which(now["hidden"]))]
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
        return [*sections, Section("cell and state", (*cells, *states), _which(now["hidden"]))]
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
    return [*sections, Section("the new state", tuple(_mixed(units, now, hidden, at)), _which(now["hidden"]))]


def _of(unit: int, now: dict[str, np.ndarray]) -> str:
    return f"The unit with the largest |h| of {len(now['hidden'])}; x is what it reads, h its state before."


def _mixed(
    units: Sequence[int], now: dict[str, np.ndarray], hidden: np.ndarray, at: Callable[[str, int], Where]
) -> Lines:
    """h = z·h + (1 − z)·n of a GRU."""
    for unit in units:
        z, n, old = (float(part[unit]) for part in (now["update"], now["candidate"], hidden))
        terms = [Term("z·h before", z * old, (z, old)), Term("(1 − z)·n", (1 - z) * n, (1 - z, n))]
        h = float(now["hidden"][unit])
        yield add_up(f"h[{unit}]", "h = z·h + (1 − z)·n", terms, h, where=at("hidden", unit))


def minimal_gru(
    project: nn.Linear, x: np.ndarray, before: np.ndarray, now: dict[str, np.ndarray], tensor: str, step: int
) -> list[Section]:
    """z and n look at x alone; h = (1 − z)·h + z·n."""
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
    about = f"The unit with the largest |h| of {width}; x is what it reads."
    return [
        Section(f"gates of unit {one}", tuple(gates), about),
        Section("the new state", tuple(lines), _which(before)),
    ]


# -- averages and dense layers ---------------------------------------------------------------------------------------


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
    return Section("average", tuple(lines), f"Every word weighs 1/{len(words)}. {_which(mean)}".strip())


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
    return Section(title, tuple(lines), _which(out))


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
    """The logit of one word and the softmax over all. `logits` are the model's, −∞ where a word cannot be written;
    `direct` is a row of W and the x it multiplies (nnlm)."""
    row, name = numbers(matrix[asked]), words(asked)
    terms = products(components("h", len(hidden)), row, hidden)
    formula = "z = w·h + b" if bias is not None else "z = w·h"
    if direct is not None:
        terms += products(components("x", len(direct[1])), *direct)
        formula = "z = b + u·h + w·x"
    fixed = [] if bias is None else [Term("b", float(numbers(bias[asked])))]
    logit = add_up(f"z({name})", formula, terms, float(logits[asked]), fixed=fixed)
    return Section("prediction", (logit, *softmax(logits, words, asked, probability)), "A row w for each word.")


def softmax(logits: np.ndarray, words: Callable[[int], str], asked: int, probability: float) -> list[Sum]:
    """Z, and of one word P; `probability` is the model's own."""
    exponents, formula = exponent(logits, "z")
    power = np.exp(exponents)
    can = [int(word) for word in np.argsort(-power, kind="stable") if logits[word] > -np.inf]
    few = can if len(can) <= FULL else can[:5] if asked in can[:5] else [*can[:4], asked]
    terms = tuple(Term(words(word), float(power[word]), (float(exponents[word]),), "exp") for word in few)
    left = [word for word in can if word not in few]
    rest, total = float(power[left].sum()), float(power[can].sum())
    z = Sum("Z", f"Z = Σ {formula}", terms, rest, len(left), total, total)
    share = float(power[asked]) / total
    term = Term("", share, (float(power[asked]), total), "/")
    return [z, add_up(f"P({words(asked)})", f"P = {formula} / Z", [term], probability)]
