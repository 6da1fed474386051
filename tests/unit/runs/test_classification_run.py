"""The numbers that a classifier is compared with: who always says the commonest label, and the lines of each."""

import math
from collections import Counter

import pytest

import regard
from regard.base.errors import RegardError
from regard.runs.tasks.task import task_of


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Hardly trained: what it says differs from the truth."""
    folder = tmp_path_factory.mktemp("labels")
    made = [(f"{word} {n} times", label) for label, word, many in
            (("good", "fine", 60), ("bad", "poor", 30), ("so so", "grey", 10)) for n in range(many)]  # fmt: skip
    (folder / "moods.tsv").write_text("".join(f"{text}\t{label}\n" for text, label in made))
    settings = {"training": {"steps": 1, "threads": 1, "device": "cpu"}, "model": {"width": 4}}
    return regard.train("classifier", data=folder / "moods.tsv", size="tiny", run=folder / "run", settings=settings)


def counted(labels):
    return Counter(labels).most_common(1)[0][1] / len(labels)


def test_the_baseline_is_right_as_often_as_the_commonest_label_occurs(run, tmp_path):
    """Whatever is predicted, and also where the model knows the label by another share."""
    for name in ("train", "valid", "test"):
        gold = run.corpus().splits[name].targets
        assert run.evaluate(name)["always_the_commonest"] == pytest.approx(counted(gold))
    for gold in (["bad"] * 7 + ["good"] * 2 + ["so so"], ["so so"] * 3 + ["good"] * 3, ["bad"]):
        (tmp_path / "other.tsv").write_text("".join(f"text {n}\t{label}\n" for n, label in enumerate(gold)))
        facts = run.evaluate(data=str(tmp_path / "other.tsv"), texts=True)
        assert facts["lines"] == len(gold)
        assert facts["always_the_commonest"] == pytest.approx(counted(gold))
        assert {label: numbers["lines"] for label, numbers in facts["labels"].items() if numbers["lines"]} == Counter(
            gold
        )
        assert {label: n["predicted"] for label, n in facts["labels"].items() if n["predicted"]} == Counter(
            facts["predictions"]
        )


def test_who_always_says_the_commonest_is_as_good_as_the_baseline(run, monkeypatch):
    """An oracle: a model that says it always has the baseline's accuracy."""
    gold = run.corpus().splits["test"].targets
    commonest = Counter(gold).most_common(1)[0][0]
    monkeypatch.setattr(run, "_label_all", lambda cut, name: ([commonest] * len(cut), [1.0] * len(cut)))
    facts = run.evaluate()
    assert facts["accuracy"] == facts["always_the_commonest"]


def test_the_validation_of_a_training_is_of_the_weights_it_kept(run):
    """Among all symbols, as in training; an evaluation leaves out <eos> and <unk>, which are no labels."""
    (checked,) = run.history.validations  # of the only step
    facts = run.evaluate("valid")
    assert checked["accuracy"] == pytest.approx(facts["accuracy"])
    assert checked["loss"] > facts["cross_entropy"] > 0
    assert checked["loss"] == pytest.approx(math.log(run.tokenizer.vocabulary), rel=0.1)  # hardly trained: all alike


def test_lines_are_numbered_through_all_parts_of_a_file_and_what_cannot_be_scored_is_counted(run, capsys):
    longest = run.recipe.data.longest
    long = " ".join(["fine"] * (longest + 1))
    assert len(list(run.labellings([" ".join(["fine"] * longest), "", long], truncate=True))) == 3
    task, found = task_of(run), [run("fine"), next(run.labellings([long], truncate=True))]
    assert task.answers(run, ["fine", long]) == [one.label for one in found]
    assert task.described_answers(run, ["fine", long]) == [
        f"{one.label} ({100 * one.labels[one.label]:.0f} %)" for one in found
    ]
    with pytest.raises(RegardError, match="Line 5 has"):
        list(run.labellings(["fine", long], before=3))
    for before, said in (
        (None, "Pair 2 has the label 'great'"),
        (0, "Line 2 has the label"),
        (7, "Line 9 has the label"),
    ):
        with pytest.raises(RegardError, match=f"{said}.* its labels are "):
            list(run.score([("fine", "good"), ("fine", "great")], before=before))
    pairs = [
        ("fine", "good"),
        (" ", "good"),
        ("fine", " "),
        ("fine", "great"),
        (long, "bad"),
        ("poor", "bad"),
        (long, "bad"),
    ]
    assert list(run.scorable(pairs)) == [("fine", "good"), ("poor", "bad")]
    assert capsys.readouterr().err == (
        "5 of 7 pairs left out: 1 without a text, 1 without a label, 1 with a label not seen in training, "
        f"2 with more than {longest} tokens.\n"
    )
    assert list(run.scorable(pairs[:1])) == pairs[:1]
    assert capsys.readouterr().err == ""
    (score,) = run.score([("fine", "good")])
    assert score.log_probability == pytest.approx(math.log(run("fine").labels["good"]), rel=1e-4)
    facts = run.evaluate(data=[("fine", "good"), (long, "great"), ("", "bad")])
    assert (facts["lines"], facts["unseen_labels"], facts["truncated"], facts["left_out"]) == (2, 1, 1, 1)
    assert facts["cross_entropy"] == pytest.approx(-score.log_probability, rel=1e-4)
    assert repr(run("fine")).startswith("Labelling(")
    assert len(run("fine").top()) == 3
    assert run("").labels == {}
