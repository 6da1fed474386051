"""Power: what a plan can show, from an earlier comparison of the same text, and how many seeds a difference needs."""

import os
import re
import shutil
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from regard.comparison import power
from regard.comparison.differences import Difference
from regard.comparison.language_task import LANGUAGE
from regard.comparison.plan import make_plan
from regard.comparison.power import needed_seeds, plan_power
from regard.comparison.question import Question
from regard.evaluation.intervals import detectable, paired_difference

TEXT = "".join(f"The {word} sleeps in the {place}.\n" for word in ("cat", "dog", "owl") for place in range(40))


@pytest.fixture
def made(tmp_path):
    (tmp_path / "my.txt").write_text(TEXT)

    def make(name, *systems, seeds=3, text="my.txt"):
        (tmp_path / name).mkdir()
        question = Question(systems, str(tmp_path / text), "tokens", "2k", seeds, "tiny")
        return make_plan(question, tmp_path / name)

    return make


def earlier(monkeypatch, spread, systems=("rnn", "lstm"), documents=12):
    """Every comparison's scores: seeds with this spread."""
    random = np.random.default_rng(1)
    found = {
        label: 3 + spread * random.standard_normal((4, 1)) + 0.01 * random.standard_normal((4, documents))
        for label in systems
    }
    monkeypatch.setattr(power, "read_result", lambda folder: {"evaluation": {}})
    monkeypatch.setattr(type(LANGUAGE), "scores", lambda self, plan, results: SimpleNamespace(by_document=found))
    return found


def test_before_a_run_the_difference_that_it_can_show_comes_from_an_earlier_one(made, monkeypatch):
    made("before", "rnn", "lstm")
    plan = made("now", "rnn", "lstm", seeds=5)
    scores = earlier(monkeypatch, 0.05)
    found = paired_difference(*scores.values())
    between = sum(max(0.0, part) * 4 for part in found.seeds)
    share = 100 * np.expm1(detectable(found.documents, between, 5))
    said = plan_power(plan)
    assert f"With 5 seeds, a true difference of {share:.2g} % in perplexity between two systems" in said
    assert said.endswith("(one pair, p < 0.05; spread of seeds and documents from before).")


def test_more_seeds_and_less_spread_show_smaller_differences(made, monkeypatch):
    made("before", "rnn", "lstm")

    def shown(plan):
        return float(re.search(r"difference of ([\d.e+]+) %", plan_power(plan))[1])

    earlier(monkeypatch, 0.05)
    three, ten = shown(made("three", "rnn", "lstm")), shown(made("ten", "rnn", "lstm", seeds=10))
    assert ten < three
    earlier(monkeypatch, 0.005)
    assert shown(made("steady", "rnn", "lstm")) < three


def test_a_placebo_of_one_system_is_a_pilot(made, monkeypatch):
    """Two systems would spread twice as much as the seeds of the one, and documents as between its seeds."""
    made("before", "rnn")
    (scores,) = earlier(monkeypatch, 0.05, systems=("rnn",)).values()
    documents = paired_difference(scores[:1], scores[1:]).documents
    share = 100 * np.expm1(detectable(documents, 2 * scores.mean(axis=1).var(ddof=1), 3))
    said = plan_power(made("now", "rnn", "lstm"))
    assert "from before" in said
    assert f"With 3 seeds, a true difference of {share:.2g} % in perplexity" in said


def test_another_text_a_damaged_comparison_and_this_one_say_nothing(made, monkeypatch, tmp_path):
    (tmp_path / "other.txt").write_text(TEXT.replace("cat", "cow"))
    made("other", "rnn", "lstm", text="other.txt")
    damaged = made("damaged", "rnn", "lstm")
    (damaged.folder / "comparison.json").write_text("{}")
    plan = made("now", "rnn", "lstm")
    earlier(monkeypatch, 0.05)
    assert plan_power(plan).startswith("It is unknown which differences these seeds can show")


def test_the_newest_comparison_counts_and_one_seed_can_show_no_difference(made, monkeypatch):
    made("old", "rnn", "lstm")
    made("new", "rnn", "lstm")
    plan = made("now", "rnn", "lstm")
    os.utime(plan.folder.parent / "old" / "comparison.json", (1, 1))
    os.utime(plan.folder.parent / "old", (1, 1))
    earlier(monkeypatch, 0.05)
    assert plan_power(plan).endswith("from new).")
    assert plan_power(made("one", "rnn", seeds=1)).startswith("One seed shows how these runs differ, not how the")
    assert plan_power(made("grams", "ngram")).startswith("n-grams have no seeds")
    shutil.rmtree(plan.folder)


def of(*differences, fewest_seeds=3):
    return SimpleNamespace(differences=differences, fewest_seeds=fewest_seeds, task=LANGUAGE)


def test_after_a_run_the_largest_difference_that_is_not_significant_says_its_seeds():
    near = Difference("a", "b", -0.02, -0.1, 0.06, 0.4, documents=1e-6, seeds=2 * 0.02**2)
    far = replace(near, worse="c", by=-0.03)
    clear = replace(near, worse="d", by=-1.0, p_value=0.001)
    (said,) = needed_seeds(of(near, far, clear))
    assert said.startswith(
        "A true difference as large as that between a and c (3 % in perplexity) would be detected with"
    )
    count = int(re.search(r"about (\d+) seeds", said)[1])
    assert detectable(far.documents, far.seeds, count) <= 0.03 < detectable(far.documents, far.seeds, count - 1)
    (said,) = needed_seeds(of(replace(near, documents=1.0)))
    assert "cannot be detected on this test text" in said
    assert needed_seeds(of(clear)) == []
    assert needed_seeds(of(near, fewest_seeds=1)) == []
