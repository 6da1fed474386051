"""What the worker answers about causes: the numbers of `run.trace(intervene=…)`, and one sentence for bad input."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from regard import load, train
from regard.base.errors import RegardError
from regard.corpora.phrasebook import make_pairs
from regard.web.lab import work_sentence, work_time, work_translation
from regard.web.lab.requests import MAX_CAUSES, MAX_CHANGES, CauseRequest, HeadsInTime, TraceRequest
from regard.web.lab.runs_folder import RunsFolder

TEXT, PLURAL = "The friends who know the horse often", "The friends who know the horses often"
ENGLISH = "The children are playing."
GPT, TRANSFORMER = "gallery/gpt", "gallery/transformer"


@pytest.fixture
def folder(tmp_path):
    return RunsFolder(tmp_path / "runs")


@pytest.fixture(scope="module")
def gpt():
    return load(GPT, device="cpu")


def changed(folder, *changes, text=TEXT, other="", run=GPT):
    return work_sentence.trace(folder, TraceRequest(run=run, text=text, changes=changes, other=other))


def asked(folder, **question):
    return work_sentence.cause(folder, CauseRequest(**{"run": GPT, "text": TEXT, **question}))


def test_a_removed_head_gives_the_numbers_of_an_intervention(folder, gpt):
    found = changed(folder, "zero self/0[0]@7")
    expected = gpt.trace(TEXT, intervene={"self/0[0]@7": 0.0})
    np.testing.assert_allclose(found["probability"][:-1], expected.probability[:-1], rtol=1e-4)
    assert found["top"][7][0]["token"] == expected.top[7][0].token
    assert found["notes"][0] == "Changed: zero self/0[0]@7. Computed by the reference implementation."


def test_every_layer_swapped_is_the_other_text_at_its_end(folder, gpt):
    """The residual stream after the last block is all that the output reads."""
    found = changed(folder, "swap layer/1@7", other=PLURAL)
    expected = gpt.trace(PLURAL, top=10)
    assert [one["token"] for one in found["top"][7]] == [one.token for one in expected.top[7]]
    same = changed(folder, "swap layer/1", other=TEXT)
    np.testing.assert_allclose(same["probability"][:-1], gpt.trace(TEXT).probability[:-1], rtol=1e-4)


def test_the_mean_is_taken_over_the_words_of_the_text(folder, gpt):
    parts = gpt.trace(TEXT).hidden["embedding"]
    mean = changed(folder, "mean embedding@6")
    expected = gpt.trace(TEXT, intervene={"embedding@6": torch.tensor(parts.mean(0))})
    np.testing.assert_allclose(mean["probability"][:-1], expected.probability[:-1], rtol=1e-4)


@pytest.mark.parametrize(
    ("changes", "other", "sentence"),
    [
        (["zero self/9[0]"], "", "There is no place 'self/9'"),
        (["zero self/0[9]"], "", "self/0 has 4 components"),
        (["zero embedding@99"], "", "embedding has 8 columns"),
        (["mean embedding@99"], "", "embedding has 8 columns"),
        (["mean nothing"], "", "There is no place 'nothing'"),
        (["swap embedding@2"], "", "needs a second text of equal length"),
        (["swap self/0[1]"], "A horse", "swap self/0 at one word"),
        (["remove self/0"], "", "a change must be one of zero, mean, swap"),
        (["zero"], "", "does not name a part"),
        (["zero self/0]["], "", "does not name a part"),
    ],
)
def test_a_change_that_cannot_be_made_is_refused_in_one_sentence(folder, changes, other, sentence):
    with pytest.raises(RegardError, match=sentence.replace("[", r"\[")):
        changed(folder, *changes, other=other)
    assert changed(folder, "zero self/0[0]")["probability"][0] > 0  # the model is whole again


def test_no_more_changes_than_a_page_shows(folder):
    with pytest.raises(RegardError, match="changes"):
        TraceRequest.read({"run": GPT, "text": TEXT, "changes": ["zero self/0"] * (MAX_CHANGES + 1)})


@pytest.mark.parametrize(
    ("question", "sentence"),
    [
        ({"ask": "patch"}, "Type a second text of equal length"),
        ({"ask": "patch", "other": "A horse"}, "8 and 3 tokens"),
        ({"ask": "patch", "other": TEXT}, "The two texts are the same"),
        ({"ask": "patch", "other": PLURAL, "why": "plays", "not_": "plays"}, "begin with the same token"),
        ({"ask": "why", "why": "plays"}, "Type the two words to compare"),
        ({"ask": "why", "why": "plays", "not_": "plays"}, "begin with the same token"),
        ({"ask": "why", "why": "plays", "not_": "play", "step": 99}, "There is no step 99"),
        ({"ask": "ablate", "parts": "gates"}, "has no gates to remove: choose heads or"),
        ({"ask": "ablate", "with_": "mean"}, "give at least two lines"),
        (
            {"ask": "lens", "run": "gallery/lstm", "text": "horse " * 200},
            f"at most {MAX_CAUSES} can be explained: shorten it",
        ),
    ],
)
def test_a_question_that_has_no_answer_says_why(folder, question, sentence):
    with pytest.raises(RegardError, match=sentence):
        asked(folder, **question)


def test_the_main_parts_are_those_that_a_system_has(folder):
    kinds = {run: asked(folder, ask="ablate", run=f"gallery/{run}")["kind"] for run in ("gpt", "lstm", "ngram")}
    assert kinds == {"gpt": "heads", "lstm": "gates", "ngram": "orders"}


def test_two_words_are_compared_at_the_chosen_step_or_where_the_translation_wrote_one(folder):
    last = asked(folder, ask="why", why="plays", not_="play")
    assert (last["step"], last["difference"] > 0) == (7, True)
    early = asked(folder, ask="why", why="plays", not_="play", step=2)
    assert early["step"] == 2
    assert len(early["words"]) == 3  # what comes later cannot matter
    question = CauseRequest(run=TRANSFORMER, text=ENGLISH, ask="why", why="jouent", not_="joue")
    written = work_translation.cause(folder, question)
    assert written["step"] == work_translation.trace(folder, replace(question))["words"]["written"].index("␣jouent")
    assert written["difference"] > 0


def test_a_changed_translator_tells_what_it_would_write(folder):
    place = "encoder/0/heads[3]"
    request = TraceRequest(run=TRANSFORMER, text=ENGLISH, changes=(f"zero {place}",))
    found, plain = work_translation.trace(folder, request), work_translation.trace(folder, replace(request, changes=()))
    run = load(TRANSFORMER, device="cpu")
    assert found["own"] == run.trace(ENGLISH, intervene={place: 0.0}).translation != plain["answer"]
    assert found["words"] == plain["words"]  # both read the same translation, so that its words can be compared
    assert "own" not in plain
    later = replace(request, changes=("zero layer/0@2",))  # the third step, while the search writes word by word
    assert work_translation.trace(folder, later)["own"] == run.trace(ENGLISH, intervene={"layer/0@2": 0.0}).translation


def test_the_scores_of_heads_over_training_have_a_chance_level(tmp_path):
    settings = {
        "data": {"tokenizer": "word"},
        "model": {"width": 16, "layers": 1, "heads": 2},
        "training": {"steps": 4, "evaluate_every": 4, "snapshots": 2, "batch_tokens": 256},
    }
    lines = [pair.source for pair in make_pairs(2000, shortest=4)]
    train("gpt", data=lines, run=tmp_path / "runs" / "heads", size="tiny", settings=settings)
    found = work_time.heads(RunsFolder(tmp_path / "runs"), HeadsInTime(run="heads", text="She sees the house ."))
    assert found["heads"] == ["self/0[0]", "self/0[1]"]
    assert set(found["scores"]) == set(found["chance"]) == set(work_time.SCORES)
    for score, rows in found["scores"].items():
        assert np.shape(rows) == (len(found["steps"]), 2)
        assert 0 <= found["chance"][score] <= 1
    untrained = np.array(found["scores"]["syntactic"][0])
    assert np.allclose(untrained, found["chance"]["syntactic"], atol=0.05)  # it looks everywhere
