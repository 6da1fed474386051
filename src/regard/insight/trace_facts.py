"""A trace for a page: words and few numbers as JSON, and each matrix as an array of bytes that is asked for by name.

    told = facts(trace)                            what there is: words, choices, and the names of the matrices
    values, bounds = part(trace, "attention/self/0")       one of them, as the page draws it

The lab, the offline page and the notebook all show this (`web/lab/static/reading.js`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from regard.base.errors import RegardError
from regard.insight import trace_figures as figures
from regard.insight.trace import Branch, Trace, listed
from regard.insight.words import GATES, attention_name, branch_labels, labels, labels_after, part_name
from regard.report.figures import legible, right_to_left
from regard.report.packed_arrays import in_bytes

UNFINISHED = (  # why a better score can stand below a worse one
    "A sentence that ends in … was not finished when the search ended. It stands below the finished ones, whatever its "
    "score: the end of it, which is still to come, would lower its log-probability."
)
Bounds = tuple[float, float]  # what the bytes 0 and 255 stand for


def facts(trace: Trace) -> dict[str, Any]:
    """Everything but the matrices, which are named with what their rows and columns are."""
    words = {"read": trace.tokens, "written": trace.targets, "source": trace.source}
    return {
        "system": trace.system,
        "run": trace.run,
        "task": trace.task,
        "text": trace.text,
        "answer": trace.translation or trace.label,
        "notes": list(trace.notes),
        "words": {kind: labels(tokens) for kind, tokens in words.items()},
        "spans": [list(span) for span in trace.spans],
        "leftward": {kind: right_to_left("".join(labels(tokens))) for kind, tokens in words.items()},
        "opens": _telling(trace),
        "known": [bool(rank) for rank in trace.rank],
        "probability": listed(trace.probability, 5),
        "rank": [int(rank) for rank in trace.rank],
        "entropy": listed(trace.entropy, 4),
        "top": [_choices(trace, step) for step in range(trace.steps)],
        "order": None if trace.order is None else [int(order) for order in trace.order],
        "backoff": None if trace.backoff is None else listed(trace.backoff, 3),
        "attention": [_weights(trace, name) for name in trace.attention],
        "alignment": trace.alignment is not None,
        "gradients": [_slope(trace, name) for name in trace.slopes],
        "inside": [_held(trace, name) for name in _inside(trace)],
        "matrices": [_memory(trace, name) for name in trace.matrices],
        "beam": [_branch(trace, number, word) for number, word in enumerate(branch_labels(trace.beam))],
        "unfinished": "" if all(branch.finished for branch in trace.beam if branch.rank) else UNFINISHED,
    }


def part(trace: Trace, name: str) -> tuple[np.ndarray, Bounds]:
    """attention/self/0 is [heads, rows, columns], inside/layer/0/forget [steps, units], alignment [steps, words of the
    source], matrix/layer/0 [heads, features, components], and gradient/gradients [steps, words] as powers of ten, −∞
    where it is exactly 0 and NaN where no next word is known."""
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
    if kind == "gradient" and place in (slopes := trace.slopes):
        values = slopes[place].values
        powers = np.where(values == 0, -np.inf, figures.powers(values)).astype(np.float32)
        real = powers[np.isfinite(powers)]
        return powers, (float(real.min(initial=np.inf)), float(real.max(initial=-np.inf))) if real.size else (0.0, 1.0)
    raise RegardError(f"There is no {name[:80]!r} in this trace.")


def parts(trace: Trace) -> Iterator[str]:
    """The names of all its matrices."""
    yield from (f"attention/{name}" for name in trace.attention)
    yield from ["alignment"] * (trace.alignment is not None)
    yield from (f"gradient/{name}" for name in trace.slopes)
    yield from (f"inside/{name}" for name in _inside(trace))
    yield from (f"matrix/{name}" for name in trace.matrices)


def _inside(trace: Trace) -> dict[str, np.ndarray]:
    """Gates and hidden states, the decoder's first."""
    held = {**trace.gates, **trace.hidden}
    return {name: held[name] for name in sorted(held, key=lambda name: name.startswith("encoder"))}


def _choices(trace: Trace, step: int) -> list[dict[str, Any]]:
    """What was expected; the token that came has the label that it has in the text."""
    words = labels_after(trace.tokens[: step + 1], (choice.token for choice in trace.top[step]))
    found: list[dict[str, Any]] = []
    for word, choice in zip(words, trace.top[step]):
        found.append({"word": word, "token": choice.token, "p": float(f"{choice.probability:.4g}")})
        if trace.rank[step] and choice.token == trace.targets[step]:
            found[-1] |= {"word": labels(trace.targets)[step], "came": True}
    return found


def _telling(trace: Trace) -> int:
    """The step shown first: the one whose next token had the lowest probability."""
    known = np.isfinite(trace.probability)
    return int(np.where(known, trace.probability, np.inf).argmin()) if known.any() else trace.steps - 1


def _weights(trace: Trace, name: str) -> dict[str, Any]:
    matrix = trace.looked(name)
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


def _slope(trace: Trace, name: str) -> dict[str, Any]:
    titles = {"gradients": "the words read", "source_gradients": "the words of the source"}
    matrix = trace.slopes[name]
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
    """A candidate of the search; `p`: of its word after the words before it."""
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
