"""Linear attention with numbers: the matrix before and after a step, and the output of the query."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from regard.insight.arithmetic.attention import block_view, heads_joined, residual_sum
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
from regard.insight.arithmetic.view import Sections, SectionsAt
from regard.layers.blocks import Block
from regard.layers.matrix_state import LinearAttention
from regard.layers.state import Span, State


@block_view.register
def _(
    attention: LinearAttention, block: Block, x: Tensor, inside: State, name: str, spoken: Sequence[str]
) -> SectionsAt:
    tensor = f"layer/{name}"
    read = block.attention_norm(x) if block.norm_first else x

    def sections(step: int, head: int) -> Sections:
        output, contexts = numbers(inside["attention"]["output"][0, step]), numbers(inside["attention"]["read"][0])
        with torch.no_grad():
            found = linear_look(attention, read[:, : step + 1], spoken[: step + 1], head)
        return [
            *found,
            heads_joined(attention, contexts[:, step], output, f"hidden/{tensor}/attention", step),
            *residual_sum(block, x, inside, tensor, step),
        ]

    return sections


def linear_look(layer: LinearAttention, read: Tensor, words: Sequence[str], head: int) -> list[Section]:
    """Linear attention: the matrix before and after the step, and the output of the query. `read` [1, T, D] is the
    layer's input up to and including this step.
    """

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
        Section("output for this query", tuple(averages), which_components(read_off)),
    ]
    if write is None:
        reach = numbers(decay[0, head]).cumsum()
        past = np.exp(reach[t] - reach) * (numbers(key[0, head]) @ q)
        names = named_words(words)
        shares = [Term(name, float(one / over), (float(one), over), "/") for name, one in zip(names, past)]
        sections.append(
            Section(
                "weight of each word", (add_up("Σ α", "α = λ… φ(q)·φ(k) / n", shares),), "The same average, as weights."
            )
        )
    return sections


def _from_start(read: Tensor) -> Span:
    return Span(torch.zeros(1, dtype=torch.int64, device=read.device))
