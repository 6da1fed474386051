"""`--tune`: equal trials from one space, chosen by validation, apart from the final seeds; what k trials would give."""

import itertools
import json
import re
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import regard
from regard.base.errors import RegardError
from regard.comparison import child, comparison, language_task, processes, tuning, tuning_report
from regard.comparison.comparison_page import comparison_page
from regard.comparison.curves import Curve
from regard.comparison.findings import measured, methods
from regard.comparison.plan import TRIALS, Plan, plan_file
from regard.comparison.question import Question
from regard.comparison.tuning import (
    BestOf,
    best_of_k,
    chosen,
    draw,
    expected_best,
    point,
    space_of,
    stated_cost,
    trial_rungs,
    trials_folder,
    tune_recipe,
    tuned_rungs,
)
from regard.evaluation.intervals import student_interval
from regard.runs.compose import compose_recipe
from regard.systems.catalogue import SYSTEMS
from regard.systems.sizes import SIZES
from regard.web.lab import work_ladder
from regard.web.lab.work_ladder import shown

TEXT = "".join(f"The {a} {b} in the {c}.\n" for a, b, c in itertools.product(
    ("cat", "dog", "old man", "girl", "bird"), ("sleeps", "sits", "waits", "sings", "reads"), ("house", "park", "tree"),
)) * 3  # fmt: skip
SMALL = {"training": {"validations": 2, "threads": 1}, "model": {"width": 8}}


def question(*systems, **more):
    return Question(systems, "pyref", "tokens", "100k", **{"seeds": 3, "size": "tiny", "tune": 6, **more})


# -- the space -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES)
def test_every_system_gets_the_same_points_within_its_bounds(size):
    neural = [s.name for s in SYSTEMS if s.task == "language model" and s.trained != "counting"]
    asked = question(*neural, size=size)
    by_trial = {}
    for rung in trial_rungs(asked):
        recipe = asked.recipe(rung)  # also checks that each value is allowed
        label, _, number = rung.label.rpartition("-trial")
        by_trial.setdefault(number, {})[label] = (recipe.training.learning_rate, recipe.training.batch_tokens)
    assert len(by_trial) == 6
    for number, of in by_trial.items():
        assert of.keys() == set(neural)
        assert number == "1" or len(set(of.values())) == 1
    assert len({of["lstm"] for number, of in by_trial.items() if number != "1"}) == 5  # a default may be one of them


def test_the_first_trial_is_the_default_and_the_seeds_are_not_those_of_the_table():
    rungs = trial_rungs(question("lstm", "gpt"))
    assert [rung.settings for rung in rungs if rung.label.endswith("-trial1")] == [{}, {}]
    assert {rung.seed for rung in rungs}.isdisjoint(range(1, 10_000))
    by_seed = {(rung.seed, rung.label[-1]) for rung in rungs}
    assert len(by_seed) == 6  # trial j has the same seed in every system
    assert trial_rungs(question("lstm", "gpt")) == rungs


def test_what_the_command_sets_is_not_tuned():
    asked = question("lstm", settings={"training": {"learning_rate": 0.1}})
    assert "training.learning_rate" not in space_of(asked.recipe(asked.rungs()[-1]), asked.settings)
    assert all("learning_rate" not in rung.settings.get("training", {}) for rung in trial_rungs(asked))
    nnlm = question("nnlm", settings={"model": {"order": 3}})
    nnlm.check_settings(tuned_rungs(nnlm, {"nnlm": [{"settings": {"model": {"dropout": 0.1}}, "loss": 1.0}]}))


def test_points_are_haltons():
    """scipy.stats.qmc.Halton(2, scramble=False) begins so."""
    assert [point(n, 2) for n in range(1, 6)] == [1 / 2, 1 / 4, 3 / 4, 1 / 8, 5 / 8]
    assert [point(n, 3) for n in range(1, 6)] == pytest.approx([1 / 3, 2 / 3, 1 / 9, 4 / 9, 7 / 9])


def test_each_setting_has_its_place_between_its_bounds_or_among_its_values():
    """By a base of its own; as a share of the way on a logarithmic scale."""
    of_primes = {f"model.v{base}": {"values": list(range(base**2))} for base in (2, 3, 5, 7, 11, 13, 17, 19)}
    assert draw(of_primes, 2) == {"model": {f"v{base}": base for base in (2, 3, 5, 7, 11, 13, 17, 19)}}
    assert draw(of_primes, 3)["model"] == {"v2": 1, **{f"v{base}": 2 * base for base in (3, 5, 7, 11, 13, 17, 19)}}
    space = {"training.learning_rate": {"low": 1e-4, "high": 1e-2}, "model.width": {"low": 10, "high": 1000}}
    assert [draw(space, trial) for trial in (1, 2, 3)] == [
        {}, {"training": {"learning_rate": 0.001}, "model": {"width": 46}},
        {"training": {"learning_rate": 0.00032}, "model": {"width": 215}},
    ]  # fmt: skip
    nine = of_primes | {"model.more": {"values": [1]}}
    assert "more" not in draw(nine, 2)["model"]  # there are eight bases


def test_settings_are_told_in_the_words_of_their_names():
    assert tuning.in_words({"training.learning_rate": 0.01, "training.batch_tokens": 16384, "model.dropout": 0.25}) == (
        "learning rate 0.01, batch tokens 16,384, dropout 0.25"
    )


def test_a_warm_up_takes_at_most_a_third_of_the_steps():
    space = {"training.batch_tokens": {"values": [1000]}, "training.warmup": {"low": 200, "high": 300}}
    assert draw(space, 2, 30_000)["training"]["warmup"] == 10
    assert draw(space, 2)["training"]["warmup"] >= 200
    assert draw(space, 2, 100)["training"]["warmup"] == 1


def test_the_cost_is_stated_before():
    assert stated_cost(question("lstm", "gpt")) == (
        "Tuning: 6 trials of each system, 12 training runs, then 6 more with the chosen settings; 100,000 tokens each, "
        "1,800,000 tokens in total."
    )
    timed = Question(("gpt",), "pyref", "seconds", "60s", 2, tune=4)
    assert stated_cost(timed).endswith("60 s each, 6 minutes in total.")


# -- what k trials would have given ----------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [1, 2, 4, 6])
def test_the_expected_best_is_the_mean_over_all_choices_of_k_trials(k):
    losses = np.array([3.1, 2.2, 5.0, 2.9, 2.3, 4.4])
    every = [min(some) for some in itertools.combinations(losses, k)]
    assert expected_best(losses, k) == pytest.approx(np.mean(every))


def trials(*losses):
    return [{"settings": {}, "shown": {}, "loss": loss, "seconds": 1.0} for loss in losses]


def test_a_verdict_depends_on_the_number_of_trials_and_on_how_clear_it_is():
    curve = best_of_k({"a": trials(5.0, 5.1, 4.9, 5.05, 5.0), "b": trials(3.0, 3.1, 2.9, 3.0, 3.05)})
    assert [best.verdict for best in curve] == ["b leads"] * 5
    assert [list(best.losses) for best in curve] == [["b", "a"]] * 5
    for best in curve:
        low, high = best.intervals["a"]
        assert low <= best.losses["a"] <= high
    level = best_of_k({"a": trials(5.0, 3.0, 4.0), "b": trials(3.5, 4.5, 4.1)})
    assert level[0].verdict.startswith("undecided: ")
    assert best_of_k({"a": trials(1.0, 2.0)})[0].verdict == ""


def test_a_trial_that_failed_is_never_chosen_and_counts_as_the_worst():
    some = trials(None, 3.0, 2.5)
    assert chosen(some)["loss"] == 2.5
    assert chosen(trials(None, None)) == trials(None)[0]
    assert best_of_k({"a": some})[0].losses["a"] == pytest.approx((3.0 + 3.0 + 2.5) / 3)
    assert best_of_k({"a": trials(None, None), "b": trials(3.0, 2.5)})[-1].losses == {"b": 2.5}


@pytest.mark.parametrize(("ahead", "verdict"), [(1.0, "a leads"), (0.975, "a leads"), (0.9749, "undecided: a or b")])
def test_a_lead_is_one_in_all_but_few_of_the_draws(ahead, verdict):
    assert BestOf(3, {"a": 1.0, "b": 2.0}, {}, ahead).verdict == verdict


# -- how it is told --------------------------------------------------------------------------------------------------


def tried(**losses):
    shown = {"training.learning_rate": 0.5, "model.width": 12_000}
    trials = {
        label: [{"settings": {}, "shown": shown, "loss": loss} for loss in each] for label, each in losses.items()
    }
    return SimpleNamespace(trials=trials)


def test_what_tuning_bought_is_a_share_of_the_perplexity():
    words = "learning rate 0.5, width 12,000"
    assert tuning_report._rows(tried(a=[2.0, 1.5, None], b=[1.8, 1.9, 2.0], c=[None, 1.0, None], d=[None] * 3)) == [
        {"system": "a", "chosen": words, "default": "7.389", "best": "4.482",
         "bought": "39 % lower perplexity than the default's", "failed": 1},
        {"system": "b", "chosen": words, "default": "6.050", "best": "6.050", "bought": "the default is the best",
         "failed": 0},
        {"system": "c", "chosen": words, "default": "–", "best": "2.718", "bought": "the default failed", "failed": 2},
        {"system": "d", "chosen": words, "default": "–", "best": "–", "bought": "every trial failed", "failed": 3},
    ]  # fmt: skip


def test_the_order_before_and_after_tuning_and_its_verdicts_are_told(monkeypatch):
    other = tried(a=[2.0, 1.5], b=[1.8, 1.9])
    said = tuning_report.sentences(other)
    assert said[0].startswith("Tuned: 2 trials of each system with the same budget and search space")
    assert said[1:4] == [
        "a: learning rate 0.5, width 12,000 (39 % lower perplexity than the default's).",
        "b: learning rate 0.5, width 12,000 (the default is the best).",
        "Tuning changed the order: by validation loss, it is b, a with default settings and a, b after tuning.",
    ]
    same = tuning_report.sentences(tried(a=[1.7, 1.5], b=[1.8, 1.9]))
    assert same[3] == (
        "Tuning did not change the order: by validation loss, it is a, b with default settings and after tuning."
    )
    assert len(tuning_report.sentences(tried(a=[1.7, 1.5]))) == 2  # one has no order
    curve = [SimpleNamespace(k=k, verdict=verdict) for k, verdict in enumerate("xxyzzz", start=1)]
    assert tuning_report._verdicts(curve) == "1–2 x; 3 y; 4–6 z"
    drawn = []
    monkeypatch.setattr(tuning_report, "line_chart", lambda lines, **how: drawn.append((lines, how)) or "")
    best = [BestOf(k, {"a": 1.0 / k}, {"a": (0.5 / k, 2.0 / k)}, 1.0) for k in (1, 2)]
    tuning_report._chart(other, best)
    ((line,), how) = drawn.pop()
    assert list(line.points) == [(1, pytest.approx(np.exp(1.0))), (2, pytest.approx(np.exp(0.5)))]
    assert [tuple(band) for band in line.band] == [
        pytest.approx((np.exp(0.5), np.exp(2.0))), pytest.approx((np.exp(0.25), np.exp(1.0))),
    ]  # fmt: skip
    assert how["description"] == "After all trials: a 1.649."
    assert tuning_report._by_k(other, best) == [
        {"k": 1, "a": "2.718 (1.649 – 7.389)", "b": "–", "v": ""},
        {"k": 2, "a": "1.649 (1.284 – 2.718)", "b": "–", "v": ""},
    ]  # fmt: skip


# -- the whole -------------------------------------------------------------------------------------------------------


class Here:
    """A place for runs: this process. It counts them, and can fail."""

    def __init__(self):
        self.labels, self.broken = [], ()

    def run(self, words, threads):
        self.labels.append(words[1])
        if words[1] in self.broken:
            return 2, "The loss became nan.", ""
        child.main(list(words))
        return 0, "", ""

    def stop(self):
        raise AssertionError("nobody asked it to stop")


@pytest.fixture(scope="module")
def place():
    here, threads = Here(), torch.get_num_threads()
    with pytest.MonkeyPatch.context() as patch:
        for module in (comparison, tuning):
            patch.setattr(module, "elsewhere", lambda on, folder: here)
        patch.setattr(comparison, "read_place", lambda on: None)
        patch.setattr(child, "_end_with_parent", lambda: None)
        patch.setattr(child, "hush", lambda: None)
        patch.setattr(language_task, "generation_speed", lambda run: 9.5)
        patch.setattr(processes, "named_here", tuple)
        yield here
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def tuned(tmp_path_factory, place):
    folder = tmp_path_factory.mktemp("tuned")
    (folder / "my.txt").write_text(TEXT)
    words = {"data": str(folder / "my.txt"), "budget": "2k", "seeds": 1, "size": "tiny", "settings": SMALL, "tune": 3}
    words |= {"on": "here", "jobs": 1}
    return regard.compare(["rnn", "nnlm"], run=folder / "c", **words), words


def test_a_tuned_table_has_the_chosen_settings_and_says_what_tuning_bought(tuned):
    done, _ = tuned
    of_trials = Plan.read(trials_folder(done.folder))
    losses = {}
    for entrant, seed in of_trials.runs:
        folder = of_trials.run_folder(entrant, seed)
        rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        losses[entrant.label] = min(row["loss"] for row in rows if row.get("split") == "valid")
        assert "perplexity" not in json.loads((folder / "result.json").read_text())["evaluation"]  # never tested
    recipe = {entrant.label: entrant.recipe for entrant in (*of_trials.entrants, *done.plan.entrants)}
    for name in ("rnn", "nnlm"):
        best = min((label for label in losses if label.startswith(f"{name}-")), key=lambda label: losses[label])
        (row,) = [row for row in done.rows if row["label"] == name]
        assert row["tuning"]["chosen_loss"] == losses[best]
        assert row["tuning"]["default_loss"] == losses[f"{name}-trial1"]
        assert [each["k"] for each in row["tuning"]["best_of"]] == [1, 2, 3]
        assert row["tuning"]["best_of"][-1]["loss"] == losses[best]
        for key in row["tuning"]["chosen"]:
            part, setting = key.split(".")
            assert getattr(getattr(recipe[name], part), setting) == getattr(getattr(recipe[best], part), setting)
    json.dumps(done.rows)
    said = "\n".join(measured(done))
    assert "Tuned: 3 trials of each system" in said
    assert "Untuned" not in said
    assert re.search("Tuning (changed|did not change) the order: ", said)
    assert re.search(r"Verdicts by the number of trials: 1.*(leads|undecided: )", said)
    assert "settings chosen by validation in 3 trials" in methods(done)
    page = comparison_page(done)
    assert "Gain from tuning" in page
    assert "Expected best validation perplexity of k trials" in page


def test_the_same_command_repeats_no_trial_and_another_number_of_trials_is_another_comparison(tuned, place):
    done, words = tuned
    place.labels.clear()
    again = regard.compare(["rnn", "nnlm"], run=done.folder, **words)
    assert again.rows == done.rows
    assert place.labels == []
    assert plan_file(trials_folder(done.folder)).name == TRIALS
    with pytest.raises(RegardError, match="contains a different comparison"):
        regard.compare(["rnn", "nnlm"], run=done.folder, **words | {"tune": 2})


def test_tuning_that_was_stopped_continues_with_the_missing_trials_and_one_that_fails_is_not_chosen(tuned, place):
    done, words = tuned
    folder = done.folder.with_name("stopped")
    shutil.copytree(trials_folder(done.folder), trials_folder(folder))
    best = [chosen(each) for each in done.trials.values()]
    place.broken = {f"rnn-trial{done.trials['rnn'].index(best[0]) + 1}"}
    shutil.rmtree(trials_folder(folder) / next(iter(place.broken)))
    place.labels.clear()
    again = regard.compare(["rnn", "nnlm"], run=folder, **words)
    assert place.labels == [*place.broken, "2-gram", "5-gram", "rnn", "nnlm"]
    assert chosen(again.trials["rnn"])["loss"] > best[0]["loss"]
    assert again.trials["nnlm"] == done.trials["nnlm"]
    assert "1" in [str(row["failed"]) for row in tuning_report._rows(again)]
    place.broken = ()


def test_train_takes_the_settings_of_its_best_trial(tuned, monkeypatch):
    done, words = tuned
    monkeypatch.setattr(tuning, "run_trials", lambda question, folder: {"rnn": done.trials["rnn"]})
    recipe = compose_recipe("rnn", data=words["data"], size="tiny", budget="2k", settings=SMALL)
    found = tune_recipe(recipe, 3, SMALL, done.folder)
    for key, value in chosen(done.trials["rnn"])["shown"].items():
        part, name = key.split(".")
        assert getattr(getattr(found, part), name) == value
    assert found.training.seed == 1
    with pytest.raises(RegardError, match="--tune needs --budget"):
        tune_recipe(compose_recipe("rnn", data=words["data"]), 3, {}, done.folder)
    monkeypatch.setattr(tuning, "run_trials", lambda question, folder: {"rnn": trials(None, None)})
    with pytest.raises(RegardError, match="Every trial failed"):
        tune_recipe(recipe, 2, SMALL, done.folder)


def test_too_few_or_too_many_trials_are_refused():
    with pytest.raises(RegardError, match="--tune must be at least 0"):
        question("lstm", tune=-1)
    with pytest.raises(RegardError, match="--tune must be at most 1000"):
        question("lstm", tune=5000)


def test_the_lab_gets_the_curve_of_k_trials_and_a_band_over_three_seeds(tuned):
    done, _ = tuned
    for one in shown(done)["tuning"]:
        losses = [trial["loss"] for trial in done.trials[one["label"]]]
        assert one["k"] == [1, 2, 3]
        assert one["perplexity"][-1] == pytest.approx(np.exp(min(losses)))
        assert all(low <= at <= high for low, at, high in zip(one["low"], one["perplexity"], one["high"]))
    seeds = [Curve("a", seed, ((10, 1.0, loss), (20, 2.0, loss / 2))) for seed, loss in enumerate((2.0, 2.2, 2.4))]
    low, high = student_interval([2.0, 2.2, 2.4])
    band = work_ladder._band(seeds)
    assert (band["low"][0], band["high"][0]) == pytest.approx((np.exp(low), np.exp(high)))
    assert work_ladder._band(seeds[:2]) == {}  # two seeds do not show how far seeds differ
