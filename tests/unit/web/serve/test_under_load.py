"""A server that is full, left, stopped or given another model: no request is lost, and each place is freed."""

import json
import os
import shutil
import signal
import socket
import threading
import time
from contextlib import contextmanager
from urllib.parse import urlsplit

import httpx
import openai
import pytest

import regard
from regard.decoding.sampling import Sampling
from regard.web.serve.requests import CompletionRequest
from regard.web.serve.workers import LanguageWorker

LINES = [f"one two three four five {word} end" for word in ("a", "b", "c", "d", "e", "f")] * 5


def count_words(folder, lines):
    text = folder.with_suffix(".txt")
    text.write_text("\n".join(lines) + "\n")
    settings = {"data": {"tokenizer": "char", "split": "tail"}, "model": {"order": 4}}
    return regard.train("ngram", data=text, run=folder, settings=settings)


@pytest.fixture(scope="module")
def endless(tmp_path_factory):
    """A run that writes as long as it is asked to: nothing limits an n-gram."""
    return count_words(tmp_path_factory.mktemp("runs") / "endless", LINES).folder


def body(**more):
    return {"model": "writer", "prompt": "The", "max_tokens": 10, "seed": 1, **more}


@contextmanager
def held(models, name, steps=0):
    """Inside, the model takes so many steps and no more until the yielded event is set."""
    worker, gate, free = models.by_name[name].worker, threading.Event(), iter(range(steps))
    step = worker.step

    def wait(post):
        if next(free, None) is None:
            gate.wait(600)
        step(post)

    worker.step = wait
    try:
        yield gate
    finally:
        gate.set()
        worker.step = step


def wait_until(true, seconds=300):
    """Far longer than it takes on a busy machine, and far less than for ever."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "this never came true"
        time.sleep(0.01)


def test_who_comes_when_all_places_are_taken_is_told_to_come_back(runs, served):
    with served(runs["writer"], queue=2) as (address, models), held(models, "writer") as gate:
        answers = []
        asking = [
            threading.Thread(target=lambda: answers.append(httpx.post(f"{address}v1/completions", json=body())))
            for _ in range(2)
        ]
        for one in asking:
            one.start()
        wait_until(lambda: models.by_name["writer"].inside == 2)
        full = httpx.post(f"{address}v1/completions", json=body())
        assert full.status_code == 503
        assert full.headers["retry-after"] == "1"
        assert full.json()["error"]["code"] == "overloaded"
        assert httpx.post(f"{address}v1/completions", json=body(n=3)).status_code == 503  # more than there are places
        assert httpx.get(f"{address}health").status_code == 200  # which no model delays
        gate.set()
        for one in asking:
            one.join()
        assert [answer.status_code for answer in answers] == [200, 200]
        assert httpx.post(f"{address}v1/completions", json=body()).status_code == 200
        with openai.OpenAI(base_url=f"{address}v1", api_key="none") as client:  # waits as it was told to
            assert client.completions.create(**body()).choices[0].text


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_frees_its_place(runs, served, stream):
    with served(runs["writer"]) as (address, models), held(models, "writer") as gate:
        writer = models.by_name["writer"]
        place, asked = urlsplit(address), json.dumps(body(n=4, stream=stream))
        head = f"POST /v1/completions HTTP/1.1\r\nHost: {place.netloc}\r\nContent-Length: {len(asked)}\r\n\r\n"
        with socket.create_connection((place.hostname, place.port)) as client:
            client.sendall((head + asked).encode())
            wait_until(lambda: writer.inside == 4)
        wait_until(lambda: writer.inside == 0)
        gate.set()
        wait_until(lambda: not writer.worker.busy)
        assert not writer.worker.writing
        assert not writer.worker.waiting


def test_a_client_that_leaves_in_the_middle_frees_its_place(endless, served):
    """While the model takes no step, so that it is the client's leaving and not the text's end that frees it."""
    with served(endless) as (address, models), held(models, "endless", steps=5) as gate:
        writer = models.by_name["endless"]
        asked = body(model="endless", prompt="one", max_tokens=4000, stream=True)
        with httpx.stream("POST", f"{address}v1/completions", json=asked) as answer:
            lines = answer.iter_lines()  # by name: httpx closes the connection when the iterator is collected
            next(lines)
            ((_, text),) = writer.worker.writing.values()
            assert writer.inside == 1
        wait_until(lambda: writer.inside == 0)
        gate.set()
        wait_until(lambda: not writer.worker.busy)
        assert text.written < 100  # it was given up


def test_a_step_that_fails_is_told_to_all_it_concerns_and_no_others(runs, served, monkeypatch):
    with served(runs["writer"]) as (address, models):
        worker = models.by_name["writer"].worker
        monkeypatch.setattr(worker.run, "new_engine", lambda *_: 1 / 0)
        assert httpx.post(f"{address}v1/completions", json=body()).status_code == 500
        monkeypatch.undo()
        assert httpx.post(f"{address}v1/completions", json=body()).status_code == 200
        (engine,) = worker.engines.values()
        monkeypatch.setattr(engine, "step", lambda: 1 / 0)
        answer = httpx.post(f"{address}v1/completions", json=body())
        assert answer.status_code == 500
        assert answer.json()["error"]["message"] == "The model failed on this request; see the server's log."
        assert httpx.post(f"{address}v1/completions", json=body(temperature=0)).status_code == 200
        assert httpx.post(f"{address}v1/completions", json=body()).status_code == 200  # with another engine


def read(lines):
    """The text of a stream, to its end."""
    text = ""
    for line in lines:
        if line == "data: [DONE]":
            return text
        if line:
            text += json.loads(line.removeprefix("data: "))["choices"][0]["text"]
    raise AssertionError("the stream was cut")


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_sigterm_finishes_what_has_begun(endless, process):
    with process(endless) as (running, address):
        asked = body(model="endless", prompt="one", max_tokens=400, stream=True)
        with httpx.stream("POST", f"{address}v1/completions", json=asked) as answer:
            lines = answer.iter_lines()
            first = next(lines)
            running.send_signal(signal.SIGTERM)
            text = read([first, *lines])
        assert "one" + text == regard.load(endless).generate("one", max_tokens=400, seed=1)
        assert running.wait() == 0
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{address}health")
        assert "Traceback" not in running.stderr.read()


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_sighup_takes_up_a_replaced_run_and_drops_nothing(endless, process, tmp_path):
    mine = tmp_path / "mine"
    shutil.copytree(endless, mine)
    other = count_words(tmp_path / "other", [line.upper() for line in LINES])
    with process(mine) as (running, address), httpx.Client(base_url=address, timeout=600) as client:
        asked = body(model="mine", prompt="one", max_tokens=400)
        with client.stream("POST", "/v1/completions", json={**asked, "stream": True}) as answer:
            lines = answer.iter_lines()
            first = next(lines)
            os.rename(mine, tmp_path / "old")
            shutil.copytree(other.folder, mine)
            running.send_signal(signal.SIGHUP)
            while "mine was replaced" not in running.stderr.readline():
                pass
            new = client.post("/v1/completions", json=body(model="mine", prompt="ONE")).json()
            assert "ONE" + new["choices"][0]["text"] == other.generate("ONE", max_tokens=10, seed=1)
            text = read([first, *lines])
        assert "one" + text == regard.load(endless).generate("one", max_tokens=400, seed=1)
        (mine / "model.safetensors").write_bytes(b"damaged")
        running.send_signal(signal.SIGHUP)
        while "mine was not reloaded" not in running.stderr.readline():
            pass
        again = client.post("/v1/completions", json=body(model="mine", prompt="ONE")).json()
        assert again["choices"] == new["choices"]


def test_a_request_is_answered_by_the_model_that_it_was_checked_against(endless, tmp_path, monkeypatch):
    """Its run is replaced between its being read and its being submitted: tokens of one are no tokens of the other."""
    import asyncio

    from regard.web.serve.completions_api import Completions
    from regard.web.serve.served_models import ServedModels

    other = count_words(tmp_path / "other", [f"a b {c}" for c in "cde"] * 10)

    async def ask():
        models = ServedModels([endless], languages={}, places=4, device="cpu")
        served = models.by_name["endless"]
        opening = served.opening

        async def replaced_meanwhile(*given):
            found = await opening(*given)
            served.use(other)
            await models.scheduler.call(models._exchange)
            return found

        monkeypatch.setattr(served, "opening", replaced_meanwhile)
        models.scheduler.start()
        try:
            asked = body(model="endless", prompt="one", logprobs=1)
            answer = await Completions(models).begin(CompletionRequest.read(asked))
            return await answer.whole()
        finally:
            await models.scheduler.stop()

    (choice,) = asyncio.run(ask())["choices"]
    assert "one" + choice["text"] == regard.load(endless).generate("one", max_tokens=10, seed=1)
    assert "".join(choice["logprobs"]["tokens"]) == choice["text"]


@pytest.mark.parametrize("stop", [None, "our"])
def test_a_loop_that_is_behind_writes_all_that_has_come_at_once_and_nothing_else(endless, stop):
    """The text, the reason of its end and the tokens counted are those of a client that is served at once."""
    import asyncio

    from regard.web.serve.completions_api import Completions
    from regard.web.serve.served_models import ServedModels

    async def ask(behind):
        models = ServedModels([endless], languages={}, places=4, device="cpu")
        models.scheduler.start()
        try:
            more = {"stream": True, "stream_options": {"include_usage": True}, "stop": stop, "n": 2}
            asked = CompletionRequest.read(body(model="endless", prompt="one", max_tokens=60, **more))
            answer = await Completions(models).begin(asked)
            events = answer.stream()
            found = [await anext(events)]
            if behind:
                wait_until(lambda: all(choice.job.over for choice in answer.choices))  # the loop does nothing meanwhile
                delivered = threading.Event()
                models.scheduler.inbox.put(delivered.set)  # taken in after the step that posts the last of them
                delivered.wait()
            found += [event async for event in events]
        finally:
            await models.scheduler.stop()
        said = [json.loads(line[6:]) for event in found for line in event.split("\n\n") if line.startswith("data: {")]
        choices = [choice for event in said for choice in event["choices"]]
        assert all(event.keys() == said[0].keys() for event in said)
        texts = ["".join(choice["text"] for choice in choices if choice["index"] == index) for index in range(2)]
        ends = {choice["index"]: choice["finish_reason"] for choice in choices if choice["finish_reason"]}
        return len(found), texts, ends, said[-1]["usage"]

    late, at_once = asyncio.run(ask(True)), asyncio.run(ask(False))
    assert late[0] <= 5  # the first event, all that was missed, what the loop had been told of before, usage, [DONE]
    assert late[1:] == at_once[1:]
    assert set(late[2].values()) == {"length" if stop is None else "stop"}


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with a name")
def test_a_run_that_cannot_be_read_stays_and_the_others_are_taken_up(endless, tmp_path, capsys, monkeypatch):
    import asyncio

    from regard.web.serve.served_models import ServedModels

    names = ["pipe", "weights", "odd", "good"]
    for name in names:
        shutil.copytree(endless, tmp_path / name)
    models = ServedModels([tmp_path / name for name in names], languages={}, places=4, device="cpu")
    before = {name: models.by_name[name].worker for name in names}
    for name, file in (("pipe", "recipe.toml"), ("weights", "model.safetensors")):
        (tmp_path / name / file).unlink()
        os.mkfifo(tmp_path / name / file)
    for name in ("odd", "good"):
        os.utime(tmp_path / name / "recipe.toml", (1, 1))
    load = models._load
    monkeypatch.setattr(models, "_load", lambda folder, device: 1 / 0 if folder.name == "odd" else load(folder, device))

    async def reload():
        models.scheduler.start()
        try:
            await models.reload()
        finally:
            await models.scheduler.stop()

    asyncio.run(reload())
    assert [name for name in names if models.by_name[name].worker is not before[name]] == ["good"]
    said = capsys.readouterr().err
    assert said.count("is a pipe or a device") == 2
    assert "odd was not reloaded: it could not be read (ZeroDivisionError)." in said
    assert "good was replaced" in said


def test_a_run_that_cannot_be_served_is_said_before_anything_listens(endless, tmp_path):
    from regard.base.errors import RegardError
    from regard.web.serve.served_models import ServedModels

    with pytest.raises(RegardError, match="Two runs are called endless"):
        ServedModels([endless, endless], languages={}, places=1)
    with pytest.raises(RegardError, match="not one of the translators"):
        ServedModels([endless], languages={"endless": ("en", "fr")}, places=1)
    with pytest.raises(RegardError, match="There is no run"):
        ServedModels([tmp_path / "none"], languages={}, places=1)


def test_where_steps_are_recorded_a_worker_begins_with_every_number_of_rows(runs, monkeypatch):
    """As on a GPU: afterwards no number of clients needs a new writer, and what was written leaves no trace."""
    monkeypatch.setattr("regard.web.serve.workers.RECORDED", {"cpu"})
    monkeypatch.setattr("regard.decoding.engine.RECORDED", {"cpu"})
    worker = LanguageWorker(regard.load(runs["writer"], device="cpu"), rows=6)
    worker.warm_up()
    (engine,) = worker.engines.values()
    assert sorted(engine.writers) == [1, 2, 4, 6]
    assert not worker.busy
    texts = [engine.submit([engine.eos], max_tokens=9, seed=3, number=number) for number in range(6)]
    while not all(text.done for text in texts):
        engine.step()
    anew = worker.run.new_engine(Sampling(), 6)
    assert [text.new for text in texts] == list(anew.texts([[engine.eos]] * 6, max_tokens=9, seed=3))


def test_a_worker_that_cannot_warm_up_is_there_all_the_same(runs, served, monkeypatch):
    def fail(worker):
        raise RuntimeError("out of memory")

    monkeypatch.setattr(LanguageWorker, "warm_up", fail)
    with served(runs["writer"]) as (address, _):
        answer = httpx.post(f"{address}v1/completions", json={"model": "writer", "prompt": "The", "max_tokens": 2})
        assert answer.status_code == 200
