"""A trace as JSON, in two forms with the same numbers.

    trace_json(trace)                                     everything, for a file: `regard inspect --json`
    facts(trace)                                          for a page: labels, choices, and the names of the matrices
    values, bounds = part(trace, "attention/self/0")      one matrix for a page, in bytes

The lab, the offline page and the notebook show `facts` and `part` (`web/lab/static/reading.js`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from regard.base.errors import RegardError
from regard.insight.trace import Branch, Trace, listed
from regard.insight.views import figures
from regard.insight.views.steps import TraceStep, most_surprising, steps_of
from regard.insight.words import GATES, attention_name, branch_labels, labels, part_name
from regard.report.figures import legible, right_to_left
from regard.report.packed_arrays import in_bytes

UNFINISHED = (  # why a better score can stand below a worse one
    "A sentence that ends in … was not finished when the search ended. It is listed below the finished ones, whatever "
    "its score, because the missing words would lower its log-probability."
)
Bounds = tuple[float, float]  # the values of the bytes 0 and 255


def trace_json(trace: Trace, arrays: bool = True) -> dict[str, Any]:
    """Everything as lists and dicts; NaN becomes None. `arrays`: also hidden states, gates and matrices."""
    gradients = {name: matrix.as_json() for name, matrix in trace.gradients_by_name.items()}
    values = {
        **_columns(trace),
        "translation": trace.translation,
        "tokens": list(trace.tokens),
        "targets": list(trace.targets),
        "source": list(trace.source),
        "top": [[vars(choice) for choice in choices] for choices in trace.top],
        "attention": {name: trace.attention_matrix(name).as_json() for name in trace.attention},
        "alignment": None if trace.aligned is None else trace.aligned.as_json(),
        "gradients": gradients.pop("gradients", None),
        "source_gradients": gradients.pop("source_gradients", None),
        "state_gradients": gradients,
        "beam": [vars(branch) for branch in trace.beam],
        "label": trace.label,
    }
    if arrays:
        groups = {"hidden": trace.hidden, "gates": trace.gates, "matrices": trace.matrices}
        values |= {name: {part: listed(array) for part, array in group.items()} for name, group in groups.items()}
    return values


def facts(trace: Trace) -> dict[str, Any]:
    """Everything except the matrices, which are listed with the kinds of their rows and columns."""
    words = {"read": trace.tokens, "written": trace.targets, "source": trace.source}
    return {
        **_columns(trace),
        "answer": trace.translation or trace.label,
        "words": {kind: labels(tokens) for kind, tokens in words.items()},
        "spans": [list(span) for span in trace.spans],
        "leftward": {kind: right_to_left("".join(labels(tokens))) for kind, tokens in words.items()},
        "opens": most_surprising(trace),
        "known": [bool(rank) for rank in trace.rank],
        "top": [_choices(step) for step in steps_of(trace)],
        "attention": [_weights(trace, name) for name in trace.attention],
        "alignment": trace.alignment is not None,
        "gradients": [_gradient(trace, name) for name in trace.gradients_by_name],
        "inside": [_held(trace, name) for name in _inside(trace)],
        "matrices": [_memory(trace, name) for name in trace.matrices],
        "beam": [_branch(trace, number, word) for number, word in enumerate(branch_labels(trace.beam))],
        "unfinished": "" if all(branch.finished for branch in trace.beam if branch.rank) else UNFINISHED,
    }


def _columns(trace: Trace) -> dict[str, Any]:
    """The values that both forms share."""
    return {
        "system": trace.system,
        "task": trace.task,
        "run": trace.run,
        "text": trace.text,
        "probability": listed(trace.probability),
        "rank": [int(rank) for rank in trace.rank],
        "entropy": listed(trace.entropy),
        "order": None if trace.order is None else [int(order) for order in trace.order],
        "backoff": None if trace.backoff is None else listed(trace.backoff),
        "notes": list(trace.notes),
    }


def part(trace: Trace, name: str) -> tuple[np.ndarray, Bounds]:
    """attention/self/0 is [heads, rows, columns], inside/layer/0/forget [steps, units], alignment [steps, words of the
    source], matrix/layer/0 [heads, features, components], and gradient/gradients [steps, words] as powers of ten, −∞
    where it is exactly 0, and NaN if no next word is known.
    """
    kind, _, place = name.partition("/")
    if kind == "attention" and place in trace.attention:
        return in_bytes(trace.attention[place], 0.0, 1.0)
    if kind == "alignment" and trace.alignment is not None:
        return in_bytes(trace.alignment, 0.0, 1.0)
    if kind == "inside" and place in (held := _inside(trace)):
        values = held[place]
        most = float(np.abs(values).max(initial=0.0))
        if values.min(initial=0.0) < 0:
            return in_bytes(values, -most, most)
        return in_bytes(values, 0.0, 1.0 if most <= 1 else most)
    if kind == "matrix" and place in trace.matrices:
        most = float(np.abs(trace.matrices[place]).max(initial=0.0))
        return in_bytes(trace.matrices[place], -most, most)
    if kind == "gradient" and place in (found := trace.gradients_by_name):
        values = found[place].values
        powers = np.where(values == 0, -np.inf, figures.powers(values)).astype(np.float32)
        real = powers[np.isfinite(powers)]
        return powers, (float(real.min(initial=np.inf)), float(real.max(initial=-np.inf))) if real.size else (0.0, 1.0)
    raise RegardError(f"There is no {name[:80]!r} in this trace.")


def parts(trace: Trace) -> Iterator[str]:
    """The names of all its matrices."""
    yield from (f"attention/{name}" for name in trace.attention)
    yield from ["alignment"] * (trace.alignment is not None)
    yield from (f"gradient/{name}" for name in trace.gradients_by_name)
    yield from (f"inside/{name}" for name in _inside(trace))
    yield from (f"matrix/{name}" for name in trace.matrices)


def _inside(trace: Trace) -> dict[str, np.ndarray]:
    """Gates and hidden states, the decoder's first."""
    held = {**trace.gates, **trace.hidden}
    return {name: held[name] for name in sorted(held, key=lambda name: name.startswith("encoder"))}


def _choices(step: TraceStep) -> list[dict[str, Any]]:
    return [
        {"word": one.label, "token": one.token, "p": float(f"{one.probability:.4g}")}
        | ({"came": True} if one.came else {})
        for one in step.expected
    ]


def _weights(trace: Trace, name: str) -> dict[str, Any]:
    matrix = trace.attention_matrix(name)
    heads = len(matrix.values)
    return {
        "name": name,
        "title": attention_name(name),
        "heads": [attention_name(name, head, heads) for head in range(heads)],
        "rows": matrix.of_rows,
        "columns": matrix.of_columns,
        "causal": matrix.causal,
        "root": len(matrix.columns) > figures.MANY,
    }


def _gradient(trace: Trace, name: str) -> dict[str, Any]:
    titles = {"gradients": "the words read", "source_gradients": "the words of the source"}
    matrix = trace.gradients_by_name[name]
    return {
        "name": name,
        "title": titles.get(name, part_name(name)),
        "rows": matrix.of_rows,
        "columns": matrix.of_columns,
        "words": name in titles,
    }


def _held(trace: Trace, name: str) -> dict[str, Any]:
    values = _inside(trace)[name]
    return {
        "name": name,
        "title": part_name(name),
        "rows": "source" if name.startswith("encoder") else "read",
        "units": values.shape[1],
        "diverging": bool(values.min(initial=0.0) < 0),
        "unit": "gate: 0 closed, 1 open" if name.rpartition("/")[2] in GATES else "value of the unit",
    }


def _memory(trace: Trace, name: str) -> dict[str, Any]:
    """The state of linear attention after the last step."""
    count, *shape = trace.matrices[name].shape
    heads = [f"{part_name(name)}, head {head}" for head in range(1, 1 + count)]
    return {"name": name, "title": part_name(name), "heads": heads, "shape": shape}


def _branch(trace: Trace, number: int, word: str) -> dict[str, Any]:
    """A candidate of the search; `p`: the probability of its word after the words before it."""
    branch = trace.beam[number]
    before = trace.beam[branch.parent].log_probability if branch.parent >= 0 else 0.0
    return {
        "parent": branch.parent,
        "step": branch.step,
        "word": word,
        "p": float(f"{np.exp(min(0.0, branch.log_probability - before)):.4g}"),
        "log": float(f"{branch.log_probability:.5g}"),
        "kept": branch.kept,
        **({"rank": branch.rank, "score": branch.score, "text": _found(branch)} if branch.rank else {}),
    }


def _found(branch: Branch) -> str:
    return (legible(branch.text) or "(empty)") + ("" if branch.finished else " …")
