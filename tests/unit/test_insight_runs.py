"""`run.trace`: a loaded run shows what it does when it is asked to score, translate or label."""

import json

import numpy as np
import pytest

import regard
from regard.base.errors import RegardError

LINES = [
    f"{who} {does} {what} ." for who in ("the cat", "a dog") for does in ("sees", "eats") for what in ("it", "them")
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    (folder / "my.txt").write_text("\n".join(LINES * 12) + "\n", encoding="utf-8")
    pairs = [f"{line}\t{line.upper()}" for line in LINES * 12]
    (folder / "pairs.tsv").write_text("\n".join(pairs) + "\n", encoding="utf-8")
    labelled = "\n".join(f"{line}\t{'cat' if 'cat' in line else 'dog'}" for line in LINES) + "\n"
    (folder / "labels").mkdir()
    for split in ("train", "valid"):
        (folder / "labels" / f"{split}.tsv").write_text(labelled, encoding="utf-8")
    return folder


def trained(folder, system, data, tokenizer=None):
    settings = {"training": {"steps": 4, "evaluate_every": 4, "checkpoint_every": 4, "threads": 1, "batch_tokens": 64}}
    if system == "ngram":
        settings = {}
    if tokenizer:
        settings["data"] = {"tokenizer": tokenizer}
    regard.train(system, data=str(folder / data), run=str(folder / system), size="tiny", settings=settings)
    return regard.load(folder / system)


@pytest.mark.parametrize("system", ["ngram", "lstm"])
def test_a_language_models_trace_is_what_it_scores(folder, system):
    run = trained(folder, system, "my.txt", "word")
    text = LINES[0]
    trace = run.trace(text + "\n", gradients=True)
    (score,) = run.score([text])
    assert trace.system == system
    assert trace.targets[:-1] == tuple(score.tokens)
    np.testing.assert_allclose(np.log(trace.probability[:-1]), score.log_probabilities, rtol=1e-4)
    prediction, _ = run(text, None)
    assert [(choice.token, pytest.approx(choice.probability, rel=1e-4)) for choice in trace.top[-2]] == prediction.top(
        5
    )


def test_a_translators_trace_is_what_it_translates(folder):
    run = trained(folder, "bahdanau", "pairs.tsv")
    trace = run.trace(LINES[0], beam=3)
    ((best, *_),) = run.translations([LINES[0]], beam=3, attention=True)
    assert trace.targets == tuple(best.tokens)
    assert np.log(trace.probability).sum() == pytest.approx(best.log_probability, rel=1e-4)
    np.testing.assert_allclose(trace.attention["cross/0"], best.attention["cross/0"], atol=1e-5)
    (score,) = run.score([(LINES[0], "THE DOG")])
    forced = run.trace(LINES[0], "THE DOG")
    assert forced.targets == tuple(score.tokens)
    np.testing.assert_allclose(np.log(forced.probability), score.log_probabilities, rtol=1e-4)
    with pytest.raises(RegardError, match="trained on at most"):
        run.trace("cat " * 1000)


def test_a_classifiers_trace_is_what_it_labels(folder):
    run = trained(folder, "classifier", "labels")
    trace = run.trace(LINES[0], "cat", gradients=True)
    found = run(LINES[0])
    assert trace.label == found.label
    assert {choice.token: choice.probability for choice in trace.top[0]} == pytest.approx(found.labels, rel=1e-4)
    assert trace.source_gradients.shape == (1, len(trace.source))
    json.dumps(trace.as_json(), allow_nan=False)


def test_a_trace_says_in_a_line_what_it_holds(folder):
    trace = regard.load(folder / "lstm").trace("the cat")
    assert repr(trace).startswith("Trace(lstm, 3 steps: embedding, layer/0, hidden, layer/0/forget")
