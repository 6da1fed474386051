"""A run's own page, report.html in its folder: score, learning curves, samples, recipe, and where it comes from.

`train` and `resume` write it when they end, `evaluate` writes it again with the score on the test split. It never stops
either of them: what keeps it from being written is said in one line.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from itertools import islice
from typing import Any

from regard.base.errors import RegardError
from regard.base.locks import try_lock
from regard.base.numbers import group_digits
from regard.base.writing import remove_partial_files, write_text
from regard.report.figures import Line
from regard.report.page import (
    beside,
    command,
    folded,
    heading,
    listing,
    page,
    paragraph,
    sample,
    side_by_side_texts,
    table,
)
from regard.report.progress import clock, say
from regard.report.svg import line_chart
from regard.report.table import significant
from regard.runs.ancestors import Ancestors, provenance
from regard.runs.load import AnyRun
from regard.runs.recipe import written_in
from regard.runs.store.facts import REPORT_MARK, WEIGHTS, is_report, read_facts, read_note
from regard.runs.store.folder import is_counted
from regard.runs.store.gallery import is_shipped
from regard.runs.store.history import Entry, is_number, read_metrics
from regard.runs.tasks.task import task_of

NAME = "report.html"
SAMPLES, EXAMPLES = 2, 5  # texts that a language model writes; examples that the others answer
POINTS = 300  # of a curve, at most


def write_report(
    run: AnyRun, examples: Iterable[tuple[str, str]] = (), evaluation: Mapping[str, Any] | None = None
) -> list[dict[str, str]]:
    """`examples`: held-out sources with their references, of which the first few are shown with the run's answer.
    Returns these, or the texts that it wrote."""
    if is_shipped(run.folder):
        return []
    path = run.folder / NAME
    shown: list[dict[str, str]] = []
    try:
        if path.exists() and not path.is_dir() and not is_report(path):
            say(f"note: {path} was not written by Regard, so it was left unchanged")
            return shown
        with run.for_few():
            shown = samples(run, examples)
        written = run_page(run, shown, evaluation)
        with ExitStack() as held:
            with suppress(RegardError):  # a training holds it
                held.enter_context(try_lock(run.folder / ".lock"))
                remove_partial_files(run.folder)
            write_text(path, written)
        say(f"report: {path}")
    except Exception as error:  # the run is complete without its page
        say(f"note: {path} could not be written: {type(error).__name__}: {error}")
    return shown


def run_page(run: AnyRun, shown: Sequence[dict[str, str]] = (), evaluation: Mapping[str, Any] | None = None) -> str:
    facts, entries = read_facts(run.folder), read_metrics(run.folder / "metrics.jsonl")
    corpus = facts.get("corpus", {})
    name = run.folder.resolve().name
    title = f"{name}: {_system(run)}" + (f" on {corpus['name']}" if corpus.get("name") else "")
    return page(
        title,
        REPORT_MARK,
        heading(title, 1),
        paragraph(finding(entries, evaluation) or _unmeasured(run), "finding"),
        paragraph(effort(run, facts, entries), "lead"),
        _score(evaluation) if evaluation else "",
        *_curves(run, entries),
        *_written(shown),
        heading("Where it comes from"),
        side_by_side_texts(_provenance(facts, Ancestors.of(run.folder).runs)),
        listing(corpus.get("notes", [])) if corpus.get("notes") else "",
        folded("The recipe: every setting", sample("", written_in(run.recipe, run.folder))),
        folded(
            "Commands: add the score on the test split to this page; repeat the training",
            command(f"regard evaluate {run.folder}"),
            command(f"regard train {run.folder / 'recipe.toml'}"),
        ),
    )


def _system(run: AnyRun) -> str:
    return str(run.recipe.system).rpartition(":")[2]


# -- how good it is, and what that took ------------------------------------------------------------------------------

SCORES = ("bleu", "accuracy", "perplexity")  # the first of these that there is is the finding


def finding(entries: Sequence[Entry], evaluation: Mapping[str, Any] | None) -> str:
    if evaluation:
        key = next(key for key in SCORES if evaluation.get(key) is not None)
        return f"{_named(key)} on the {evaluation['split']} split: {_number(evaluation[key])}."
    checked = [entry for entry in entries if entry.get("split") == "valid"]
    if not checked:
        return ""
    by_bleu = any("bleu" in entry for entry in checked)
    best = max(checked, key=lambda entry: entry.get("bleu", 0)) if by_bleu else min(checked, key=lambda e: e["loss"])
    key = next(key for key in SCORES if is_number(best.get(key)))
    return f"{_named(key)} on the validation split: {_number(best[key])}, at step {group_digits(best['step'])}."


def _unmeasured(run: AnyRun) -> str:
    if not is_counted(run.recipe):
        return "It has not been validated yet."
    said = "It was counted, not trained step by step."
    loss: Any = read_note(run.folder / WEIGHTS).get("validation_loss")
    return f"{said} Perplexity on the validation split: {_number(math.exp(loss))}." if is_number(loss) else said


def _named(key: str) -> str:
    return MEASURES[key][:1].upper() + MEASURES[key][1:]


def _number(value: Any) -> str:
    score = value["score"] if isinstance(value, Mapping) else value  # BLEU comes with its signature
    return significant(float(score)) if is_number(score) else "–"


def effort(run: AnyRun, facts: Mapping[str, Any], entries: Sequence[Entry]) -> str:
    said = f"{group_digits(run.parameters)} parameters"
    if entries:
        last = entries[-1]
        said += (
            f"; {group_digits(last['step'])} steps over {group_digits(last['tokens'])} tokens in "
            f"{clock(last['seconds'])}"
        )
    return f"{said}, on {facts.get('device', 'an unknown device')}."


MEASURES = {
    "bleu": "BLEU",
    "chrf": "chrF",
    "accuracy": "accuracy",
    "macro_f1": "F1, mean over labels",
    "exact": "share of translations identical to their reference",
    "perplexity": "perplexity",
    "bits_per_character": "bits per character",
    "cross_entropy": "cross-entropy (nats)",
    "alignment_error_rate": "alignment error rate",
}


def _score(evaluation: Mapping[str, Any]) -> str:
    """The scores; folded, all that was said of how they were measured."""
    scores = [
        {"what": name, "value": _number(evaluation[key])}
        for key, name in MEASURES.items()
        if evaluation.get(key) is not None
    ]
    told = []
    for key, value in evaluation.items():
        words = value.get("signature") if isinstance(value, Mapping) else value  # of BLEU, how it was computed
        if isinstance(words, (str, int)):
            told.append({"what": key.replace("_refused", " not defined").replace("_", " "), "value": words})
    columns = {"what": "measured", "value": "value"}
    how = folded("How it was measured", table(told, columns | {"what": "about"}))
    return heading(f"Score on the {evaluation['split']} split") + table(scores, columns) + how


# -- while it learned ------------------------------------------------------------------------------------------------


def _curves(run: AnyRun, entries: Sequence[Entry]) -> list[str]:
    charts = [
        _chart(entries, "perplexity", "Perplexity", log=True),
        _chart(entries, "bleu", "Validation BLEU"),
        _chart(entries, "accuracy", "Validation accuracy"),
        _chart(entries, "learning_rate", "Learning rate"),
    ]
    if not any(charts):
        return []
    return [heading("While it learned"), paragraph(_why_they_differ(run), "lead"), beside(*charts)]


def _chart(entries: Sequence[Entry], key: str, title: str, log: bool = False) -> str:
    def points(some: Iterable[Entry]) -> list[tuple[float, float]]:
        found = [(float(entry["tokens"]), float(entry[key])) for entry in some if is_number(entry.get(key))]
        return found[:: math.ceil(len(found) / POINTS) or 1]

    trained = points(entry for entry in entries if "split" not in entry)
    checked = points(entry for entry in entries if entry.get("split") == "valid")
    lines = [Line("validation", checked)] if checked else []
    lines += [Line("training", trained)] if trained else []
    if len(lines) == 1:
        lines = [Line("", lines[0].points)]
    ends = "; ".join(f"{line.name or 'it'} ends at {line.points[-1][1]:.3g}" for line in lines)
    return line_chart(
        lines,
        title=f"{title} against tokens seen",
        x="tokens seen",
        y=title.lower(),
        description=f"{ends}.".capitalize(),
        log_y=log,
        zero_y=not log,
        best="validation",
    )


def _why_they_differ(run: AnyRun) -> str:
    """Training and validation are not computed alike."""
    smoothing = getattr(run.recipe.training, "label_smoothing", 0.0)
    dropped = [name for name, value in vars(run.recipe.model).items() if name.startswith("dropout") and value > 0]
    said = ["The validation loss is measured on held-out text, the training loss on the training batches."]
    if smoothing:
        said.append(f"The training loss includes label smoothing ({smoothing:g}), so it is higher by design.")
    if dropped:
        said.append("Dropout, used only in training, also makes the training loss higher.")
    return " ".join(said)


# -- what it writes --------------------------------------------------------------------------------------------------


def samples(run: AnyRun, examples: Iterable[tuple[str, str]]) -> list[dict[str, str]]:
    """Texts that a language model writes, or the first held-out examples with a run's answers."""
    task = task_of(run)
    if texts := task.texts(run, SAMPLES):
        return [{"": text} for text in texts]
    shown = list(islice(((source, target) for source, target in examples if source.strip()), EXAMPLES))
    answers = task.described_answers(run, [source for source, _ in shown]) if shown else []
    return [
        {"source": source, task.reference: target, _system(run): answer}
        for (source, target), answer in zip(shown, answers)
    ]


def _written(shown: Sequence[dict[str, str]]) -> list[str]:
    if not shown:
        return []
    if "" in shown[0]:
        lead = "From the beginning of a line, at temperature 0.8, with seeds 1 and 2."
        texts = [sample("", one[""]) for one in shown]
    else:
        lead = "The first held-out examples, with the model's answers."
        texts = [side_by_side_texts(one, quiet=["source"]) for one in shown]
    return [heading("What it writes"), paragraph(lead, "lead"), *texts]


# -- where it comes from ---------------------------------------------------------------------------------------------


def _provenance(facts: Mapping[str, Any], ancestors: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    corpus, code = facts.get("corpus", {}), facts.get("code") or {}
    found = {
        "corpus": corpus.get("name"),
        "its checksum": corpus.get("checksum"),
        **{f"started from {one['run']}": provenance(one) for one in ancestors},
        "own code": f"{code.get('file')}, SHA-256 {code.get('sha256')}" if code else None,
        "seed": facts.get("seed"),
        "begun": facts.get("created"),
        "device": facts.get("device"),
        "threads": facts.get("threads"),
        "processes": facts.get("processes"),
        "versions": f"Regard {facts.get('regard')}, PyTorch {facts.get('torch')}, Python {facts.get('python')}",
        "platform": facts.get("platform"),
    }
    return {name: str(value) for name, value in found.items() if value is not None}
