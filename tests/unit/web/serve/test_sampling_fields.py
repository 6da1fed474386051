"""Penalties, biases and constraints over HTTP: as `regard generate`, with OpenAI's client, and bounded."""

import json
import re

import httpx
import openai
import pytest

import regard

ASKED = {"model": "writer", "prompt": "The cat", "max_tokens": 12, "seed": 3}


@pytest.fixture
def client(address):
    return openai.OpenAI(base_url=f"{address}v1", api_key="none", max_retries=0)


def test_penalties_and_biases_write_what_generate_writes(client, runs):
    run = regard.load(runs["writer"], device="cpu")
    token = run.tokenizer.encode("The cat sees")[-1]
    how = {"temperature": 0.8, "presence_penalty": 1.0, "frequency_penalty": 0.5, "logit_bias": {token: 5.0}}
    more = {"min_p": 0.05, "repetition_penalty": 1.2}
    said = (
        client.completions.create(**ASKED, **how | {"logit_bias": {str(token): 5.0}}, extra_body=more).choices[0].text
    )
    wanted = run.generate("The cat", max_tokens=12, seed=3, sampling=regard.Sampling(**how, **more))
    assert "The cat" + said == wanted
    assert wanted != run.generate("The cat", max_tokens=12, seed=3, temperature=0.8)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("min_p", 2), ("min_p", "x"), ("repetition_penalty", 0), ("repetition_penalty", 1e30), ("presence_penalty", 3),
        ("frequency_penalty", -2.1), ("frequency_penalty", True), ("logit_bias", {"x": 1}), ("logit_bias", {"3": 101}),
        ("logit_bias", {"99999999": 1}), ("logit_bias", {"-1": 1}), ("logit_bias", {"9" * 5000: 1}),
        ("logit_bias", [1]),
        ("logit_bias", {str(n): 1 for n in range(2000)}), ("response_format", "json"),
        ("response_format", {"type": "x"}),
        ("response_format", {"type": "json_schema", "json_schema": {"schema": 3}}), ("structured_outputs", {"x": 1}),
        ("structured_outputs", {"regex": "a", "choice": ["b"]}), ("structured_outputs", {"choice": []}),
        ("structured_outputs", {"regex": "a" * 5000}), ("structured_outputs", {"choice": ["a"] * 2000}),
        ("structured_outputs", {"json": []}), ("structured_outputs", {"choice": ["a\nb"]}),
    ],
)  # fmt: skip
def test_wrong_fields_are_refused_in_one_sentence(address, field, value):
    answer = httpx.post(f"{address}v1/completions", json={**ASKED, field: value})
    assert answer.status_code == 400
    said = answer.json()["error"]["message"]
    assert "\n" not in said
    assert len(said) < 500


def test_constrained_texts_end_with_the_constraint(client, runs):
    pytest.importorskip("llguidance", reason="constraints need llguidance")
    dialogue = {"model": "writer", "messages": [{"role": "user", "content": "Hello"}], "seed": 1, "max_tokens": 40}
    for number in range(3):
        said = client.chat.completions.create(
            **dialogue | {"seed": number},
            response_format={
                "type": "json_schema",
                "json_schema": {"name": "animal", "schema": {
                    "type": "object", "properties": {"legs": {"type": "integer", "minimum": 0, "maximum": 9}},
                    "required": ["legs"], "additionalProperties": False}},
            },
        ).choices[0]  # fmt: skip
        assert said.finish_reason == "stop"
        assert json.loads(said.message.content)["legs"] in range(10)
    choice = {"structured_outputs": {"choice": ["cat", "dog"]}}
    told = client.completions.create(**ASKED, n=8, logprobs=1, extra_body=choice).choices
    assert {one.text for one in told} <= {"cat", "dog"}
    assert all("".join(one.logprobs.tokens) == one.text for one in told)
    parts = client.completions.create(
        **ASKED | {"prompt": "The "}, stream=True, extra_body={"structured_outputs": {"regex": "[a-c]{3}!"}}
    )
    assert re.fullmatch("[a-c]{3}!", "".join(part.choices[0].text for part in parts))


@pytest.mark.parametrize(
    "asked",
    [
        {"regex": "a("}, {"regex": "(a{1000}){1000}"}, {"json": {"type": "nothing"}}, {"json": {"$ref": "http://a/b"}},
        {"json": {"anyOf": [{"type": "string"}] * 5000}}, {"json": {"const": float("nan")}},
        {"json": json.loads('{"items": ' * 400 + "{}" + "}" * 400)},
        {"json": json.loads('{"a": ' * 200 + "1" + "}" * 200)},
    ],
)  # fmt: skip
def test_a_hostile_constraint_costs_one_sentence(address, asked):
    pytest.importorskip("llguidance", reason="constraints need llguidance")
    answer = httpx.post(f"{address}v1/completions", content=json.dumps({**ASKED, "structured_outputs": asked}))
    assert answer.status_code == 400
    assert "\n" not in answer.json()["error"]["message"]
    assert httpx.get(f"{address}health").json() == {"status": "ok"}
