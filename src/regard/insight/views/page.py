"""A trace as a page in a single file: choose a word to see the model's prediction, the attention of every
head, states, gates and gradients. It loads nothing, and its content security policy forbids loading.

The views are those of the lab (`web/lab/static/reading.js` and its styles). Without JavaScript, a table lists the
steps.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Sequence
from html import escape
from typing import Any

from regard.insight.arithmetic.equation import WorkedExample
from regard.insight.trace import Trace
from regard.insight.views.as_json import facts, part, parts
from regard.insight.views.steps import steps_of
from regard.insight.words import part_name
from regard.report.figures import isolated, legible
from regard.report.offline_page import offline_page
from regard.report.packed_arrays import pack
from regard.report.page import paragraph, table

MOST = 6_000_000  # bytes of hidden states; the rest is named and left out
LONGEST = 90  # letters of a text in the title
TASKS = {"language model": "read this text", "translation": "translated this", "classification": "labelled this"}


def trace_page(
    *traces: Trace,
    works: Sequence[WorkedExample] = (),
    causes: Sequence[dict[str, Any]] = (),
    frames: Sequence[str] = (),
) -> str:
    """The whole file; several traces of one text are stacked. `works`: the arithmetic of a single one; `causes`: the
    answers of `CauseQuestion`; `frames`: a line about each trace, if the traces are the frames of a film."""
    first = traces[0]
    title = _both(first) if len(traces) == 1 else f"“{_short(first.text)}”"
    body = "".join(map(_section, traces)) if len(traces) > 1 else _one(first, works)
    if frames:
        body = "".join(_section(trace, frame) for trace, frame in zip(traces, frames, strict=True))
    if causes:
        body += f'<script type="text/plain" class="causes">{b64encode(json.dumps(causes).encode()).decode()}</script>\n'
    named = f"{', '.join(dict.fromkeys(trace.run or trace.system for trace in traces))}: {title}"
    whole = f'<main class="offline">\n<h1>{escape(title)}</h1>\n{body}</main>'
    return offline_page(named, whole, styles=("style", "reading", "work"), entry="offline")


def _section(trace: Trace, frame: str = "") -> str:
    answer = trace.translation or trace.label
    name = (trace.run or trace.system) + (f" → “{_short(answer)}”" if answer else "")
    told = f' data-frame="{escape(frame)}"' if frame else ""
    return f'<section class="card"{told}><h2>{escape(name)}</h2>{_one(trace)}</section>\n'


def _one(trace: Trace, works: Sequence[WorkedExample] = ()) -> str:
    data, left_out = _packed(trace, works)
    said = [*trace.notes, f"Left out to keep the page small: {', '.join(left_out)}." if left_out else ""]
    return (
        f"{paragraph(_lead(trace), 'lead')}\n"
        + "\n".join(paragraph(sentence, "quiet-text") for sentence in said if sentence)
        + f"\n<noscript><p>Without JavaScript, only the table of steps is "
        f"shown.</p>{table(_steps(trace), _columns(trace))}"
        f'</noscript>\n<script type="text/plain" class="trace">{data}</script>\n'
    )


def fragment(trace: Trace) -> str:
    """The page in an iframe, for a notebook."""
    return (
        f'<iframe srcdoc="{escape(trace_page(trace))}" style="width:100%;height:900px;border:0" '
        f'title="trace of {escape(trace.system)}"></iframe>'
    )


def _packed(trace: Trace, works: Sequence[WorkedExample]) -> tuple[str, list[str]]:
    """Everything that `facts` lists, with its matrices, in base64; and the names of the parts that were left out."""
    told = facts(trace) | {"work": [work.as_json() for work in works]}
    arrays, bounds, left_out, size = {}, {}, [], 0
    for name in parts(trace):
        values, ends = part(trace, name)
        size += values.size * name.startswith("inside/")
        if name.startswith("inside/") and size > MOST:
            left_out.append(name.removeprefix("inside/"))
            continue
        arrays[name], bounds[name] = values, ends
    told["inside"] = [entry for entry in told["inside"] if entry["name"] not in left_out]
    return b64encode(pack(arrays, told, bounds)).decode(), [part_name(name) for name in left_out]


# -- in words --------------------------------------------------------------------------------------------------------


def _both(trace: Trace) -> str:
    """The text, and its translation or label."""
    answers = [trace.text or "".join(trace.tokens[1:]), trace.translation or trace.label]
    return " → ".join(f"“{_short(words)}”" for words in answers if words)


def _short(words: str) -> str:
    words = legible(words)
    return words if len(words) <= LONGEST else words[: LONGEST - 1] + "…"


def _lead(trace: Trace) -> str:
    who = f"the run {trace.run} ({trace.system})" if trace.run else trace.system
    words = f"What happened inside {who} while it {TASKS[trace.task]}. Select a word: everything below refers to it."
    return words if trace.steps == 1 else f"{words} The page opens at the word that surprised the model most."


def _columns(trace: Trace) -> dict[str, str]:
    counted = {"order": "order used", "backoff": "back-off weight"} if trace.order is not None else {}
    return {
        "step": "step", "read": "read", "came": "next word", "probability": "probability", "rank": "rank",
        "entropy": "entropy (nats)", **counted, "expected": "top predictions",
    }  # fmt: skip


def _steps(trace: Trace) -> list[dict[str, object]]:
    return [
        {
            "step": step.number + 1,
            "read": step.read,
            "came": None if step.rank is None else step.came,
            "probability": None if step.probability is None else float(f"{step.probability:.4g}"),
            "rank": step.rank,
            "entropy": f"{step.entropy:.3f}",
            "order": step.order,
            "backoff": step.backoff,
            "expected": ", ".join(f"{isolated(one.label)} {one.probability:.3f}" for one in step.expected),
        }
        for step in steps_of(trace)
    ]
