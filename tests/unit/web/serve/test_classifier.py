"""`serve` has no API for labels: a classifier among the runs is skipped, alone it is refused."""

import httpx
import pytest

import regard
from regard.base.errors import RegardError
from regard.web.serve.served_models import ServedModels


@pytest.fixture(scope="module")
def labels(tmp_path_factory):
    folder = tmp_path_factory.mktemp("labels")
    training = {"threads": 1, "batch_tokens": 256, "evaluate_every": 2, "steps": 2, "device": "cpu"}
    lines = [f"{'A' * (n % 5 + 1)} {'B' * (n % 3)}\t{'B' if n % 3 else 'A'}" for n in range(60)]
    (folder / "labels.tsv").write_text("\n".join(lines) + "\n")
    settings = {"training": training, "data": {"tokenizer": "char"}, "model": {"width": 8}}
    regard.train("classifier", data=folder / "labels.tsv", run=folder / "labels", size="tiny", settings=settings)
    return folder / "labels"


def test_the_other_runs_are_served(runs, labels, process):
    with process(labels, runs["writer"]) as (running, address):
        served = [model["id"] for model in httpx.get(f"{address}v1/models").json()["data"]]
        assert served == ["writer"]
        running.terminate()
        said = running.stderr.read()
    assert f"skipped: {labels} is a classifier" in said
    assert f"use `regard classify {labels}`" in said


def test_a_classifier_alone_is_refused_in_a_sentence(labels):
    with pytest.raises(RegardError, match="is a classifier, which no API here is for: use `regard classify "):
        ServedModels([labels], languages={}, places=1, device="cpu")
