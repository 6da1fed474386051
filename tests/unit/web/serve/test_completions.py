"""OpenAI's own client against a server on a real socket: what it asks for is what it gets."""

import json
from concurrent.futures import ThreadPoolExecutor

import openai
import pytest

import regard
from regard.decoding.sampling import Sampling
from regard.web.serve.requests import CompletionRequest

PROMPT = "The cat"


@pytest.fixture(scope="module")
def client(address):
    with openai.OpenAI(base_url=f"{address}v1", api_key="none is needed here", max_retries=0) as made:
        yield made


@pytest.fixture(scope="module")
def run(runs):
    return regard.load(runs["writer"], device="cpu")


def ask(client, prompt=PROMPT, **more):
    return client.completions.create(model="writer", prompt=prompt, **{"seed": 1, "max_tokens": 20, **more})


def test_the_models_are_listed(client):
    assert [model.id for model in client.models.list()] == ["writer"]  # what translates does not complete
    assert client.models.retrieve("writer").owned_by == "regard"
    with pytest.raises(openai.NotFoundError, match="enfr is a translator"):
        client.models.retrieve("enfr")


@pytest.mark.parametrize("prompt", ["The cat", "", "The ", "My friend hears\nThe"])
def test_a_text_is_the_one_that_generate_writes(client, run, prompt):
    for more in ({"temperature": 0}, {"temperature": 0.7, "top_p": 0.9}, {"extra_body": {"top_k": 3}}):
        drawn = {"temperature": 1.0, **more, **more.get("extra_body", {})}
        drawn.pop("extra_body", None)
        answer = ask(client, prompt, **more, echo=True)
        assert answer.choices[0].text == run.generate(prompt, max_tokens=20, seed=1, **drawn)
        assert answer.choices[0].finish_reason == "length"
        assert answer.usage.completion_tokens == 20


def test_a_stream_is_the_same_text(client):
    for more in ({}, {"n": 3}, {"stop": "e"}, {"echo": True}, {"logprobs": 2, "n": 2}):
        whole, texts, ends = ask(client, **more), {}, {}
        for chunk in ask(client, **more, stream=True, stream_options={"include_usage": True}):
            for choice in chunk.choices:
                texts[choice.index] = texts.get(choice.index, "") + choice.text
                ends[choice.index] = choice.finish_reason
        assert texts == {choice.index: choice.text for choice in whole.choices}
        assert ends == {choice.index: choice.finish_reason for choice in whole.choices}
        assert chunk.usage.prompt_tokens == whole.usage.prompt_tokens


def test_every_prompt_and_choice_is_what_it_is_alone(client):
    prompts = ["The cat", "A bird likes", "My"]
    together = ask(client, prompts, n=2)
    alone = [choice.text for prompt in prompts for choice in ask(client, prompt, n=2).choices]
    assert [choice.text for choice in together.choices] == alone
    assert [choice.index for choice in together.choices] == list(range(6))
    assert len(set(alone)) > 3


def test_a_text_ends_before_its_stop_sequence(client):
    whole = ask(client, temperature=0, max_tokens=40).choices[0].text
    stop = whole[7:10]
    cut = ask(client, temperature=0, max_tokens=40, stop=[stop, "never"])
    assert cut.choices[0].text == whole[: whole.index(stop)]
    assert cut.choices[0].finish_reason == "stop"


def test_log_probabilities_are_those_of_score(client, run):
    line = "The dog sees a tree."
    found = ask(client, line, max_tokens=0, echo=True, logprobs=5).choices[0]
    (scored,) = run.score([line])
    assert found.text == line
    assert found.logprobs.tokens == scored.tokens[:-1]
    assert found.logprobs.token_logprobs == pytest.approx(scored.log_probabilities[:-1], abs=1e-12)
    for token, value, best in zip(found.logprobs.tokens, found.logprobs.token_logprobs, found.logprobs.top_logprobs):
        assert len(best) == 5
        assert value <= max(best.values()) + 1e-5
        if token in best:
            assert best[token] == pytest.approx(value, abs=1e-5)
    written = ask(client, line, logprobs=0, max_tokens=5).choices[0]
    assert len(written.logprobs.tokens) == 5
    assert written.logprobs.text_offset[0] == 0
    names = [run.tokenizer.token(number) for number in range(run.tokenizer.vocabulary)]
    tokens = [*run.tokenizer.encode(line), *map(names.index, written.logprobs.tokens)]
    scores, _ = run.token_scores(tokens)
    assert written.logprobs.token_logprobs == pytest.approx(scores[-5:], abs=1e-6)


def test_tokens_are_a_prompt_too(client, run):
    tokens = run.tokenizer.encode(PROMPT)
    assert ask(client, tokens).choices[0].text == ask(client).choices[0].text
    assert len(ask(client, [tokens, tokens[:1]]).choices) == 2


def test_best_of_keeps_the_most_probable_per_token_whatever_was_asked(served, tmp_path):
    """By the tokens that were written. If the prompt's counted too, an unlikely prompt would make long texts win."""
    (tmp_path / "text.txt").write_text("".join(f"one two three {word} end\n" for word in ("a", "four", "fifteen")) * 9)
    settings = {"data": {"tokenizer": "char", "split": "tail"}, "model": {"order": 3}}
    spelled = regard.train("ngram", data=tmp_path / "text.txt", run=tmp_path / "speller", settings=settings)
    prompt, stop, few, many = "xtwoxx", "e", 5, 8
    asked = {"model": "speller", "prompt": prompt, "seed": 3, "max_tokens": 30, "stop": stop, "temperature": 1.5}
    with served(spelled.folder) as (address, _), openai.OpenAI(base_url=f"{address}v1", api_key="none") as client:
        every = [choice.text for choice in client.completions.create(**asked, n=many).choices]
        best = [choice.text for choice in client.completions.create(**asked, n=few, best_of=many).choices]

    def mean(text, read=""):
        scores, _ = spelled.token_scores(spelled.tokenizer.encode(prompt + text + stop))  # a token is a character
        written = scores[len(prompt) - len(read) :]
        return sum(written) / len(written)

    ranked = sorted(every, key=mean, reverse=True)
    assert best == ranked[:few]
    assert (
        ranked[:few] != sorted(every, key=lambda text: mean(text, prompt), reverse=True)[:few]
    )  # else this shows nothing


@pytest.mark.parametrize(
    "more, field",
    [
        ({"suffix": "end"}, "suffix"),
        ({"prompt": "a" * 5000}, "prompt"),
        ({"max_tokens": 64}, "prompt"),
        ({"temperature": -1}, "temperature"),
        ({"temperature": "hot"}, "temperature"),
        ({"top_p": 2}, "top_p"),
        ({"n": 0}, "n"),
        ({"n": 1000}, "n"),
        ({"best_of": 1, "n": 2}, "best_of"),
        ({"best_of": 3, "stream": True}, "best_of"),
        ({"logprobs": 6}, "logprobs"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"max_tokens": 10**30}, "max_tokens"),
        ({"stop": [""]}, "stop"),
        ({"stop": ["a"] * 5}, "stop"),
        ({"presence_penalty": 3}, "presence_penalty"),
        ({"logit_bias": {"5": 101}}, "logit_bias.5"),
        ({"prompt": [10**9]}, "prompt"),
        ({"prompt": [True]}, "prompt"),
        ({"prompt": ["a", 1]}, "prompt"),
        ({"prompt": "\ud800"}, None),
        ({"seed": -1}, "seed"),
        ({"extra_body": {"topp": 1}}, "topp"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(client, more, field):
    import httpx

    body = {"model": "writer", "prompt": PROMPT, **{k: v for k, v in more.items() if k != "extra_body"}}
    body |= more.get("extra_body", {})
    address = str(client.base_url) + "completions"
    answer = httpx.post(address, content=json.dumps(body), headers={"content-type": "application/json"})
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["param"] == field
    assert error["type"] == "invalid_request_error"
    assert error["message"].endswith((".", "?"))
    assert "\n" not in error["message"]


def test_many_at_once_get_what_they_get_alone(client, run):
    """Each of 64 clients, with settings of its own, gets the text that it gets alone."""
    prompts = ["The cat", "A bird", "", "My friend sees", "The dog hears an"]

    def one(number):
        drawn = {"temperature": (0, 0.7, 1.0)[number % 3]}
        prompt = prompts[number % len(prompts)]
        text = ask(client, prompt, seed=number, max_tokens=10 + number % 20, **drawn).choices[0].text
        return prompt, text, Sampling(drawn["temperature"]), 10 + number % 20

    with ThreadPoolExecutor(64) as clients:
        found = list(clients.map(one, range(64)))
    for number, (prompt, text, sampling, length) in enumerate(found):
        assert prompt + text == run.generate(prompt, max_tokens=length, seed=number, sampling=sampling)


@pytest.mark.parametrize("more", [{"max_tokens": 0}, {"max_tokens": 1}, {"max_tokens": 5, "temperature": 0.7, "n": 2}])
@pytest.mark.parametrize("prompt", [PROMPT, "", "\nThe cat"])
def test_a_leading_boundary_is_the_boundary(client, run, prompt, more):
    """[<eos>, …] reads what […] reads; nothing predicts the boundary, and it adds no text."""
    bounded = [run.tokenizer.eos, *run.tokenizer.encode(prompt)]
    plain = ask(client, prompt, echo=True, logprobs=2, **more).choices
    whole = ask(client, bounded, echo=True, logprobs=2, **more)
    many = ask(client, [[5], bounded], echo=True, logprobs=2, **more).choices[len(plain) :]
    streamed = [
        choice for chunk in ask(client, bounded, echo=True, logprobs=2, stream=True, **more) for choice in chunk.choices
    ]
    for answer in (whole.choices, many, streamed):
        for found, expected in zip(answer, plain, strict=True):
            assert found.text == expected.text
            assert found.logprobs.tokens == ["<eos>", *expected.logprobs.tokens]
            assert found.logprobs.token_logprobs == [None, *expected.logprobs.token_logprobs]
            assert found.logprobs.top_logprobs == [None, *expected.logprobs.top_logprobs]
            assert found.logprobs.text_offset == [0, *expected.logprobs.text_offset]
    assert whole.usage.prompt_tokens == len(bounded)
    written = [ask(client, given, **more).choices[0].text for given in (bounded, prompt)]
    assert written[0] == written[1]


def test_the_evaluation_harness_finds_the_scores_of_score(client, run):
    """The requests of lm-evaluation-harness 0.4 (local-completions, loglikelihood_rolling), and how it reads them."""
    lines = ["The dog sees a tree.", "A bird", "Zebras?", ""]
    windows = [[run.tokenizer.eos, *run.tokenizer.encode(f"{line}\n")] for line in lines]
    asked = {"temperature": 0, "max_tokens": 1, "logprobs": 1, "seed": 1234, "echo": True}
    answers = client.completions.create(model="writer", prompt=windows, **asked).choices
    for answer, scored in zip(answers, run.score(lines), strict=True):
        found = answer.logprobs.token_logprobs[1:-1]
        assert sum(found) == pytest.approx(scored.log_probability, abs=1e-5)
        for token, value, best in zip(answer.logprobs.tokens[1:-1], found, answer.logprobs.top_logprobs[1:-1]):
            assert best.get(token, value) == value  # its test for greedy: the same number


def test_a_prompt_with_its_boundary_may_fill_the_context(client, run):
    full = [run.tokenizer.eos, *[5] * (run.model.context - 2)]
    assert len(ask(client, full, max_tokens=1, echo=True, logprobs=1).choices[0].logprobs.tokens) == len(full) + 1
    with pytest.raises(openai.BadRequestError, match="has a context of 64 tokens, but this request needs 65"):
        ask(client, full, max_tokens=2)


def test_no_refused_field_is_suggested(address):
    """What a request is told to use instead is accepted."""
    import httpx

    def refusal(name):
        answer = httpx.post(f"{address}v1/completions", json={"model": "writer", "prompt": PROMPT, name: 1.1})
        assert answer.status_code == 400
        return answer.json()["error"]["message"]

    for name in ("length_penalty", "typical_p", "tools"):
        assert refusal(name).startswith(f"{name} is not supported: remove it")
    neutral = [name for name, one in CompletionRequest.declared().items() if not one.metadata["kind"].suggested]
    assert neutral == ["suffix"]
    for name in ("suffixes", "suffix_"):
        assert not any(refused in refusal(name).removeprefix(f'There is no field "{name}"') for refused in neutral)
    assert refusal("max_new_tokens").endswith("did you mean max_tokens?")


def test_a_client_of_another_api_learns_what_to_use(client, address):
    import httpx

    with pytest.raises(openai.NotFoundError, match="use /v1/chat/completions"):
        client.responses.create(model="writer", input="Hello")
    answer = httpx.post(f"{address}completions", json={})  # base_url without /v1
    assert answer.status_code == 404
    assert "add /v1 to the client's base_url" in answer.json()["error"]
