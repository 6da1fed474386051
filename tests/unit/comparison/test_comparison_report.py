"""What a comparison of language models says of results that are known: its rows, sentences, figures and page."""

import json
import math
import re
from dataclasses import replace
from functools import partial
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest

from regard.comparison import comparison_page as pages
from regard.comparison import findings, language_report, tuning_report
from regard.comparison.comparison import Comparison
from regard.comparison.curves import NEAR, Curve, OtherOrder, in_order, other_order
from regard.comparison.differences import Difference
from regard.comparison.findings import caveats, finding, measured, methods, notes, tied_with_best
from regard.comparison.language_task import LANGUAGE
from regard.comparison.plan import Entrant, Plan
from regard.comparison.question import Question
from regard.evaluation.intervals import document_losses, holm, mean_score, paired_difference
from regard.report.table import significant
from regard.web.lab.work_ladder import shown

TOKENS = 100 + 3 * np.arange(24)  # of each document
LOSSES = {"2-gram": [3.0], "5-gram": [2.7], "lstm": [2.4, 2.6], "gpt": [1.9, 2.1]}  # of each seed, in nats per token
LENGTH = int(TOKENS.sum())


def result(label, seed, loss, effort):
    """A run whose documents are as hard for it as for the others, and a little more or less."""
    own = np.random.default_rng([len(label), seed]).standard_normal(24)
    nats = TOKENS * (np.linspace(-0.3, 0.3, 24) + 0.003 * own)
    nats += TOKENS * (loss - nats.sum() / LENGTH)
    return {
        "evaluation": {
            "documents": {"tokens": TOKENS.tolist(), "nats": nats.tolist(), "whole_lines": True}, "tokens": LENGTH,
            "characters": 4 * LENGTH, "perplexity": float(np.exp(loss)), "bits_per_character": 1.0,
            "unknown_rate": 0.0125,
        },
        "validation_loss": loss - 0.1, "generation_tokens_per_second": 100.0 * seed + 0.4, "notes": [],
        "sample": f"Once upon {label} {seed}", "parameters": 1000 * len(label), "tokens_seen": 1000 + 10 * seed,
        "steps": 7 + seed, "training_seconds": 4.0 * seed + 0.123, "peak_memory_bytes": (200 + 50 * seed) * 2**20,
        "memory_before_bytes": (100 + seed) * 2**20, "memory_of": "process", "device": "cpu (x)", "threads": 2,
        "torch": "9.1", "python": "3.99", **effort,
    }  # fmt: skip


@pytest.fixture
def compared(tmp_path):
    """Makes a finished comparison: label → loss of each seed, or the sentence with which it failed."""

    def make(losses=LOSSES, curves=None, facts=None, **changes):
        systems = tuple(label for label in losses if "gram" not in label) or ("ngram",)
        settings = {"training": {"validations": 20, **changes.get("training", {})}}
        question = Question(systems, "my.txt", budget="1k", size="tiny", settings=settings)
        entrants, results = [], {}
        for rung in question.rungs():
            seeds = tuple(range(1, len(losses[rung.label]) + 1))
            entrants.append(Entrant(rung.label, rung.entry.year, rung.counted, question.recipe(rung), seeds))
            for seed, loss in zip(seeds, losses[rung.label]):
                effort = changes.get("effort", {})
                found = {"failed": loss} if isinstance(loss, str) else result(rung.label, seed, loss, effort)
                results[rung.label, seed] = found
                folder = tmp_path / entrants[-1].name(seed)
                folder.mkdir(exist_ok=True)
                points = (curves or {}).get(rung.label, [])
                lines = [dict(zip(("tokens", "seconds", "loss"), p), split="valid", step=1) for p in points]
                lines += [{"tokens": 1, "seconds": 1.0, "loss": 99.0, "step": 1}]  # of training
                (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        known = {
            "corpus": {"name": "my.txt", "checksum": "c0ffee", "notes": ["Lines were drawn.", "It is short."]},
            "tokens": {"train": 12345, "test": LENGTH}, "tokenizer": {"kind": "word", "vocabulary": 23456},
            "split": "test", "prompt": "Once upon ", "segment": 65, "target_parameters": 54321, "size": "tiny",
            "regard": "7.8", "command": "regard compare lstm", "created": "2026-11-15T00:00:00",
        }  # fmt: skip
        plan = Plan(tmp_path, {}, "tokens", 20000.0, "tokens", tuple(entrants), known | (facts or {}))
        return Comparison(plan, results)

    return make


def timed(done, **changes):
    """The same with another budget."""
    return Comparison(replace(done.plan, **changes), done.results)


# -- rows ------------------------------------------------------------------------------------------------------------


def test_a_row_holds_the_means_over_its_seeds_and_the_most_memory(compared):
    done = compared()
    assert [row["label"] for row in done.rows] == ["gpt", "lstm", "5-gram", "2-gram"]
    row = done.rows[1]
    assert {key: row[key] for key in ("system", "year", "seeds", "parameters", "memory_of")} == {
        "system": "lstm", "year": 1997, "seeds": 2, "parameters": 4000, "memory_of": "process",
    }  # fmt: skip
    assert row["width"] == done.plan.entrants[2].recipe.model.width
    assert done.rows[2]["width"] is None  # an n-gram has none
    assert row["perplexity"] == pytest.approx(math.exp(2.5))
    assert row["nats_per_token"] == pytest.approx(2.5)
    assert row["perplexities"] == pytest.approx([math.exp(2.4), math.exp(2.6)])
    assert row["bits_per_character"] == pytest.approx(2.5 / math.log(2) / 4)
    assert row["unknown_rate"] == 0.0125
    assert row["tokens_seen"] == 1015
    assert row["training_seconds"] == 6.12
    assert row["training_tokens_per_second"] == round(1015 / 6.123)
    assert row["generation_tokens_per_second"] == 150
    assert (row["peak_memory_bytes"], row["memory"]) == (300 * 2**20, "300 MiB")
    assert row["sample"] == "Once upon lstm 1"
    assert "failed" not in row
    assert done.seeds == 2
    assert compared(effort={"training_seconds": 0.25}).rows[1]["training_tokens_per_second"] == 4060
    assert compared(effort={"training_seconds": 0.0}).rows[1]["training_tokens_per_second"] == round(1015 / 1e-9)


def test_intervals_are_over_documents_and_seeds_and_a_difference_is_paired(compared):
    done = compared()
    losses = {
        label: document_losses(
            np.array([done.results[label, seed + 1]["evaluation"]["documents"]["nats"] for seed in range(n)]), TOKENS
        )
        for label, n in (("2-gram", 1), ("5-gram", 1), ("lstm", 2), ("gpt", 2))
    }
    for row in done.rows:
        low, high = map(math.exp, mean_score(losses[row["label"]]).interval())
        assert (row["perplexity_low"], row["perplexity_high"]) == pytest.approx((low, high))
        assert low < row["perplexity"] < high
    found = {(each.better, each.worse): each for each in done.differences}
    assert list(found) == [
        ("gpt", "lstm"), ("gpt", "5-gram"), ("gpt", "2-gram"), ("lstm", "5-gram"), ("lstm", "2-gram"),
        ("5-gram", "2-gram"),
    ]  # fmt: skip
    for (better, worse), each in found.items():
        assert each.by == pytest.approx(np.mean(LOSSES[better]) - np.mean(LOSSES[worse]))
        assert (each.low, each.high) == pytest.approx(paired_difference(losses[better], losses[worse]).interval())
    alone = [paired_difference(losses[better], losses[worse]).p_value for better, worse in found]
    assert [each.p_value for each in found.values()] == pytest.approx(holm(alone))
    assert [(d.better, d.worse) for d in done.telling] == [
        pair for pair in found if pair in pairwise(["gpt", "lstm", "5-gram", "2-gram"]) or not found[pair].beyond
    ]


def test_rows_that_failed_stand_last_and_say_why(compared):
    done = compared(LOSSES | {"lstm": ["No memory.", 2.5], "gpt": ["The loss became nan.", "The loss became inf."]})
    assert [row["label"] for row in done.rows] == ["lstm", "5-gram", "2-gram", "gpt"]
    assert [row["label"] for row in done.order] == ["lstm", "5-gram", "2-gram"]
    assert [row.get("failed") for row in done.rows] == ["No memory.", None, None, "The loss became nan."]
    assert [row["seeds"] for row in done.rows] == [1, 1, 1, 0]
    assert done.rows[0]["perplexity"] == pytest.approx(math.exp(2.5))
    assert done.failed == {
        "lstm-seed1": "No memory.", "gpt-seed1": "The loss became nan.", "gpt-seed2": "The loss became inf.",
    }  # fmt: skip
    assert caveats(done)[1:] == [f"{name} failed: {why}" for name, why in done.failed.items()]
    assert all(each.better != "gpt" != each.worse for each in done.differences)
    page = pages.comparison_page(done)
    assert "<h3>gpt</h3>" not in page  # it wrote nothing
    assert "<p class=quiet-text>gpt-seed2 failed: The loss became inf.</p>" in page
    assert "<h1>Language models compared on my.txt</h1>" in page
    assert page.index("Test perplexity with") < page.index("perplexity ratio")


def test_a_loss_that_is_not_finite_has_no_interval_and_no_difference(compared):
    done = compared(LOSSES | {"2-gram": [709.0], "gpt": [1.9, math.inf]})
    assert [row["label"] for row in done.rows][:2] == ["lstm", "5-gram"]
    assert [done.rows[n]["perplexity"] for n in (2, 3)] == [math.inf, math.inf]
    infinite = next(row for row in done.rows if row["label"] == "gpt")
    assert infinite["perplexity_low"] is infinite["perplexity_high"] is infinite["interval"] is None
    assert {each.better for each in done.differences} == {"lstm", "5-gram"}
    assert "interval" not in language_report.score(infinite)
    assert "All differences" not in done.ranking
    assert [row["perplexity"] for row in done.shown if row["label"] == "gpt"] == [math.inf]


def test_tables_have_the_columns_that_someone_can_fill(compared):
    done = compared()
    assert "bits_per_character" in done.columns
    head, *lines = done.csv().splitlines()
    assert head.split(",") == list(LANGUAGE.columns.csv)
    assert [line.split(",")[0] for line in lines] == ["gpt", "lstm", "5-gram", "2-gram"]
    assert done.table().splitlines()[0] == done.title
    assert "seconds" in done.table()
    latex = done.latex()
    assert " seconds " not in latex.replace(r"\\", " ")
    assert "bits/char" in latex
    assert re.search(r"caption\{my.txt, test split: .*\. By perplexity: gpt", latex)
    for each in done.results.values():
        each["evaluation"] |= {"bits_per_character": None, "bits_per_character_refused": "words hide spaces"}
    blind = Comparison(done.plan, done.results)
    assert "bits_per_character" not in blind.columns
    assert all(row["bits_per_character"] is None for row in blind.rows)
    assert "Bits per character are not available: words hide spaces; 1.2 % of the test tokens are <unk>." in notes(
        blind
    )
    assert [row["perplexity"] for row in done.shown] == ["7.389", "12.18", "14.88", "20.09"]


# -- sentences -------------------------------------------------------------------------------------------------------


def test_the_title_says_what_was_equal(compared):
    done = compared()
    assert done.title == "my.txt, test split: every neural system read 20,000 tokens"
    assert timed(done, match="seconds", unit="seconds", budget=2.5).title == (
        "my.txt, test split: every neural system trained for 2.5 s"
    )
    assert timed(done, match="parameters").title == (
        "my.txt, test split: every neural system has about 54,321 parameters and read 20,000 tokens"
    )


def test_who_has_no_score_comes_after_an_infinite_one():
    for more_is_better, best_first in ((False, [1.5, 2.0, math.inf, None]), (True, [2.0, 1.5, -math.inf, None])):
        these = SimpleNamespace(task=SimpleNamespace(score="score", more_is_better=more_is_better))
        rows = [{"score": score} for score in reversed(best_first)]
        assert [row["score"] for row in sorted(rows, key=partial(Comparison._rank, these))] == best_first


def test_the_ranking_names_all_and_who_does_not_differ(compared):
    done = compared()
    tied = [each for each in done.differences if not each.beyond]
    assert done.ranking.startswith("By perplexity: gpt, lstm, 5-gram, 2-gram (best first). ")
    assert ("Within the noise of the test documents and of two seeds: " in done.ranking) == bool(tied)
    apart = compared({"2-gram": [3.0], "5-gram": [2.5], "lstm": [2.0, 2.01, 1.99]})
    assert apart.ranking == (
        "By perplexity: lstm, 5-gram, 2-gram (best first). All differences are significant (p < 0.05, corrected for 3 "
        "pairs)."
    )
    level = compared({"2-gram": [3.0], "5-gram": [2.0], "lstm": [2.0, 2.01, 1.99]})
    assert " Not significantly different (p > 0.05, corrected for 3 pairs): " in level.ranking
    one = compared({"2-gram": [3.0], "5-gram": [2.5], "lstm": [2.0]})
    assert one.ranking == (
        "These runs by perplexity: lstm, 5-gram, 2-gram (best first). As runs, all differ by more than the noise of "
        "the test documents."
    )
    two = compared({"2-gram": [3.0], "5-gram": [2.5]})  # nothing is drawn at random: other seeds change nothing
    assert two.ranking == (
        "By perplexity: 5-gram, 2-gram (best first). All differ by more than the noise of the test documents."
    )
    assert caveats(two) == []
    alone = compared({"2-gram": ["It failed."], "5-gram": [2.5], "lstm": ["It failed."]})
    assert alone.ranking == "By perplexity: 5-gram."
    assert "24 documents (whole lines" in measured(alone)[0]
    assert finding(alone) == f"5-gram has a perplexity: {language_report.score(alone.order[0])}."
    nobody = compared({"2-gram": ["It failed."], "5-gram": ["It failed."]})
    assert (nobody.ranking, nobody.order, nobody.differences, nobody.scores.by_document) == ("", [], [], {})
    assert "0 documents" in measured(nobody)[0]


def test_the_finding_says_who_is_best_by_how_much_and_whether_that_is_significant(compared):
    apart = compared({"2-gram": [3.0], "5-gram": [2.5], "lstm": [2.0, 2.01, 1.99]})
    low, high = apart.order[0]["perplexity_low"], apart.order[0]["perplexity_high"]
    assert finding(apart) == (
        f"lstm has the best perplexity: 7.389 (95 % interval {low:.3f} to {high:.3f}). Its perplexity is 39 % lower "
        "than that of 5-gram, the next best; the difference is significant."
    )
    pair = compared({"2-gram": [3.0], "5-gram": [2.0], "lstm": [2.0, 2.01, 1.99]})
    other = pair.order[1]["label"]
    assert tied_with_best(pair) == [other]
    assert finding(pair).endswith(f" The difference between {pair.order[0]['label']} and {other} is not significant.")
    three = compared({"2-gram": [2.0], "5-gram": [2.0], "lstm": [2.0, 2.01, 1.99]})
    names = [row["label"] for row in three.order]
    assert finding(three).endswith(
        f" The differences between {names[0]}, {names[1]} and {names[2]} are not significant."
    )


def everything_said(done):
    """All outputs of a comparison: terminal, --json, CSV, LaTeX, report.html and the lab."""
    outputs = (done.table(), done.ranking, *notes(done), finding(done), done.csv(), done.latex())
    page = pages.comparison_page(done)
    return "\n".join([*outputs, json.dumps(done.rows), page, json.dumps(shown(done))])


@pytest.mark.parametrize("lstm", [2.0, 2.5])  # far better than the 5-gram, and level with it
@pytest.mark.parametrize("seeds", [1, 2, 3])
def test_no_output_says_significant_of_fewer_than_three_seeds(compared, seeds, lstm):
    done = compared({"2-gram": [3.0], "5-gram": [2.5], "lstm": [lstm, lstm + 0.001, lstm - 0.001][:seeds]})
    assert any(d.beyond for d in done.differences) or lstm == 2.5
    assert ("significan" in everything_said(done).lower()) == (seeds >= 3)


@pytest.mark.parametrize("lstm", [2.0, 2.5])
def test_of_one_seed_the_sentences_speak_of_these_two_runs(compared, lstm):
    done = compared({"2-gram": [3.0], "5-gram": [2.5], "lstm": [lstm]})
    where = "beyond" if lstm == 2.0 else "within"
    first, second = (row["label"] for row in done.order[:2])
    assert finding(done).startswith(f"Among these runs, {first} has the best perplexity: ")
    assert finding(done).endswith(
        f" For these two runs ({first} and {second}), the difference is {where} the noise of the test "
        "documents: training again with other seeds can reverse the order."
    )
    grams = compared({"2-gram": [3.0], "5-gram": [2.0], "lstm": [4.0]})  # the best two are not trained
    assert finding(grams).endswith(" For 5-gram and 2-gram, the difference is beyond the noise of the test documents.")


def test_a_system_whose_other_seeds_failed_has_one_seed(compared):
    done = compared(LOSSES | {"lstm": [2.0, "No memory.", "No memory."], "gpt": [1.9, 1.9, 1.9]})
    assert (done.seeds, done.fewest_seeds) == (3, 1)
    assert "significan" not in everything_said(done).lower()
    assert caveats(done)[0].startswith("One seed: ")


def test_caveats_are_of_few_seeds_and_of_a_validation_split(compared):
    few, power = caveats(compared())
    assert few.startswith("Two seeds are too few")
    assert re.fullmatch(r"A true difference as large as that between .* with a probability of 80 % with .*", power)
    assert caveats(compared(LOSSES | {"lstm": [2.4] * 3, "gpt": [1.9] * 3})) == []
    one = compared({"2-gram": [3.0], "5-gram": [2.5], "lstm": [2.0]}, facts={"split": "valid", "tokens": {"valid": 5}})
    assert [each.split(":")[0] for each in caveats(one)] == ["One seed", "There is no test split"]
    assert notes(one)[:2] == caveats(one)


def test_how_it_was_measured_is_said_with_its_numbers(compared):
    done = compared()
    documents = f"24 documents (whole lines, about {round(LENGTH / 24)} tokens each)"
    step = max(e.recipe.training.batch_tokens for e in done.plan.entrants if not e.counted)
    optimisers = [each for each in measured(done) if each.startswith("The systems were trained differently: ")]
    assert measured(done) == [
        f"All systems were tested on the same {LENGTH} tokens in segments of 33 tokens, each after 32 tokens "
        "of warm-up from "
        f"the one before it; intervals are over {documents} and the seeds.",
        "Bits per character count every character, including line breaks; 1.2 % of the test tokens are <unk>.",
        f"Tokens seen exceed the budget by less than one optimizer step (at most {step}). n-grams read the training "
        "text once, regardless of the budget.",
        tuning_report.UNTUNED,
        *optimisers,
        "Memory is the peak of each training process; Python and PyTorch alone account for 102 MiB of it.",
    ]
    faster = timed(done, match="seconds", unit="seconds")
    assert any(each.startswith("With equal time, faster kernels read more text: ") for each in measured(faster))
    counted = compared({"2-gram": [3.0], "5-gram": [2.5]})
    assert len(measured(counted)) == 3  # nothing about training
    assert measured(counted)[0].endswith("tokens each).")


def test_memory_of_a_gpu_runs_side_by_side_and_notes_of_a_run_are_told(compared):
    done = compared(effort={"memory_of": "GPU", "side_by_side": 3, "notes": ["the counts are few"]})
    said = measured(done)
    assert "For systems on the GPU, memory is the peak use by tensors during training." in said
    assert not any(each.startswith("Memory is") for each in said)
    assert "At times, at least 3 runs shared the machine, so each was slower than it would be alone." in said
    assert said[-6:] == [f"{label}: the counts are few." for label, _ in done.results]
    assert "; at times, at least 3 runs shared the machine, which slows them." in methods(done)
    few = compared(effort={"side_by_side": 1})
    assert not any("shared the machine" in each for each in measured(few))
    done.results["lstm", 1]["evaluation"]["documents"]["whole_lines"] = False
    done.results["2-gram", 1]["evaluation"]["documents"]["whole_lines"] = False
    assert "24 documents (cut within lines, of which there are too few, about " in measured(done)[0]


def test_the_methods_are_a_paragraph_for_a_paper(compared):
    done = compared()
    words = methods(done)
    optimisers = "; ".join(
        f"{e.label}: {e.recipe.training.optimizer}, learning rate {e.recipe.training.learning_rate:g}, "
        f"{e.recipe.training.schedule}, {e.recipe.training.batch_tokens} tokens per step"
        for e in done.plan.entrants
        if not e.counted
    )
    assert words == (
        f"Data: my.txt (checksum c0ffee): 12,345 train, {LENGTH} test tokens. Lines were drawn. It is short. "
        "One word tokenizer of 23,456 symbols, built from the training split, was used for all systems. "
        "Each neural system was trained for 20,000 tokens, at size tiny with its default settings "
        f"({optimisers}), with seeds 1 to 2; the weights with the lowest validation loss among about 20 equally spaced "
        "validations were tested. "
        "The n-grams are interpolated modified Kneser-Ney models of the whole training split. "
        "Perplexity is exp of the mean negative log-probability per token, over every token of the test split and the "
        "<eos> of each line, averaged over seeds where there are several; the text was read in segments of 33 tokens, "
        "each after 32 tokens of warm-up from the one before it, the same for every system. "
        f"Intervals are over 24 documents of the test text (whole lines, about {round(LENGTH / 24)} tokens each) and "
        "over seeds: 95 % intervals of Student's t from the variances of both, with Satterthwaite's degrees of "
        "freedom; differences are paired, and their p-values corrected for the number of pairs (Holm 1979). "
        "Generation speed was measured for one text at a time, with greedy decoding. "
        "Regard 7.8, PyTorch 9.1, Python 3.99, on cpu (x) (CPU threads: 2); 2026-11-15."
    )
    by_steps = methods(compared(training={"validations": 0, "evaluate_every": 7}))
    assert "; the weights with the lowest validation loss among its validations were tested. " in by_steps
    matched = methods(timed(done, match="parameters"))
    assert "20,000 tokens with its width chosen to have about 54,321 parameters, at size tiny" in matched
    assert "was trained for 2.5 s, at size" in methods(timed(done, match="seconds", unit="seconds", budget=2.5))
    one = compared({"2-gram": [3.0], "5-gram": [2.5], "lstm": [2.0]})
    assert ", with seed 1; the weights" in methods(one)
    assert "tokens each): 95 % intervals of Student's t; differences are paired" in methods(one)
    counted = methods(compared({"2-gram": [3.0], "5-gram": [2.5]}))
    assert "was trained for" not in counted


def test_the_table_of_differences_has_ratios_and_verdicts(compared, monkeypatch):
    found = []
    monkeypatch.setattr(findings, "table", lambda rows, columns: found.append((rows, columns)) or "table")
    far, near = Difference("a", "b", -0.5, -0.6, -0.4, 0.001), Difference("b", "c", -0.1, -0.3, 0.2, 0.25)
    assert language_report.differences(SimpleNamespace(telling=[far, near], enough_seeds=True)) == "table"
    ((rows, columns),) = found
    assert rows == [
        {"pair": "a – b", "ratio": "0.6065", "interval": "0.5488 – 0.6703", "verdict": "significant", "p": "0.001"},
        {"pair": "b – c", "ratio": "0.9048", "interval": "0.7408 – 1.2214", "verdict": "not significant", "p": "0.25"},
    ]
    assert columns.keys() == rows[0].keys()
    assert language_report.differences(SimpleNamespace(telling=[], enough_seeds=True)) == ""
    language_report.differences(SimpleNamespace(telling=[far, near], enough_seeds=False))
    assert [row["verdict"] for row in found[1][0]] == ["beyond noise", "within noise"]
    assert found[1][1]["verdict"] == "between these runs"


# -- the order at equal tokens and at equal seconds --------------------------------------------------------------------


def test_another_order_is_told_with_the_moment_at_which_it_is_read_off(compared):
    curves = {"lstm": [(100, 10.0, 3.0), (200, 20.0, 1.0)], "gpt": [(100, 5.0, 2.5), (200, 10.0, 2.0)]}
    (said,) = (each for each in measured(compared(curves=curves)) if each.startswith("On the validation text"))
    assert said == (
        "On the validation text, the order at equal tokens is lstm, gpt; at equal seconds (10 s, when the fastest had "
        "finished) the curves were ordered gpt, lstm. The two differ because systems read at different speeds; "
        "schedules that end there could change the second order."
    )
    late = curves | {"lstm": [(100, 11.0, 3.0), (200, 30.0, 1.0)]}
    (said,) = (each for each in measured(compared(curves=late)) if each.startswith("On the validation text"))
    assert "(11 s, when each had been validated once; for a run that had already ended, at its last validation" in said
    same = curves | {"gpt": [(100, 5.0, 3.5), (200, 10.0, 3.0)]}
    assert not any(each.startswith("On the validation text") for each in measured(compared(curves=same)))


def test_between_validations_a_curve_is_a_straight_line_and_seeds_are_averaged():
    slow = [Curve("slow", seed, ((100, 0.1, 3.0 + seed), (300, 0.3, 1.0 + seed))) for seed in (0, 1)]
    fast = Curve("fast", 1, ((100, 0.06, 2.75), (300, 0.18, 2.25)))
    counted = Curve("2-gram", 1, ((900, 1.0, 9.0),), counted=True)
    found = other_order([*slow, fast, counted], "tokens")
    assert (found.axis, found.at, found.waited) == ("seconds", 0.18, False)
    assert found.there == pytest.approx({"fast": 2.25, "slow": 2.7})
    assert found.final == pytest.approx({"slow": 1.5, "fast": 2.25})
    assert list(found.final) == ["slow", "fast"]
    assert list(found.there) == ["fast", "slow"]
    assert other_order([*slow, counted], "tokens") is None


@pytest.mark.parametrize(("apart", "near"), [(0.0099, True), (NEAR, True), (0.00996, False), (0.2, False)])
def test_within_one_percent_of_perplexity_two_are_level(apart, near):
    assert in_order({"a": 0.0, "b": apart}) == ("a ≈ b" if near else "a, b")
    ahead = OtherOrder("tokens", 1.0, {"a": 1.0, "b": 2.0}, {"b": 0.0, "a": apart})
    assert ahead.swapped != near
    assert ahead.level == ([("a", "b")] if near else [])
    ended = OtherOrder("tokens", 1.0, {"a": 0.0, "b": apart}, {"b": 1.0, "a": 2.0})
    assert ended.swapped != near


def test_only_validations_with_a_loss_are_points_of_a_curve(compared):
    curves = {"lstm": [(100, 10.0, 3.0), (200, 20.0, math.inf)], "gpt": [(100, 5.0, math.inf)]}
    done = compared(curves=curves)
    assert {(curve.label, curve.seed): curve.points for curve in done.curves} == {
        ("2-gram", 1): ((1010, 4.123, 2.9),), ("5-gram", 1): ((1010, 4.123, 2.7 - 0.1),),
        ("lstm", 1): ((100, 10.0, 3.0),), ("lstm", 2): ((100, 10.0, 3.0),),
    }  # fmt: skip
    assert [curve.counted for curve in done.curves] == [True, True, False, False]


# -- the page --------------------------------------------------------------------------------------------------------


@pytest.fixture
def drawn(monkeypatch):
    """The lines and settings of each figure of curves, instead of the figure."""
    found = []
    monkeypatch.setattr(pages, "line_chart", lambda lines, **how: found.append((lines, how)) or "<figure></figure>")
    return found


def test_curves_are_means_over_seeds_with_each_seed_pale(compared, drawn):
    steps = [(20, 2.0, math.log(90)), (40, 4.0, math.log(50)), (60, 6.0, math.log(40)), (80, 8.0, math.log(35))]
    curves = {"lstm": [*steps, (100, 10.0, math.log(30))], "gpt": [(7, 0.5, math.log(45)), (25, 41.0, math.log(20))]}
    done = compared(curves=curves)
    page = pages.comparison_page(done)
    assert page.index("Training curves") < page.index("Samples") < page.index("How it was measured")
    (tokens, by_tokens), (seconds, by_seconds) = drawn
    names = [(line.name, line.level, line.faint) for line in tokens]
    strong = [("2-gram", True, False), ("5-gram", True, False), ("lstm", False, False), ("gpt", False, False)]
    assert names == [*strong, *[("lstm", False, True)] * 2, *[("gpt", False, True)] * 2]
    assert np.allclose(tokens[2].points, [(20, 90), (40, 50), (60, 40), (80, 35), (100, 30)])
    assert [x for x, _ in seconds[2].points] == [2.0, 4.0, 6.0, 8.0, 10.0]
    assert np.allclose(tokens[0].points, [(1010, math.exp(2.9))])
    assert (by_tokens["x"], by_seconds["x"]) == ("tokens seen", "seconds of training")
    assert by_tokens["title"] == (
        "Validation perplexity against tokens seen, mean over seeds (pale: each seed); values above the axis "
        "are cut off"
    )
    assert by_tokens["top"] == pytest.approx(50)  # 90 is the first fifth of its curve
    assert by_tokens["best"] == "gpt"
    assert by_tokens["description"] == "Last values: 2-gram 18.17, 5-gram 13.46, lstm 30.00, gpt 20.00."
    assert not by_tokens["log_x"]  # 100 is not more than four times 25
    assert by_seconds["log_x"]  # 41 is more than four times 10


@pytest.mark.parametrize(("first", "cut"), [(59.0, False), (61.0, True)])
def test_a_beginning_is_cut_off_where_it_is_a_fifth_higher_than_all_that_follows(compared, drawn, first, cut):
    steps = [(20 * n, 2.0 * n, math.log(50)) for n in range(2, 6)]
    done = compared({"2-gram": [3.0], "5-gram": [2.5], "lstm": [2.0]}, {"lstm": [(20, 2.0, math.log(first)), *steps]})
    pages.comparison_page(done)
    (lines, how), _ = drawn
    assert len(lines) == 3  # one seed is its own mean
    assert how["title"] == "Validation perplexity against tokens seen" + "; values above the axis are cut off" * cut
    assert how["top"] == pytest.approx(50 if cut else math.inf)


def test_without_a_course_no_curve_is_shown(compared):
    assert "Training curves" not in pages.comparison_page(compared({"2-gram": [3.0], "5-gram": [2.5]}))
    point = {"lstm": [(100, 10.0, 3.0)]}
    assert "Training curves" not in pages.comparison_page(compared(curves=point))


def test_a_logarithmic_axis_needs_points_above_zero(compared, drawn):
    curves = {"lstm": [(0, 0.0, 3.0), (100, 10.0, 2.0)], "gpt": [(50, 5.0, 3.0), (900, 90.0, 2.0)]}
    pages.comparison_page(compared(curves=curves))
    assert [how["log_x"] for _, how in drawn] == [False, False]


def test_the_page_lists_every_run_and_marks_the_best(compared, monkeypatch):
    shown = []
    monkeypatch.setattr(pages, "table", lambda *words: shown.append(words) or "<table></table>")
    done = compared({"2-gram": [3.0], "5-gram": ["It failed."], "lstm": [2.4, math.inf]})
    pages.comparison_page(done)
    (rows, columns, best, badge), (runs, headings) = shown
    assert list(columns)[:4] == ["label", "perplexity", "interval", "bits_per_character"]
    assert columns.keys() == done.columns.keys()
    assert (best, badge) == ([0], "best")
    assert [row["label"] for row in rows] == ["2-gram", "lstm", "5-gram"]
    assert list(headings) == ["run", "perplexity", "tokens", "steps", "seconds", "parameters"]
    assert runs == [
        {"run": "2-gram", "perplexity": "20.09", "tokens": 1010, "steps": 8, "seconds": "4.12", "parameters": 6000},
        {"run": "5-gram"},
        {"run": "lstm-seed1", "perplexity": "11.02", "tokens": 1010, "steps": 8, "seconds": "4.12", "parameters": 4000},
        {
            "run": "lstm-seed2",
            "perplexity": math.inf,
            "tokens": 1020,
            "steps": 9,
            "seconds": "8.12",
            "parameters": 4000,
        },
    ]


def test_intervals_are_drawn_best_first_and_samples_follow_their_prompt(compared, monkeypatch):
    drawn = []
    monkeypatch.setattr(language_report, "interval_chart", lambda marks, **how: drawn.append((marks, how)) or "<p></p>")
    done = compared(LOSSES | {"2-gram": [math.inf]})
    page = pages.comparison_page(done)
    ((marks, how),) = drawn
    assert [mark.name for mark in marks] == ["gpt", "lstm", "5-gram"]  # the others have no interval
    best = done.rows[0]
    assert (marks[0].value, marks[0].low, marks[0].high) == (
        best["perplexity"], best["perplexity_low"], best["perplexity_high"],
    )  # fmt: skip
    assert how["best"] == "gpt"
    low, high = significant(marks[0].low), significant(marks[0].high)
    assert how["description"].startswith(f"Best first: gpt 7.389 ({low} to {high}); lstm ")
    assert '<h3>gpt</h3><pre dir="auto"><b>Once upon </b>gpt 1</pre>' in page
    assert page.count("<h3>") == 4
    kinds = set(re.findall(r"<p class=\"?([^\">]*)", page))
    assert kinds == {"finding", "lead", "quiet-text", "more quiet-text"}
