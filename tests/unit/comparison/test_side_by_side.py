"""Runs of a comparison side by side: the same numbers as one after another, and never where time is what is matched."""

import pytest

import regard
from regard.base.errors import RegardError
from regard.comparison.findings import methods, notes

SETTINGS = {"model": {"width": 8}, "training": {"threads": 1, "device": "cpu", "batch_tokens": 256, "window": 32}}


@pytest.fixture
def text(tmp_path):
    lines = [f"the {word} sat on mat {n % 7} ." for n in range(120) for word in ("cat", "dog")]
    path = tmp_path / "text.txt"
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def test_runs_side_by_side_give_the_numbers_of_runs_one_after_another(text, tmp_path):
    def numbers(jobs):
        done = regard.compare(
            ["nnlm"],
            data=text,
            budget="2k",
            seeds=1,
            size="tiny",
            settings=SETTINGS,
            run=tmp_path / str(jobs),
            jobs=jobs,
        )
        assert [row["label"] for row in done.rows] == ["2-gram", "5-gram", "nnlm"]
        return {row["label"]: row["perplexity"] for row in done.rows}, done

    alone, _ = numbers(1)
    together, done = numbers(3)
    assert together == alone
    assert any("At times, at least 3 runs shared the machine" in note for note in notes(done))
    assert "at times, at least 3 runs shared the machine" in methods(done)


def test_a_run_that_fails_beside_others_is_named_and_the_others_are_kept(text, tmp_path):
    settings = SETTINGS | {"training": SETTINGS["training"] | {"learning_rate": 1e30, "clip": 0}}
    words = {"budget": "2k", "seeds": 1, "size": "tiny", "jobs": 2}
    done = regard.compare(["rnn"], data=text, settings=settings, run=tmp_path / "c", **words)
    assert {row["label"] for row in done.order} == {"2-gram", "5-gram"}
    assert list(done.failed) == ["rnn"]


@pytest.mark.parametrize(
    ("words", "said"),
    [({"jobs": 2, "match": "seconds"}, "^match seconds measures time"), ({"jobs": 0}, "^jobs must be at least 1")],
)
def test_what_would_not_be_fair_is_refused(text, words, said):
    with pytest.raises(RegardError, match=said):
        regard.compare(["rnn"], data=text, **words)
