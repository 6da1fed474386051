"""The fields of every request of the page, with their bounds (`regard.base.fields`).

QUESTIONS has the declaration of each question to the worker process ("sentence.trace"), which the server checks before
it passes the question on; the other requests are read by their routes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from regard.base.fields import (
    Fields,
    NumberField,
    ObjectField,
    ScalarField,
    TextField,
    choice,
    flag,
    list_of,
    number,
    table_of,
    text,
    whole,
)
from regard.web.lab.live_curve import COLUMNS

AXES = ("tokens", "step", "seconds")
KINDS = ("word", "char", "byte", "bpe")  # of tokenizers
MAX_NAME = 2000  # characters of a path in the folder
MAX_TEXT = 5000  # characters of a text that is looked at
MAX_TOKENS = 400  # of a text that is traced
MAX_CAUSES = 128  # tokens of a text whose causes are looked for
MAX_CHANGES = 24  # of a model at once
MAX_TRACES = 8  # on a page that is saved: four, before and after a change
MAX_WRITTEN = 200  # tokens at once
MAX_ANSWER = 50_000  # characters of an exercise's answer
MAX_SERIES = 200  # curves at once
MAX_WIDTH = 100_000  # pixels; a curve has fewer points
SEED = 2**53  # the largest whole number of JavaScript

NAME = TextField(max_length=MAX_NAME, file=True, doc="the name of a run")
JOB = TextField(pattern="[0-9a-f-]{1,40}", expected="the id of a job")


def path_name(default: Any = "", doc: str = "the name of a run") -> Any:
    return text(default, max_length=MAX_NAME, file=True, doc=doc)


def job_id(default: Any = "") -> Any:
    return text(default, pattern="[0-9a-f-]{0,40}", expected="the id of a job", doc="the id of a job")


# -- questions to the worker process ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class LabQuestion(Fields):
    only: str = path_name(doc="only the newest of the requests with the same key is answered")


@dataclass(frozen=True)
class AboutRun(LabQuestion):
    run: str = path_name()
    weights: str = text(
        "best", pattern="best|last|[0-9]{1,18}", expected="best, last, or a step whose weights were saved", doc="which"
    )


@dataclass(frozen=True)
class AboutText(AboutRun):
    text: str = text("", max_length=MAX_TEXT, lines=True, doc="text that the model reads")


@dataclass(frozen=True)
class TraceRequest(AboutText):
    target: str | None = text(None, max_length=MAX_TEXT, lines=True, doc="a translation other than the model's own")
    prefix: str = text("", max_length=MAX_TEXT, lines=True, doc="beginning of the translation")
    beam: int = whole(5, ge=1, le=20, doc="number of hypotheses to keep")
    gradients: bool = flag(doc="also return the gradients")
    changes: tuple[str, ...] = list_of(
        TextField(max_length=160), max_length=MAX_CHANGES, doc="changes of the model, such as zero self/0[2]"
    )
    other: str = text("", max_length=MAX_TEXT, lines=True, doc="text from which values are swapped in")


@dataclass(frozen=True)
class MatrixRequest(TraceRequest):
    parts: tuple[str, ...] = list_of(TextField(), min_length=1, max_length=10_000, doc="names of matrices")


@dataclass(frozen=True)
class WorkRequest(TraceRequest):
    step: int = whole(0, ge=0, le=MAX_TOKENS, doc="step whose arithmetic is shown")
    layer: str = text("", doc="layer to show; default: the first")
    head: int | None = whole(None, ge=0, le=10_000, doc="attention head to show")


@dataclass(frozen=True)
class CauseRequest(TraceRequest):
    ask: str = choice(("lens", "ablate", "patch", "why", "head_scores"), "lens", doc="the question, as in inspect")
    parts: str = text("", max_length=20, doc="what is removed or replaced: heads, layers, …")
    with_: str = text("", max_length=20, doc="the value of removed parts: zero, mean or resampled")
    why: str = text("", max_length=200, doc="a word")
    not_: str = text("", max_length=200, doc="word to compare with")
    step: int | None = whole(None, ge=0, le=MAX_TOKENS, doc="step whose prediction is compared; default: the last")


@dataclass(frozen=True)
class BeginRequest(TraceRequest):
    step: int = whole(0, ge=0, le=MAX_TOKENS, doc="step at which to insert the token")
    token: str = text("", max_length=MAX_TEXT, lines=True, doc="token to insert")


@dataclass(frozen=True)
class PageRequest(LabQuestion):
    traces: tuple[TraceRequest, ...] = list_of(
        ObjectField(of=TraceRequest), min_length=1, max_length=MAX_TRACES, doc="the readings on the page"
    )
    causes: tuple[CauseRequest, ...] = list_of(
        ObjectField(of=CauseRequest), max_length=MAX_TRACES, doc="questions whose answers are also on the page"
    )


@dataclass(frozen=True)
class Following(AboutText):
    temperature: float = number(1.0, ge=0, le=5, doc="temperature of the softmax")
    top_k: int = whole(0, ge=0, le=10**6, doc="sample from this many of the most probable tokens; 0 = all")
    top_p: float = number(
        1.0, ge=0.001, le=1, doc="sample from the most probable tokens whose probabilities sum to this"
    )


@dataclass(frozen=True)
class Write(Following):
    tokens: int = whole(1, ge=1, le=MAX_WRITTEN, doc="number of tokens to generate")
    seed: int = whole(0, ge=0, le=SEED, doc="random seed")
    line: bool = flag(doc="continue to the end of the line")


@dataclass(frozen=True)
class Edit(AboutText):
    step: int = whole(0, ge=0, le=MAX_TEXT, doc="step at which to insert the token")
    token: str = text("", max_length=MAX_TEXT, lines=True, doc="token to insert")
    keep: bool = flag(doc="keep the text after it")


@dataclass(frozen=True)
class ExampleRequest(AboutRun):
    seed: int = whole(0, ge=0, le=SEED, doc="number of the sentence")


@dataclass(frozen=True)
class Differences(LabQuestion):
    jobs: tuple[str, ...] = list_of(JOB, min_length=1, max_length=2)


@dataclass(frozen=True)
class OneRun(Fields):
    run: str = path_name()


@dataclass(frozen=True)
class HeadsInTime(OneRun):
    text: str = text("", max_length=MAX_TEXT, lines=True, doc="text that every snapshot reads")


@dataclass(frozen=True)
class OneName(Fields):
    name: str = path_name(doc="name of a run, a comparison, or a figure")


@dataclass(frozen=True)
class OneClaim(Fields):
    name: str = text("", max_length=60, doc="name of the claim")
    from_: str = path_name(doc="folder of the result")


@dataclass(frozen=True)
class OneExercise(Fields):
    name: str = text("", max_length=60, doc="name of the exercise")


@dataclass(frozen=True)
class Answer(OneExercise):
    code: str = text("", max_length=MAX_ANSWER, lines=True, doc="the sheet with its blank filled in")


@dataclass(frozen=True)
class AboutCorpus(LabQuestion):
    corpus: str = text("", max_length=500, file=True, doc="name of a corpus, or an uploaded file")


@dataclass(frozen=True)
class Tokens(AboutCorpus):
    kind: str = choice(KINDS, "bpe", doc="kind of tokenizer")
    text: str = text("", max_length=2000, lines=True, doc="sentence to tokenize")
    vocabulary: int = whole(0, ge=0, le=200_000, doc="vocabulary size; 0 = depends on the corpus")


@dataclass(frozen=True)
class RunForm(LabQuestion):
    """A new run; unchanged settings are not sent."""

    system: str = text("", doc="the name of a system")
    size: str = text("", doc="tiny, small, …")
    data: str = text("", file=True, doc="name of a corpus, or an uploaded file")
    from_: str = path_name(doc="run to start from")
    settings: Mapping[str, str] = table_of(
        ScalarField(max_length=2000), doc="settings by section.key, as on the command line"
    )
    name: str = text("", doc="name of the new run")


@dataclass(frozen=True)
class ComparisonForm(LabQuestion):
    systems: tuple[str, ...] = list_of(TextField(), max_length=100, doc="names of systems")
    data: str = text("", file=True, doc="name of a corpus, or an uploaded file")
    match: str = text("", doc="quantity to keep equal: tokens, seconds or parameters")
    budget: str = text("", doc="budget of each system")
    seeds: int = whole(1, ge=1, le=100, doc="number of training runs of each system")
    size: str = text("small", doc="size of every system")
    name: str = text("", doc="name of the new comparison")


QUESTIONS: dict[str, type[Fields]] = {
    **{f"{view}.page": PageRequest for view in ("sentence", "translation")},
    **{f"{view}.work": WorkRequest for view in ("sentence", "translation")},
    **{f"{view}.trace": TraceRequest for view in ("sentence", "translation")},
    **{f"{view}.matrix": MatrixRequest for view in ("sentence", "translation")},
    **{f"{view}.cause": CauseRequest for view in ("sentence", "translation")},
    "sentence.following": Following,
    "sentence.write": Write,
    "sentence.edit": Edit,
    "translation.begin": BeginRequest,
    "sentence.example": ExampleRequest,
    "translation.example": ExampleRequest,
    "translation.differences": Differences,
    "time.about": OneRun,
    "time.vectors": OneRun,
    "time.heads": HeadsInTime,
    "time.film": HeadsInTime,
    "runs.form": RunForm,
    "runs.sample": OneRun,
    "runs.characters": OneRun,
    "runs.learned": OneRun,
    "runs.page": OneRun,
    "text.statistics": AboutCorpus,
    "text.tokens": Tokens,
    "claims.every": Fields,
    "claims.one": OneClaim,
    "exercises.check": Answer,
    "exercises.own": OneExercise,
    "ladder.open": OneName,
    "ladder.check": ComparisonForm,
}


# -- requests that the server answers itself -------------------------------------------------------------------------


@dataclass(frozen=True)
class Curves(Fields):
    run: tuple[str, ...] = list_of(NAME, max_length=MAX_SERIES)
    x: str = choice(AXES, "tokens")
    y: str = choice(COLUMNS, "loss")
    width: int = whole(600, ge=1, le=MAX_WIDTH, doc="pixels")
    log: bool = flag(doc="a logarithmic axis")


@dataclass(frozen=True)
class Since(Fields):
    since: tuple[str, ...] = list_of(
        TextField(max_length=MAX_NAME + 40, file=True), max_length=2000, doc="NAME:AGE.ROWS of each curve"
    )


@dataclass(frozen=True)
class Upload(Fields):
    name: str = path_name(doc="name of the file")
    token: str = text(
        "", pattern="(?:[0-9a-f]{32})?", expected="the token of an upload", doc="digest of the previous piece"
    )
    last: bool = flag(doc="this is the last piece")


@dataclass(frozen=True)
class Check(Fields):
    data: str = path_name(doc="an uploaded file")
    columns: str = text("", doc="columns of a table, as on the command line")
    encoding: str = text("", max_length=40, doc="encoding of the file, such as cp1252")


@dataclass(frozen=True)
class OneJob(Fields):
    id: str = job_id()


@dataclass(frozen=True)
class Stop(Fields):
    run: str = path_name()
    id: str = job_id()


@dataclass(frozen=True)
class Restore(Fields):
    mark: str = text("", pattern="[0-9a-f]{0,16}", expected="id of a deleted run", doc="permanently delete it")


@dataclass(frozen=True)
class RunClaim(Fields):
    name: str = text("", max_length=60, doc="name of the claim")
    seed: int | None = whole(None, ge=0, le=1_000_000, doc="the first seed")
    quick: bool = flag(doc="run smaller experiments with fewer seeds")
    knobs: Mapping[str, float] = table_of(NumberField(ge=-1e300, le=1e300), doc="settings of the claim")


@dataclass(frozen=True)
class Lecture(Fields):
    name: str = text("", max_length=20, doc="name of the chapter, or a line of the notes such as 003:49")


@dataclass(frozen=True)
class Evaluation(Fields):
    run: str = path_name()
    data: str = path_name(doc="valid, test, or an uploaded file")


@dataclass(frozen=True)
class Results(Fields):
    run: tuple[str, ...] = list_of(NAME, max_length=2)
    data: str = path_name(doc="valid, test, or an uploaded file")
