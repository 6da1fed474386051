"""Servers under load, by stand-ins: what clients ask in which turn, what of it is counted, and what a peer answers."""

import asyncio
import json
import os
import queue
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from starlette.testclient import TestClient

import regard
from regard.bench import hugging_face_server, server_load, starting
from regard.bench.contenders import BenchPlace
from regard.bench.http_load import Client, HttpAnswer, load
from regard.bench.server_load import Load, measure, percentiles, take_turns

HERE = BenchPlace(torch.device("cpu"), "quick")


def answer(question=0, first=0.1, whole=0.2, text="a", tokens=4):
    event = json.dumps({"choices": [{"text": text}], "usage": {"completion_tokens": tokens}})
    body = f"data: {event}\n\ndata: [DONE]\n\n".encode()
    return HttpAnswer(
        question, 0.0, first, whole, [b"HTTP/1.1 200 OK\r\n\r\n", b"%x\r\n" % len(body), body, b"\r\n0\r\n\r\n"]
    )


# -- turns -----------------------------------------------------------------------------------------------------------


def test_percentiles_are_of_all_requests_and_one_has_both():
    assert percentiles([float(n) for n in range(101)]) == {"p50": 50.0, "p99": 99.0}
    assert percentiles([0.5]) == {"p50": 0.5, "p99": 0.5}
    assert percentiles([]) == {}


def test_each_number_of_clients_takes_its_turn_with_questions_of_its_own(monkeypatch):
    asked, told = [], []

    def ask(address, questions, clients, seconds=0.0):
        found = [next(questions) for _ in range(clients)]
        asked.append((clients, seconds, [number for number, _ in found]))
        (question,) = {json.dumps({**one, "prompt": 0}) for _, one in found}
        assert json.loads(question) == {"model": "gpt", "prompt": 0, "max_tokens": 4, "temperature": 0}
        assert all(len(one["prompt"]) == server_load.PROMPT for _, one in found)
        return [answer(number, tokens=10) for number, _ in found]

    monkeypatch.setattr(server_load, "load", ask)
    clock = iter(range(1000))
    monkeypatch.setattr(server_load.time, "perf_counter", lambda: 2.0 * next(clock))
    seconds = iter(range(1000))
    server = SimpleNamespace(address="x", processor_seconds=lambda: 0.5 * next(seconds))
    loads = [Load("Regard", clients, HERE, 4) for clients in (3, 1)]
    take_turns(server, loads, 2, 7.0, told.append)
    warm = [(3, 0.0, [0, 1, 2]), (1, 0.0, [0])] * 2
    assert asked == [*warm, (3, 7.0, [0, 1, 2]), (1, 7.0, [0]), (3, 7.0, [3, 4, 5]), (1, 7.0, [1])]
    assert told == [*loads, *loads]
    many, alone = loads
    assert many.one is alone.one is alone
    assert (many.rates, alone.rates) == ([15.0, 15.0], [5.0, 5.0])  # tokens of the turn over its two seconds
    assert (many.tokens, many.busy, len(many.answers)) == (60, 1.0, 6)
    facts = many.facts()
    assert (facts["median"], facts["spread"], facts["times_one_client"]) == (15.0, 0.0, 3.0)
    assert (facts["requests"], facts["requests_per_second"]) == (6, 15.0 / 4)
    assert (facts["tokens_per_processor_second"], facts["times_one_client_by_processor"]) == (60.0, 3.0)
    assert (facts["first_token_seconds"]["p50"], facts["whole_seconds"]["p99"]) == (0.1, 0.2)
    assert many.as_json()["could_not_run"] is None


def test_texts_are_compared_with_those_of_a_client_alone():
    alone = Load("Regard", 1, HERE, 4, answers=[answer(0), answer(1, text="b")])
    alone.one = alone
    many = Load("Regard", 4, HERE, 4, answers=[answer(0), answer(1, text="c"), answer(2), answer(0)], one=alone)
    assert many.texts_as_alone() == "2 of 3"
    assert alone.texts_as_alone() is None
    for nothing in (Load("x", 4, HERE, 4, answers=[answer()]), Load("x", 4, HERE, 4, one=alone)):
        assert nothing.texts_as_alone() is None
    empty = Load("x", 2, HERE, 4, one=alone, why="no")
    assert (empty.facts()["median"], empty.facts()["requests_per_second"], empty.times_one_client()) == (
        None,
        None,
        None,
    )
    assert empty.as_json()["could_not_run"] == "no"
    assert empty.work == f"2×32, requests of {server_load.PROMPT} + 4 tokens, fp32"


def test_regard_is_measured_first_and_its_peer_for_fewer_turns(monkeypatch):
    taken = []

    @contextmanager
    def server(place):
        yield "server"

    @contextmanager
    def broken(place):
        raise RuntimeError("it did not start")
        yield

    def take(server, loads, turns, seconds, each):
        taken.append(([one.clients for one in loads], turns, seconds))
        for one in loads:
            one.rates.append(1.0)

    monkeypatch.setattr(server_load, "regard_server", server)
    monkeypatch.setattr(server_load, "hugging_face_server", server)
    monkeypatch.setattr(server_load, "take_turns", take)
    monkeypatch.setattr(server_load, "find_spec", lambda name: name == "transformers")
    found = measure(HERE, 5, [4, 1, 4], 0.0)
    assert taken == [([1, 4], 5, 0.0), ([1, 4], 2, 0.0)]
    assert [(one.server, one.clients, one.why, one.new) for one in found] == [
        ("Regard", 1, "", 4), ("Regard", 4, "", 4), ("transformers' generate", 1, "", 4),
        ("transformers' generate", 4, "", 4),
    ]  # fmt: skip
    taken.clear()
    measure(HERE, 1)
    assert taken == [([1, 4], 1, 0.1)] * 2
    for size, clients, seconds in (("small", [1, 16, 64], 2.0), ("full", [1, 16, 64, 256], 2.0)):
        taken.clear()
        measure(BenchPlace(HERE.device, size), 1)
        assert taken[0] == (clients, 1, seconds)
    monkeypatch.setattr(server_load, "hugging_face_server", broken)
    assert [one.why for one in measure(HERE, 1, [1])] == ["", "It failed with RuntimeError: it did not start"]
    monkeypatch.setattr(server_load, "find_spec", lambda name: None)
    assert measure(HERE, 1, [1])[1].why == "The package transformers is not installed here."


def test_a_server_is_a_process_that_prints_its_address_and_is_ended(monkeypatch, tmp_path):
    asked = []

    class Process:
        def __init__(self, words, **how):
            asked.append((words, how))
            self.stdout, self.pid = SimpleNamespace(readline=lambda: "http://x\n" if "ok" in words else ""), os.getpid()

        def kill(self):
            asked.append("kill")

        def wait(self):
            asked.append("wait")

    monkeypatch.setattr(subprocess, "Popen", Process)
    with server_load.running(["ok", "--port", "0"]) as server:
        assert server.address == "http://x"
        times = os.times()
        if sys.platform == "linux":
            assert 0 < server.processor_seconds() <= os.times().user + os.times().system + 0.02
            assert server.processor_seconds() >= times.user + times.system - 0.05
        server.process.pid = 2**22 + 1
        assert server.processor_seconds() == 0.0
    assert asked == [
        ([sys.executable, "-m", "ok", "--port", "0"], {"stdout": subprocess.PIPE, "text": True}), "kill", "wait",
    ]  # fmt: skip
    with pytest.raises(RuntimeError, match="other did not start"), server_load.running(["other"]):
        pass
    place = SimpleNamespace(device=torch.device("cpu"), precision="fp32", dtype=torch.float32, of=HERE.of)
    asked.clear()

    @contextmanager
    def running(command):
        asked.append(command)
        if command[0] != "regard":
            asked.append(json.loads(Path(command[1]).read_text()))
        yield "server"

    monkeypatch.setattr(server_load, "running", running)
    monkeypatch.setattr(server_load, "random_run", lambda place, folder: folder / "gpt")
    with server_load.regard_server(place) as server:
        assert server == "server"
    assert asked.pop()[3:] == ["--port", "0", "--device", "cpu", "--precision", "fp32"]
    with server_load.hugging_face_server(place):
        command, settings = asked
    assert command[0] == "regard.bench.hugging_face_server"
    assert command[2:] == ["--device", "cpu", "--dtype", "float32"]
    assert settings == {"vocab_size": 128, "n_positions": 32, "n_embd": 32, "n_layer": 2, "n_head": 2,
                        "bos_token_id": 0, "eos_token_id": 0}  # fmt: skip


def test_the_run_of_a_server_has_random_weights_and_a_word_for_each_number(tmp_path):
    run = regard.load(server_load.random_run(HERE, tmp_path))
    assert (run.recipe.system, run.tokenizer.vocabulary) == ("gpt", 128)
    assert run.tokenizer.encode("2 127") == [2, 127]
    torch.manual_seed(1)
    assert run.parameters == sum(weight.numel() for weight in run.model.parameters())


# -- clients ---------------------------------------------------------------------------------------------------------


def connected(*pieces):
    """A client whose server sends these pieces, one for each receive."""
    client = Client.__new__(Client)
    left = list(pieces)
    client.host = "x:1"
    client.socket = SimpleNamespace(
        recv=lambda size: left.pop(0) if left else b"", sendall=lambda content: sent.append(content)
    )
    sent = client.sent = []
    client.answer = HttpAnswer(0, 0.0)
    return client


def test_an_answer_is_complete_with_its_last_chunk_and_its_first_token_is_its_first_event():
    client = connected(b"HTTP/1.1 20", b"0 OK\r\n\r\n", b"1\r\ndata: {}", b"\r\n0\r\n", b"\r\n")
    client.ask(7, {"prompt": "é"})
    head, _, body = client.sent[0].partition(b"\r\n\r\n")
    assert head.startswith(b"POST /v1/completions HTTP/1.1\r\nHost: x:1\r\n")
    assert head.endswith(b"Content-Length: %d" % len(body))
    assert json.loads(body) == {"prompt": "é", "stream": True, "stream_options": {"include_usage": True}}
    seen = []
    while not client.receive():
        seen.append((client.answer.first > 0, client.answer.whole))
    assert seen == [(False, 0.0), (False, 0.0), (True, 0.0), (True, 0.0)]
    assert 0 < client.answer.first <= client.answer.whole
    assert client.answer.question == 7
    with pytest.raises(RuntimeError, match="the server has closed the connection"):
        client.receive()
    with pytest.raises(RuntimeError, match="the server's answer was cut off"):
        assert client.answer.tokens
    refused = connected(b"HTTP/1.1 503 Service Unavailable\r\nx: y")
    with pytest.raises(RuntimeError, match=r"the server returned HTTP/1\.1 503 Service Unavailable$"):
        refused.receive()


def test_a_text_is_put_together_from_its_chunks():
    event = 'data: {"choices": [{"text": "a "}, {"text": "b"}]}\n\n'
    body = (event + 'data: {"choices": [{"text": "é"}]}\n\ndata: [DONE]\n\n').encode()
    cut = (3, 40)
    parts = [body[: cut[0]], body[cut[0] : cut[1]], body[cut[1] :]]
    answered = HttpAnswer(
        0, 0.0, parts=[b"HTTP/1.1 200 OK\r\n\r\n", *(b"%x\r\n%s\r\n" % (len(p), p) for p in parts), b"0\r\n\r\n"]
    )
    assert answered.text() == "a bé"


def test_clients_ask_again_until_the_time_is_up_and_a_silent_server_is_given_up(monkeypatch):
    payload = b"".join(answer(text="x", tokens=3).parts)
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve():
            open_ = [listening.accept()[0] for _ in range(2)]
            while open_:
                for one in list(open_):
                    if one.recv(2**16):
                        one.sendall(payload)
                    else:
                        open_.remove(one)
                        one.close()

        serving = threading.Thread(target=serve)
        serving.start()
        now = iter([0.0, *([0.5] * 4), *([2.0] * 1000)])
        monkeypatch.setattr("regard.bench.http_load.time.perf_counter", lambda: next(now))
        questions = cycle(enumerate({"prompt": n} for n in range(9)))
        address = f"http://127.0.0.1:{listening.getsockname()[1]}/"
        found = load(address, questions, 2, 1.0)
        serving.join()
        assert len(found) >= 2
        assert sorted({one.question for one in found}) == sorted(range(len(found)))
        monkeypatch.setattr("regard.bench.http_load.SILENCE", 0.01)
        with pytest.raises(RuntimeError, match="the server has not responded for 0 seconds"):
            load(address, questions, 1)


# -- the peer --------------------------------------------------------------------------------------------------------


class Model:
    """Writes 10, 11, … for the first row, 20, 21, … for the second."""

    device = torch.device("cpu")

    def __init__(self):
        self.asked = []

    def generate(self, tokens, *, streamer, **how):
        self.asked.append((tokens.tolist(), how.pop("attention_mask").tolist(), how))
        streamer.put(tokens)
        for step in range(how["max_new_tokens"]):
            streamer.put(torch.tensor([10 * (row + 1) + step for row in range(len(tokens))]))
        streamer.end()


def test_requests_that_wait_are_generated_together_and_each_gets_as_many_tokens_as_it_asked_for():
    model = Model()
    peer = hugging_face_server.Peer(model)

    async def both():
        peer.loop = asyncio.get_running_loop()
        jobs = [hugging_face_server.HuggingFaceJob([5, 6, 7], 1), hugging_face_server.HuggingFaceJob([8], 3)]
        peer._generate(jobs)
        return [[event async for event in peer._events(job)] for job in jobs]

    first, second = asyncio.run(both())
    assert model.asked == [(
        [[5, 6, 7], [0, 0, 8]], [[1, 1, 1], [0, 0, 1]],  # padded on the left
        {"do_sample": False, "min_new_tokens": 3, "max_new_tokens": 3, "pad_token_id": 0},
    )]  # fmt: skip

    def read(events):
        assert events[-1] == "data: [DONE]\n\n"
        found = [json.loads(event.removeprefix("data: ")) for event in events[:-1]]
        assert found[-1]["choices"] == []
        return [one["choices"][0]["text"] for one in found[:-1]], found[-1]["usage"]["completion_tokens"]

    assert (read(first), read(second)) == (([" 10"], 1), ([" 20", " 21", " 22"], 3))


def test_a_peer_takes_all_that_waits_up_to_its_limit(monkeypatch):
    class Enough(Exception):
        pass

    peer = hugging_face_server.Peer(None)
    taken = []

    def generate(jobs):
        taken.append(jobs)
        if peer.waiting.empty():
            raise Enough

    monkeypatch.setattr(peer, "_generate", generate)
    monkeypatch.setattr(hugging_face_server, "MAX_TEXTS", 3)
    peer.waiting = queue.SimpleQueue()
    for job in range(7):
        peer.waiting.put(job)
    with pytest.raises(Enough):
        peer._work()
    assert taken == [[0, 1, 2], [3, 4, 5], [6]]


def test_the_peers_server_streams_what_its_model_writes(monkeypatch, tmp_path):
    (tmp_path / "settings.json").write_text('{"n_layer": 2}')
    model, served = Model(), {}

    class Made:
        def __init__(self, settings):
            served["settings"] = settings

        def to(self, *where):
            served["where"] = where
            return self

        def eval(self):
            return model

    library = SimpleNamespace(GPT2Config=lambda **settings: settings, GPT2LMHeadModel=Made)
    monkeypatch.setitem(sys.modules, "transformers", library)
    monkeypatch.setattr(hugging_face_server, "listen", lambda host, port: (host, port))
    monkeypatch.setattr(hugging_face_server, "run", lambda app, listening, ready: served.update(app=app, at=listening))
    monkeypatch.setattr(sys, "argv", ["x", str(tmp_path / "settings.json"), "--dtype", "bfloat16"])
    hugging_face_server.main()
    assert served["settings"] == {"n_layer": 2}
    assert (served["where"], served["at"]) == (("cpu", torch.bfloat16), ("127.0.0.1", 0))
    with TestClient(served["app"]) as client:
        assert client.get("/health").json() == {"status": "ok"}
        said = client.post("/v1/completions", json={"prompt": [5], "max_tokens": 2})
        assert said.headers["content-type"].startswith("text/event-stream")
        assert said.text.count("data: ") == 4


# -- starting --------------------------------------------------------------------------------------------------------


def test_a_command_is_timed_in_a_cache_of_its_own_or_in_the_common_one(monkeypatch):
    asked = []

    def done(words, **how):
        asked.append((words, how))
        if "--run" in words:
            folder = Path(words[words.index("--run") + 1])
            assert folder.parent.is_dir()
            assert not folder.exists()

    monkeypatch.setattr(subprocess, "run", done)
    assert starting.TimedCommand(["-m", "regard", "x"], "text")() == 1
    starting.TimedCommand(["y"], cold=True, trains=True, resident=True)()
    (words, how), (others, other) = asked
    assert words == [sys.executable, "-P", "-m", "regard", "x"]
    assert others[:4] == [sys.executable, "-P", "y", "--run"]
    assert {key: how[key] for key in ("input", "text", "check", "capture_output")} == {
        "input": "text", "text": True, "check": True, "capture_output": True,
    }  # fmt: skip
    assert (how["env"]["REGARD_RESIDENT"], other["env"]["REGARD_RESIDENT"]) == ("0", "1")
    for name in starting.CACHES:
        assert Path(how["env"][name]).parent == Path(starting.work().name, "cache")
        assert Path(other["env"][name]).parent == Path(others[4]).parent  # a new folder, which is gone by now
        assert not Path(other["env"][name]).parent.exists()
    asked.clear()
    monkeypatch.setattr(starting, "trained", lambda system, place: system)
    starting.generate(HERE, True)()
    starting.translate(HERE, False)()
    starting.train("gpt", True, HERE)()
    generated, translated, trained = asked
    assert generated[0][4:] == ["generate", "gpt", "--max-tokens", "1", "--device", "cpu"]
    assert translated[0][4:] == ["translate", "transformer", "--device", "cpu"]
    assert translated[1]["input"] == "They are watching.\n"
    assert trained[0][4:13] == ["train", "gpt", *starting.one_step(HERE)][:9]
    assert "--run" in trained[0]
    size = {"cpu": "tiny", "cuda": "medium"}
    for kind, word in size.items():
        assert starting.one_step(BenchPlace(torch.device(kind), "full"))[:2] == ("--size", word)
