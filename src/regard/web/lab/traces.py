"""In the worker process: traces that stay open between requests, so that each of their matrices can be fetched."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from functools import lru_cache
from typing import Any

from regard.base.errors import RegardError
from regard.base.numbers import group_digits
from regard.insight.arithmetic.calculation import Calculation
from regard.insight.interventions.questions import CauseQuestion
from regard.insight.interventions.reading import read_text
from regard.insight.interventions.replacing import replacements
from regard.insight.trace import Trace
from regard.insight.views.as_json import part
from regard.insight.views.page import trace_page
from regard.report.packed_arrays import pack
from regard.runs.load import AnyRun
from regard.runs.tasks.task import task_of
from regard.text.tokenizers.tokenizer import Tokenizer
from regard.web.lab import requests
from regard.web.lab.opened_runs import open_run
from regard.web.lab.requests import MAX_CAUSES, MAX_TOKENS
from regard.web.lab.runs_folder import RunsFolder

MOST_BYTES = 1 << 28  # of all traces that stay open
MOST_SENT = 1 << 23  # bytes of matrices in one answer, about: a page shows the first while others come
TOP = 10  # choices of a step

Key = tuple[AnyRun, str, str | None, str, int, tuple[str, ...], str, bool]
_open: OrderedDict[Key, tuple[Trace, int]] = OrderedDict()


def asked_run(folder: RunsFolder, asked: requests.AboutRun) -> AnyRun:
    return open_run(folder, asked.run, asked.weights)


def trace_of(folder: RunsFolder, asked: requests.TraceRequest) -> Trace:
    """The subject of a request: a run, perhaps changed, a text, for translators perhaps a target or its beginning; with
    gradients or without. A trace with gradients serves a question without."""
    run, other = asked_run(folder, asked), asked.other if asked.changes else ""
    what = (asked.text, asked.target, asked.prefix, asked.beam, asked.changes, other)
    key: Key = (run, *what, True)
    if key not in _open and not asked.gradients:
        key = (run, *what, False)
    if key not in _open:
        trace = _changed(folder, run, asked) if asked.changes else _made(run, asked, asked.target)
        _open[key] = (trace, _size(trace))
    _open.move_to_end(key)
    while len(_open) > 1 and sum(size for _, size in _open.values()) > MOST_BYTES:
        _open.popitem(last=False)
    return _open[key][0]


def matrices(folder: RunsFolder, asked: requests.MatrixRequest) -> bytes:
    """Matrices of a trace by their names, as `as_json.part` gives them: as many of the first as are not too much
    for one answer, and at least one."""
    trace = trace_of(folder, asked)
    arrays, bounds = {}, {}
    for name in asked.parts:
        arrays[name], bounds[name] = part(trace, name)
        if sum(values.nbytes for values in arrays.values()) > MOST_SENT:
            break
    return pack(arrays, bounds=bounds)


def work(folder: RunsFolder, asked: requests.WorkRequest) -> dict[str, Any]:
    """The arithmetic of one step with the model's numbers, of a layer and a head, as `inspect --work` gives it."""
    trace = trace_of(folder, replace(asked, changes=()))  # whose limits are those of the text
    run = asked_run(folder, asked)
    found = _calculated(run, trace, asked.text, asked.target, asked.prefix, asked.beam)
    layer = asked.layer or found.layer_of(None)
    steps = len(found.places[layer].words) if layer in found.places else trace.steps
    head = asked.head if asked.head is not None and asked.head < found.layers.get(layer, 0) else None
    return found.at(min(asked.step, steps - 1), layer or None, head).as_json()


@lru_cache(4)
def _calculated(run: AnyRun, trace: Trace, text: str, target: str | None, prefix: str, beam: int) -> Calculation:
    task = task_of(run)
    text, target = (text.strip(), target) if task.has_source else (text, None)
    found: Calculation = task.look_inside(run, "calculation", text, target, prefix=prefix, beam=beam, trace=trace)
    return found


def page(folder: RunsFolder, asked: requests.PageRequest) -> dict[str, str]:
    """Traces, each requested by itself, as one file that works offline, as `regard inspect --html` writes it."""
    causes = [cause(folder, one) for one in asked.causes]
    return {"page": trace_page(*(trace_of(folder, one) for one in asked.traces), causes=causes)}


def cause(folder: RunsFolder, asked: requests.CauseRequest) -> dict[str, Any]:
    """The answer of `inspect --lens`, `--ablate`, `--patch`, `--why` or `--head-scores` for the unchanged model."""
    run, patches = asked_run(folder, asked), asked.ask == "patch"
    question = CauseQuestion(
        lens=asked.ask == "lens",
        ablate=asked.parts if asked.ask == "ablate" else None,  # "": the first kind of part that it has
        removed=(asked.with_ or "zero") if asked.ask == "ablate" else None,
        step=asked.step if patches or asked.ask == "why" else None,
        patch=asked.other if patches else None,
        patch_parts=(asked.parts or "layers") if patches else None,
        why=(asked.why or None) if patches or asked.ask == "why" else None,
        rather=(asked.not_ or None) if patches or asked.ask == "why" else None,
        head_scores=asked.ask == "head_scores",
    )
    if (patches and not asked.other.strip()) or (asked.ask == "why" and not (asked.why and asked.not_)):
        raise RegardError("Type a second text of equal length." if patches else "Type the two words to compare.")
    question.check()
    text, target, tokenizer = _subject(folder, asked)
    for one in (text, *([asked.other] if patches else [])):
        if (count := _length(run, one)[0]) > MAX_CAUSES:
            raise RegardError(f"This text has {count} tokens, but at most {MAX_CAUSES} can be explained: shorten it.")
    return question.answer(run.model, run.tokenizer, text, target, tokenizer)[0]


def _subject(folder: RunsFolder, asked: requests.TraceRequest) -> tuple[str, str | None, Tokenizer | None]:
    """The text, the answer that the unchanged model gives to it, and the tokenizer of the text where it has its own."""
    run, plain = asked_run(folder, asked), replace(asked, changes=(), gradients=False)
    trace = trace_of(folder, plain)
    if not task_of(run).has_source:
        return asked.text, None, None
    return asked.text.strip(), asked.target or trace.translation or trace.label, run.source_tokenizer


def _changed(folder: RunsFolder, run: AnyRun, asked: requests.TraceRequest) -> Trace:
    """The trace of the changed model on the same words: a translator reads the translation of the unchanged one."""
    target, values = _replaced(folder, run, asked)
    trace = _made(run, replace(asked, prefix=""), target, values)
    said = f"Changed: {', '.join(asked.changes)}. Computed by the reference implementation."
    return replace(trace, notes=(said, *trace.notes[1:]))


def _replaced(folder: RunsFolder, run: AnyRun, asked: requests.TraceRequest) -> tuple[str | None, dict[str, Any]]:
    """The answer of the unchanged model, and the new value of each changed place."""
    text, target, tokenizer = _subject(folder, asked)
    texts = [text, *([asked.other] if asked.other.strip() else [])]
    if not all(fits(run, one) for one in texts):
        raise RegardError("The other text is too long: shorten it.")
    readings = [read_text(run.model, run.tokenizer, one, target, tokenizer) for one in texts]
    return target, replacements(asked.changes, *readings)


def own_translation(folder: RunsFolder, asked: requests.TraceRequest) -> str:
    """What a changed translator writes by itself."""
    run = asked_run(folder, asked)
    return _made(run, replace(asked, gradients=False), None, _replaced(folder, run, asked)[1]).translation


def _made(run: AnyRun, asked: requests.TraceRequest, target: str | None, values: dict[str, Any] | None = None) -> Trace:
    text, prefix = asked.text, asked.prefix
    count, most = _length(run, text)
    if count > most:
        whose = "this model reads" if most < MAX_TOKENS else "the page shows"
        raise RegardError(f"This text has {group_digits(count)} tokens, but {whose} at most {most}: shorten it.")
    for given in (target or "", prefix):
        if (count := len(run.tokenizer.encode(given))) > MAX_TOKENS:
            raise RegardError(
                f"A translation of {group_digits(count)} tokens is too long: the page shows at most {MAX_TOKENS}."
            )
    task = task_of(run)
    if task.has_source:
        text = text.strip()
        if not text:
            raise RegardError("There is no text yet: type a sentence.")
        if "\n" in text:
            raise RegardError("This model reads one line at a time: remove the line breaks.")
    options: dict[str, Any] = {"prefix": prefix, "beam": asked.beam, "intervene": values}
    found: Trace = task.look_inside(run, "trace", text, target, top=TOP, gradients=asked.gradients, **options)
    return found


def fits(run: AnyRun, text: str) -> bool:
    """True if the run can read this whole text."""
    count, most = _length(run, text)
    return count <= most


def _length(run: AnyRun, text: str) -> tuple[int, int]:
    """The tokens of a text, and how many can be shown."""
    has_source = task_of(run).has_source
    reads: Tokenizer = run.source_tokenizer or run.tokenizer
    limit = None if has_source else run.model.context
    return len(reads.encode(text)), MAX_TOKENS if limit is None else min(MAX_TOKENS, limit - 1)


def _size(trace: Trace) -> int:
    groups = (trace.attention, trace.hidden, trace.gates, trace.state_gradients)
    return sum(values.nbytes for group in groups for values in group.values())
