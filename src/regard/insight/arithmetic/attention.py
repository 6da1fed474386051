"""Attention with numbers: projections, scores, weights, the average, the heads together and the residual sum."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import singledispatch
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from regard.insight.arithmetic.equation import (
    Equation,
    Section,
    Term,
    add_up,
    components,
    exponent,
    largest_units,
    named_words,
    numbers,
    products,
    which_component,
    which_components,
)  # fmt: skip
from regard.insight.arithmetic.view import LayerView, Sections, SectionsAt, view
from regard.insight.words import labels
from regard.layers.attention import FullSelfAttention, SelfAttention
from regard.layers.blocks import Block, DecoderBlock
from regard.layers.position import Rotary
from regard.layers.scores import Additive, Bilinear, Bounded, Dot, Gaussian, Kernel, Score
from regard.layers.state import State

SCORES = 6  # words whose score is shown
PROJECTED = "Their largest components; x is the layer's input, after its norm if it has one."


def look(
    words: Sequence[str],
    scores: list[Equation],
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
    """Scores → weights → the weighted average. `scores` has a line for each visible word; `tensors` name the
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
    if total.total == 0:  # with a kernel of finite width
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
    seen = f" The {len(strongest)} words (of {count}) with the largest weights are shown." if count > SCORES else ""
    return [
        Section("scores", tuple(scores[j] for j in strongest), f"How well each key matches the query.{seen}"),
        Section("softmax" if not bounded else "weights", (total, *each_share, shares), "They sum to 1."),
        Section("average", tuple(averages), which_components(made)),
    ]


def projected(
    name: str, weight: np.ndarray, bias: np.ndarray | None, x: np.ndarray, vector: np.ndarray, function: str = ""
) -> list[Equation]:
    """A query, key or value, W x + b: its largest component, or both if there are two. `name` is q, k(word), …"""
    formula = f"W_{name[0]} x" + (" + b" if bias is not None else "")
    formula = f"{name[0]} = {function}({formula})" if function else f"{name[0]} = {formula}"
    return [
        add_up(f"{name}[{u}]", formula, products(components("x", len(x)), weight[u], x), float(vector[u]),
               function=function, fixed=[] if bias is None else [Term("b", float(bias[u]))])
        for u in largest_units(vector, 1)
    ]  # fmt: skip


def scaled_scores(query: np.ndarray, keys: np.ndarray, words: Sequence[str], scores: np.ndarray) -> list[Equation]:
    """q·k / √d of every key, plus the term of its position, if there is one (ALiBi)."""
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


def named_scores(
    score: Score, query: Tensor, prepared: Tensor, words: Sequence[str], found: np.ndarray
) -> list[Equation]:
    """Any named score, for a query [d] and the prepared keys [S, …]."""
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
    """W_o of all concatenated heads: the contribution of each head to a component. `contexts` is [heads, d]."""
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
    return Section("heads together", tuple(lines), which_component(output))


def residual(parts: dict[str, np.ndarray], out: np.ndarray, tensor: str, step: int) -> Section:
    """x + what each sublayer adds."""
    lines = [
        add_up(f"x[{u}]", f"x = {' + '.join(parts)}", [Term(name, float(part[u])) for name, part in parts.items()],
               float(out[u]), where=(tensor, (step, u)))
        for u in largest_units(out, 1)
    ]  # fmt: skip
    return Section("the layer's output", tuple(lines), which_component(out))


def attention_lines(parts: State, spoken: Sequence[str], step: int, head: int, last: int, tensor: str) -> Sections:
    """Scaled dot-product attention of one head to the first `last` words."""
    query, keys, values = (numbers(parts[name][0, head]) for name in ("query", "keys", "values"))
    scores, weights = (numbers(parts[name][0, head, step, :last]) for name in ("scores", "weights"))
    seen = spoken[:last]
    lines = scaled_scores(query[step], keys[:last], seen, scores)
    return look(seen, lines, weights, values[:last], None, tensors=(tensor, ""), step=step, head=head)


def _projections(attention: Any, x: Tensor, parts: State, spoken: Sequence[str], step: int, head: int) -> Section:
    """Query, key and value of a head from its layer's input; key and value are those of the word with most weight."""
    heads, width = attention.heads, parts["query"].size(-1)
    shared = getattr(attention, "key_heads", heads)
    own, most = head * shared // heads, int(parts["weights"][0, head, step].argmax())
    word = named_words(spoken)[most]
    lines = [
        line
        for name, kind, row, at in (
            ("q", "query", head, step),
            (f"k({word})", "keys", heads + own, most),
            (f"v({word})", "values", heads + shared + own, most),
        )
        if kind == "values" or not isinstance(attention.position, Rotary)  # which rotates queries and keys afterwards
        for line in _projected(name, attention.project, width * row, x[0, at], parts[kind][0, head, at])
    ]
    return Section("query, key and value", tuple(lines), PROJECTED)


def _projected(name: str, linear: nn.Linear, first: int, x: Tensor, vector: Tensor) -> list[Equation]:
    """W x + b by the rows of a matrix that begin at `first`."""
    rows = slice(first, first + len(vector))
    bias = None if linear.bias is None else numbers(linear.bias[rows])
    return projected(name, numbers(linear.weight[rows]), bias, numbers(x), numbers(vector))


def _contexts(parts: State, step: int) -> np.ndarray:
    """The output of each head: [heads, d]."""
    weights, values = numbers(parts["weights"][0, :, step]), numbers(parts["values"][0])
    return np.einsum("hs,hsd->hd", weights, values)


def block_sections(
    layer: Any, x: Tensor, inside: State, tensor: str, weights: str, spoken: Sequence[str], causal: bool = True
) -> SectionsAt:
    """A Transformer's block; `x` is what it reads."""
    parts = inside["attention"]
    normed = layer.norm_first
    enters = layer.attention_norm(x) if normed else x

    def sections(step: int, head: int) -> Sections:
        last = step + 1 if causal else len(spoken)
        output = numbers(parts["output"][0, step])
        return [
            _projections(layer.attention, enters, parts, spoken, step, head),
            *attention_lines(parts, spoken, step, head, last, weights),
            heads_joined(layer.attention, _contexts(parts, step), output, f"hidden/{tensor}/attention", step),
            *residual_sum(layer, x, inside, tensor, step),
        ]

    return sections


def residual_sum(layer: Any, x: Tensor, inside: State, tensor: str, step: int) -> Sections:
    if not layer.norm_first:
        return []  # a layer norm stands between the sums
    added = {"x": numbers(x[0, step])}
    added |= {name: numbers(inside[name]["output"][0, step]) for name in ("attention", "cross") if name in inside}
    added["feed-forward"] = numbers(inside["feedforward"][0, step])
    return [residual(added, numbers(inside["hidden"][0, step]), f"hidden/{tensor}", step)]


def scored_attention(layer: SelfAttention, x: Tensor, inside: State, name: str, spoken: Sequence[str]) -> SectionsAt:
    def sections(step: int, head: int) -> Sections:
        seen = spoken[: step + 1]
        weights, scores = (numbers(inside[part][0, 0, step, : step + 1]) for part in ("weights", "scores"))
        with torch.no_grad():
            prepared = layer.score.prepare(inside["keys"][0, 0, : step + 1])
            lines = named_scores(layer.score, inside["query"][0, 0, step], prepared, seen, scores)
        values, found = numbers(inside["values"][0, 0, : step + 1]), numbers(inside["hidden"][0, step])
        looks = look(
            seen, lines, weights, values, found, bounded=isinstance(layer.score, Bounded),
            tensors=(f"attention/self/{name}", f"hidden/layer/{name}"), step=step, letters=("h", "v"),
        )  # fmt: skip
        most = int(weights.argmax())
        word = named_words(seen)[most]
        function = {nn.Tanh: "tanh", nn.ReLU: "relu"}.get(type(layer.activation), "")
        vectors = (("q", layer.query, "query", step), (f"k({word})", layer.key, "keys", most),
                   (f"v({word})", layer.value, "values", most))  # fmt: skip
        own = [
            line
            for letter, linear, kind, at in vectors
            if isinstance(linear, nn.Linear)
            for line in projected(
                letter, numbers(linear.weight), None, numbers(x[0, at]), numbers(inside[kind][0, 0, at]), function
            )
        ]
        return [*([Section("query, key and value", tuple(own), PROJECTED)] if own else []), *looks]

    return sections


def cross_attention(block: DecoderBlock, x: Tensor, inside: State, name: str, source: Sequence[str]) -> SectionsAt:
    parts = inside["cross"]
    normed, between = block.norm_first, x + inside["attention"]["output"]
    enters = block.cross_norm(between) if normed else block.attention_norm(between)

    def sections(step: int, head: int) -> Sections:
        output, vector = numbers(parts["output"][0, step]), parts["query"][0, head, step]
        query = _projected("q", block.cross.query, head * len(vector), enters[0, step], vector)
        return [
            Section("query", tuple(query), PROJECTED),
            *attention_lines(parts, source, step, head, len(source), f"attention/cross/{name}"),
            heads_joined(block.cross, _contexts(parts, step), output, f"hidden/layer/{name}/cross", step),
            *residual_sum(block, x, inside, f"layer/{name}", step),
        ]

    return sections


def full_attention(layer: FullSelfAttention, x: Tensor, inside: State, name: str, spoken: Sequence[str]) -> SectionsAt:
    def sections(step: int, head: int) -> Sections:
        output = numbers(inside["hidden"][0, step])
        return [
            _projections(layer, x, inside, spoken, step, head),
            *attention_lines(inside, spoken, step, head, len(spoken), f"attention/encoder/{name}"),
            heads_joined(layer, _contexts(inside, step), output, f"hidden/encoder/{name}", step),
        ]

    return sections


@view.register
def _(layer: Block, x: Tensor, inside: State, name: str, words: tuple[str, ...]) -> tuple[str, LayerView]:
    sections = block_view(layer.attention, layer, x, inside, name, labels(words))
    return f"self/{name}", LayerView(sections, layer.attention.heads, words)


@view.register
def _(layer: SelfAttention, x: Tensor, inside: State, name: str, words: tuple[str, ...]) -> tuple[str, LayerView]:
    return f"self/{name}", LayerView(scored_attention(layer, x, inside, name, labels(words)), 1, words)


@singledispatch
def block_view(
    attention: nn.Module, block: Block, x: Tensor, inside: State, name: str, spoken: Sequence[str]
) -> SectionsAt:
    """The sections of a block, by the class of its attention."""
    return block_sections(block, x, inside, f"layer/{name}", f"attention/self/{name}", spoken)
