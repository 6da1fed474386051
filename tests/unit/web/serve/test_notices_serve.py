"""The server's bookkeeping: places, turns, signatures of runs, what a log line and an error say. No model is needed."""

import asyncio
import base64
import io
import json
import os
import threading
from contextlib import contextmanager
from itertools import pairwise
from types import SimpleNamespace

import jsonschema
import numpy as np
import pytest
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.testclient import TestClient

from regard.base.errors import RegardError
from regard.base.fields import FieldError, WholeField
from regard.decoding.beam import BEAM, Beam
from regard.decoding.constraints import Unwritable
from regard.decoding.engine import Prompt
from regard.decoding.growing_text import Until
from regard.web.serve import (
    access_log,
    api_server,
    chat_api,
    completions_api,
    inputs_api,
    openapi,
    requests,
    served_models,
    server_metrics,
    translation_api,
    workers,
)
from regard.web.serve.access_log import AccessLog
from regard.web.serve.completions_api import CompletionAnswer, CompletionChoice
from regard.web.serve.requests import BadRequest, DetectRequest, TranslateRequest
from regard.web.serve.scheduler import Failed, Job, Scheduler, failure
from regard.web.serve.served_models import Full, Served, files_of, languages_of, longest_of, refuse_length
from regard.web.serve.server_metrics import Measured, Metrics
from regard.web.serve.tokenize_api import Tokenization
from regard.web.serve.translation_api import Translations
from regard.web.serve.workers import LanguageWorker, SentenceJob, TranslationWorker

# -- which run it is -------------------------------------------------------------------------------------------------

FILES = ("model.safetensors", "training.safetensors", "recipe.toml", "run.json", "tokenizer.json",
         "tokenizer.source.json", "chat_template.jinja")  # fmt: skip


def test_a_run_is_another_when_any_of_its_files_is(tmp_path):
    for name in FILES:
        (tmp_path / name).write_text("x")
    seen = [files_of(tmp_path)]
    (tmp_path / "metrics.jsonl").write_text("x")  # it grows while a run trains
    assert files_of(tmp_path) == seen[0]
    for number, name in enumerate(FILES):
        os.utime(tmp_path / name, ns=(number + 5, number + 5))
        seen.append(files_of(tmp_path))
        (tmp_path / "new").write_text("x")
        os.utime(tmp_path / "new", ns=(number + 5, number + 5))
        os.replace(tmp_path / "new", tmp_path / name)  # of the same size and time
        seen.append(files_of(tmp_path))
    assert len({json.dumps(one) for one in seen}) == len(seen)
    assert files_of(tmp_path / "gone") is None


def translator(**data):
    given = {"columns": "", "source": "", "target": "", "corpus": "pairs.tsv", "swap": False} | data
    return SimpleNamespace(folder="runs/x", recipe=SimpleNamespace(data=SimpleNamespace(**given)))


@pytest.mark.parametrize(
    ("data", "languages"),
    [
        ({"source": "de", "target": "en"}, ("de", "en")),
        ({"columns": "nl, pt"}, ("nl", "pt")),
        ({"columns": "nl,pt", "target": "fr"}, ("nl", "fr")),
        ({"corpus": "phrasebook"}, ("en", "fr")),
        ({"corpus": "phrasebook", "swap": True}, ("fr", "en")),
    ],
)
def test_the_languages_are_those_that_the_run_names(data, languages):
    assert languages_of(translator(**data), "x") == languages


@pytest.mark.parametrize("data", [{}, {"columns": "1,2"}, {"source": "de"}])
def test_languages_that_are_not_named_are_asked_for(data):
    with pytest.raises(RegardError, match="runs/x does not record its languages: add --languages x=en-fr"):
        languages_of(translator(**data), "x")


def test_a_text_may_fill_the_context_and_not_more():
    refuse_length("m", 10, 4, 5)
    with pytest.raises(
        RegardError,
        match=r"m has a context of 10 tokens, but this request needs 11 \(1 for the boundary, 5 of the prompt",
    ):
        refuse_length("m", 10, 5, 5)
    assert longest_of(SimpleNamespace(model=SimpleNamespace(context=64))) == 64
    assert longest_of(SimpleNamespace(model=SimpleNamespace(context=None))) == served_models.LONGEST == 4096


# -- places and turns ------------------------------------------------------------------------------------------------


def test_a_model_has_so_many_places_and_those_who_leave_free_theirs(monkeypatch):
    monkeypatch.setattr(Served, "use", lambda self, run: None)
    served, noted = Served("m", None, 3), []
    scheduler = SimpleNamespace(
        submit=lambda worker, job: noted.append(("in", job)), cancel=lambda worker, job: noted.append(("out", job))
    )
    one, two, three, four = (Job.__new__(Job) for _ in range(4))
    with served.submitted(scheduler, None, [one, two]) as leave:
        assert served.inside == 2
        with pytest.raises(Full), served.submitted(scheduler, None, [three, four]):
            pass
        assert served.inside == 2
        with served.submitted(scheduler, None, [three]):
            assert served.inside == 3
        leave(one)
        assert served.inside == 1
    assert served.inside == 0
    assert noted == [("in", one), ("in", two), ("in", three), ("out", three), ("out", one), ("out", two)]


class Work:
    """A worker that answers each job once, and fails where it is told to."""

    def __init__(self):
        self.jobs, self.cancelled, self.error = [], [], None

    busy = property(lambda self: bool(self.jobs))

    def warm_up(self):
        pass

    def submit(self, job):
        self.jobs.append(job)

    def cancel(self, job):
        self.cancelled.append(job)

    def step(self, post):
        if self.error:
            raise self.error
        job = self.jobs.pop(0)
        job.over = True
        post(job, "done")

    def give_up(self, error, post):
        jobs, self.jobs = self.jobs, []
        for job in jobs:
            post(job, error)


def scheduled(life):
    async def run():
        scheduler, work = Scheduler(), Work()
        scheduler.workers = [work]
        scheduler.start()
        try:
            return await asyncio.wait_for(life(scheduler, work), 60)
        finally:
            await scheduler.stop()

    return asyncio.run(run())


def test_jobs_are_answered_and_what_failed_is_told_without_the_servers_own_words():
    async def life(scheduler, work):
        job = Job()
        scheduler.submit(work, job)
        assert await job.next() == "done"
        for error, said in ((RegardError("It is too long."), "It is too long."), (ValueError("secret"), "failed on")):
            work.error = error
            job = Job()
            scheduler.submit(work, job)
            with pytest.raises(Failed, match=said) as raised:
                await job.next()
            assert "secret" not in str(raised.value)
        work.error = None
        assert await scheduler.call(lambda: 5) == 5
        with pytest.raises(ZeroDivisionError):
            await scheduler.call(lambda: 1 / 0)
        replaced = Work()  # a run that was replaced since the job was prepared
        job = Job()
        scheduler.submit(replaced, job)
        assert await job.next() == "done"
        assert replaced in scheduler.workers

    scheduled(life)


def test_who_has_left_gets_nothing_and_only_what_is_not_over_is_cancelled():
    async def life(scheduler, work):
        done = Job()
        scheduler.submit(work, done)
        await done.next()
        scheduler.cancel(work, done)
        gone = Job()
        gone.left = True
        scheduler.outbox.append((gone, "late"))
        scheduler._deliver()
        waiting = Job()
        scheduler.cancel(work, waiting)
        await scheduler.call(lambda: None)
        assert work.cancelled == [waiting]
        assert gone.events.empty()

    scheduled(life)


def test_a_failure_is_logged_unless_it_is_a_sentence(caplog):
    assert str(failure(RegardError("Less."))) == "Less."
    assert not caplog.records
    assert "see the server's log" in str(failure(KeyError("x")))
    assert caplog.records


def sentences(*beams):
    return [SentenceJob(f"s{number}", beam) for number, beam in enumerate(beams)]


def test_sentences_of_one_beam_are_translated_together_in_their_order_and_not_too_many():
    worker, asked = TranslationWorker.__new__(TranslationWorker), []

    def translations(texts, beam):
        asked.append((texts, beam.width))
        return [f"{text}!" for text in texts]

    worker.run, worker.most, worker.waiting = SimpleNamespace(translations=translations), 2, workers.deque()
    narrow, wide = Beam(2), Beam(5)
    posted = []

    async def life():
        for job in sentences(narrow, wide, narrow, narrow):
            worker.submit(job)
        cancelled = worker.waiting[3]
        worker.cancel(cancelled)
        worker.submit(cancelled)
        while worker.busy:
            worker.step(lambda job, found: posted.append((job.sentence, found, job.over)))

    asyncio.run(life())
    assert asked == [(["s0", "s2"], 2), (["s1"], 5), (["s3"], 2)]
    assert posted == [(f"s{n}", f"s{n}!", True) for n in (0, 2, 1, 3)]
    assert workers.SENTENCES == {"cuda": 512}
    assert (workers.ROWS, workers.ENGINES) == ({"cuda": 256}, 4)
    assert LanguageWorker.in_bf16
    assert not TranslationWorker.in_bf16


def test_a_worker_that_gives_up_answers_everybody_and_keeps_nobody():
    worker = LanguageWorker.__new__(LanguageWorker)
    writing, waiting, scoring = (Job.__new__(Job) for _ in range(3))
    worker.engines, worker.writing = {"warm": 1}, {writing: (None, None)}
    worker.waiting, worker.scoring = workers.deque([waiting]), workers.deque([scoring])
    error, posted = ValueError("no"), []
    worker.give_up(error, lambda job, found: posted.append((job, found)))
    assert [job for job, _ in posted] == [writing, waiting, scoring]
    assert {found for _, found in posted} == {error}
    left = (worker.engines, worker.writing, worker.waiting, worker.scoring)
    assert not any(left)


# -- numbers ---------------------------------------------------------------------------------------------------------


def choice(index, read, tokens, score=0.0):
    made = CompletionChoice(
        index, None, "", read, False, SimpleNamespace(add=lambda tokens: "x" * len(tokens)), Until(())
    )
    made.tokens, made.score = tokens, score
    return made


def answer(choices, n=1, best_of=1, stream=False):
    question = SimpleNamespace(n=n, best_of=best_of, stream=stream, logprobs=None)
    made = CompletionAnswer(None, SimpleNamespace(name="m"), None, question, choices)
    return made


def test_a_prompt_is_counted_once_and_every_text_that_was_written():
    """As OpenAI bills them: best_of texts are written for one prompt."""
    choices = [choice(n, [1, 2, 3] if n < 2 else [1], [5] * (n + 1)) for n in range(4)]
    assert answer(choices, best_of=2).usage() == {"prompt_tokens": 4, "completion_tokens": 10, "total_tokens": 14}


def test_the_most_probable_texts_of_each_prompt_come_with_their_own_numbers():
    choices = [choice(n, [1], [2], score) for n, score in enumerate((-3.0, -1.0, -2.0, -5.0, -4.0, -6.0))]
    groups = answer(choices, n=2, best_of=3)._groups()
    assert [[one.score for one in group] for group in groups] == [[-1.0, -2.0], [-4.0, -5.0]]
    assert [one.index for group in groups for one in group] == [0, 1, 2, 3]


def test_a_text_ends_by_its_stop_or_by_its_length():
    long, stopped = choice(0, [1], []), choice(1, [1], [])
    stopped.until = Until(("xx",))
    assert (long.add([1, 2], False), long.finish) == ("xx", None)
    assert (long.add([3], True), long.finish, long.text) == ("x", "length", "xxx")
    assert (stopped.add([1, 2, 3], False), stopped.finish, stopped.tokens) == ("", "stop", [1, 2])


def counted(metrics):
    return {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in metrics.registry.collect()
        for sample in family.samples
    }


def test_times_per_token_are_those_of_streams_alone(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("regard.web.serve.server_metrics.time", SimpleNamespace(perf_counter=lambda: now[0]))
    for stream, tokens, gaps in ((True, 5, 1), (False, 5, 0), (True, 1, 0)):
        metrics, made = Metrics(), answer([choice(0, [1, 2], [7] * tokens)], stream=stream)
        made.first_token = 98.0
        metrics.count(made, 97.5)
        found = counted(metrics)
        assert found["regard_first_token_seconds_sum", "m"] == pytest.approx(0.5)
        assert found["regard_tokens_total", "completion", "m"] == tokens
        assert found["regard_tokens_total", "m", "prompt"] == 2
        assert found["regard_request_tokens_sum", "completion", "m"] == tokens
        assert found.get(("regard_token_seconds_count", "m"), 0) == gaps
        if gaps:
            assert found["regard_token_seconds_sum", "m"] == pytest.approx(2.0 / 4)
    metrics.text({"m": SimpleNamespace(inside=2, places=8)})
    assert (counted(metrics)["regard_jobs", "m"], counted(metrics)["regard_places", "m"]) == (2, 8)


def call(app, path="/known", headers=(), query=b""):
    """The messages that an application sends."""
    sent = []

    async def run():
        async def send(message):
            sent.append(message)

        scope = {"type": "http", "path": path, "method": "GET", "headers": list(headers), "query_string": query}
        await app(scope, None, send)

    asyncio.run(run())
    return sent


def answering(status=201):
    async def app(scope, receive, send):
        scope.setdefault("regard.facts", {})["model"] = "m"
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    return app


async def silent(scope, receive, send):
    raise asyncio.CancelledError


def test_every_request_is_counted_by_its_path_and_status():
    metrics = Metrics()
    call(Measured(answering(), metrics, {"/known"}))
    call(Measured(answering(404), metrics, {"/known"}), "/known/more")
    with pytest.raises(asyncio.CancelledError):
        call(Measured(silent, metrics, {"/known"}))
    found = counted(metrics)
    for path, status in (("/known", "201"), ("other", "404"), ("/known", "499")):
        assert found["regard_requests_total", *sorted((path, status))] == 1
    assert found["regard_request_seconds_count", "/known"] == 2


@pytest.mark.parametrize(
    ("given", "kept"),
    [(b"a" * 128, True), (b"a" * 129, False), (b"A9._:/+=-", True), (b"a b", False), (b"", False), (b"a\xe9", False)],
)
def test_the_id_of_a_request_is_repeated_if_it_is_plain(given, kept):
    stream = io.StringIO()
    sent = call(AccessLog(answering(), stream), "/" + "p" * 300, [(b"x-request-id", given)], b"token=secret")
    number = dict(sent[0]["headers"])[b"x-request-id"]
    assert (number == given) == kept
    line = json.loads(stream.getvalue())
    assert line["request_id"] == number.decode()
    assert (line["status"], line["method"], line["model"]) == (201, "GET", "m")
    assert line["path"] == "/" + "p" * 199
    assert line["milliseconds"] >= 0
    assert "secret" not in stream.getvalue()
    assert set(line) == {"time", "request_id", "method", "path", "status", "model", "milliseconds"}


def test_who_leaves_is_in_the_log_as_499():
    stream = io.StringIO()
    with pytest.raises(asyncio.CancelledError):
        call(AccessLog(silent, stream))
    assert json.loads(stream.getvalue())["status"] == 499


LIMITS = {  # least, most and default of what may be asked for, as the servers of others have them where they do
    "WritingRequest.temperature": (0, 2, 1.0), "WritingRequest.top_p": (0, 1, 1.0),
    "WritingRequest.top_k": (0, 2**31 - 1, 0), "WritingRequest.n": (1, 128, 1), "WritingRequest.min_p": (0, 1, 0.0),
    "WritingRequest.repetition_penalty": (0.01, 10, 1.0), "WritingRequest.presence_penalty": (-2, 2, 0.0),
    "WritingRequest.frequency_penalty": (-2, 2, 0.0), "CompletionRequest.max_tokens": (0, 2**20, 16),
    "CompletionRequest.best_of": (1, 128, None), "CompletionRequest.logprobs": (0, 5, None),
    "ChatRequest.max_tokens": (1, 2**20, None), "ChatRequest.max_completion_tokens": (1, 2**20, None),
    "EmbeddingRequest.layer": (1, 10_000, None), "TranslateRequest.alternatives": (0, 9, 0),
}  # fmt: skip


@pytest.mark.parametrize("key", LIMITS)
def test_a_number_of_a_request_has_its_bounds(key):
    (least, most, default), (kind, name) = LIMITS[key], key.split(".")
    declared = getattr(requests, kind).declared()[name]
    step = 1 if isinstance(declared.metadata["kind"], WholeField) else 1e-6
    for value, taken in ((least - step, False), (least, True), (most, True), (most + step, False)):
        if taken:
            assert declared.metadata["kind"].read(name, value) == value
        else:
            with pytest.raises(FieldError, match=name):
                declared.metadata["kind"].read(name, value)
    assert declared.default == default


def test_texts_and_lists_of_a_request_have_their_lengths():
    found = {
        f"{kind}.{name}": getattr(requests, kind).declared()[name].metadata["kind"].max_length
        for kind, name in (("WritingRequest", "stop"), ("CompletionRequest", "prompt"), ("InputRequest", "input"),
                           ("DetectRequest", "q"), ("StructuredOutputs", "regex"), ("StructuredOutputs", "choice"))
    }  # fmt: skip
    assert list(found.values()) == [4, 128, 256, 256, 4096, 1000]
    fewest = {
        key: {part.get("minItems", part.get("minLength")) for part in parts(kind.schema())
              if part.get("maxItems", part.get("maxLength")) == found[key]}
        for key in found
        for kind in [getattr(requests, key.split(".")[0]).declared()[key.split(".")[1]].metadata["kind"]]
    }  # fmt: skip
    assert list(fewest.values()) == [{None}, {1}, {1}, {1}, {1}, {1}]
    assert (requests.CHOICES, requests.STOPS, requests.LONGEST_STOP, requests.MAX_BIASES) == (128, 4, 256, 1024)
    assert (requests.MAX_INPUT, inputs_api.AT_ONCE, served_models.SHORT) == (200_000, 16, 2000)
    assert access_log.LONGEST_PATH == 200
    assert (server_metrics.BOUNDS[0], server_metrics.BOUNDS[-1]) == (0.005, 60.0)
    assert (server_metrics.GAPS[0], server_metrics.GAPS[-1]) == (0.0005, 2.5)
    for edges in (server_metrics.BOUNDS, server_metrics.GAPS, server_metrics.LENGTHS):
        assert all(1.6 <= above / below <= 4 for below, above in pairwise(edges))
    assert (server_metrics.LENGTHS[0], server_metrics.LENGTHS[-1]) == (1, 4**9)


# -- the document ----------------------------------------------------------------------------------------------------


def parts(tree):
    """All objects within an object."""
    if isinstance(tree, dict):
        yield tree
    for one in tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ():
        yield from parts(one)


@pytest.fixture(scope="module")
def told():
    return openapi.document(["writer", "other"], ["de", "en"], True)


def test_every_schema_of_the_document_is_one_and_requires_only_what_it_has(told):
    schemas = told["components"]["schemas"]
    for name, schema in schemas.items():
        jsonschema.Draft202012Validator.check_schema(schema)
        for part in parts(schema):
            if isinstance(part.get("properties"), dict) and isinstance(part.get("required"), list):
                assert set(part["required"]) <= set(part["properties"]), name
                assert all(isinstance(one, dict) for one in part["properties"].values()), name
    for part in parts(told):
        if isinstance(part.get("$ref"), str):
            assert part["$ref"].removeprefix("#/components/schemas/") in schemas
    for path, methods in told["paths"].items():
        for method, operation in methods.items():
            assert operation["summary"], path
            assert any(code.startswith("2") for code in operation["responses"]), (path, method)
    page = openapi.page(told)
    for path in told["paths"]:
        assert f"{path}</code></h2>" in page


def test_the_document_tells_the_bounds_that_are_checked(told):
    for name in ("CompletionRequest", "ChatRequest", "EmbeddingRequest", "TranslateRequest", "DetectRequest"):
        schema = told["components"]["schemas"].get(name) or told["components"]["schemas"][name.removesuffix("Request")]
        for key, declared in getattr(requests, name).declared().items():
            kind, said = declared.metadata["kind"], schema["properties"].get(key, {})
            if hasattr(kind, "ge") and said:
                assert (said["minimum"], said["maximum"]) == (kind.ge, kind.le), (name, key)


@pytest.mark.parametrize(
    ("prompt", "taken"),
    [("", True), ("a", True), (["a"], True), (["a", "b"], True), ([1], True), ([[1], [2]], True),
     (["a"] * 128, True), (["a"] * 129, False), ({}, False)],
)  # fmt: skip
def test_a_prompt_is_a_text_or_as_many_as_one_request_may_have(prompt, taken):
    field = requests.CompletionRequest.declared()["prompt"].metadata["kind"]
    if taken:
        assert field.read("prompt", prompt) is not None
    else:
        with pytest.raises(FieldError, match="prompt"):
            field.read("prompt", prompt)


# -- errors ----------------------------------------------------------------------------------------------------------


def refused(error, path="/v1/completions"):
    request = Request({"type": "http", "path": path, "method": "GET", "headers": [], "query_string": b"",
                       "server": ("x", 80), "scheme": "http"})  # fmt: skip
    return api_server.on_error(request, error)


@pytest.mark.parametrize(
    ("error", "status", "kind", "code"),
    [
        (FieldError("n must be less.", "n"), 400, "invalid_request_error", None),
        (BadRequest("no.", "model", 404, "model_not_found"), 404, "not_found_error", "model_not_found"),
        (Full(), 503, "server_error", "overloaded"),
        (TimeoutError(), 503, "server_error", "overloaded"),
        (Failed("It failed."), 500, "server_error", None),
        (HTTPException(401, "no"), 401, "authentication_error", "invalid_api_key"),
        (HTTPException(404), 404, "not_found_error", None),
        (HTTPException(405), 405, "invalid_request_error", None),
        (KeyError("secret"), 500, "server_error", None),
    ],
)
def test_each_error_has_its_status_and_says_who_is_to_blame(error, status, kind, code):
    answer = refused(error)
    said = json.loads(answer.body)["error"]
    assert (answer.status_code, said["type"], said["code"]) == (status, kind, code)
    assert said["param"] == getattr(error, "field", None)
    assert answer.headers.get("retry-after") == ("1" if status == 503 else None)
    assert "secret" not in said["message"]
    plain = json.loads(refused(error, "/translate").body)
    assert plain == {"error": said["message"]} or status in (404, 405)
    assert isinstance(plain["error"], str)


def test_paths_of_other_apis_say_what_to_use():
    for path, said in api_server.INSTEAD.items():
        body = json.loads(refused(HTTPException(404), path).body)["error"]
        assert (body["message"] if isinstance(body, dict) else body) == said
    assert sorted(api_server.OPEN) == ["/detect", "/frontend/settings", "/health", "/languages", "/translate"]
    assert api_server.SECONDS == 600


# -- translations ----------------------------------------------------------------------------------------------------


class Surely(Translations):
    """Translators that are as sure as the text says, and note what they were asked for."""

    def __init__(self, pairs, sure):
        models = SimpleNamespace(
            languages=pairs,
            by_name={name: SimpleNamespace(name=name, known=lambda text, name=name: sure[name][1]) for name in pairs},
        )
        super().__init__(models)
        self.sure, self.asked = sure, []

    async def _search(self, served, sentences, beam):
        self.asked.append((served.name, sentences, beam))
        return [
            [SimpleNamespace(text=f"{one}/{rank}", tokens=[1, 2], log_probability=2 * self.sure[served.name][0])
             for rank in range(beam.n_best)]
            for one in sentences
        ]  # fmt: skip


PAIRS = {"a": ("en", "fr"), "b": ("de", "fr"), "c": ("fr", "en")}


def test_the_language_is_that_of_the_surest_translator_times_what_it_knows():
    models = Surely(PAIRS, {"a": (-0.5, 1.0), "b": (-0.1, 0.5), "c": (-3.0, 1.0)})
    found = asyncio.run(models.detect(DetectRequest.read({"q": "x" * 500})))
    assert found == [
        {"confidence": 60.7, "language": "en"},
        {"confidence": 45.2, "language": "de"},
        {"confidence": 5.0, "language": "fr"},
    ]
    assert all(sum(map(len, texts)) <= translation_api.CUT == 200 for _, texts, _ in models.asked)
    asked = TranslateRequest.read({"q": "a b", "source": "auto", "target": "fr", "alternatives": 2})
    said = asyncio.run(models.translate(asked))
    assert said["detectedLanguage"] == {"confidence": 60.7, "language": "en"}
    assert (said["translatedText"], said["alternatives"]) == ("a b/0", ["a b/1", "a b/2"])
    assert {name for name, *_ in models.asked[3:]} == {"a", "b"}  # those that translate into French
    assert (models.asked[-1][2].n_best, models.asked[-1][2].width >= 3) == (3, True)


def test_a_language_that_hardly_fits_is_hardly_certain_and_one_that_cannot_be_read_not_at_all():
    models = Surely(PAIRS, {"a": (-6.0, 1.0), "b": (-7.0, 0.0), "c": (-0.1, 1.0)})
    found = asyncio.run(models.detect(DetectRequest.read({"q": "x. Y! Z? Not read."})))
    assert [(one["language"], one["confidence"]) for one in found] == [("fr", 90.5), ("en", 0.2), ("de", 0.0)]
    assert [sentences for _, sentences, _ in models.asked] == [["x.", "Y!", "Z?"]] * 3
    nothing = asyncio.run(models.detect(DetectRequest.read({"q": " — "})))
    assert {one["confidence"] for one in nothing} == {0.0}
    both = Surely({"a": ("en", "fr"), "b": ("en", "de")}, {"a": (-2.0, 1.0), "b": (-1.0, 1.0)})
    assert asyncio.run(both.detect(DetectRequest.read({"q": "x"}))) == [{"confidence": 36.8, "language": "en"}]
    with pytest.raises(FieldError, match="no translator here can read this text"):
        asyncio.run(Surely({}, {}).detect(DetectRequest.read({"q": "x"})))


def test_many_texts_come_back_as_many_and_a_language_into_itself_as_it_was():
    models = Surely(PAIRS, dict.fromkeys(PAIRS, (-0.1, 1.0)))
    same = asyncio.run(models.translate(TranslateRequest.read({"q": ["x", "y"], "source": "en", "target": "en"})))
    assert same == {"translatedText": ["x", "y"]}
    assert models.asked == []
    many = asyncio.run(models.translate(TranslateRequest.read({"q": ["x", "y"], "source": "en", "target": "fr"})))
    assert many == {"translatedText": ["x/0", "y/0"]}
    for source, target, field in (("de", "en", "target"), ("xx", "fr", "source"), ("en", "xx", "target")):
        with pytest.raises(FieldError) as error:
            asyncio.run(models.translate(TranslateRequest.read({"q": "x", "source": source, "target": target})))
        assert error.value.field == field


def test_languages_and_settings_are_those_of_the_translators():
    models = Surely(PAIRS, {})
    assert [(one["code"], one["name"], one["targets"]) for one in models.languages()] == [
        ("de", "German", ["fr"]), ("en", "English", ["fr"]), ("fr", "French", ["en"]),
    ]  # fmt: skip
    assert models.settings(True)["language"] == {
        "source": {"code": "auto", "name": "Auto Detect"}, "target": {"code": "fr", "name": "French"},
    }  # fmt: skip
    assert {key: value for key, value in models.settings(True).items() if key != "language"} == {
        "apiKeys": True, "keyRequired": True, "charLimit": 20_000, "frontendTimeout": 500, "filesTranslation": False,
        "supportedFilesFormat": [], "suggestions": False,
    }  # fmt: skip
    two = Surely({"a": ("en", "fr"), "b": ("en", "de")}, {}).settings(False)
    assert two["language"]["source"]["code"] == "auto"
    alone = Surely({"a": ("en", "fr")}, {}).settings(False)
    assert alone["language"]["source"] == {"code": "en", "name": "English"}
    assert (alone["keyRequired"], models.settings(True)["keyRequired"], models.settings(True)["apiKeys"]) == (
        False, True, True,
    )  # fmt: skip


# -- models and their workers ----------------------------------------------------------------------------------------


class Kind:
    """A worker that only knows its run."""

    between_languages, in_bf16, busy = False, True, False

    def __init__(self, run):
        self.run = run


@pytest.fixture
def offered(tmp_path, monkeypatch):
    """ServedModels over folders of any name, without a model: offered("a", "b"); `loads` has what was read."""
    loads, refused = [], set()

    def load(folder, *, weights, device):
        if folder.name in refused:
            raise served_models.NotServed(f"{folder.name} is an n-gram.")
        loads.append((folder.name, weights, device))
        made = SimpleNamespace(model=f"model {folder.name}", name=folder.name)
        made.to = lambda device: loads.append((folder.name, "to", device))
        return made

    monkeypatch.setattr(served_models, "load", load)
    monkeypatch.setattr(served_models, "worker_of", lambda run: Kind)
    monkeypatch.setattr(served_models, "task_of", lambda run: "task")
    monkeypatch.setattr(served_models, "set_precision", lambda model, precision: loads.append((model, precision)))

    def make(*names, **options):
        for name in names:
            (tmp_path / name).mkdir(exist_ok=True)
        return served_models.ServedModels([tmp_path / name for name in names], languages={}, places=3, **options)

    return SimpleNamespace(make=make, loads=loads, refused=refused, root=tmp_path)


def test_every_run_is_read_as_it_was_asked_and_those_that_no_api_is_for_are_skipped(offered, capsys):
    offered.refused.add("b")
    models = offered.make("a", "b", "c", weights="last", device="cpu", precision="bf16")
    assert offered.loads == [("a", "last", "cpu"), ("model a", "bf16"), ("c", "last", "cpu"), ("model c", "bf16")]
    assert list(models.by_name) == list(models.folders) == ["a", "c"]
    assert [served.places for served in models.by_name.values()] == [3, 3]
    assert models.scheduler.workers == [served.worker for served in models.by_name.values()]
    assert "skipped: b is an n-gram." in capsys.readouterr().err
    offered.refused.update("ac")
    with pytest.raises(served_models.NotServed, match=r"^a is an n-gram\.$"):  # there is nothing to offer
        offered.make("a", "b")
    assert "skipped" not in capsys.readouterr().err
    offered.refused.clear()
    with pytest.raises(RegardError, match="Two runs are called a: rename the folder of one of them"):
        served_models.ServedModels([offered.root / "a", offered.root / "a"], languages={}, places=1)
    with pytest.raises(RegardError, match="--languages names 'a', which is not one of the translators: a"):
        served_models.ServedModels([offered.root / "a"], languages={"a": ("en", "fr")}, places=1)
    with pytest.raises(RegardError, match="--engine ctranslate2 applies only to translators"):
        offered.make("a", engine="ctranslate2")
    for wrong in ({"precision": "fp8"}, {"engine": "marian"}):
        with pytest.raises(RegardError, match="must be"):
            offered.make("a", **wrong)


def test_a_run_that_changed_is_taken_up_and_one_that_cannot_be_read_stays(offered, monkeypatch, capsys, caplog):
    models = offered.make("a", "b", "c", "d", device="cpu")
    before = {name: served.worker for name, served in models.by_name.items()}
    offered.loads.clear()
    failing = {"b": RegardError("It is damaged."), "c": KeyError("secret"), "d": None}
    read, tasks = models._load, {"old": "task", "new": "task"}

    def load(folder, device):
        if failing.get(folder.name):
            raise failing[folder.name]
        return read(folder, device)

    async def call(function):
        return function()

    async def life():
        models._load, models.scheduler.call = load, call
        await models.reload()
        assert offered.loads == []  # nothing has changed
        for name in "abc":
            (offered.root / name / "run.json").write_text("{}")
        await models.reload()

    asyncio.run(life())
    assert ("a", "best", "cpu") in offered.loads
    assert offered.loads[-1] == ("a", "to", "cpu")  # read beside the models, and moved among them
    assert [models.by_name[name].worker is before[name] for name in "abcd"] == [False, True, True, True]
    assert [models.seen[name] == files_of(offered.root / name) for name in "abcd"] == [True, False, False, True]
    said = capsys.readouterr().err
    assert "a was replaced" in said
    assert "b was not reloaded: It is damaged." in said
    assert "c was not reloaded: it could not be read (KeyError)." in said
    assert "secret" not in said
    assert any("could not be loaded" in record.message for record in caplog.records)
    assert models.scheduler.workers == [served.worker for served in models.by_name.values()]
    monkeypatch.setattr(served_models, "task_of", lambda run: id(run))
    (offered.root / "d" / "run.json").write_text("{}")
    asyncio.run(models.reload())
    assert "d was not reloaded: " in (said := capsys.readouterr().err)
    assert "now holds a model for a different task: restart the server" in said
    assert tasks


def test_a_replaced_worker_stays_until_it_has_ended(offered):
    models = offered.make("a")
    busy, idle = Kind(None), Kind(None)
    busy.busy = True
    new = models.by_name["a"].worker
    models.scheduler.workers = [busy, idle, new]
    models._exchange()
    assert models.scheduler.workers == [new, busy]


def test_reloads_follow_each_other_and_none_is_forgotten(offered):
    models, order = offered.make("a"), []

    async def reload():
        order.append("begin")
        await asyncio.sleep(0)
        order.append("end")

    async def life():
        models.reload = reload
        models.reload_soon()
        models.reload_soon()
        assert len(models.reloads) == 2
        await asyncio.gather(*models.reloads)
        await asyncio.sleep(0)
        return models.reloads

    assert asyncio.run(life()) == set()
    assert order == ["begin", "end", "begin", "end"]


def test_what_a_client_no_longer_waits_for_is_taken_out_wherever_it_is():
    worker = LanguageWorker.__new__(LanguageWorker)
    worker.waiting, worker.scoring, cancelled = workers.deque(), workers.deque(), []
    engine = SimpleNamespace(cancel=cancelled.append)
    writing, waiting, other = (workers.TextJob.__new__(workers.TextJob) for _ in range(3))
    scoring, gone = (workers.ScoreJob.__new__(workers.ScoreJob) for _ in range(2))
    worker.writing = {writing: (engine, "text")}
    for job in (waiting, scoring):
        worker.submit(job)
    assert (list(worker.waiting), list(worker.scoring)) == ([waiting], [scoring])
    for job in (gone, other):
        worker.cancel(job)  # nowhere
    assert (len(worker.waiting), len(worker.scoring), worker.busy) == (1, 1, True)
    for job in (scoring, waiting, writing):
        worker.cancel(job)
    assert (worker.waiting, worker.scoring, worker.writing, worker.busy) == (
        workers.deque(),
        workers.deque(),
        {},
        False,
    )
    assert cancelled == ["text"]


def test_a_translator_that_gives_up_answers_everybody():
    worker, posted = TranslationWorker.__new__(TranslationWorker), []
    worker.waiting = workers.deque(Job.__new__(Job) for _ in range(2))
    jobs, error = list(worker.waiting), ValueError("no")
    worker.give_up(error, lambda job, found: posted.append((job, found, job.over)))
    assert posted == [(job, error, True) for job in jobs]
    assert not worker.busy


@pytest.mark.parametrize(("device", "counts"), [("cpu", []), ("cuda", [1, 2, 4, 5])])
def test_a_gpu_is_warm_in_every_number_of_rows_that_it_records(device, counts, monkeypatch):
    begun, steps = [], []

    def submit(prompt, *, max_tokens, number):
        assert (prompt, max_tokens) == ([7], workers.WARM_UP)
        begun.append(number)
        return SimpleNamespace(done=False)

    texts = []

    class Engine:
        eos = 7

        def submit(self, *words, **named):
            texts.append(submit(*words, **named))
            return texts[-1]

        def step(self):
            steps.append(len(texts))
            next(text for text in texts if not text.done).done = True  # not all end at once

    worker = LanguageWorker.__new__(LanguageWorker)
    worker.run, worker.rows = SimpleNamespace(model=SimpleNamespace(device=SimpleNamespace(type=device))), 5
    monkeypatch.setattr(worker, "_engine", lambda sampling: Engine())
    worker.warm_up()
    assert begun == [number for count in counts for number in range(count)]
    assert len(steps) == sum(counts)


def test_texts_begin_while_there_are_rows_and_scores_come_first():
    worker, posted, submitted = LanguageWorker.__new__(LanguageWorker), [], []
    worker.rows, worker.engines, worker.writing = 2, {}, {}
    worker.waiting, worker.scoring = workers.deque(), workers.deque()

    class Text:
        done = new = False

        def take(self):
            return [1]

    def submit(prompt, **how):
        submitted.append((prompt, how))
        return Text()

    engine = SimpleNamespace(submit=submit, step=lambda: None)
    worker._engine = lambda sampling: engine
    worker.run = SimpleNamespace(token_scores=lambda tokens, top: ("scores", tokens, top))

    async def life():
        def job(number, live=False):
            return workers.TextJob(
                f"p{number}", None, max_tokens=9, lines=1, seed=5, number=number, live=live, events=None
            )

        jobs = [job(0), job(1, live=True), job(2)]
        scores = [workers.ScoreJob([1], 0), workers.ScoreJob([2], 3)]
        for one in (*jobs, *scores):
            worker.submit(one)

        def step():
            posted.clear()
            worker.step(lambda job, found: posted.append((job, found)))
            return list(posted)

        assert step() == [(scores[0], ("scores", [1], 0))]
        assert [prompt for prompt, _ in submitted] == ["p0", "p1"]
        assert submitted[0][1] == {"max_tokens": 9, "lines": 1, "seed": 5, "number": 0}
        for _, text in worker.writing.values():
            text.new = True
        found = step()
        assert found == [(scores[1], ("scores", [2], 3)), (jobs[1], (jobs[1], [1], False))]  # only one is live
        worker.writing[jobs[0]][1].done = True
        assert step()[0] == (jobs[0], (jobs[0], [1], True))
        assert (jobs[0].over, jobs[1].over) == (True, False)
        assert list(worker.writing) == [jobs[1]]
        step()
        assert list(worker.writing) == [jobs[1], jobs[2]]

    asyncio.run(life())


# -- streams and clients that leave ----------------------------------------------------------------------------------


def streamed(events, disconnects=False):
    sent = []

    async def receive():
        if disconnects:
            return {"type": "http.disconnect"}
        await asyncio.Event().wait()

    async def send(message):
        sent.append(message)

    async def life():
        scope = {"type": "http", "path": "/v1/completions", "method": "POST", "headers": []}
        await api_server.EventStream("data: 1\n\n", events)(scope, receive, send)

    asyncio.run(life())
    return sent


def test_a_stream_ends_with_what_went_wrong_in_the_middle_of_it():
    closed = []

    async def events(error):
        try:
            yield "data: é\n\n"
            if error:
                raise error
        finally:
            closed.append(error)

    start, *bodies, end = streamed(events(None))
    assert (start["status"], dict(start["headers"])[b"content-type"]) == (200, b"text/event-stream; charset=utf-8")
    assert b"content-length" not in dict(start["headers"])
    assert [one["body"].decode() for one in bodies] == ["data: 1\n\n", "data: é\n\n"]
    assert all(one["more_body"] for one in bodies)
    assert end == {"type": "http.response.body", "body": b"", "more_body": False}
    error = Failed("It failed.", 400)
    _, *bodies, end = streamed(events(error))
    told = json.loads(bodies[-1]["body"].removeprefix(b"data: "))["error"]
    assert (told["message"], told["type"]) == ("It failed.", "invalid_request_error")
    assert bodies[-1]["body"].endswith(b"\n\n")
    assert (end["more_body"], closed) == (False, [None, error])


def test_who_leaves_ends_the_work_and_nobody_waits_for_ever(monkeypatch):
    ended = []

    async def work():
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("work")

    async def leaving():
        return {"type": "http.disconnect"}

    async def staying():
        await asyncio.Event().wait()

    def awaited(receive, answer):
        request = SimpleNamespace(receive=receive)
        return asyncio.run(api_server.unless_left(request, answer))

    async def five():
        return 5

    assert awaited(staying, five()) == 5
    with pytest.raises(api_server.ClientLeft):
        awaited(leaving, work())
    monkeypatch.setattr(api_server, "SECONDS", 0)
    with pytest.raises(TimeoutError):
        awaited(staying, work())
    assert ended == ["work"] * 2
    messages = iter([{"type": "http.request"}, {"type": "http.request"}, {"type": "http.disconnect"}])

    async def receive():
        return next(messages)

    asyncio.run(api_server._left(receive))
    assert list(messages) == []
    assert refused(api_server.ClientLeft()).status_code == 499  # for the log and the numbers
    slow = refused(TimeoutError())
    assert json.loads(slow.body)["error"]["message"].startswith("The request took longer than 0 seconds")


def test_only_requests_are_counted_and_logged():
    passed = []

    async def app(scope, receive, send):
        passed.append(scope["type"])

    metrics, stream = Metrics(), io.StringIO()
    for made in (Measured(app, metrics, {"/known"}), AccessLog(app, stream)):
        asyncio.run(made({"type": "lifespan"}, None, None))
    assert passed == ["lifespan"] * 2
    assert stream.getvalue() == ""
    assert not any(name == "regard_requests_total" for name, *_ in counted(metrics))
    made = answer([choice(0, [1], [7, 7])])
    metrics.count(made, 0.0)  # no token came
    assert ("regard_first_token_seconds_count", "m") not in counted(metrics)
    assert counted(metrics)["regard_tokens_total", "completion", "m"] == 2


# -- bodies and words ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "said"),
    [(b"[" * 100_000, "is not JSON"), (b"[]", "is not JSON"), (b"{", "is not JSON"), (b"", "is not JSON"),
     (b'{"a": "\\ud800"}', "not valid Unicode"), (b"\xff{}", "not valid Unicode"),
     ('{"a": 1}'.encode("utf-16"), "not valid Unicode"), (b'{"a": ' + b"[" * 100_000, "is not JSON")],
    ids=range(8),
)  # fmt: skip
def test_a_body_is_one_object_in_utf8(body, said):
    with pytest.raises(BadRequest, match=said) as error:
        requests.read_object(body)
    assert (error.value.status, error.value.code, error.value.field) == (400, None, None)
    assert str(error.value).startswith("The body is not ")


def test_a_body_may_begin_with_a_mark_and_a_form_has_its_fields_once():
    assert requests.read_object(b'\xef\xbb\xbf{"a": "\xc3\xa9"}') == {"a": "é"}
    form = "application/x-www-form-urlencoded"
    assert requests.read_body(b"q=a+b&q=&source=en", f" {form.upper()} ; charset=utf-8") == (
        {"q": ["a b", ""], "source": "en"}, True,
    )  # fmt: skip
    assert requests.read_body(b"q=a&x=", form) == ({"q": "a", "x": ""}, True)
    assert requests.read_body(b'{"q": "a"}', "text/plain") == ({"q": "a"}, False)
    fields = 2 * requests.TEXTS
    assert len(requests.read_body(b"&".join([b"q=a"] * fields), form)[0]["q"]) == fields
    for wrong in (b"&".join([b"q=a"] * (fields + 1)), b"q=%ff", b"\xff"):
        with pytest.raises(BadRequest, match="is not a UTF-8 form"):
            requests.read_body(wrong, form)


@pytest.mark.parametrize(
    ("field", "said"),
    [({"enum": ["a", None, ""]}, 'a, ""'), ({"const": "chat"}, "chat"), ({"type": ["string", "null"]}, "string"),
     ({"type": "integer", "minimum": 0, "maximum": 9}, "integer, 0 to 9"),
     ({"type": "integer", "minimum": 0}, "integer"),
     ({"anyOf": [{"type": "string"}, {"type": "null"}, {"type": "string"}]}, "string"),
     ({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}, "string or list of strings"),
     ({"type": "array", "items": {"type": "array", "items": {"type": "integer"}}}, "list of lists of integers"),
     ({"type": "array"}, "array"), ({"type": "object"}, "object"), ({}, "")],
)  # fmt: skip
def test_a_field_is_described_in_a_few_words(field, said):
    assert openapi._kind(field) == said


def test_the_document_names_what_is_served_and_whether_a_token_is_needed():
    plain, whole = openapi.document([], [], False), openapi.document(["m"], ["de", "en"], True)
    assert "security" not in plain
    assert whole["security"] == [{"token": []}]
    schemas = whole["components"]["schemas"]
    assert schemas["CompletionRequest"]["properties"]["model"]["enum"] == ["m"]
    assert schemas["ChatRequest"]["properties"]["model"]["enum"] == ["m"]
    translate = schemas["TranslateRequest"]["properties"]
    assert (translate["source"]["enum"], translate["target"]["enum"]) == (["de", "en", "auto"], ["de", "en"])
    bare = plain["components"]["schemas"]
    assert "enum" not in bare["CompletionRequest"]["properties"]["model"]
    assert "enum" not in bare["TranslateRequest"]["properties"]["source"]
    codes = {path: sorted(next(iter(methods.values()))["responses"]) for path, methods in whole["paths"].items()}
    posted = ["200", "400", "401", "403", "404", "408", "413", "421", "503"]
    assert codes["/v1/completions"] == codes["/tokenize"] == posted
    assert codes["/translate"] == codes["/detect"] == [code for code in posted if code != "404"]
    assert codes["/health"] == ["200", "401", "421"]
    for path in ("/translate", "/v1/completions"):
        kinds = set(whole["paths"][path]["post"]["requestBody"]["content"])
        assert ("application/x-www-form-urlencoded" in kinds) == (path == "/translate")
        assert whole["paths"][path]["post"]["requestBody"]["required"] is True
    assert set(whole["paths"]["/v1/chat/completions"]["post"]["responses"]["200"]["content"]) == {
        "application/json", "text/event-stream",
    }  # fmt: skip
    page = openapi.page(whole)
    assert "<code>model</code> (required)" in page
    assert "; default: 16</td>" in page
    assert "<td>number, 0 to 2</td>" in page


# -- what begins a completion ----------------------------------------------------------------------------------------


class Asked:
    """Models of which one writes; `ready` has the constraints that were compiled."""

    def __init__(self, begin=1, eos=2, context=64):
        self.ready = []
        tokenizer = SimpleNamespace(begin=begin, eos=eos, vocabulary=9, decode=lambda tokens: "x" * len(tokens),
                                    encode=lambda text: [5] * len(text))  # fmt: skip
        self.run = SimpleNamespace(
            tokenizer=tokenizer, model=SimpleNamespace(context=context), constraints=self, chat_template="",
            opening=lambda prompt, exact: Prompt([begin, *[5] * len(prompt)]),
        )  # fmt: skip
        worker = LanguageWorker.__new__(LanguageWorker)
        worker.run = self.run
        served = Served.__new__(Served)
        served.name, served.worker, served.created, served.lock = "m", worker, 7, threading.Lock()
        self.by_name, self.language_models, self.languages = {"m": served}, {"m": served}, {"fr": ("en", "fr")}

    def begin(self, sampling):
        self.ready.append(sampling)

    def ask(self, ends=(), **more):
        asked = requests.CompletionRequest.read({"model": "m", "prompt": "abc", **more})
        return asyncio.run(completions_api.Completions(self).begin(asked, ends))


REGEX = {"structured_outputs": {"regex": "a+"}}


@pytest.mark.parametrize(
    ("eos", "more", "ends", "lines", "live"),
    [
        (2, {}, {2}, 1, False), (1, {}, set(), 0, False), (1, REGEX, {1}, 0, False), (2, REGEX, {2}, 1, False),
        (1, {"stream": True}, set(), 0, True), (1, {"stop": "x"}, set(), 0, True), (1, {"ends": [7]}, {7}, 0, True),
        (1, {"ends": [7]} | REGEX, {1, 7}, 0, True),
    ],
)  # fmt: skip
def test_a_text_ends_where_its_model_or_its_constraint_ends_it(eos, more, ends, lines, live):
    models = Asked(begin=1, eos=eos)
    (choice,) = models.ask(**more).choices
    assert (set(choice.ends), choice.job.lines, choice.job.live) == (ends, lines, live)
    assert len(models.ready) == ("structured_outputs" in more)


def test_every_prompt_has_its_own_texts_with_their_numbers():
    models = Asked()
    made = models.ask(prompt=["ab", "c"], best_of=3, n=2, seed=11, max_tokens=4)
    jobs = [choice.job for choice in made.choices]
    assert [choice.index for choice in made.choices] == list(range(6))
    assert [job.number for job in jobs] == [0, 1, 2] * 2
    assert [len(choice.read) for choice in made.choices] == [2] * 3 + [1] * 3
    assert {(job.seed, job.max_tokens) for job in jobs} == {(11, 4)}
    assert len({id(job.events) for job in jobs}) == 1  # which the answer waits for
    assert models.ask(prompt=[[1, 5, 6]]).choices[0].bounded is True
    assert models.ask(prompt=[[5, 6]]).choices[0].bounded is False
    models.ask(prompt="a" * 59, max_tokens=4)
    models.ask(prompt=[[1, *[5] * 59]], max_tokens=4)  # the boundary counts once
    for prompt in ("a" * 60, [[1, *[5] * 60]], [[5] * 60]):
        with pytest.raises(BadRequest, match="m has a context of 64 tokens, but this request needs 65") as error:
            models.ask(prompt=prompt, max_tokens=4)
        assert (error.value.field, error.value.code, error.value.status) == ("prompt", "context_length_exceeded", 400)


CHOICE, SCHEMA = {"choice": ["a"]}, {"response_format": {"type": "json_object"}}


@pytest.mark.parametrize(
    ("given", "fits"),
    [({}, True), (REGEX, True), (SCHEMA, True), ({"structured_outputs": CHOICE}, True),
     ({"structured_outputs": CHOICE | {"json": {}}}, False), ({"structured_outputs": CHOICE | {"regex": "a"}}, False),
     (REGEX | SCHEMA, False), (SCHEMA | {"structured_outputs": {"json": {}}}, True),
     ({"response_format": {"type": "text"}} | REGEX, True)],
)  # fmt: skip
def test_a_text_has_one_constraint_at_most(given, fits):
    asked = requests.CompletionRequest.read({"model": "m", **given})
    if fits:
        assert asked.sampling.constrained == bool(given)
    else:
        with pytest.raises(FieldError, match="Only one constraint is allowed") as error:
            print(asked.sampling)
        assert error.value.field == "structured_outputs"


def test_what_could_have_begun_a_stop_is_given_out_at_the_end():
    made = choice(0, [1], [])
    made.until, made.ends = Until(("xxy",)), frozenset([2])
    assert (made.add([5, 5, 5], False), made.finish) == ("x", None)  # two of them are held back
    assert (made.add([2], False), made.finish, made.text, made.tokens) == ("xx", "stop", "xxx", [5, 5, 5, 2])
    assert [completions_api._finite(value) for value in (-float("inf"), -5e29, 0.0)] == [-1e30, -5e29, 0.0]


def test_the_first_token_came_when_the_first_came(monkeypatch):
    now, ended = iter([5.0, 6.0, 7.0]), []
    monkeypatch.setattr(completions_api, "time", SimpleNamespace(time=lambda: 3.7, perf_counter=lambda: next(now)))
    monkeypatch.setattr(Served, "use", lambda self, run: None)
    scheduler = SimpleNamespace(submit=lambda worker, job: None, cancel=lambda worker, job: ended.append(job))

    async def prepared():
        made = await completions_api.Completions(models := Asked()).begin(
            requests.CompletionRequest.read({"model": "m", "prompt": "abc", "n": 2, "max_tokens": 9})
        )
        models.scheduler = scheduler
        made.served.inside, made.served.places = 0, 2
        one, two = (each.job for each in made.choices)
        made.ended = lambda: ended.append("ended")
        batches = [[(one, [5], False)], [(one, [6, 7], True), (two, [8], False)], [(two, [4], False), (two, [3], True)]]

        async def all_():
            return batches.pop(0)

        made.choices[0].job.all = all_
        found = [[(each.index, piece) for each, piece in some] async for some in made._pieces()]
        return made, found, [one, two]

    made, found, jobs = asyncio.run(prepared())
    assert found == [[(0, "x")], [(0, "xx"), (1, "x")], [(1, "xx")]]
    assert (made.first_token, made.created) == (5.0, 3)
    assert [(each.tokens, each.finish) for each in made.choices] == [([5, 6, 7], "length"), ([8, 4, 3], "length")]
    assert ended == [*jobs, "ended"]
    assert made.served.inside == 0


@pytest.mark.parametrize(
    ("size", "more", "most"),
    [(14, {}, 50), (63, {}, 1), (64, {}, 1), (70, {}, 1), (14, {"max_tokens": 5}, 5),
     (14, {"max_completion_tokens": 6}, 6), (14, {"max_tokens": 5, "max_completion_tokens": 6}, 6)],
)  # fmt: skip
def test_an_answer_may_fill_what_is_left_of_the_context(size, more, most, monkeypatch):
    models, asked = Asked(), []
    worker = models.by_name["m"].worker
    worker.run.template, worker.run.reply_ends = "template", lambda: (frozenset([7]), ("</s>",))
    models.by_name["m"].templating = asyncio.Lock()
    monkeypatch.setattr(chat_api, "prompt_tokens", lambda messages, template, tokenizer, lock: [5] * size)

    async def begin(question, ends):
        asked.append((question, ends))
        return SimpleNamespace(models=models, served=models.by_name["m"], worker=worker, question=question, choices=[])

    completions = SimpleNamespace(find=lambda name: (models.by_name["m"], worker), begin=begin)
    messages = [{"role": "user", "content": "a"}]
    given = requests.ChatRequest.read({"model": "m", "messages": messages, "stop": "x", "seed": 4, **more})
    made = asyncio.run(chat_api.Chats(completions).begin(given))
    ((question, ends),) = asked
    assert (question.max_tokens, question.prompt, question.stop) == (most, ([5] * size,), ("</s>", "x"))
    assert (question.seed, ends, made.id.partition("-")[0]) == (4, frozenset([7]), "chatcmpl")


def test_a_model_is_described_and_another_name_is_refused_with_what_to_use(monkeypatch):
    models = Asked()
    monkeypatch.setattr(completions_api, "task_of", lambda run: SimpleNamespace(name="language model"))
    made = completions_api.Completions(models)
    told = {"id": "m", "object": "model", "created": 7, "owned_by": "regard", "max_model_len": 64,
            "task": "language model", "chat_template": "plain"}  # fmt: skip
    assert made.list_models() == {"object": "list", "data": [told]}
    models.run.chat_template = "{{ x }}"
    assert made.model("m")["chat_template"] == "own"
    for name, said in (("fr", "fr is a translator: use /translate"), ("x", 'no language model "x" here; available: m')):
        with pytest.raises(BadRequest, match=said) as error:
            made.find(name)
        assert (error.value.field, error.value.status, error.value.code) == ("model", 404, "model_not_found")


# -- chats, tokens and vectors ---------------------------------------------------------------------------------------


def tokenizing(models=("m",), begin=1):
    tokenizer = SimpleNamespace(
        encode=lambda text: [5] * len(text), begin=begin, eos=2, token=lambda token: f"<{token}>", kind="bpe",
        vocabulary=9, decode=lambda tokens: "" if tokens == [2] else "x" * len(tokens),
    )  # fmt: skip
    run = SimpleNamespace(tokenizer=tokenizer, template=SimpleNamespace(source="{{ x }}"),
                          model=SimpleNamespace(context=64))  # fmt: skip
    found = []

    def find(name):
        found.append(name)
        return SimpleNamespace(lock=threading.Lock()), SimpleNamespace(run=run)

    listed = SimpleNamespace(language_models=dict.fromkeys(models))
    return Tokenization(SimpleNamespace(models=listed, find=find)), found


def test_tokens_are_counted_with_the_boundary_unless_it_is_left_out():
    made, found = tokenizing()

    def ask(**more):
        return asyncio.run(made.tokenize(requests.TokenizeRequest.read({"prompt": "abc", **more})))

    assert ask() == {"count": 4, "max_model_len": 64, "tokens": [1, 5, 5, 5], "token_strs": None}
    assert ask(add_special_tokens=False)["tokens"] == [5, 5, 5]
    assert ask(return_token_strs=True)["token_strs"] == ["<1>", "<5>", "<5>", "<5>"]
    assert ask(model="m")["count"] == 4
    assert found == ["m"] * 4
    for size in (served_models.SHORT, served_models.SHORT + 1):  # here, and beside the event loop
        assert ask(prompt="a" * size, add_special_tokens=False)["count"] == size
    info = made.info(requests.TokenizerInfoRequest.read({}))
    assert info == {
        "tokenizer_class": "bpe", "bos_token": "<2>", "eos_token": "<2>", "vocab_size": 9, "model_max_length": 64,
        "chat_template": "{{ x }}",
    }  # fmt: skip
    for tokens, fits in (([0, 8], True), ([9], False), ([-1], False)):
        asked = requests.DetokenizeRequest.read({"tokens": tokens})
        if fits:
            assert asyncio.run(made.detokenize(asked)) == {"prompt": "xx"}
        else:
            with pytest.raises(FieldError, match="token ids are 0 to 8"):
                asyncio.run(made.detokenize(asked))
    several, _ = tokenizing(("a", "b"))
    with pytest.raises(BadRequest, match="model must be one of a, b, but is missing"):
        several.find(None)
    none, asked = tokenizing(())
    none.find(None)
    assert asked == [""]


def test_a_long_request_is_read_in_pieces_and_has_one_place(monkeypatch):
    served = SimpleNamespace(inside=1, places=2)
    pieces, during = [], []

    async def call(work):
        during.append(served.inside)
        return work()

    inputs = inputs_api.Inputs(SimpleNamespace(scheduler=SimpleNamespace(call=call)))
    texts = [str(n) for n in range(33)]
    found = asyncio.run(inputs._each(served, texts, lambda some: pieces.append(some) or len(some)))
    assert (found, [one for some in pieces for one in some], during, served.inside) == (
        [16, 16, 1],
        texts,
        [2, 2, 2],
        1,
    )

    def wrong(some):
        raise RegardError("Text 1 is empty.")

    with pytest.raises(BadRequest, match="Text 1 is empty") as error:
        asyncio.run(inputs._each(served, texts, wrong))
    assert (error.value.field, served.inside) == ("input", 1)
    served.inside = 2
    with pytest.raises(Full):
        asyncio.run(inputs._each(served, texts, len))
    assert served.inside == 2


# -- what nobody says in a request -----------------------------------------------------------------------------------

PLAIN = {
    "CompletionRequest": ({"model": "m"}, {
        "temperature": 1.0, "top_p": 1.0, "top_k": 0, "n": 1, "stop": (), "stream": False, "min_p": 0.0,
        "repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0, "prompt": "", "max_tokens": 16,
        "best_of": 1, "echo": False, "logprobs": None, "suffix": None, "user": None,
    }),
    "EmbeddingRequest": ({"model": "m", "input": "a"}, {"encoding_format": "float", "layer": None, "pool": "mean"}),
    "TokenizeRequest": ({"prompt": "a"}, {"add_special_tokens": True, "return_token_strs": False, "model": None}),
    "TranslateRequest": (
        {"q": "a", "source": "en", "target": "fr"}, {"format": "text", "alternatives": 0, "api_key": None}
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", PLAIN)
def test_what_is_not_said_is_what_other_servers_take_it_for(kind):
    given, plain = PLAIN[kind]
    made = getattr(requests, kind).read(given)
    assert {name: getattr(made, name) for name in plain} == plain
    if kind == "CompletionRequest":
        assert made.stream_options.include_usage is False
        assert made.response_format.schema_asked is None
        seeds = {requests.CompletionRequest.read(given).seed for _ in range(5)}
        assert len(seeds) == 5
        assert all(0 <= seed < 2**62 for seed in seeds)
        assert max(requests.CompletionRequest.read(given).seed for _ in range(20)) > 2**50
        assert requests.CompletionRequest.read(given | {"top_p": 0}).sampling.top_p == 1e-12


@pytest.mark.parametrize(
    ("field", "fits", "wrong"),
    [
        ("logit_bias", {str(n): 1 for n in range(1024)}, {str(n): 1 for n in range(1025)}),
        ("logit_bias", {"5": 100, "6": -100}, {"5": 100.001}), ("logit_bias", {"0": 0}, {"x": 0}),
        ("logit_bias", {}, []), ("suffix", "", "end"), ("suffix", "", True), ("prompt", [1, 2], [1, 2.0]),
        ("structured_outputs", {"regex": "a" * 4096}, {"regex": "a" * 4097}),
        ("structured_outputs", {"choice": ["a" * 4096]}, {"choice": ["a" * 4097]}),
        ("structured_outputs", {"choice": ["a"] * 1000}, {"choice": ["a"] * 1001}),
        ("structured_outputs", {"json": {}}, {"json": []}), ("response_format", {"type": "text"}, {"type": "xml"}),
        ("stop", ["a" * 256], ["a" * 257]), ("stop", [], [""]), ("stream", True, 1), ("echo", False, "no"),
    ],
)  # fmt: skip
def test_a_field_of_a_completion_ends_where_it_says(field, fits, wrong):
    requests.CompletionRequest.read({"model": "m", field: fits})
    with pytest.raises(FieldError):
        requests.CompletionRequest.read({"model": "m", field: wrong})


def test_a_failure_has_the_status_of_who_is_to_blame():
    assert Failed("x").status == failure(RegardError("x")).status == failure(KeyError("x")).status == 500
    assert failure(Unwritable("Nothing fits.")).status == 400
    assert BadRequest("x").status == 400


def test_workers_have_as_many_rows_as_their_device_can_use(monkeypatch):
    def run(device):
        model = SimpleNamespace(device=SimpleNamespace(type=device))
        return SimpleNamespace(model=model, source_tokenizer=SimpleNamespace(json="json"))

    monkeypatch.setattr(workers, "Tokenizer", SimpleNamespace(from_json=lambda json: f"made of {json}"))
    assert [LanguageWorker(run(device)).rows for device in ("cpu", "mps", "cuda")] == [64, 64, 256]
    assert LanguageWorker(run("cuda"), 7).rows == 7
    assert [TranslationWorker(run(device)).most for device in ("cpu", "mps", "cuda")] == [64, 64, 512]
    assert TranslationWorker(run("cpu")).source_tokenizer == "made of json"


# -- translations and vectors ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("alternatives", "width", "best"), [(0, 5, 1), (3, 5, 4), (4, 5, 5), (5, 6, 6), (9, 10, 10)])
def test_a_search_is_as_wide_as_it_has_to_be(alternatives, width, best):
    models = Surely(PAIRS, dict.fromkeys(PAIRS, (-0.1, 1.0)))
    asked = TranslateRequest.read({"q": "x", "source": "en", "target": "fr", "alternatives": alternatives})
    found = asyncio.run(models.translate(asked))
    ((_, _, beam),) = models.asked
    assert (beam.width, beam.n_best, beam.length_penalty) == (width, best, BEAM.length_penalty)
    assert found["translatedText"] == "x/0"
    assert found.get("alternatives", []) == [f"x/{rank}" for rank in range(1, best)]


def test_a_sentence_with_fewer_ways_is_said_as_before_in_the_others():
    class Some(Surely):
        async def _search(self, served, sentences, beam):
            found = await super()._search(served, sentences, beam)
            return [ways if one.startswith("A") else ways[:1] for one, ways in zip(sentences, found)]

    models = Some(PAIRS, dict.fromkeys(PAIRS, (-0.1, 1.0)))
    asked = {"source": "en", "target": "fr", "alternatives": 2}
    found = asyncio.run(models.translate(TranslateRequest.read({"q": ["Ape! Bee!", "Bee!"], **asked})))
    assert found == {
        "translatedText": ["Ape!/0 Bee!/0", "Bee!/0"],
        "alternatives": [["Ape!/1 Bee!/0", "Ape!/2 Bee!/0"], []],
    }
    html = TranslateRequest.read({"q": "<b>Ape!</b> <i>Bee!</i>", "format": "html", **asked})
    found = asyncio.run(models.translate(html))
    assert found["translatedText"] == "<b>Ape!/0</b> <i>Bee!/0</i>"
    assert found["alternatives"][0] == "<b>Ape!/1</b> <i>Bee!/0</i>"


@pytest.mark.parametrize(("length", "fits"), [(5, True), (6, False)])
def test_a_sentence_may_be_as_long_as_those_of_the_training(length, fits, monkeypatch):
    worker = TranslationWorker.__new__(TranslationWorker)
    worker.run = SimpleNamespace(recipe=SimpleNamespace(data=SimpleNamespace(longest=5)))
    jobs = []

    @contextmanager
    def submitted(scheduler, worker, some):
        jobs.extend(some)
        for number, job in enumerate(some):
            job.events.put_nowait(number)
        yield

    async def size(worker, sentence):
        return length

    served = SimpleNamespace(worker=worker, name="m", length=size, submitted=submitted)
    models = Translations(SimpleNamespace(scheduler=None))
    if fits:
        assert asyncio.run(models._search(served, ["a", "b"], "beam")) == [0, 1]
        assert [(job.sentence, job.beam) for job in jobs] == [("a", "beam"), ("b", "beam")]
    else:
        with pytest.raises(FieldError, match="A sentence has 6 tokens, but m was trained on at most 5") as error:
            asyncio.run(models._search(served, ["a"], "beam"))
        assert error.value.field == "q"


def reading(texts, context=8, labels=None, language=True):
    """An endpoint of texts that are read; each vector is the length of its text."""
    kind = LanguageWorker if language else workers.ClassificationWorker
    worker = kind.__new__(kind)
    tokenizer = SimpleNamespace(encode=list)
    worker.run = SimpleNamespace(
        tokenizer=tokenizer, source_tokenizer=None, model=SimpleNamespace(context=context), labels=labels or [],
        embed=lambda some, layer, pool: np.array([[len(one), layer or 0, pool == "last"] for one in some], float),
        labellings=lambda some: [
            SimpleNamespace(top=lambda count, one=one: [("b", 0.75), ("a", 0.25)][:count] if one else [])
            for one in some
        ],
    )  # fmt: skip
    served = SimpleNamespace(worker=worker, inside=0, places=1, name="m", lock=threading.Lock())

    async def call(work):
        return work()

    return inputs_api.Inputs(SimpleNamespace(by_name={"m": served}, scheduler=SimpleNamespace(call=call)))


def test_vectors_come_with_their_numbers_as_floats_or_as_bytes():
    inputs = reading(["ab", "c"])
    asked = {"model": "m", "input": ["ab", "c"], "layer": 2, "pool": "last"}
    found = asyncio.run(inputs.embed(requests.EmbeddingRequest.read(asked)))
    assert found == {
        "object": "list", "model": "m", "usage": {"prompt_tokens": 3, "total_tokens": 3},
        "data": [{"object": "embedding", "index": 0, "embedding": [2.0, 2.0, 1.0]},
                 {"object": "embedding", "index": 1, "embedding": [1.0, 2.0, 1.0]}],
    }  # fmt: skip
    packed = asyncio.run(inputs.embed(requests.EmbeddingRequest.read(asked | {"encoding_format": "base64"})))
    assert np.frombuffer(base64.b64decode(packed["data"][0]["embedding"]), "<f4").tolist() == [2.0, 2.0, 1.0]
    assert (
        asyncio.run(inputs.embed(requests.EmbeddingRequest.read(asked | {"input": "a" * 7})))["usage"]["total_tokens"]
        == 7
    )
    with pytest.raises(BadRequest, match="Text 2 has 9 tokens, but the model reads 8: cut it") as error:
        asyncio.run(inputs.embed(requests.EmbeddingRequest.read(asked | {"input": ["a", "a" * 8]})))
    assert error.value.field == "input"
    with pytest.raises(BadRequest, match='There is no model "x" here; available: m') as error:
        asyncio.run(inputs.embed(requests.EmbeddingRequest.read(asked | {"model": "x"})))
    assert (error.value.status, error.value.code, error.value.field) == (404, "model_not_found", "model")


def test_labels_come_most_probable_first_and_an_empty_text_is_named(monkeypatch):
    inputs = reading(["ab", "c"], labels=["a", "b"], language=False)
    monkeypatch.setattr(inputs_api, "time", SimpleNamespace(time=lambda: 12.9))
    found = asyncio.run(inputs.classify(requests.ClassifyRequest.read({"model": "m", "input": ["x", "y"]})))
    more = {"label": "b", "labels": ["b", "a"], "probs": [0.75, 0.25], "num_classes": 2}
    assert found.pop("id").startswith("classify-")
    assert found == {"object": "list", "created": 12, "model": "m", "data": [{"index": n, **more} for n in range(2)]}
    with pytest.raises(BadRequest, match="Text 2 of input is empty: remove it"):
        asyncio.run(inputs.classify(requests.ClassifyRequest.read({"model": "m", "input": ["x", ""]})))
    with pytest.raises(BadRequest, match="available: none"):
        asyncio.run(reading(["a"]).classify(requests.ClassifyRequest.read({"model": "m", "input": "x"})))


@pytest.mark.parametrize("usage", [False, True])
def test_the_event_of_a_piece_is_that_of_any_other_message(usage):
    made = answer([choice(0, [1], [7])])
    made.question.stream_options = SimpleNamespace(include_usage=usage)
    one = made.choices[0]
    for finish in (None, "stop"):
        one.finish = finish
        message = {**made._frame([one.as_json('é "x"')]), **({"usage": None} if usage else {})}
        assert made._piece_event(one, 'é "x"') == completions_api.as_event(message)
    assert completions_api.as_event({"a": "é"}) == 'data: {"a": "é"}\n\n'
    assert made.id.startswith("cmpl-")


# -- the whole server ------------------------------------------------------------------------------------------------

ADDRESSES = {
    "GET": ["/", "/docs", "/frontend/settings", "/health", "/languages", "/metrics", "/openapi.json",
            "/static/colours.css", "/static/serve.css", "/static/serve.js", "/tokenizer_info",
            "/v1/models", "/v1/models/{name}"],
    "POST": ["/classify", "/detect", "/detokenize", "/tokenize", "/translate", "/v1/chat/completions",
             "/v1/completions", "/v1/embeddings"],
}  # fmt: skip


def empty_server(token=None, alive=True):
    stopped = []

    async def stop():
        stopped.append(True)

    scheduler = SimpleNamespace(start=lambda: None, stop=stop, thread=SimpleNamespace(is_alive=lambda: alive))
    models = SimpleNamespace(by_name={}, languages={}, language_models={}, scheduler=scheduler)
    return TestClient(
        api_server.application(models, host="127.0.0.1", token=token), base_url="http://127.0.0.1"
    ), stopped


def test_every_address_has_its_method_and_its_kind():
    models = SimpleNamespace(by_name={}, languages={}, language_models={}, scheduler=None)
    routes = api_server.Application(models, None).routes()
    assert {
        method: sorted(route.path for route in routes if method in route.methods) for method in ADDRESSES
    } == ADDRESSES
    client, stopped = empty_server()
    with client:
        kinds = {"/": "text/html", "/docs": "text/html", "/static/serve.css": "text/css",
                 "/static/colours.css": "text/css", "/static/serve.js": "text/javascript",
                 "/openapi.json": "application/json", "/metrics": "text/plain; version=0.0.4"}  # fmt: skip
        for path, kind in kinds.items():
            found = client.get(path)
            assert (found.status_code, found.headers["content-type"].startswith(kind)) == (200, True), path
        assert ":root" in client.get("/static/colours.css").text
        assert client.get("/health").json() == {"status": "ok"}
        assert client.get("/v1/models").json() == {"object": "list", "data": []}
        assert client.get("/languages").json() == []
        assert client.get("/v1/models/x").status_code == 404
        assert client.get("/v1/completions").status_code == 405
        missing = client.post("/v1/embeddings", json={"model": "m" * 300, "input": "a"})
        assert missing.status_code == 404
        assert stopped == []
    assert stopped == [True]
    dead, _ = empty_server(alive=False)
    assert dead.get("/health").status_code == 500


def test_a_token_is_taken_from_a_header_or_a_body_and_only_the_right_one():
    token = "0123456789abcdef"
    client, _ = empty_server(token)
    asked = {"q": "a", "source": "en", "target": "fr"}
    for more, status in (({}, 401), ({"api_key": "x"}, 401), ({"api_key": ""}, 401), ({"api_key": token}, 400)):
        for path in ("/translate", "/detect"):
            body = asked | more if path == "/translate" else {"q": "a"} | more
            found = client.post(path, json=body)
            assert found.status_code == status, (path, more)
    assert client.post("/translate", json={"api_key": "x"}).json() == {
        "error": "This server requires a token: send it as api_key."
    }
    assert client.get("/frontend/settings").json()["keyRequired"] is True
    assert client.get("/v1/models").status_code == 401
    shown = {"authorization": f"Bearer {token}"}
    assert client.get("/v1/models", headers=shown).status_code == 200
    assert client.post("/translate", json=asked, headers=shown).status_code == 400
    assert empty_server()[0].post("/translate", json=asked).status_code == 400  # without one nobody is asked


def test_the_document_names_each_operation_and_what_it_answers(told):
    found = {path: next(iter(methods.values())) for path, methods in told["paths"].items()}
    assert {path: one["operationId"] for path, one in found.items()} == {
        "/v1/models": "listModels", "/v1/models/{name}": "getModel", "/v1/completions": "complete",
        "/v1/chat/completions": "chat", "/v1/embeddings": "embed", "/classify": "classify", "/tokenize": "tokenize",
        "/detokenize": "detokenize", "/tokenizer_info": "tokenizerInfo", "/translate": "translate", "/detect": "detect",
        "/languages": "languages", "/frontend/settings": "settings", "/health": "health", "/metrics": "metrics",
    }  # fmt: skip
    schemas = {path: next(iter(one["responses"]["200"]["content"].values()))["schema"] for path, one in found.items()}
    named = {path: schema["$ref"].rpartition("/")[2] for path, schema in schemas.items() if "$ref" in schema}
    assert named == {
        "/v1/models": "Models", "/v1/models/{name}": "Model", "/v1/completions": "Completion",
        "/v1/chat/completions": "Chat", "/v1/embeddings": "Embeddings", "/classify": "Classified",
        "/tokenize": "Tokenized", "/detokenize": "Detokenized", "/tokenizer_info": "TokenizerInfo",
        "/translate": "Translated", "/health": "Health",
    }  # fmt: skip
    assert [schemas[path]["items"]["$ref"].rpartition("/")[2] for path in ("/detect", "/languages")] == [
        "Detected",
        "Language",
    ]
    bodies = {path: one["requestBody"]["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
              for path, one in found.items() if "requestBody" in one}  # fmt: skip
    assert bodies == {
        "/v1/completions": "CompletionRequest", "/v1/chat/completions": "ChatRequest", "/classify": "ClassifyRequest",
        "/v1/embeddings": "EmbeddingRequest", "/tokenize": "TokenizeRequest", "/detokenize": "DetokenizeRequest",
        "/translate": "TranslateRequest", "/detect": "DetectRequest",
    }  # fmt: skip
    assert [one["name"] for one in found["/tokenizer_info"]["parameters"]] == ["model"]
    assert found["/v1/models/{name}"]["parameters"][0]["required"] is True
    for path, one in found.items():
        error = "Error" if path.startswith("/v1/") else "Sentence"
        for code, refused_ in one["responses"].items():
            if code != "200":
                assert refused_["content"]["application/json"]["schema"]["$ref"].endswith(f"/{error}")
