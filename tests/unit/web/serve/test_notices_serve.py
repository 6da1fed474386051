"""The server's bookkeeping: places, turns, signatures of runs, what a log line and an error say. No model is needed."""

import asyncio
import io
import json
import os
from itertools import pairwise
from types import SimpleNamespace

import jsonschema
import pytest
from starlette.exceptions import HTTPException
from starlette.requests import Request

from regard.base.errors import RegardError
from regard.base.fields import FieldError, WholeField
from regard.decoding.beam import Beam
from regard.decoding.growing_text import Until
from regard.web.serve import (
    access_log,
    api_server,
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
    assert (server_metrics.BOUNDS[0], server_metrics.BOUNDS[-1], server_metrics.GAPS[0]) == (0.005, 60.0, 0.0005)
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
    alone = Surely({"a": ("en", "fr")}, {}).settings(False)
    assert alone["language"]["source"] == {"code": "en", "name": "English"}
    assert (alone["keyRequired"], models.settings(True)["keyRequired"], models.settings(True)["apiKeys"]) == (
        False, True, True,
    )  # fmt: skip
