"""A trace as one page to click through: choose a word, or move a slider through time, and see what the model expected
there, what every head of every layer looked at, what its gates held and where its gradients went.

Everything is in the file: it opens from disk and asks for nothing; a table at its end tells the steps without a script.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from regard.insight import trace_figures as figures
from regard.insight.search_drawing import search_drawing
from regard.insight.trace import Trace, listed
from regard.report.colours import STEPS, hexadecimal, shades
from regard.report.page import heading, page, paragraph, table

MOST = 6_000_000  # bytes of hidden states; what is beyond is named and left out
TASKS = {"language model": "language model", "translation": "translator", "classification": "classifier"}
HERE = Path(__file__).parent


def trace_page(trace: Trace) -> str:
    """The whole file."""
    style, script = ((HERE / name).read_text(encoding="utf-8") for name in ("trace_page.css", "trace_page.js"))
    facts, left_out = _facts(trace)
    said = [*trace.notes, f"Left out to keep the page small: {', '.join(left_out)}." if left_out else ""]
    title = f"Inside {trace.system}"
    data = json.dumps(facts, ensure_ascii=False, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    return page(
        title,
        heading(title, 1),
        paragraph(_lead(trace), "lead"),
        *(paragraph(sentence, "note") for sentence in said if sentence),
        _controls(trace),
        heading("What it expected next" if not trace.label else "What it answers"),
        '<div id="choices"></div>',
        _attention(trace),
        _gradients(trace),
        _inside(facts),
        _search(trace),
        heading("Every step"),
        table(_steps(trace), _columns(trace)),
        f'<script type="application/json" id="trace">{data}</script>',
        f"<script>{script}</script>",
        style=style,
    )


def fragment(trace: Trace, height: int = 900) -> str:
    """The page within a notebook: a frame of its own, so that neither disturbs the other."""
    return (
        f'<iframe srcdoc="{escape(trace_page(trace))}" style="width:100%;height:{height}px;border:0" '
        f'title="trace of {escape(trace.system)}"></iframe>'
    )


def _lead(trace: Trace) -> str:
    words = f"What happened while this {TASKS[trace.task]} read one text"
    words += f" and answered {trace.label}." if trace.label else "."
    return f"{words} Choose a word, or move through time: everything below shows that step."


# -- parts of the page -----------------------------------------------------------------------------------------------


def _controls(trace: Trace) -> str:
    sides = {"source": "source", "target": "written"} if trace.source else {"target": "read"}
    words = "".join(
        f'<div class="words" id="{side}-words"><span class="name">{name}</span></div>' for side, name in sides.items()
    )
    return (
        f"{words}"
        '<div class="control"><label>step <input type="range" id="step" min="0" max="0"> <output id="at"></output>'
        '</label><label>words are shaded by <select id="shading"></select></label></div>'
        '<p id="said" aria-live="polite"></p>'
        "<noscript><p>Without JavaScript only the table of steps shows.</p></noscript>"
    )


def _attention(trace: Trace) -> str:
    if not trace.attention:
        return ""
    heads = "".join(
        f'<div class="scroll"><canvas id="heads-{seen}" role="img" aria-label="weights of every head over the {whose}">'
        "</canvas></div>"
        for seen, whose in (("source", "words of the source"), ("target", "words of the text"))
    )
    return (
        '<h2>What “<span id="looker"></span>” looked at</h2><p class="note">A row for each head of each layer; choose '
        f'a row to see the head whole.</p>{heads}<p class="chosen"><label>One head, all steps: <select id="map">'
        '</select></label></p><div class="scroll"><canvas id="matrix" role="img" aria-label="weights of one head">'
        '</canvas></div><div class="ramp" id="matrix-ramp"></div>'
    )


def _gradients(trace: Trace) -> str:
    if not figures.gradients(trace):
        return ""
    return (
        "<h2>What each loss depends on</h2><p class=note>The norm of the gradient of each step's loss (a row) by what "
        'entered or was carried at each word (a column).</p><p class="chosen"><label>by <select id="gradient"></select>'
        '</label></p><div class="scroll"><canvas id="gradient-map" role="img" aria-label="gradients through time">'
        '</canvas></div><div class="ramp" id="gradient-ramp"></div>'
    )


def _inside(facts: Mapping[str, Any]) -> str:
    if not facts["inside"]:
        return ""
    return (
        '<h2>What it held</h2><p class="note">A row for each unit, a column for each step.</p><p class="chosen"><label>'
        'of <select id="part"></select></label></p><div class="scroll"><canvas id="inside-map" role="img" '
        'aria-label="values over time"></canvas></div><div class="ramp" id="inside-ramp"></div>'
    )


def _search(trace: Trace) -> str:
    if not trace.beam:
        return ""
    lead = "Each column is a step of the search, the most probable beginning on top; pale ones were pruned."
    return heading("How it searched") + paragraph(lead, "note") + search_drawing(trace.beam)


def _columns(trace: Trace) -> dict[str, str]:
    counted = {"order": "order that answered", "backoff": "back-off weight"} if trace.order is not None else {}
    return {
        "step": "step", "read": "read", "came": "then came", "probability": "probability", "rank": "rank",
        "entropy": "entropy (nats)", **counted, "expected": "it expected",
    }  # fmt: skip


def _steps(trace: Trace) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for step, token in enumerate(trace.tokens):
        known = trace.rank[step] > 0
        row: dict[str, object] = {"step": step + 1, "read": token, "came": trace.targets[step] if known else None}
        row |= {"probability": float(f"{trace.probability[step]:.4g}") if known else None}
        row |= {"rank": int(trace.rank[step]) if known else None, "entropy": f"{trace.entropy[step]:.3f}"}
        if trace.order is not None and trace.backoff is not None:
            row |= {"order": int(trace.order[step]), "backoff": float(trace.backoff[step])}
        row["expected"] = ", ".join(f"{choice.token.strip()} {choice.probability:.3f}" for choice in trace.top[step])
        rows.append(row)
    return rows


# -- what the script reads -------------------------------------------------------------------------------------------


def _facts(trace: Trace) -> tuple[dict[str, Any], list[str]]:
    """Words, numbers, and matrices as shades; and the names of what was left out."""
    inside, left_out, size = [], [], 0
    held = {**trace.gates, **trace.hidden}
    for name, values in sorted(held.items(), key=lambda item: item[0].startswith("encoder")):  # its own steps first
        size += values.size
        if size > MOST:
            left_out.append(name)
        else:
            inside.append(_held(name, values))
    facts = {
        "tokens": trace.tokens,
        "targets": trace.targets,
        "source": trace.source,
        "probability": listed(trace.probability, 4),
        "rank": [int(rank) for rank in trace.rank],
        "entropy": listed(trace.entropy, 3),
        "top": [[[choice.token, float(f"{choice.probability:.4g}")] for choice in some] for some in trace.top],
        "order": None if trace.order is None else [int(order) for order in trace.order],
        "backoff": None if trace.backoff is None else listed(trace.backoff, 3),
        "attention": [_weights(trace, name, weights) for name, weights in trace.attention.items()],
        "gradients": _slopes(trace),
        "inside": inside,
        "palettes": ["".join(hexadecimal(colour)[1:] for colour in shades(two)) for two in (False, True)],
    }
    return facts, left_out


def _weights(trace: Trace, name: str, weights: np.ndarray) -> dict[str, Any]:
    """[heads, rows, columns]; what a causal model cannot see is empty."""
    seen = figures.causal(weights) if name.startswith(("self", "average")) else weights
    return {
        "name": name,
        "looking": "source" if name.startswith("encoder") else "target",
        "seen": "source" if name.startswith(("encoder", "cross")) else "target",
        "heads": len(weights),
        "rows": weights.shape[1],
        "columns": weights.shape[2],
        "root": weights.shape[2] > figures.MANY,
        **_shaded(seen, 0.0, 1.0),
    }


def _slopes(trace: Trace) -> list[dict[str, Any]]:
    """Gradients as powers of ten; those by the words first."""
    found: dict[str, tuple[str, np.ndarray | None]] = {
        "the words read": ("target", trace.gradients),
        "the words of the source": ("source", trace.source_gradients),
        **{name: ("state", matrix) for name, matrix in trace.state_gradients.items()},
    }
    return [
        {"name": name, "of": of, "columns": matrix.shape[1], "log": True, **_shaded(figures.powers(matrix))}
        for name, (of, matrix) in found.items()
        if matrix is not None
    ]


def _held(name: str, values: np.ndarray) -> dict[str, Any]:
    """[steps, units]; a scale with two sides where values have."""
    looking = "source" if name.startswith("encoder") else "target"
    facts = {"name": name, "looking": looking, "units": values.shape[1]}
    if np.nanmin(values, initial=0.0) < 0:
        most = float(np.abs(values).max())
        return {**facts, "diverging": True, **_shaded(values, -most, most)}
    return {**facts, "diverging": False, **_shaded(values, 0.0)}


def _shaded(values: np.ndarray, low: float | None = None, high: float | None = None) -> dict[str, Any]:
    """One byte for each value, 1 to 255 between the ends of the scale; 0 for what is empty."""
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
