"""A classifier over HTTP: labels as `regard classify` gives them, in vLLM's form; hostile inputs cost one sentence."""

import httpx
import openai
import pytest

import regard


@pytest.fixture(scope="module")
def labels(tmp_path_factory):
    folder = tmp_path_factory.mktemp("labels")
    training = {"threads": 1, "batch_tokens": 256, "evaluate_every": 2, "steps": 2, "device": "cpu"}
    lines = [f"{'A' * (n % 5 + 1)} {'B' * (n % 3)}\t{'B' if n % 3 else 'A'}" for n in range(60)]
    (folder / "labels.tsv").write_text("\n".join(lines) + "\n")
    settings = {"training": training, "data": {"tokenizer": "char"}, "model": {"width": 8}}
    regard.train("classifier", data=folder / "labels.tsv", run=folder / "labels", size="tiny", settings=settings)
    return folder / "labels"


@pytest.fixture(scope="module")
def place(runs, labels, served):
    with served(labels, runs["writer"], runs["enfr"]) as (address, _):
        yield address


def test_labels_are_those_of_classify(place, labels):
    texts = ["AAA B", "A", "AA BB"] * 20  # more than are read at once
    found = httpx.post(f"{place}classify", json={"model": "labels", "input": texts}).json()["data"]
    wanted = list(regard.load(labels, device="cpu").labellings(texts))
    assert [one["label"] for one in found] == [one.label for one in wanted]
    assert [one["index"] for one in found] == list(range(60))
    for one, other in zip(found, wanted, strict=True):
        assert dict(zip(one["labels"], one["probs"])) == pytest.approx(dict(other.top(9)), abs=1e-6)
    assert [model["id"] for model in httpx.get(f"{place}v1/models").json()["data"]] == ["writer"]


@pytest.mark.parametrize("name", ["writer", "enfr", "labels"])
def test_openais_client_gets_the_vectors_of_embed(place, runs, labels, name):
    run = regard.load({**runs, "labels": labels}[name], device="cpu")
    texts = ["AAA B", "A"] if name == "labels" else ["The cat sees", "a tree"]
    client = openai.OpenAI(base_url=f"{place}v1", api_key="none", max_retries=0)
    for more in ({}, {"encoding_format": "float"}, {"extra_body": {"pool": "last"}}):
        found = client.embeddings.create(model=name, input=texts, **more)
        wanted = run.embed(texts, pool=more.get("extra_body", {}).get("pool", "mean"))
        assert [one.embedding for one in found.data] == [pytest.approx(row.tolist(), abs=1e-6) for row in wanted]
    assert found.usage.prompt_tokens > 0


@pytest.mark.parametrize(
    ("path", "sent", "sentence"),
    [
        ("v1/embeddings", {"input": "a"}, "model must be"), ("v1/embeddings", {"model": "writer"}, "input must be"),
        ("v1/embeddings", {"model": "nobody", "input": "a"}, "no model"),
        ("v1/embeddings", {"model": "writer", "input": []}, "input must be"),
        ("v1/embeddings", {"model": "writer", "input": [[1, 2]]}, "input must be"),
        ("v1/embeddings", {"model": "writer", "input": ""}, "is empty"),
        ("v1/embeddings", {"model": "writer", "input": ["a"] * 300}, "at most 256"),
        ("v1/embeddings", {"model": "writer", "input": "a " * 150_000}, "more than 200"),
        ("v1/embeddings", {"model": "writer", "input": "bread " * 500}, "tokens, but the model reads"),
        ("v1/embeddings", {"model": "writer", "input": "a", "layer": 99}, "no states for layer 99"),
        ("v1/embeddings", {"model": "writer", "input": "a", "layer": 0}, "layer must be from 1"),
        ("v1/embeddings", {"model": "writer", "input": "a", "pool": "max"}, "pool must be one of"),
        ("v1/embeddings", {"model": "writer", "input": "a", "dimensions": 8}, "dimensions is not supported"),
        ("classify", {"model": "writer", "input": "a"}, "no model"),
        ("classify", {"model": "labels", "input": ""}, "is empty"),
        ("classify", {"model": "labels", "input": "A" * 9999}, "was trained on at most"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_refused_in_one_sentence(place, path, sent, sentence):
    answer = httpx.post(f"{place}{path}", json=sent)
    assert answer.status_code in (400, 404)
    error = answer.json()["error"]
    said = error if isinstance(error, str) else error["message"]
    assert sentence in said
    assert "\n" not in said
