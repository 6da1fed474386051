"""What strangers may send: every answer is a 4xx with one sentence, and the server goes on."""

import json
import shutil
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from urllib.parse import urlsplit

import httpx
import pytest

import regard
from regard.text import chat_template

GOOD = {"model": "writer", "prompt": "The", "max_tokens": 1}


def sentence(answer):
    error = answer.json()["error"]
    said = error["message"] if isinstance(error, dict) else error
    assert said.endswith((".", "?"))
    assert "\n" not in said
    assert len(said) < 400
    assert "Traceback" not in said
    return said


def raw(address, asked):
    """What is answered to these bytes, which no client would send."""
    place = urlsplit(address)
    with socket.create_connection((place.hostname, place.port), timeout=600) as connection:
        answer = b""
        with suppress(ConnectionError):  # it may close before it has read all
            connection.sendall(asked.replace("{host}", place.netloc).encode())
        with suppress(ConnectionError):
            while piece := connection.recv(65536):
                answer += piece
    return answer.decode()


@pytest.fixture(autouse=True)
def still_there(address):
    yield
    assert httpx.get(f"{address}health").json() == {"status": "ok"}
    assert httpx.post(f"{address}v1/completions", json=GOOD).status_code == 200


BODIES = {
    "nothing": b"",
    "no JSON": b"{",
    "a list": b"[]",
    "a number": b"1",
    "null": b"null",
    "nested": b"[" * 100_000,
    "nested objects": b'{"a":' * 50_000,
    "NaN": b'{"model": "writer", "temperature": NaN}',
    "infinity": b'{"model": "writer", "temperature": -Infinity}',
    "overflow": b'{"model": "writer", "temperature": 1e999}',
    "many digits": b'{"model": "writer", "max_tokens": ' + b"9" * 5000 + b"}",
    "large": b'{"model": "writer", "max_tokens": 123456789012345678901234567890}',
    "no UTF-8": b'{"model": "\xff\xfe"}',
    "half a pair": b'{"model": "writer", "prompt": "\\ud800"}',
    "half a pair in a name": b'{"model": "writer", "prompt": "a", "\\ud800": 1}',
    "half a pair in UTF-16": json.dumps({"q": "a", "source": "auto", "target": "2", "api_key": "\ud800"}).encode(
        "utf-16"
    ),
    "UTF-16": json.dumps({**GOOD, "q": "a", "source": "en", "target": "fr"}).encode("utf-16"),
    "UTF-32": json.dumps({**GOOD, "q": "a", "source": "en", "target": "fr"}).encode("utf-32-le"),
    "a form": b"model=writer&prompt=a",
    "another type": b'{"model": ["writer"]}',
    "a path": b'{"model": "../../etc/passwd"}',
    "no model": b'{"prompt": "a"}',
    "a long name": b'{"model": "' + b"x" * 100_000 + b'"}',
    "a long field": b'{"model": "writer", "' + b"y" * 100_000 + b'": 1}',
    "a deep prompt": b'{"model": "writer", "prompt": [[["a"]]]}',
    "many prompts": json.dumps({"model": "writer", "prompt": ["a"] * 5000}).encode(),
    "a long prompt": json.dumps({"model": "writer", "prompt": "word " * 100_000}).encode(),
    "too long": b" " * (2**20 + 1),
}


@pytest.mark.parametrize("path", ["v1/completions", "translate", "detect"])
@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_a_body_that_makes_no_sense_is_answered_with_a_sentence(address, path, body):
    answer = httpx.post(f"{address}{path}", content=body, headers={"content-type": "application/json"})
    assert 400 <= answer.status_code < 500
    sentence(answer)


@pytest.mark.parametrize("html", ["<![<![ >", "x<![foo[ a ]]>y", "<![", "<!-", "<!DOCTYPE a [", "&#xd800;&#0;"])
def test_html_that_makes_no_sense_is_answered(address, html):
    asked = {"q": html, "source": "en", "target": "fr", "format": "html"}
    assert httpx.post(f"{address}translate", json=asked).status_code in (200, 400)


@pytest.mark.parametrize(
    "path",
    [
        "/static/../application.py", "/static/%2e%2e/application.py", "/static/..%2fapplication.py", "//etc/passwd",
        "/static/", "/static/serve.css%00.html", "/v1/models/..%2f..%2fetc", "/v1/models/%00", "/v1/responses",
        "/%ff", "/translate_file", "/static/serve.html?x=" + "a" * 5000,
    ],
)  # fmt: skip
def test_a_path_leads_nowhere_else(address, path):
    answer = raw(address, f"GET {path} HTTP/1.1\r\nHost: {{host}}\r\nConnection: close\r\n\r\n")
    assert answer.startswith(("HTTP/1.1 404", "HTTP/1.1 400"))
    assert "import" not in answer
    assert "root:" not in answer


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_another_method_is_refused(address, method):
    answer = httpx.request(method, f"{address}v1/completions")
    assert answer.status_code == 405
    assert answer.headers["allow"] == "POST"
    sentence(answer)


@pytest.mark.parametrize(
    "header, status",
    [
        ("Host: evil.example", 421),
        ("Host: {host}\r\nOrigin: https://evil.example", 403),
        ("Host: {host}\r\nContent-Length: 5000000", 413),
        ("Host: {host}\r\nContent-Length: 2\r\nContent-Length: 3", 400),
        ("Host: {host}\r\nTransfer-Encoding: gzip", 400),
        (f"Host: {{host}}\r\nX-Long: {'a' * 100_000}", 400),
    ],
)
def test_other_names_origins_and_headers_are_refused(address, header, status):
    answer = raw(address, f"POST /v1/completions HTTP/1.1\r\n{header}\r\nConnection: close\r\n\r\n")
    assert answer.startswith(f"HTTP/1.1 {status}")


def test_a_token_is_asked_for_everywhere_but_where_nothing_is_told(runs, served):
    token = "a-token-of-this-test-0123"
    with served(runs["writer"], token=token) as (address, _):
        for path in ("", "docs", "openapi.json", "metrics", "v1/models", "static/serve.js", "nowhere"):
            assert httpx.get(f"{address}{path}").status_code == 401
            assert httpx.get(f"{address}{path}", headers={"authorization": "Bearer wrong"}).status_code == 401
        error = httpx.post(f"{address}v1/completions", json=GOOD).json()["error"]
        assert error["code"] == "invalid_api_key"
        shown = {"authorization": f"Bearer {token}"}
        assert httpx.post(f"{address}v1/completions", json=GOOD, headers=shown).status_code == 200
        assert httpx.get(f"{address}health").status_code == 200


def test_a_text_to_embed_is_as_short_as_one_to_continue(served, runs, tmp_path):
    """A recurrent model would read any length, and everyone else would wait."""
    settings = {"training": {"steps": 1, "threads": 1, "device": "cpu"}, "data": {"tokenizer": "byte"}}
    regard.train("rnn", data=runs["writer"].parent / "text", run=tmp_path / "rnn", size="tiny", settings=settings)
    with served(tmp_path / "rnn") as (address, _):
        long, short = ({"model": "rnn", "input": ["a", "a" * length]} for length in (4096, 4095))
        assert httpx.post(f"{address}v1/embeddings", json=short).json()["usage"]["prompt_tokens"] == 4096
        answer = httpx.post(f"{address}v1/embeddings", json=long)
        assert answer.status_code == 400
        assert sentence(answer) == "Text 2 has 4097 tokens, but the model reads 4096: cut it."


def test_a_slow_chat_template_makes_only_its_own_model_slow(served, runs, tmp_path, monkeypatch):
    monkeypatch.setattr(chat_template, "SECONDS", 1.0)
    shutil.copytree(runs["writer"], tmp_path / "slow")
    endless = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
    (tmp_path / "slow" / "chat_template.jinja").write_text(endless)
    asked = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 1}
    with served(tmp_path / "slow", runs["writer"]) as (address, _), ThreadPoolExecutor(16) as clients:
        post = partial(httpx.post, f"{address}v1/chat/completions")
        slow = [clients.submit(post, json={**asked, "model": "slow"}) for _ in range(16)]
        while not any(one.done() for one in slow):
            time.sleep(0.01)
        assert post(json={**asked, "model": "writer"}).status_code == 200
        assert sum(one.done() for one in slow) < 6  # it waited for none of them
        monkeypatch.setattr(chat_template, "SECONDS", 0.01)  # for those that still wait
        assert {one.result().status_code for one in slow} == {400}
        assert {sentence(one.result()).partition(": ")[0] for one in slow} == {
            "The chat template cannot render this dialogue"
        }
