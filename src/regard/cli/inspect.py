"""`inspect RUN "text"`: the inside of a run."""

from __future__ import annotations

import json as json_module
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Group, Parameter

from regard.base.errors import RegardError
from regard.base.settings import check_range
from regard.cli.options import (
    ARGUMENTS,
    OUTPUT,
    TRANSLATORS,
    Beam,
    Device,
    Json,
    LengthPenalty,
    RunFolder,
    Weights,
    given_options,
    one_of_these,
)
from regard.cli.stdin import stdin_text
from regard.report.screen import for_stdout

if TYPE_CHECKING:
    from regard.insight.arithmetic.equation import WorkedExample
    from regard.insight.interventions.questions import CauseQuestion
    from regard.insight.trace import Trace
    from regard.runs.load import AnyRun

LECTURE = "lecture:"
CAUSES = Group("Causes", sort_key=1)


def inspect(
    run: Annotated[RunFolder, Parameter(help="folder of the run, or a worked example such as lecture:any-b")],
    text: Annotated[str | None, Parameter(group=ARGUMENTS)] = None,
    *unquoted: Annotated[str, Parameter(show=False)],
    target: Annotated[str | None, Parameter(allow_leading_hyphen=True, group=TRANSLATORS, metavar="TEXT")] = None,
    prefix: Annotated[str | None, Parameter(allow_leading_hyphen=True, group=TRANSLATORS, metavar="TEXT")] = None,
    gradients: bool = False,
    work: bool = False,
    step: int | None = None,
    layer: Annotated[str | None, Parameter(metavar="LAYER")] = None,
    head: int | None = None,
    lens: Annotated[bool, Parameter(group=CAUSES)] = False,
    ablate: Annotated[str | None, Parameter(group=CAUSES, metavar="PARTS")] = None,
    removed: Annotated[str | None, one_of_these("zero", "mean", "resampled", name="--with", group=CAUSES)] = None,
    patch: Annotated[str | None, Parameter(allow_leading_hyphen=True, group=CAUSES, metavar="TEXT")] = None,
    patch_parts: Annotated[str | None, one_of_these("layers", "heads", group=CAUSES)] = None,
    why: Annotated[str | None, Parameter(group=CAUSES, metavar="WORD")] = None,
    rather: Annotated[str | None, Parameter(name="--not", group=CAUSES, metavar="WORD")] = None,
    head_scores: Annotated[bool, Parameter(group=CAUSES)] = False,
    top: int = 5,
    beam: Beam = None,
    length_penalty: LengthPenalty = None,
    html: Annotated[Path | None, Parameter(metavar="FILE", group=OUTPUT)] = None,
    weights: Weights = "best",
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Show what happens inside a model while it reads a text: predictions, attention, gates and gradients.

    For translators, also show the beam-search tree; for n-grams, the order that gave each probability.

        regard inspect runs/mine "the cat sat on the"
        regard inspect runs/mine "the cat sat on the" --work --step 3
        regard inspect runs/translator "They are watching." --html trace.html
        regard inspect runs/mine "the cat sat on the" --ablate heads
        regard inspect lecture:any-b

    Parameters
    ----------
    text
        the text in quotes, for a translator the source; put -- before a text that begins with - [default: stdin]
    target
        inspect this translation instead of the one that beam search finds; for a classifier: the true label
    prefix
        beginning of the translation, which the search completes
    gradients
        also show how much each token contributes to the loss of each step; takes one backward pass per step
    work
        show the arithmetic of one step: the equations with the model's numbers
    step
        with --work, --why or --patch: the step, counted from 0: step 0 reads `<eos>`, step 3 the third token
        [default: the last; in a translation with --why, the step that wrote one of the two words]
    layer
        show the attention or arithmetic of this layer: 0 is the lowest; translators have self/0, cross/0, encoder/0
    head
        number of the head to show, counted from 0 [default: the mean of all heads; with --work, head 0]
    lens
        show what each layer would predict: its best word, the rank of the true word, and the distance from the final
        prediction
    ablate
        show how much log P changes without each part (heads, attention, feedforward, layers, gates, words or orders),
        compared with removing the same number of random components; with several lines, also with intervals
    removed
        with --ablate: replace each value with zero, with its mean over the lines, or with its value in another line
        [default: zero]
    patch
        compare with another text of equal length: show which part, at which word, carries the difference between
        the two predictions
    patch_parts
        with --patch: the parts to patch [default: layers]
    why
        with --not: show which words of the text make this word more probable than the other
    rather
        with --why: the word to compare with
    head_scores
        show how much of each head's attention goes to the previous word, to a fixed distance, to earlier copies of the
        word, to the words after them, and from a verb to its subject
    top
        number of next tokens to show
    html
        write everything to this new HTML file, which works offline
    """
    from regard.base.locks import write_new
    from regard.insight.interventions.questions import CauseQuestion
    from regard.insight.views.page import trace_page
    from regard.insight.views.terminal import show
    from regard.report.progress import say
    from regard.runs.load import load

    check_range("--top", top, 1)
    check_range("--beam", 1 if beam is None else beam, 1)
    if work and gradients and html is None:
        raise RegardError(
            "--gradients and --work cannot be shown together in the terminal: leave one of them out, or add --html."
        )
    if str(run).startswith(LECTURE):
        return _print_example(str(run), text, {"--html": html, "--step": step, "--layer": layer, "--head": head}, json)
    if not work and (json or html) and not (layer is None and head is None):
        raise RegardError("--layer and --head apply only to the terminal; --json and --html contain everything.")
    if html is not None and html.exists():
        raise RegardError(f"{html} already exists: choose another name for --html.")
    if unquoted:
        raise RegardError(f'Put the text in quotes: "{text} {" ".join(unquoted)}".')
    asked_step = None if work else step
    question = CauseQuestion(lens, ablate, removed, patch, patch_parts, why, rather, head_scores, asked_step)
    causal = question.check()
    if causal and (work or gradients):
        raise RegardError("Questions about causes cannot be combined with --work or --gradients: leave those out.")
    text = _given(text)
    loaded = load(run, weights=weights, device=device)
    search = {"--prefix": prefix, "--beam": beam, "--length-penalty": length_penalty}
    if causal:
        return _answer_cause(loaded, question, text, target, search, json, html)
    calculation = _read(loaded, "calculation", text, target, search) if work else None
    worked = calculation and calculation.at(step, layer, head)
    if worked and html is None:
        return _print_work(worked, json)
    trace = _read(loaded, "trace", text, target, search, top=top, gradients=gradients)
    if html is not None:
        write_new(html, trace_page(trace, works=calculation.at_all_steps(worked) if calculation else ()))
        say(f"wrote {html}") if json else print(html)
    if json:
        print(for_stdout(json_module.dumps((worked or trace).as_json(), ensure_ascii=False)))
    elif html is None:
        print(show(trace, attention=_attention(trace, layer, head), head=head))


def _answer_cause(
    loaded: AnyRun,
    question: CauseQuestion,
    text: str,
    target: str | None,
    search: dict[str, Any],
    json: bool,
    html: Path | None,
) -> None:
    """The target is the translator's own output, unless one is given."""
    from regard.base.locks import write_new
    from regard.insight.views.page import trace_page
    from regard.report.progress import say

    source_tokenizer = loaded.source_tokenizer
    trace = None
    if html is not None or (source_tokenizer is not None and target is None):
        trace = _read(loaded, "trace", text, target, search)
        target = target or trace.translation or trace.label
    values, shown = question.answer(loaded.model, loaded.tokenizer, text, target, source_tokenizer)
    if html is not None and trace is not None:
        write_new(html, trace_page(trace, causes=[values]))
        say(f"wrote {html}") if json else print(html)
        if not json:
            return
    print(for_stdout(json_module.dumps(values, ensure_ascii=False)) if json else shown)


def _given(text: str | None) -> str:
    """The text of the command line, or else what comes through a pipe."""
    if text is None:
        if sys.stdin is not None and sys.stdin.isatty():
            raise RegardError('There is no text: give it as in regard inspect RUN "the dog ran", or pipe it in.')
        text = stdin_text()
    if not text.strip():
        raise RegardError("The text is empty: give at least one word.")
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
        raise RegardError(f"{name} is always shown in full: leave {given[0]} out.")
    _print_work(lecture_example(name, text), json)


def _check_source(loaded: Any, text: str) -> None:
    """A source is one line, and no longer than what the model has learned from."""
    if "\n" in text:
        raise RegardError("The text has more than one line: inspect takes one sentence at a time.")
    tokens, longest = len(loaded.source_tokenizer.encode(text)), loaded.recipe.data.longest
    if tokens > longest:
        raise RegardError(f"The text has {tokens} tokens, but this model was trained on at most {longest}: shorten it.")


def _attention(trace: Trace, layer: str | None, head: int | None) -> str | None:
    """The name of the attention that is asked for: a number counts the layers where the answer is written."""
    if layer is None and head is None:
        return None
    if not trace.attention:
        raise RegardError(f"{trace.system} has no attention, so --layer and --head do not apply.")
    kinds = [name.split("/")[0] for name in trace.attention]
    kind = next(kind for kind in ("cross", "self", "average", "encoder") if kind in kinds)
    if layer is None:
        layer = str(kinds.count(kind) - 1)
    name = f"{kind}/{layer}" if layer.isdecimal() else layer
    if name not in trace.attention:
        raise RegardError(f"There is no layer {layer}: {trace.system} has {', '.join(trace.attention)}.")
    return name
