"""A trace as an interactive page: choose a word or move a slider through time, and see what the model predicted there,
and the attention of every head, the gates and the gradients.

The file is self-contained and loads nothing; a table at its end lists the steps without JavaScript.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from regard.insight import trace_figures as figures
from regard.insight.search_drawing import search_drawing
from regard.insight.trace import Branch, Matrix, Trace, listed
from regard.insight.words import attention_name, labels, labels_after, part_name
from regard.report.colours import STEPS, hexadecimal, shades
from regard.report.figures import legible, right_to_left
from regard.report.page import beside, folded, heading, page, paragraph, table
from regard.report.svg import svg

MATRICES = 24  # shown, at most
MOST = 6_000_000  # bytes of hidden states; the rest is named and left out
LONGEST = 90  # letters of a text in the title
TASKS = {"language model": "read this text", "translation": "translated this", "classification": "labelled this"}
HERE = Path(__file__).parent


def trace_page(trace: Trace) -> str:
    """The whole file."""
    style, script = ((HERE / name).read_text(encoding="utf-8") for name in ("trace_page.css", "trace_page.js"))
    facts, left_out = _facts(trace)
    said = [*trace.notes, f"Left out to keep the page small: {', '.join(left_out)}." if left_out else ""]
    data = json.dumps(facts, ensure_ascii=False, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    name = trace.run or trace.system
    return page(
        f"{name}: {_both(trace)}",
        heading(_both(trace), 1),
        paragraph(_lead(trace), "lead"),
        *(paragraph(sentence, "note") for sentence in said if sentence),
        _controls(trace),
        heading("What it expected next" if not trace.label else "What it answers"),
        '<div id="choices"></div>',
        _attention(trace),
        _gradients(trace),
        _inside(facts),
        _matrices(trace),
        _search(trace),
        folded("Every step as a table", table(_steps(trace), _columns(trace))),
        f'<script type="application/json" id="trace">{data}</script>',
        f"<script>{script}</script>",
        style=style,
    )


def fragment(trace: Trace, height: int = 900) -> str:
    """The page in an iframe, for a notebook."""
    return (
        f'<iframe srcdoc="{escape(trace_page(trace))}" style="width:100%;height:{height}px;border:0" '
        f'title="trace of {escape(trace.system)}"></iframe>'
    )


def _both(trace: Trace) -> str:
    """The text, and its translation or label."""
    answers = [trace.text or "".join(trace.tokens[1:]), trace.translation or trace.label]
    return " → ".join(f"“{_short(words)}”" for words in answers if words)


def _short(words: str) -> str:
    words = legible(words)
    return words if len(words) <= LONGEST else words[: LONGEST - 1] + "…"


def _lead(trace: Trace) -> str:
    who = f"the run {trace.run} ({trace.system})" if trace.run else trace.system
    words = f"What happened inside {who} while it {TASKS[trace.task]}."
    if trace.steps == 1:
        return f"{words} Choose a word: everything below is about it."
    return (
        f"{words} Choose a word, or move through time: everything below is about that step. "
        "The page opens at the word that surprised the model most."
    )


# -- parts of the page -----------------------------------------------------------------------------------------------


def _controls(trace: Trace) -> str:
    """For a translation the written words can be chosen, for a text the words read; for a label neither."""
    sides = {"source": trace.source, "target": trace.targets if trace.source else trace.tokens}
    names = {"source": "source" if trace.task == "translation" else "text", "target": "written" if trace.source else ""}
    shown = ["source", *(["target"] if trace.task == "translation" else [])] if trace.source else ["target"]
    words = "".join(
        f'<div class="words" id="{side}-words"{" dir=rtl" * right_to_left("".join(labels(sides[side])))}>'
        f'<span class="name">{names[side]}</span></div>'
        for side in shown
    )
    hidden = " hidden" * (trace.steps == 1)
    return (
        f"{words}"
        f'<div class="control"><label{hidden}>step <input type="range" id="step" min="0" max="0"> '
        '<output id="at"></output></label><label>words are shaded by <select id="shading"></select></label></div>'
        '<p id="said" aria-live="polite"></p>'
        "<noscript><p>Without JavaScript only the table of steps shows.</p></noscript>"
    )


def _map(name: str, described: str) -> str:
    """A canvas for pointer, touch or arrow keys; the value of the selected cell is shown below."""
    return (
        f'<div class="map"><canvas id="{name}" tabindex="0" role="img" aria-label="{described}; arrow keys read its '
        f'cells, Enter chooses" aria-describedby="{name}-cell"></canvas>'
        f'<output class="cell" id="{name}-cell" aria-live="polite"></output></div>'
    )


def _attention(trace: Trace) -> str:
    if not trace.attention:
        return ""
    heads = "".join(
        f'<div><p class="chosen" id="{name}-said"></p>{_map(name, f"weights of every head over the {whose}")}</div>'
        for name, whose in (("heads-source", "words of the source"), ("heads-read", "words of the text"))
    )
    return (
        '<h2>What it looked at</h2><p class="note">A row for each head of each layer. Choose a row to see that head at '
        f'all steps.</p>{heads}<p class="chosen"><label>One head, all steps: <select id="map">'
        f"</select></label></p>{_map('matrix', 'weights of one head at all steps')}"
        '<div class="ramp" id="matrix-ramp"></div>'
    )


def _gradients(trace: Trace) -> str:
    if not trace.slopes:
        return ""
    return (
        "<h2>What each loss depends on</h2><p class=note>The norm of the gradient of each step's loss (a row) by what "
        'entered or was carried at each word (a column).</p><p class="chosen"><label>by <select id="gradient"></select>'
        f'</label></p>{_map("gradient-map", "gradients through time")}<div class="ramp" id="gradient-ramp"></div>'
    )


def _inside(facts: Mapping[str, Any]) -> str:
    if not facts["inside"]:
        return ""
    return (
        '<h2>What it held</h2><p class="note">A row for each unit, a column for each step.</p><p class="chosen"><label>'
        f'of <select id="part"></select></label></p>{_map("inside-map", "values of units over time")}'
        '<div class="ramp" id="inside-ramp"></div>'
    )


def _matrices(trace: Trace) -> str:
    if not trace.matrices:
        return ""
    drawn = figures.matrices(trace)[:MATRICES]
    return heading("Its state, a matrix for each head") + beside(*(svg(heat) for heat in drawn))


def _search(trace: Trace) -> str:
    if not trace.beam:
        return ""
    ended = sorted((branch for branch in trace.beam if branch.rank), key=lambda branch: branch.rank)
    found = [
        {
            "rank": branch.rank,
            "text": (legible(branch.text) or "(empty)") + ("" if branch.finished else " …"),
            "probability": f"{100 * float(np.exp(branch.log_probability)):.3g} %",
            "log": f"{branch.log_probability:.3f}".replace("-", "−"),
            "score": f"{branch.score:.3f}".replace("-", "−") if branch.score is not None else None,
        }
        for branch in ended
    ]
    columns = {"rank": "rank", "text": "sentence", "probability": "probability", "log": "log-probability"}
    columns |= {"score": "score (log-probability by length)"}
    return (
        heading("How it searched")
        + paragraph(f"What beam search found, the best first.{_still_open(ended)}", "note")
        + table(found, columns, best=[0])
        + paragraph(
            "The tree of the search: each column is a step, the most probable beginning on top. The number beside a "
            "word is its probability after the words before it; the thick line leads to the best sentence; pale words "
            "were pruned.",
            "note",
        )
        + search_drawing(trace.beam)
    )


def _still_open(ended: Sequence[Branch]) -> str:
    """Why a better score can stand below a worse one; "" where none does so."""
    if all(branch.finished for branch in ended):
        return ""
    return (
        " A sentence that ends in … was not finished when the search ended. It stands below the finished ones, "
        "whatever its score: the end of it, which is still to come, would lower its log-probability."
    )


def _columns(trace: Trace) -> dict[str, str]:
    counted = {"order": "order that answered", "backoff": "back-off weight"} if trace.order is not None else {}
    return {
        "step": "step", "read": "read", "came": "then came", "probability": "probability", "rank": "rank",
        "entropy": "entropy (nats)", **counted, "expected": "it expected",
    }  # fmt: skip


def _steps(trace: Trace) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    read, came = labels(trace.tokens), labels(trace.targets)
    for step in range(trace.steps):
        known = trace.rank[step] > 0
        row: dict[str, object] = {"step": step + 1, "read": read[step], "came": came[step] if known else None}
        row |= {"probability": float(f"{trace.probability[step]:.4g}") if known else None}
        row |= {"rank": int(trace.rank[step]) if known else None, "entropy": f"{trace.entropy[step]:.3f}"}
        if trace.order is not None and trace.backoff is not None:
            row |= {"order": int(trace.order[step]), "backoff": float(trace.backoff[step])}
        row["expected"] = ", ".join(f"{word} {chance:.3f}" for word, chance in _choices(trace, step))
        rows.append(row)
    return rows


def _choices(trace: Trace, step: int) -> list[tuple[str, float]]:
    words = labels_after(trace.tokens[: step + 1], (choice.token for choice in trace.top[step]))
    return [(word, float(f"{choice.probability:.4g}")) for word, choice in zip(words, trace.top[step])]


# -- what the script reads -------------------------------------------------------------------------------------------


def _facts(trace: Trace) -> tuple[dict[str, Any], list[str]]:
    """Words, numbers, and matrices as shades, each with what its rows and columns are; and the names of what was left
    out."""
    inside, left_out, size = [], [], 0
    held = {**trace.gates, **trace.hidden}
    for name, values in sorted(held.items(), key=lambda item: item[0].startswith("encoder")):  # the decoder's first
        size += values.size
        if size > MOST:
            left_out.append(part_name(name))
        else:
            inside.append(_held(name, values))
    words = {"read": trace.tokens, "written": trace.targets, "source": trace.source}
    facts = {
        "task": trace.task,
        "words": {kind: labels(tokens) for kind, tokens in words.items()},
        "leftward": {kind: right_to_left("".join(labels(tokens))) for kind, tokens in words.items()},
        "known": [bool(rank) for rank in trace.rank],
        "opens": _telling(trace),
        "probability": listed(trace.probability, 4),
        "rank": [int(rank) for rank in trace.rank],
        "entropy": listed(trace.entropy, 3),
        "top": [_choices(trace, step) for step in range(trace.steps)],
        "right": [[choice.token == came for choice in some] for some, came in zip(trace.top, trace.targets)],
        "order": None if trace.order is None else [int(order) for order in trace.order],
        "backoff": None if trace.backoff is None else listed(trace.backoff, 3),
        "attention": [_weights(name, trace.looked(name)) for name in trace.attention],
        "gradients": [_slope(name, matrix) for name, matrix in trace.slopes.items()],
        "inside": inside,
        "palettes": {
            screen: ["".join(hexadecimal(colour)[1:] for colour in shades(two, screen == "dark")) for two in (0, 1)]
            for screen in ("light", "dark")
        },
    }
    return facts, left_out


def _telling(trace: Trace) -> int:
    """The step shown first: the one whose next token had the lowest probability."""
    known = np.isfinite(trace.probability)
    return int(np.where(known, trace.probability, np.inf).argmin()) if known.any() else trace.steps - 1


def _weights(name: str, matrix: Matrix) -> dict[str, Any]:
    """[heads, rows, columns]; what a causal model cannot see is empty."""
    heads = len(matrix.values)
    return {
        "name": name,
        "title": attention_name(name),
        "heads": [attention_name(name, head, heads) for head in range(heads)],
        "brief": [attention_name(name, head, heads).partition(", ")[2] for head in range(heads)],  # layer 1, head 2
        "mean": attention_name(name, None, heads),
        "root": len(matrix.columns) > figures.MANY,
        **_labelled(matrix),
        **_shaded(matrix.seen, 0.0, 1.0),
    }


def _labelled(matrix: Matrix) -> dict[str, Any]:
    """The page's word lists for the rows and columns of a matrix."""
    return {"rows": matrix.of_rows, "columns": matrix.of_columns}


def _slope(name: str, matrix: Matrix) -> dict[str, Any]:
    """Gradients as powers of ten."""
    titles = {"gradients": "the words read", "source_gradients": "the words of the source"}
    title = titles.get(name, part_name(name))
    facts = {"name": name, "title": title, "words": name in titles, "log": True}
    return {**facts, **_labelled(matrix), **_shaded(figures.powers(matrix.values))}


def _held(name: str, values: np.ndarray) -> dict[str, Any]:
    """[steps, units]; a diverging scale if values have both signs, 0 to 1 for gates."""
    looking = "source" if name.startswith("encoder") else "read"
    facts = {"name": name, "title": part_name(name), "columns": looking, "units": values.shape[1]}
    if np.nanmin(values, initial=0.0) < 0:
        most = float(np.abs(values).max())
        return {**facts, "diverging": True, **_shaded(values, -most, most)}
    return {**facts, "diverging": False, **_shaded(values, 0.0, 1.0 if values.max(initial=0.0) <= 1 else None)}


def _shaded(values: np.ndarray, low: float | None = None, high: float | None = None) -> dict[str, Any]:
    """One byte for each value, 1 to 255 between the ends of the scale; 0 for empty cells."""
    finite = values[np.isfinite(values)]
    low = float(finite.min(initial=np.inf)) if low is None else low
    high = float(finite.max(initial=-np.inf)) if high is None else high
    low, high = (low, high) if finite.size else (0.0, 1.0)
    high = high if high > low else low + 1.0
    share = np.clip((np.where(np.isfinite(values), values, low) - low) / (high - low), 0.0, 1.0)
    shade = np.where(np.isfinite(values), 1 + np.rint(share * (STEPS - 1)), 0).astype(np.uint8)
    return {"low": _round(low), "high": _round(high), "bytes": b64encode(shade.tobytes()).decode()}


def _round(value: float) -> float:
    return float(f"{value:.5g}")
