"""Vectors of texts: for every neural system, of length 1, the same whatever else is in the batch."""

import numpy as np
import pytest
import torch

import regard
from regard.base.errors import RegardError
from regard.runs.embedding import POOLS, embed_rows
from regard.systems.catalogue import find
from regard.systems.translator import Translator
from subjects import NEURAL, SUBJECTS, build, title

ROWS = [[0, 3, 4, 5, 0], [0, 7, 0], [0, 2, 2, 9, 4, 1, 8, 0]]


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("subject", NEURAL, ids=title)
def test_every_neural_system_embeds_and_batch_mates_change_nothing(subject, pool):
    model = build(subject)
    together = embed_rows(model, ROWS, None, pool)
    assert np.linalg.norm(together, axis=1) == pytest.approx(np.ones(3), abs=1e-5)
    alone = np.concatenate([embed_rows(model, [row], None, pool) for row in ROWS])
    assert together == pytest.approx(alone, abs=1e-5)
    if pool == "mean":  # the last state of a bag of words is that of <eos>
        assert abs(together[0] - together[1]).max() > 1e-4


@pytest.mark.parametrize("subject", NEURAL, ids=title)
def test_a_vector_is_the_mean_of_the_states_of_the_text_alone(subject):
    model, row = build(subject), torch.tensor([ROWS[2]])
    with torch.no_grad():
        if isinstance(model, Translator):
            states = model.encode(row, torch.tensor([8]))["memory"][0, :-1]
        else:
            states = model.read(row, None)[0][0, 1:]
    mean = states.mean(0)
    assert embed_rows(model, [ROWS[2]], None, "mean")[0] == pytest.approx((mean / mean.norm()).numpy(), abs=1e-5)


def test_a_layer_can_be_named():
    model = build(next(subject for subject in SUBJECTS if subject[0] == "gpt"))
    with torch.no_grad():
        parts = model.explain(torch.tensor([ROWS[0]]))[2]["layers"]
    for number, part in enumerate(parts.values(), start=1):
        state = part["hidden"][0, -1]
        assert embed_rows(model, [ROWS[0]], number, "last")[0] == pytest.approx(
            (state / state.norm()).numpy(), abs=1e-5
        )
    count = len(parts)
    for layer in (0, count + 1, 99):
        with pytest.raises(RegardError, match=f"no states for layer {layer}; choose 1 to {count}"):
            embed_rows(model, ROWS, layer, "mean")
    translator = build(next(subject for subject in NEURAL if subject[0] == "transformer"))
    with torch.no_grad():
        layers = translator.explain_encode(torch.tensor([ROWS[0]]), torch.tensor([5]))[1]["layers"]
    state = next(iter(layers.values()))["hidden"][0, :-1].mean(0)
    assert embed_rows(translator, [ROWS[0]], 1, "mean")[0] == pytest.approx((state / state.norm()).numpy(), abs=1e-5)


def test_an_n_gram_is_refused():
    model = build(next(subject for subject in SUBJECTS if find(subject[0]).trained == "counting"))
    with pytest.raises(RegardError, match="has no vectors"):
        embed_rows(model, ROWS, None, "mean")


def test_a_run_embeds_texts_and_refuses_empty_and_long_ones(tmp_path):
    (tmp_path / "text.txt").write_text("".join(f"the cat {n} sees a dog\n" for n in range(60)))
    training = {"steps": 2, "evaluate_every": 1, "threads": 1, "device": "cpu"}
    settings = {"training": training, "model": {"width": 16, "layers": 1, "context": 16}}
    run = regard.train("gpt", data=tmp_path / "text.txt", run=tmp_path / "run", size="tiny", settings=settings)
    found = run.embed(["the cat 1", "the cat 2 sees", "the cat 1"])
    assert found.shape == (3, 16)
    assert found[0] == pytest.approx(found[2], abs=1e-6)
    for texts, sentence in (([""], "empty"), (["the cat " * 40], "tokens"), ([3], "string")):
        with pytest.raises(RegardError, match=sentence):
            run.embed(texts)
    with pytest.raises(RegardError, match="pool"):
        run.embed(["a"], pool="max")
    read = [run.tokenizer.begin, *run.tokenizer.encode("the cat")]
    room = run.model.context - len(read)
    ((line, score),) = run.beam("the cat", width=1, max_tokens=room)  # the whole context
    assert line.startswith("the cat")
    assert score < 0
    assert len(run.beam("the cat", width=2, max_tokens=1)) == 2
    for how, sentence in (({"max_tokens": room + 1}, "must fit in the model's context of 16 tokens"),
                          ({"width": 0}, "must be at least 1"), ({"max_tokens": 0}, "must be at least 1"),
                          ({"width": 10_001}, "must be at most 10000")):  # fmt: skip
        with pytest.raises(RegardError, match=sentence):
            run.beam("the cat", **how)
    _, state = run("the cat")
    short = run.tokenizer.tokens[-1] * (room + 1)
    assert run(short[: len(run.tokenizer.tokens[-1]) * room], state)
    with pytest.raises(RegardError, match="remembers at most 16 tokens: start again with state=None"):
        run(short, state)
    with pytest.raises(RegardError, match="There is nothing to read: give at least one character"):
        run("", state)
