"""In the worker process: traces that stay open between questions, so that each of their matrices can be asked for."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from regard.base.errors import RegardError
from regard.base.numbers import grouped
from regard.insight.calculation import Calculation
from regard.insight.trace import Trace
from regard.insight.trace_facts import part
from regard.insight.trace_page import trace_page
from regard.lab.opened_runs import number_in, open_run, text_in
from regard.lab.runs_folder import RunsFolder
from regard.report.packed_arrays import pack
from regard.runs.classification_run import ClassificationRun
from regard.runs.language_run import LanguageRun
from regard.runs.load import AnyRun
from regard.runs.translation_run import TranslationRun

MOST_TOKENS = 400  # of a text that is traced
MOST_BYTES = 1 << 28  # of all traces that stay open
MOST_SENT = 1 << 23  # bytes of matrices in one answer, about: a page shows the first while others come
MOST_TRACES = 4  # on a page that is saved
TOP = 10  # choices of a step

Key = tuple[AnyRun, str, str | None, str, int, bool]
_open: OrderedDict[Key, tuple[Trace, int]] = OrderedDict()


def asked_run(folder: RunsFolder, body: Mapping[str, Any]) -> AnyRun:
    weights = body.get("weights", "best")
    known = isinstance(weights, str) and (weights in ("best", "last") or (weights.isascii() and weights.isdecimal()))
    if not isinstance(body.get("run"), str) or not known:
        raise RegardError("The question names no run.")
    return open_run(folder, body["run"], str(weights))


def trace_of(folder: RunsFolder, body: Mapping[str, Any]) -> Trace:
    """What a question is about: a run, a text, for translators perhaps a target or how it begins; with gradients or
    without. A trace with gradients serves a question without."""
    run, text = asked_run(folder, body), text_in(body)
    target = text_in(body, "target") if "target" in body else None
    prefix, beam = text_in(body, "prefix"), int(number_in(body, "beam", 5, 1, 20))
    asked = bool(body.get("gradients"))
    key: Key = (run, text, target, prefix, beam, True)
    if key not in _open and not asked:
        key = (*key[:-1], False)
    if key not in _open:
        trace = _made(run, text, target, prefix, beam, asked)
        _open[key] = (trace, _size(trace))
    _open.move_to_end(key)
    while len(_open) > 1 and sum(size for _, size in _open.values()) > MOST_BYTES:
        _open.popitem(last=False)
    return _open[key][0]


def matrices(folder: RunsFolder, body: Mapping[str, Any]) -> bytes:
    """Matrices of a trace by their names, as `trace_facts.part` gives them: as many of the first as are not too much
    for one answer, and at least one."""
    names = body.get("parts")
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise RegardError("parts must be a list of names.")
    trace = trace_of(folder, body)
    arrays, bounds = {}, {}
    for name in names:
        arrays[name], bounds[name] = part(trace, name)
        if sum(values.nbytes for values in arrays.values()) > MOST_SENT:
            break
    return pack(arrays, bounds=bounds)


def work(folder: RunsFolder, body: Mapping[str, Any]) -> dict[str, Any]:
    """The arithmetic of one step with the model's numbers, of a layer and a head, as `inspect --work` gives it."""
    trace = trace_of(folder, body)  # whose limits are those of the text
    run, text = asked_run(folder, body), text_in(body)
    target = text_in(body, "target") if "target" in body else None
    prefix, beam = text_in(body, "prefix"), int(number_in(body, "beam", 5, 1, 20))
    found = _calculated(run, text, target, prefix, beam)
    step, head = int(number_in(body, "step", 0, 0, MOST_TOKENS)), body.get("head")
    layer = text_in(body, "layer", 80) or found.at(0).layer
    heads = found.layers.get(layer, 0)
    steps = len(found.places[layer].words) if layer in found.places else trace.steps
    chosen = head if heads and isinstance(head, int) and 0 <= head < heads else None
    return found.at(min(step, steps - 1), layer or None, chosen).as_json()


@lru_cache(4)
def _calculated(run: AnyRun, text: str, target: str | None, prefix: str, beam: int) -> Calculation:
    if isinstance(run, LanguageRun):
        return run.calculation(text)
    if isinstance(run, ClassificationRun):
        return run.calculation(text.strip())
    assert isinstance(run, TranslationRun)
    return run.calculation(text.strip(), target, prefix=prefix, beam=beam)


def page(folder: RunsFolder, body: Mapping[str, Any]) -> dict[str, str]:
    """Traces, each asked for as by itself, as one file that works offline, as `regard inspect --html` writes it."""
    asked = body.get("traces")
    if not isinstance(asked, list) or not 1 <= len(asked) <= MOST_TRACES or not all(isinstance(o, dict) for o in asked):
        raise RegardError(f"traces must be a list of 1 to {MOST_TRACES} questions.")
    return {"page": trace_page(*(trace_of(folder, one) for one in asked))}


def _made(run: AnyRun, text: str, target: str | None, prefix: str, beam: int, gradients: bool) -> Trace:
    reads = run.tokenizer if isinstance(run, LanguageRun) else run.source_tokenizer
    count, limit = len(reads.encode(text)), run.model.context
    most = MOST_TOKENS if limit is None or not isinstance(run, LanguageRun) else min(MOST_TOKENS, limit - 1)
    if count > most:
        whose = "this model reads" if most < MOST_TOKENS else "the page shows"
        raise RegardError(f"This text has {grouped(count)} tokens, and {whose} at most {most}: take some of it away.")
    if isinstance(run, LanguageRun):
        return run.trace(text, top=TOP, gradients=gradients)
    if not text.strip():
        raise RegardError("There is nothing to read yet: type a sentence.")
    if "\n" in text.strip():
        raise RegardError("This model reads one line at a time: take the line ends out.")
    if isinstance(run, ClassificationRun):
        return run.trace(text.strip(), top=TOP, gradients=gradients)
    assert isinstance(run, TranslationRun)
    return run.trace(text.strip(), target, prefix=prefix, beam=beam, top=TOP, gradients=gradients)


def _size(trace: Trace) -> int:
    groups = (trace.attention, trace.hidden, trace.gates, trace.state_gradients)
    return sum(values.nbytes for group in groups for values in group.values())
