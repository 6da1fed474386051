"""Chat, tokenization, request ids and the access log of a server."""

import io
import json

import httpx
import pytest

import regard
from regard.text.chat_template import MAX_MESSAGES, ChatTemplate
from regard.web.serve.access_log import AccessLog

HELLO = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "The cat"}]


@pytest.fixture(scope="module")
def client(address):
    openai = pytest.importorskip("openai", reason="openai is not installed")
    return openai.OpenAI(base_url=f"{address}v1", api_key="none", max_retries=0)


def test_an_answer_is_what_the_model_writes_after_the_template(client, runs):
    answer = client.chat.completions.create(model="writer", messages=HELLO, max_tokens=8, seed=3, temperature=0.7)
    prompt = ChatTemplate().prompt(HELLO)
    written = regard.load(runs["writer"], device="cpu").generate(prompt, max_tokens=8, seed=3, temperature=0.7)
    said = answer.choices[0]
    assert said.message.content == written.removeprefix(prompt).partition("\n")[0].strip()
    assert said.message.role == "assistant"
    assert said.finish_reason == ("stop" if "\n" in written.removeprefix(prompt) else "length")
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def test_a_stream_has_the_same_text_in_pieces(client):
    asked = {"model": "writer", "messages": HELLO, "max_tokens": 12, "seed": 5, "n": 2}
    whole = client.chat.completions.create(**asked)
    texts, finishes, usage = {0: "", 1: ""}, {}, None
    for part in client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True}):
        assert part.object == "chat.completion.chunk"
        usage = part.usage or usage
        for choice in part.choices:
            texts[choice.index] += choice.delta.content or ""
            finishes[choice.index] = choice.finish_reason or finishes.get(choice.index)
    assert [texts[0].strip(), texts[1].strip()] == [choice.message.content for choice in whole.choices]
    assert [finishes[0], finishes[1]] == [choice.finish_reason for choice in whole.choices]
    assert usage == whole.usage


def test_a_stop_ends_an_answer_before_the_template_does(client):
    asked = {"model": "writer", "messages": HELLO, "max_tokens": 12, "seed": 5}
    text = client.chat.completions.create(**asked).choices[0].message.content
    stopped = client.chat.completions.create(**asked, stop=text[2:5]).choices[0]
    assert (stopped.message.content, stopped.finish_reason) == (text[: text.index(text[2:5])].strip(), "stop")


def test_a_model_tells_its_task_and_how_much_it_holds(client):
    (model,) = [one for one in client.models.list() if one.id == "writer"]
    assert (model.task, model.max_model_len, model.chat_template) == ("language model", 64, "plain")


USER = {"role": "user", "content": "Hello"}
IMAGE = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"messages": []}, "a list of 1 to"),
        ({"messages": "Hello"}, "a list of 1 to"),
        ({"messages": [USER] * (MAX_MESSAGES + 1)}, "not of 1001"),
        ({"messages": ["Hello"]}, "messages[0] must be an object"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].role must be one of"),
        ({"messages": [{"role": {"a": [1]}, "content": "x"}]}, "messages[0].role must be one of"),
        ({"messages": [{"role": "user"}]}, "messages[0].content must be a string"),
        ({"messages": [{"role": "user", "content": 3}]}, "messages[0].content must be a string"),
        ({"messages": [IMAGE]}, "read only text"),
        ({"messages": [USER | {"tool_calls": [{}]}]}, "cannot use tools"),
        ({"messages": [USER, {"role": "assistant", "content": "Hi"}]}, "must not end with an assistant turn"),
        ({"messages": [USER], "tools": [{}]}, "tools is not supported"),
        ({"messages": [USER], "max_tokens": 0}, "max_tokens must be from 1"),
        ({"messages": [USER], "max_completion_tokens": 2**40}, "max_completion_tokens must be from 1"),
        ({"messages": [{"role": "user", "content": "word " * 200}]}, "writer has a context of 64 tokens"),
        ({"messages": [USER], "model": "nobody"}, "There is no language model"),
    ],
)
def test_what_cannot_be_answered_is_refused_in_one_sentence(address, more, sentence):
    answer = httpx.post(f"{address}v1/chat/completions", json={"model": "writer"} | more)
    assert answer.status_code in (400, 404)
    said = answer.json()["error"]["message"]
    assert sentence in said
    assert "\n" not in said


# -- tokens ----------------------------------------------------------------------------------------------------------


def test_tokens_and_text_are_each_others(address, runs):
    tokenizer, text = regard.load(runs["writer"], device="cpu").tokenizer, "The cat sees\nthe house."
    bare = httpx.post(f"{address}tokenize", json={"prompt": text, "add_special_tokens": False}).json()
    assert bare["tokens"] == tokenizer.encode(text)
    assert bare["count"] == len(bare["tokens"])
    bounded = httpx.post(
        f"{address}tokenize", json={"model": "writer", "prompt": text, "return_token_strs": True}
    ).json()
    assert bounded["tokens"] == [tokenizer.eos, *bare["tokens"]]
    assert len(bounded["token_strs"]) == bounded["count"]
    assert httpx.post(f"{address}detokenize", json={"tokens": bare["tokens"]}).json() == {"prompt": text}
    info = httpx.get(f"{address}tokenizer_info").json()
    assert httpx.post(f"{address}tokenize", json={"prompt": info["eos_token"], "add_special_tokens": False}).json()[
        "tokens"
    ] == [tokenizer.eos]
    assert info["model_max_length"] == 64


@pytest.mark.parametrize(
    ("path", "sent"),
    [
        ("tokenize", {}), ("tokenize", {"prompt": 3}), ("tokenize", {"prompt": "a", "add_special_tokens": "no"}),
        ("tokenize", {"prompt": "a", "model": "enfr"}), ("tokenize", {"prompt": "a", "x": 1}),
        ("detokenize", {"tokens": "a"}), ("detokenize", {"tokens": [-1]}), ("detokenize", {"tokens": [10**30]}),
        ("detokenize", {"tokens": [True]}), ("detokenize", {"tokens": [[1]]}), ("detokenize", []),
    ],
)  # fmt: skip
def test_wrong_tokens_are_refused_in_one_sentence(address, path, sent):
    answer = httpx.post(f"{address}{path}", json=sent)
    assert answer.status_code in (400, 404)
    assert answer.json()["error"].count("\n") == 0


def test_lm_evaluation_harness_gets_the_scores_of_regard_score(address, runs):
    """Its requests as version 0.4.13 sends them: tokens after the boundary or without it, one token more, echoed."""
    run = regard.load(runs["writer"], device="cpu")
    lines = ["The cat sees the house.", "A bird hears some bread.", "bread bread"]
    scores = [score.log_probability for score in run.score(lines)]

    def ids(text):
        return httpx.post(f"{address}tokenize", json={"prompt": text, "add_special_tokens": False}).json()["tokens"]

    boundary = ids(httpx.get(f"{address}tokenizer_info").json()["eos_token"])
    for before, skipped in ((boundary, 1), ([], 0)):
        prompts = [[*before, *ids(f"{line}\n")] for line in lines]
        sent = {"model": "writer", "temperature": 0, "logprobs": 1, "seed": 1234, "echo": True, "prompt": prompts}
        one = httpx.post(f"{address}v1/completions", json={**sent, "max_tokens": 1}).json()["choices"]
        none = httpx.post(f"{address}v1/completions", json={**sent, "max_tokens": 0}).json()["choices"]
        for after, bare, score in zip(one, none, scores, strict=True):
            found = after["logprobs"]["token_logprobs"][skipped:-1]
            assert sum(found) == pytest.approx(score, abs=1e-5)
            assert bare["logprobs"]["token_logprobs"][skipped:] == pytest.approx(found, abs=1e-5)
            assert all(top for top in after["logprobs"]["top_logprobs"][skipped:-1])


def test_lm_evaluation_harness_itself(address, runs):
    completions = pytest.importorskip("lm_eval.models.openai_completions", reason="lm-eval is not installed")
    instance = pytest.importorskip("lm_eval.api.instance", reason="lm-eval is not installed").Instance
    lines = ["The cat sees the house.", "A bird hears some bread."]
    model = completions.LocalCompletionsAPI(
        base_url=f"{address}v1/completions", model="writer", tokenizer_backend="remote", max_length=63
    )
    asked = [instance("loglikelihood_rolling", {}, (f"{line}\n",), number) for number, line in enumerate(lines)]
    scores = regard.load(runs["writer"], device="cpu").score(lines)
    assert model.loglikelihood_rolling(asked) == pytest.approx([one.log_probability for one in scores], abs=1e-5)


# -- the log ---------------------------------------------------------------------------------------------------------


def test_a_response_repeats_the_id_of_its_request(address):
    assert httpx.get(f"{address}health", headers={"X-Request-ID": "abc-1"}).headers["x-request-id"] == "abc-1"
    made = [httpx.get(f"{address}health").headers["x-request-id"] for _ in range(2)]
    assert made[0] != made[1]
    for bad in ("a b", "x" * 129, 'a"b', "<script>"):
        assert httpx.get(f"{address}health", headers={"X-Request-ID": bad}).headers["x-request-id"] != bad
    assert "x-request-id" in httpx.get(f"{address}nowhere").headers  # refused ones, too


def test_the_log_has_model_tokens_and_time_but_no_text(runs):
    from starlette.testclient import TestClient

    from regard.web.serve.api_server import application
    from regard.web.serve.served_models import ServedModels

    models, lines = ServedModels([runs["writer"]], languages={}, places=8, device="cpu"), io.StringIO()
    logged = AccessLog(application(models, host="127.0.0.1"), lines)
    with TestClient(logged, base_url="http://127.0.0.1") as client:
        sent = {"model": "writer", "prompt": "The secret cat", "max_tokens": 3, "temperature": 0}
        assert client.post("/v1/completions?token=hidden", json=sent, headers={"x-request-id": "r1"}).status_code == 200
        chat = {"model": "writer", "messages": [USER], "stream": True, "temperature": 0}  # drawn, it could be one token
        client.post("/v1/chat/completions", json=chat)
        client.post("/v1/completions", json={})
        measured = client.get("/metrics").text
    first, second, third, _ = map(json.loads, lines.getvalue().splitlines())
    assert (first["request_id"], first["model"], first["completion_tokens"], first["status"]) == (
        "r1",
        "writer",
        3,
        200,
    )
    assert first["milliseconds"] > 0
    assert second["model"] == "writer"
    assert second["completion_tokens"] > 1  # so that there is a time between tokens
    assert third["status"] == 400
    assert not {"secret", "hidden", "Hello"} & set(lines.getvalue().replace('"', " ").split())
    for name in (
        "regard_request_seconds",
        "regard_first_token_seconds",
        "regard_request_tokens",
        "regard_token_seconds",
    ):
        assert f"{name}_bucket" in measured
