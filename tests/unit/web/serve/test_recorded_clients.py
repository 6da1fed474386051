"""Requests that chat programs sent, with their headers, are answered as the programs expect."""

import json
from pathlib import Path

import httpx
import pytest

RECORDED = Path(__file__).parent / "recorded" / "chat_clients.jsonl"
LINES = [json.loads(line) for line in RECORDED.read_text().splitlines()]


@pytest.mark.parametrize("one", LINES, ids=[f"{one['client']} {place}" for place, one in enumerate(LINES)])
def test_a_recorded_request_is_answered_in_the_form_that_its_program_reads(address, one):
    body = one["body"] | {"model": "writer"}
    if "max_tokens" in body:
        body["max_tokens"] = min(body["max_tokens"], 6)  # the model of this test has a context of 64 tokens
    body["messages"] = body.get("messages", [])[-1:]
    body = {name: value for name, value in body.items() if value != []}
    answer = httpx.post(address + one["path"][1:], json=body, headers=one["headers"])
    assert answer.status_code == 200, answer.text
    if one["path"] == "/v1/embeddings":
        assert [len(row["embedding"]) > 1 for row in answer.json()["data"]] == [True] * len(body["input"])
        return
    if not body.get("stream"):
        (choice,) = answer.json()["choices"]
        text = choice["message"]["content"] if "messages" in body else choice["text"]
        assert choice["finish_reason"] in ("stop", "length")
        assert (len(text) > 0) == (answer.json()["usage"]["completion_tokens"] > 0)
        return
    assert answer.headers["content-type"].startswith("text/event-stream")
    *events, done = answer.text.removesuffix("\n\n").split("\n\n")
    assert done == "data: [DONE]"
    parts = [json.loads(event.removeprefix("data: ")) for event in events]
    *written, usage = parts
    assert (usage["choices"], usage["usage"]["completion_tokens"] > 0) == ([], True)
    assert written[0]["choices"][0]["delta"]["role"] == "assistant"
    assert [part["choices"][0]["finish_reason"] is None for part in written] == [True] * (len(written) - 1) + [False]
    if body.get("temperature") == 0:
        alone = httpx.post(address + one["path"][1:], json=body | {"stream": False, "stream_options": None}).json()
        text = "".join(part["choices"][0]["delta"].get("content", "") for part in written)
        assert text.strip() == alone["choices"][0]["message"]["content"]
        assert usage["usage"] == alone["usage"]
