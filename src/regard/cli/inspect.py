"""`inspect RUN "text"`: the inside of a run."""

from __future__ import annotations

import json as json_module
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from regard.base.errors import RegardError
from regard.base.settings import check_range
from regard.cli.completion import RunFolder
from regard.cli.options import Flag, given_options
from regard.cli.stdin import stdin_text
from regard.report.screen import for_stdout

if TYPE_CHECKING:
    from regard.insight.arithmetic.equation import WorkedExample
    from regard.insight.interventions.questions import CauseQuestion
    from regard.insight.trace import Trace
    from regard.runs.load import AnyRun

LECTURE = "lecture:"


def inspect(
    run: RunFolder,
    text: str | None = None,
    *unquoted: Annotated[str, Parameter(show=False)],
    target: Annotated[str | None, Parameter(allow_leading_hyphen=True)] = None,
    prefix: Annotated[str | None, Parameter(allow_leading_hyphen=True)] = None,
    gradients: Annotated[bool, Flag] = False,
    work: Annotated[bool, Flag] = False,
    step: int | None = None,
    layer: str | None = None,
    head: int | None = None,
    lens: Annotated[bool, Flag] = False,
    ablate: str | None = None,
    removed: Annotated[str | None, Parameter(name="--with")] = None,
    patch: Annotated[str | None, Parameter(allow_leading_hyphen=True)] = None,
    patch_parts: str | None = None,
    why: str | None = None,
    rather: Annotated[str | None, Parameter(name="--not")] = None,
    head_scores: Annotated[bool, Flag] = False,
    top: int = 5,
    beam: int | None = None,
    length_penalty: float | None = None,
    html: Path | None = None,
    weights: str = "best",
    device: str = "auto",
    json: Annotated[bool, Flag] = False,
) -> None:
    """Show what happens inside while a run reads a text: what it expects at each step, attention, gates, gradients.

    For a translator also the tree of its beam search; for an n-gram which order gave the probability.

    Parameters
    ----------
    run
        the run's folder; lecture:any-b is a toy example of the lectures, worked out
    text
        the text, or for a translator the source, in quotes; after -- if it begins with -; default: stdin
    target
        translator: look at this translation instead of the one that beam search finds; classifier: the true label
    prefix
        translator: how the translation begins; the search finds the best way to go on
    gradients
        also how much each token contributes to the loss of each step: one backward pass per step
    work
        the arithmetic of one step: the equations with the model's numbers in them
    step
        with --work: which step, from 0; step 0 reads the boundary, step 3 the third token; default: the last
    layer
        only this layer's attention, or arithmetic: 0 is the lowest; of a translator also self/0, cross/0 or encoder/0
    head
        show this head, from 0; default: the mean of all heads; with --work, head 0
    lens
        what each layer would predict: its best word, the rank of the true one, and the distance to the prediction
    ablate
        how much log P changes without each part: heads, attention, feedforward, layers, gates, words or orders; beside
        random components of the same size; several lines give an interval
    removed
        with --ablate: a removed value becomes zero (default), mean (over the lines) or resampled (from another line)
    patch
        another text of equal length: which part, at which word, carries the difference between the two predictions
    patch_parts
        with --patch: layers (default) or heads
    why
        with --not: which words of the text make this word more probable than the other one
    rather
        the other word of --why
    head_scores
        how much of each head's attention goes to the previous word, to one distance, to copies and after copies
    top
        show the N most probable next tokens
    beam
        translator: hypotheses of the search; default: 5
    length_penalty
        translator: log P is divided by the length to this power; default: 1
    html
        write everything to this new file, a page that works offline
    weights
        best on validation, last, or a step whose weights were kept
    device
        cpu, cuda, …; auto = a GPU if there is one
    json
        print one object with everything
    """
    from regard.base.locks import write_new
    from regard.insight.interventions.questions import CauseQuestion
    from regard.insight.views.page import trace_page
    from regard.insight.views.terminal import show
    from regard.report.progress import say
    from regard.runs.load import load

    check_range("--top", top, 1)
    check_range("--beam", 1 if beam is None else beam, 1)
    if step is not None and not work:
        raise RegardError("--step says which step --work works out: add --work.")
    if work and gradients and html is None:
        raise RegardError("--gradients belong to a trace and not to --work: leave one of them out, or add --html.")
    if str(run).startswith(LECTURE):
        return _print_example(str(run), text, {"--html": html, "--step": step, "--layer": layer, "--head": head}, json)
    if not work and (json or html) and not (layer is None and head is None):
        raise RegardError("--layer and --head choose what the terminal shows; --json and --html hold everything.")
    if html is not None and html.exists():
        raise RegardError(f"{html} exists already; --html writes a new file.")
    if unquoted:
        raise RegardError(f'The text is one argument, in quotes: "{text} {" ".join(unquoted)}".')
    question = CauseQuestion(lens, ablate, removed, patch, patch_parts, why, rather, head_scores)
    causal = question.check()
    if causal and (work or html or gradients):
        raise RegardError("A question about causes is printed by itself: leave --work, --gradients and --html out.")
    text = _given(text)
    loaded = load(run, weights=weights, device=device)
    search = {"--prefix": prefix, "--beam": beam, "--length-penalty": length_penalty}
    if causal:
        return _print_cause(loaded, question, text, target, search, json)
    calculation = _read(loaded, "calculation", text, target, search) if work else None
    worked = calculation and calculation.at(step, layer, head)
    if worked and html is None:
        return _print_work(worked, json)
    trace = _read(loaded, "trace", text, target, search, top=top, gradients=gradients)
    if html is not None:
        write_new(html, trace_page(trace, works=calculation.at_all_steps(worked) if calculation else ()))
        say(f"the page is {html}") if json else print(html)
    if json:
        print(for_stdout(json_module.dumps((worked or trace).as_json(), ensure_ascii=False)))
    elif html is None:
        print(show(trace, attention=_attention(trace, layer, head), head=head))


def _print_cause(
    loaded: AnyRun, question: CauseQuestion, text: str, target: str | None, search: dict[str, Any], json: bool
) -> None:
    """What a translator writes by itself is its target, unless one is given."""
    source_tokenizer = getattr(loaded, "source_tokenizer", None)
    if source_tokenizer is not None and target is None:
        trace = _read(loaded, "trace", text, target, search)
        target = trace.translation or trace.label
    values, shown = question.answer(loaded.model, loaded.tokenizer, text, target, source_tokenizer)
    print(for_stdout(json_module.dumps(values, ensure_ascii=False)) if json else shown)


def _given(text: str | None) -> str:
    """The text of the command line, or else what comes through a pipe."""
    if text is None:
        if sys.stdin is not None and sys.stdin.isatty():
            raise RegardError('There is no text: regard inspect RUN "the dog ran", or send it through a pipe.')
        text = stdin_text()
    if not text.strip():
        raise RegardError("The text is empty: give some words to look at.")
    return text


def _read(loaded: AnyRun, how: str, text: str, target: str | None, search: dict[str, Any], **options: Any) -> Any:
    """The run's `trace` or `calculation` of a text, after checking which options apply to it."""
    from regard.runs.tasks.task import task_of

    task = task_of(loaded)
    asked = given_options(loaded, "inspect", {"--target": target, **search})
    if task.has_source:
        _check_source(loaded, text)
    asked.pop("target", None)
    if target is not None and asked:
        name = next(name for name, value in search.items() if value is not None)
        raise RegardError(f"--target replaces the search, so {name} does not apply: leave one of them out.")
    return task.look_inside(loaded, how, text, target, **options, **asked)


def _print_work(worked: WorkedExample, json: bool) -> None:
    from regard.insight.arithmetic.terminal import show_work

    print(for_stdout(json_module.dumps(worked.as_json(), ensure_ascii=False)) if json else show_work(worked))


def _print_example(name: str, text: str | None, options: dict[str, Any], json: bool) -> None:
    from regard.insight.lecture_examples import lecture_example

    if given := [option for option, value in options.items() if value is not None]:
        raise RegardError(f"{name} is worked out whole: leave {given[0]} out.")
    _print_work(lecture_example(name, text), json)


def _check_source(loaded: Any, text: str) -> None:
    """A source is one line, and no longer than what the model has learned from."""
    if "\n" in text:
        raise RegardError("There is more than one line: inspect looks at one sentence, so give one of them.")
    tokens, longest = len(loaded.source_tokenizer.encode(text)), loaded.recipe.data.longest
    if tokens > longest:
        raise RegardError(
            f"The text has {tokens} tokens, and this model was trained on at most {longest}: give less of it."
        )


def _attention(trace: Trace, layer: str | None, head: int | None) -> str | None:
    """The name of the attention that is asked for: a number counts the layers where the answer is written."""
    if layer is None and head is None:
        return None
    if not trace.attention:
        raise RegardError(f"{trace.system} has no attention, so there is no --layer and no --head to show.")
    kinds = [name.split("/")[0] for name in trace.attention]
    kind = next(kind for kind in ("cross", "self", "average", "encoder") if kind in kinds)
    if layer is None:
        layer = str(kinds.count(kind) - 1)
    name = f"{kind}/{layer}" if layer.isdecimal() else layer
    if name not in trace.attention:
        raise RegardError(f"There is no layer {layer} to show: {trace.system} has {', '.join(trace.attention)}.")
    return name
