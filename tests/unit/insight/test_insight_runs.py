"""`run.trace`: a loaded run shows what it does when it is asked to score, translate or label."""

import json

import numpy as np
import pytest

import regard
from regard.base.errors import RegardError
from regard.decoding.sampling import Sampling

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
    if not (folder / system).exists():
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


def test_a_translation_goes_on_from_the_beginning_it_is_given(folder):
    run = trained(folder, "bahdanau", "pairs.tsv")
    begun = run.tokenizer.encode("THE")
    trace = run.trace(LINES[0], prefix="THE", beam=2)
    assert trace.targets[: len(begun)] == tuple(run.tokenizer.token(n) for n in begun)
    best = next(branch for branch in trace.beam if branch.rank == 1)
    assert np.log(trace.probability[len(begun) :]).sum() == pytest.approx(best.log_probability, rel=1e-4)
    free = run.trace(LINES[0], beam=2)
    first = run.tokenizer.encode(free.translation)[:2]  # a space before the first word is not part of it
    again = run.trace(LINES[0], prefix=run.tokenizer.decode(first), beam=1)
    assert again.targets[:2] == tuple(map(run.tokenizer.token, first))
    with pytest.raises(RegardError, match="shorter prefix"):
        run.trace(LINES[0], prefix="THE " * 200)


def test_a_classifiers_trace_is_what_it_labels(folder):
    run = trained(folder, "classifier", "labels")
    trace = run.trace(LINES[0], "cat", gradients=True)
    found = run(LINES[0])
    assert trace.label == found.label
    assert {choice.token: choice.probability for choice in trace.top[0]} == pytest.approx(found.labels, rel=1e-4)
    assert trace.source_gradients.shape == (1, len(trace.source))
    json.dumps(trace.as_json(), allow_nan=False)


def test_the_choices_are_what_the_trace_expects_and_what_generate_draws(folder):
    run = trained(folder, "lstm", "my.txt", "word")
    first, *rest = run.choices("the cat", Sampling(0.0), top=4)
    assert first.token == run.generate("the cat", max_tokens=1, temperature=0).removeprefix("the cat").strip()
    assert (first.drawn, [one.drawn for one in rest]) == (1.0, [0.0] * 3)
    expected = {choice.token: choice.probability for choice in run.trace("the cat", top=9).top[-1]}
    assert all(one.probability == pytest.approx(expected[one.token], rel=1e-4) for one in (first, *rest))


def test_weights_of_a_moment_are_opened_by_their_step(folder):
    settings = {"steps": 4, "evaluate_every": 2, "threads": 1, "batch_tokens": 64, "snapshots": 3}
    regard.train(
        "lstm", data=str(folder / "my.txt"), run=str(folder / "moments"), size="tiny", settings={"training": settings}
    )
    first, last = (regard.load(folder / "moments", weights=weights) for weights in ("0", "4"))
    assert first.trace("the cat").entropy[0] > last.trace("the cat").entropy[0]
    with pytest.raises(RegardError, match="choose one of the steps 0, 2, 4"):
        regard.load(folder / "moments", weights="3")


def test_a_trace_says_in_a_line_what_it_holds(folder):
    trace = trained(folder, "lstm", "my.txt", "word").trace("the cat")
    assert repr(trace).startswith("Trace(lstm, 3 steps: embedding, layer/0, hidden, layer/0/forget")
