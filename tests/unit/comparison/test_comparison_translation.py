"""Translators in the honest table: the task is plain from what is asked, intervals are Koehn's and cover seeds too."""

import html
import json
import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import sacrebleu

from regard.base.errors import RegardError
from regard.comparison import findings, translation_report
from regard.comparison.comparison import Comparison
from regard.comparison.comparison_page import comparison_page
from regard.comparison.differences import Difference
from regard.comparison.findings import finding, measured, methods, notes, tied_with_best
from regard.comparison.plan import Entrant, Plan, make_plan
from regard.comparison.question import Question, match_for
from regard.comparison.translation_task import TEST, TRANSLATION, _examples, read_test
from regard.comparison.width import match_parameters, size_of
from regard.corpora.phrasebook import make_pairs
from regard.evaluation.bleu import Statistics, by_length, quality
from regard.evaluation.intervals import paired_difference
from regard.report.offline_page import script_of
from regard.report.page import prose
from regard.runs.recipe import compose
from regard.runs.tasks.translation.run import TranslationRun
from regard.text.pairs import Pairs
from regard.text.tokenizers.tokenizer import Tokenizer
from regard.web.lab.work_ladder import shown

LADDER = ["seq2seq", "bahdanau", "transformer"]

# -- what is asked ---------------------------------------------------------------------------------------------------

OURS = f"<script>{script_of('report')}</script>"  # the lab's charts


def labels(*systems, data):
    return [rung.label for rung in Question(systems, str(data)).rungs()]


def test_the_systems_named_say_what_the_task_is():
    assert labels("transformer", "seq2seq", data="phrasebook") == ["seq2seq", "transformer"]  # and no n-grams
    assert labels("lstm", data="phrasebook") == ["2-gram", "5-gram", "lstm"]
    with pytest.raises(RegardError, match="lstm is a language model system and bahdanau is a translation system"):
        Question(("lstm", "bahdanau"), "phrasebook").rungs()
    with pytest.raises(RegardError, match="lstm is a language model system and bahdanau is a translation system"):
        Question(("lstm", "bahdanau", "classifier"), "phrasebook").rungs()


def test_where_no_system_is_named_the_data_says_it(tmp_path):
    assert labels(data="phrasebook") == labels(data="multi30k") == LADDER
    assert labels(data="pyref")[0] == labels(data="copy")[0] == "2-gram"
    for name, content in {"pairs.tsv": "a\tb\n", "text.txt": "a b\n", "tabs.txt": "a\tb\n"}.items():
        (tmp_path / name).write_text(content)
    assert labels(data=tmp_path / "pairs.tsv") == LADDER
    assert labels(data=tmp_path / "text.txt")[0] == labels(data=tmp_path / "tabs.txt")[0] == "2-gram"
    parallel = tmp_path / "parallel"
    parallel.mkdir()
    for name in ("train.de", "train.en"):
        (parallel / name).write_text("a\n")
    assert labels(data=parallel) == LADDER


@pytest.mark.parametrize(
    ("budget", "match"), [("", "tokens"), ("5M", "tokens"), ("120s", "seconds"), ("2h", "seconds")]
)
def test_what_is_matched_is_what_the_budget_counts(budget, match):
    assert match_for(budget) == match
    Question(("transformer",), "phrasebook", match_for(budget), budget)


@pytest.mark.parametrize("joint", [True, False])
def test_matched_translators_have_the_parameters_of_the_transformer_within_two_percent(joint):
    target = Tokenizer.train(["".join(map(chr, range(33, 400)))], "char")
    source = target if joint else Tokenizer.train(["".join(map(chr, range(33, 127)))], "char")
    question = Question((), "phrasebook", match="parameters")
    count, chosen = match_parameters(question, question.rungs(), target, source)
    for rung in question.rungs():
        found, _ = size_of(question.recipe(rung, chosen[rung.label]), target, source)
        assert found == pytest.approx(count, rel=0.02), rung.label


# -- a comparison without its trainings ------------------------------------------------------------------------------

WORDS = [*map(str, range(14))]


def sentences(random, count=60):
    return [" ".join(random.choice(WORDS, random.integers(4, 25))) + " ." for _ in range(count)]


def spoiled(random, text, rate):
    return " ".join(random.choice(WORDS) if random.random() < rate else word for word in text.split())


@pytest.fixture
def compared(tmp_path):
    """Makes a finished comparison: label → the error rate of each seed."""

    def make(rates, curves=None, alignment=None):
        random = np.random.default_rng(5)
        references = sentences(random)
        sources = [f"{text} ?" for text in references]
        (tmp_path / TEST).write_text(json.dumps({"sources": sources, "references": references}))
        question = Question(tuple(rates), "phrasebook", budget="1k", size="tiny")
        entrants, results = [], {}
        for rung in question.rungs():
            seeds = tuple(range(1, len(rates[rung.label]) + 1))
            entrants.append(Entrant(rung.label, rung.entry.year, False, question.recipe(rung), seeds))
            for seed, rate in zip(seeds, rates[rung.label]):
                written = [spoiled(np.random.default_rng([seed, n]), text, rate) for n, text in enumerate(references)]
                results[rung.label, seed] = result(sources, written, references, (alignment or {}).get(rung.label))
                folder = tmp_path / entrants[-1].name(seed)
                folder.mkdir()
                lines = [
                    dict(zip(("tokens", "seconds", "loss"), p), split="valid", step=1)
                    for p in (curves or {}).get(rung.label, [])
                ]
                (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        facts = {
            "corpus": {"name": "phrasebook", "checksum": "c0ffee", "notes": ["Generated with seed 0."]},
            "direction": "en → fr", "pairs": {"train": 500, "test": 60},
            "training_pairs": 500, "training_tokens": 4000, "split": "test",
            "tokenizer": {"kind": "bpe", "vocabulary": 300, "source_vocabulary": 300, "joint": True},
            "beam": 5, "length_penalty": 1.0, "examples": [3, 7], "target_parameters": None, "size": "tiny",
            "regard": "0", "command": "regard compare", "created": "2026-11-15T00:00:00",
        }  # fmt: skip
        plan = Plan(tmp_path, {}, "tokens", 1000.0, "tokens", tuple(entrants), facts)
        return Comparison(plan, results)

    return make


def result(sources, written, references, alignment):
    facts = {**quality(written, references), "exact": 0.1, "perplexity": 3.0, "sentences_per_second": 9.0}
    facts["by_length"] = [vars(found) for found in by_length(sources, written, references)]
    facts["translations"] = written
    if alignment is not None:
        facts["alignment_error_rate"] = alignment
    effort = {"parameters": 9, "tokens_seen": 1000, "steps": 7, "training_seconds": 2.0, "peak_memory_bytes": 2**28}
    where = {"memory_before_bytes": 2**27, "memory_of": "process", "device": "cpu", "threads": 1}
    return {"evaluation": facts, **effort, **where, "torch": "2", "python": "3"}


def test_scores_are_sacrebleus_and_rows_stand_best_first(compared):
    done = compared({"seq2seq": [0.6], "bahdanau": [0.2], "transformer": [0.4]}, alignment={"bahdanau": 0.25})
    assert [row["label"] for row in done.rows] == ["bahdanau", "transformer", "seq2seq"]
    references = json.loads((done.folder / TEST).read_text())["references"]
    for row in done.rows:
        written = done.results[row["label"], 1]["evaluation"]["translations"]
        assert row["bleu"] == pytest.approx(sacrebleu.corpus_bleu(written, [references]).score)
        assert row["chrf"] == pytest.approx(sacrebleu.corpus_chrf(written, [references]).score)
        assert row["bleu_low"] < row["bleu"] < row["bleu_high"]
    assert done.ranking.startswith(
        "These runs by BLEU: bahdanau, transformer, seq2seq (best first). As runs, all differ by more than the noise "
        "of the test sentences."
    )
    assert [row["alignment_error_rate"] for row in done.rows] == [0.25, None, None]
    assert "alignment_error_rate" in done.columns


def test_every_run_and_the_intervals_have_the_words_that_the_plan_chose(compared):
    done = compared({"seq2seq": [0.6], "bahdanau": [0.2]})
    done.plan.facts["bleu"] = {"tokenizer": "char", "why": "char, because the references are Thai"}
    done = Comparison(done.plan, done.results)
    references = json.loads((done.folder / TEST).read_text())["references"]
    for row in done.rows:
        written = done.results[row["label"], 1]["evaluation"]["translations"]
        assert row["bleu"] == pytest.approx(sacrebleu.corpus_bleu(written, [references], tokenize="char").score)
        assert row["bleu_low"] < row["bleu"] < row["bleu_high"]
    assert any("char, because the references are Thai" in line for line in TRANSLATION.report.conditions(done))


def test_a_column_that_nobody_can_fill_is_left_out(compared):
    assert "alignment_error_rate" not in compared({"seq2seq": [0.6], "bahdanau": [0.2]}).columns


def test_with_one_seed_the_interval_of_a_difference_is_close_to_koehns_paired_bootstrap(compared):
    done = compared({"bahdanau": [0.3], "transformer": [0.32]})
    (found,) = done.differences
    references = json.loads((done.folder / TEST).read_text())["references"]
    written = {label: done.results[label, 1]["evaluation"]["translations"] for label in (found.better, found.worse)}
    better, worse = (Statistics.of("bleu", texts, references) for texts in written.values())
    count = len(references)
    times = np.random.default_rng(5).multinomial(count, np.full(count, 1 / count), size=4000)  # sentences drawn again
    low, high = np.quantile(better.score(times @ better.counts) - worse.score(times @ worse.counts), [0.025, 0.975])
    assert found.by == pytest.approx(float(better.score(better.counts.sum(0)) - worse.score(worse.counts.sum(0))))
    assert found.high - found.low == pytest.approx(high - low, rel=0.15)
    assert (found.low + found.high) / 2 == pytest.approx(found.by)
    wide = [row["bleu_high"] - row["bleu_low"] for row in done.rows]
    assert found.high - found.low < sum(wide)


def test_pseudo_values_are_those_of_leaving_out_each_sentence(compared):
    done = compared({"bahdanau": [0.3], "transformer": [0.5]})
    references = json.loads((done.folder / TEST).read_text())["references"]
    written = done.results["bahdanau", 1]["evaluation"]["translations"]
    whole = sacrebleu.corpus_bleu(written, [references]).score
    for left_out in (0, 17, 59):
        rest, there = (texts[:left_out] + texts[left_out + 1 :] for texts in (written, references))
        without = sacrebleu.corpus_bleu(rest, [there]).score
        value = done.scores.by_document["bahdanau"][0, left_out]
        assert value == pytest.approx(60 * whole - 59 * without, abs=1e-6)


def test_seeds_that_differ_widen_the_interval_of_a_difference(compared):
    done = compared({"bahdanau": [0.2, 0.3], "transformer": [0.5, 0.5]})
    one, two = done.rows[0]["bleus"]
    assert done.rows[0]["bleu"] == pytest.approx((one + two) / 2)
    (found,) = done.differences
    alone = paired_difference(*(done.scores.by_document[label][:1] for label in (found.better, found.worse)))
    low, high = alone.interval()
    assert found.high - found.low > high - low
    assert found.seeds > 0


def test_notes_say_signature_and_search_and_explain_another_order_at_equal_seconds(compared):
    curves = {
        "bahdanau": [(100, 10.0, 3.0), (200, 20.0, 1.0)],  # better in the end, after twice the time
        "transformer": [(100, 5.0, 2.5), (200, 10.0, 2.0)],
    }
    said = " ".join(notes(compared({"bahdanau": [0.2], "transformer": [0.4]}, curves)))
    assert "BLEU is nrefs:1|case:mixed" in said
    assert "beam 5 and length penalty 1" in said
    assert "the order at equal tokens is bahdanau, transformer; at equal seconds (10 s" in said


def test_a_note_says_how_differently_systems_were_trained_and_none_that_they_were_not(compared):
    done = compared({"bahdanau": [0.2], "transformer": [0.4]})
    settings = {entrant.label: entrant.recipe.training for entrant in done.plan.entrants}
    assert settings["bahdanau"].learning_rate != settings["transformer"].learning_rate
    (said,) = (note for note in notes(done) if note.startswith("The systems were trained differently"))
    for label, each in settings.items():
        assert f"{label}: {each.optimizer}, learning rate {each.learning_rate:g}, {each.schedule}" in said
    same = [replace(e, recipe=done.plan.entrants[0].recipe) for e in done.plan.entrants]
    alike = Comparison(replace(done.plan, entrants=tuple(same)), done.results)
    assert not any("trained differently" in note for note in notes(alike))


@pytest.mark.parametrize(
    ("midway", "said"),
    [
        (2.5, "the order at equal seconds is transformer, bahdanau; at equal tokens (100 tokens, all that"),
        (
            2.005,
            "at equal tokens (100 tokens, all that the slowest had read), perplexities were within 1 % of each",
        ),
        (1.5, ""),
    ],
)
def test_what_equal_seconds_hide_is_said_at_equal_tokens(compared, midway, said):
    curves = {
        "bahdanau": [(50, 10.0, 3.0), (100, 20.0, 2.0)],
        "transformer": [(100, 10.0, midway), (200, 20.0, 1.0)],  # reads twice as fast
    }
    done = compared({"bahdanau": [0.4], "transformer": [0.2]}, curves)
    timed = Comparison(replace(done.plan, match="seconds", unit="seconds", budget=20.0), done.results)
    found = [note for note in notes(timed) if "at equal tokens" in note]
    assert len(found) == bool(said)
    assert all(said in note for note in found)


def test_the_page_shows_lengths_examples_and_methods_and_asks_for_nothing(compared):
    curves = {label: [(100, 10.0, 3.0), (200, 20.0, 1.0)] for label in LADDER}
    done = compared({"seq2seq": [0.6, 0.7, 0.6], "bahdanau": [0.2, 0.3, 0.2], "transformer": [0.4] * 3}, curves)
    page = comparison_page(done)
    page = page.replace(OURS, "", 1)
    assert not re.search(r"(?:src|href|action)\s*=|url\(|@import|https?://|<script", page)
    assert page.count("<svg role=") == 4  # intervals, two courses, BLEU by length
    assert page.count('<dl class="facts texts">') == 2
    for label in LADDER:
        assert page.count(f"<dt>{label}</dt>") == 2
        assert done.results[label, 1]["evaluation"]["translations"][3] in page
    assert "p-values corrected for the number of pairs" in page
    assert set(re.findall(r"<p class=\"?([^\">]*)", page)) == {"finding", "lead", "more quiet-text"}
    assert re.search(r"sacreBLEU: BLEU nrefs:1\|[^ ]+, chrF nrefs:1\|", methods(done))
    sizes = [of["sentences"] for of in done.rows[0]["by_length"]]
    assert sum(sizes) == 60
    assert all(f">{size}</td>" in page for size in sizes)


def test_the_page_begins_with_what_was_found_and_folds_the_fine_print(compared):
    curves = {label: [(100, 10.0, 3.0), (200, 20.0, 1.0)] for label in LADDER}
    done = compared({"seq2seq": [0.7] * 3, "bahdanau": [0.1] * 3, "transformer": [0.6] * 3}, curves)
    page = comparison_page(done)
    best = done.order[0]
    said = re.search(r"<p class=finding>(.*?)</p>", page)[1].replace("\xa0", " ")
    assert said.startswith(f"bahdanau has the best BLEU: {best['bleu']:.2f} (95 % interval {best['bleu_low']:.2f} to ")
    assert said.endswith("the next best; the difference is significant.")
    assert page.index("class=finding") < page.index("<table") < page.index("<details")
    folded = "".join(re.findall(r"<details>.*?</details>", page, re.DOTALL))
    for words in (*measured(done), methods(done)):
        assert prose(words) in folded
    assert re.findall(r"scope=row>(\w+) <span class=\"tag\">(.*?)</span>", page) == [("bahdanau", "best")]
    assert "Which differences are significant" in page


def test_who_does_not_differ_from_the_best_is_tied_with_it(compared):
    done = compared({"seq2seq": [0.3], "bahdanau": [0.3], "transformer": [0.9]})
    assert set(tied_with_best(done)) == {"seq2seq", "bahdanau"} - {done.order[0]["label"]}
    assert finding(done).endswith(
        "within the noise of the test sentences: training again with other seeds can reverse the order."
    )
    page = comparison_page(done)
    badges = re.findall(r"scope=row>(\w+) <span class=\"tag\">(.*?)</span>", page)
    assert dict(badges) == {"seq2seq": "tied best", "bahdanau": "tied best"}
    assert "One seed: " in re.sub(r"<details>.*?</details>", "", page, flags=re.DOTALL)  # a limit of the finding
    assert "Training curves" not in page  # no curve has a course


@pytest.mark.parametrize("bahdanau", [0.1, 0.6])  # far better than the others, and level with one
@pytest.mark.parametrize("seeds", [1, 2, 3])
def test_no_output_says_significant_of_fewer_than_three_seeds(compared, seeds, bahdanau):
    done = compared({"seq2seq": [0.7] * seeds, "bahdanau": [bahdanau] * seeds, "transformer": [0.6] * seeds})
    sentences = [done.table(), done.ranking, *notes(done), finding(done), done.csv(), done.latex()]
    everything = [*sentences, json.dumps(done.rows), comparison_page(done), json.dumps(shown(done))]
    assert ("significan" in "\n".join(everything).lower()) == (seeds >= 3)
    assert ("For these two runs (" in finding(done)) == (seeds == 1)


def test_no_translation_label_or_note_becomes_markup(compared):
    evil = """<script>alert("1")</script><img src=x onerror='alert(1)'>&"'"""
    done = compared({"seq2seq": [0.3], "bahdanau": [0.5]})
    for found in done.results.values():
        found["evaluation"]["translations"] = [evil] * 60
        found["notes"] = [evil]
    done.results["seq2seq", 1] = {"failed": evil}
    done.plan.facts["corpus"] |= {"name": evil, "notes": [evil], "checksum": evil}
    done.plan.facts["command"] = done.plan.facts["direction"] = evil
    test = json.loads((done.folder / TEST).read_text())
    test = {side: [evil.replace(" ", "") + " " + text for text in texts] for side, texts in test.items()}
    for of in done.results["bahdanau", 1]["evaluation"]["by_length"]:
        of |= {"shortest": 1, "longest": None}
    (done.folder / TEST).write_text(json.dumps(test))
    done = Comparison(done.plan, done.results)
    page = comparison_page(done).replace(OURS, "", 1)
    assert not re.search("<script|<img", page)
    assert page.count(html.escape(evil)) > 10


def test_a_comparison_of_systems_that_write_nothing_right_still_has_a_page(compared):
    done = compared({"seq2seq": [1.0], "bahdanau": [1.0]})
    for found in done.results.values():
        found["evaluation"]["translations"] = [""] * 60
    done = Comparison(done.plan, done.results)
    assert [row["bleu"] for row in done.rows] == [0.0, 0.0]
    assert done.ranking.endswith("within the noise of the test sentences: seq2seq and bahdanau.")
    assert "<!doctype html>" in comparison_page(done)


# -- results whose seeds differ in everything ------------------------------------------------------------------------


@pytest.fixture
def uneven(compared):
    """Two systems, the first with two seeds: perplexity, chrF, speed and gold links differ from seed to seed."""
    done = compared({"bahdanau": [0.2, 0.3], "transformer": [0.5]})
    first, second = (done.results["bahdanau", seed]["evaluation"] for seed in (1, 2))
    first |= {"perplexity": 2.0, "exact": 0.1, "sentences_per_second": 10.0, "alignment_error_rate": 0.25}
    second |= {"perplexity": 8.0, "exact": 0.4, "sentences_per_second": 20.0, "alignment_error_rate": 0.5}
    second["translations"][7] = "only the second seed says this"
    return Comparison(done.plan, done.results)


def test_numbers_of_several_seeds_are_means_and_perplexities_geometric_ones(uneven):
    row = uneven.rows[0]
    assert row["label"] == "bahdanau"
    assert row["perplexity"] == pytest.approx(4.0)
    assert (row["exact"], row["sentences_per_second"]) == pytest.approx((0.25, 15.0))
    assert row["alignment_error_rate"] == pytest.approx(0.375)
    facts = [uneven.results["bahdanau", seed]["evaluation"] for seed in (1, 2)]
    for key in ("chrf", "chrf_plus_plus", "bleu_tokenised_lowercase"):
        assert row[key] == pytest.approx(sum(fact[key]["score"] for fact in facts) / 2)
    for key in ("bleu", "chrf", "accuracy"):
        assert [each[key] for each in row["by_length"]] == pytest.approx(
            [(one[key] + two[key]) / 2 for one, two in zip(*(fact["by_length"] for fact in facts))]
        )
    assert [each["sentences"] for each in row["by_length"]] == [each["sentences"] for each in facts[0]["by_length"]]
    assert row["interval"] == f"{row['bleu_low']:.2f} – {row['bleu_high']:.2f}"
    assert 0 <= row["bleu_low"] < row["bleu_high"] <= 100
    facts[1]["perplexity"] = None
    assert Comparison(uneven.plan, uneven.results).rows[0]["perplexity"] is None


def test_an_interval_of_bleu_stays_between_0_and_100(compared):
    done = compared({"bahdanau": [0.0, 0.5], "transformer": [0.97, 0.6]})
    best, worst = done.rows
    assert (best["bleu_low"], best["bleu_high"], worst["bleu_low"]) == (0.0, 100.0, 0.0)


def test_a_run_in_a_few_words():
    found = {"bleu": {"score": 12.3449}, "chrf": {"score": 67.891}}
    assert TRANSLATION.headline(found) == "BLEU 12.34, chrF 67.89"


def test_conditions_and_methods_say_how_sentences_were_translated_and_scored(uneven):
    best = uneven.order[0]
    assert TRANSLATION.report.conditions(uneven) == [
        "All systems translated the same 60 sentences (en → fr) with beam 5 and length penalty 1; intervals "
        "are over these "
        "sentences and the seeds.",
        f"BLEU is {best['bleu_signature']} (tokenizer 13a, words between spaces); chrF is {best['chrf_signature']}.",
        "Perplexity is that of the references given their sources, per token including <eos>.",
        "The alignment error rate compares a system's attention while it reads the references with the gold "
        "alignment: 0 is best; systems without attention have none.",
    ]
    words = TRANSLATION.report.methods(uneven)
    assert words[:2] == [
        "Data: phrasebook (checksum c0ffee), en → fr: 500 train, 60 test pairs, of which 500 with 4000 target tokens "
        "were trained on. Generated with seed 0.",
        "One bpe tokenizer of 300 symbols, built from both sides of the training split, was used for both sides "
        "of all systems.",
    ]
    assert words[2].startswith("Each system was trained for 1000 target tokens, at size tiny")
    assert words[3:] == [
        "The 60 sentences of the test split were translated with beam 5 and length penalty 1, the same for every "
        f"system, and scored as detokenized text by sacreBLEU: BLEU {best['bleu_signature']}, chrF "
        f"{best['chrf_signature']}; scores are means over seeds.",
        "Perplexity is exp of the mean negative log-probability per token of the references, including the "
        "<eos> of each.",
        "Alignment error rates (Och & Ney 2003) are computed from the attention while the references are read.",
        "Intervals are over the test sentences (jackknife of the corpus's BLEU) and over seeds: 95 % intervals of "
        "Student's t from the variances of both, with Satterthwaite's degrees of freedom; differences are paired, and "
        "their p-values corrected for the number of pairs (Holm 1979).",
        "Sentences per second are measured on the whole test set, in batches.",
    ]
    uneven.plan.facts["tokenizer"] |= {"joint": False, "source_vocabulary": 23456}
    for each in uneven.results.values():
        each["side_by_side"] = 2
    words = TRANSLATION.report.methods(uneven)
    assert words[1].startswith("One bpe tokenizer of 23,456 symbols for the source and one of 300 for the target")
    assert words[-1].endswith("; at times, at least 2 runs shared the machine, which slows them.")


def test_with_one_seed_nothing_is_said_of_seeds_or_of_gold_links(compared):
    done = compared({"bahdanau": [0.2], "transformer": [0.5]})
    (first, *others), words = TRANSLATION.report.conditions(done), TRANSLATION.report.methods(done)
    assert first.endswith("intervals are over these sentences.")
    assert not any("alignment" in each.lower() for each in [*others, *words])
    assert words[3].endswith(f"{done.order[0]['chrf_signature']}.")
    assert any("(jackknife of the corpus's BLEU): 95 % intervals of Student's t; differences" in each for each in words)
    largest = max(entrant.recipe.training.batch_tokens for entrant in done.plan.entrants)
    said = TRANSLATION.report.effort(done)
    assert said.endswith(f"and exceed the budget by less than one step (at most {largest}).")
    timed = Comparison(replace(done.plan, match="seconds"), done.results)
    assert TRANSLATION.report.effort(timed).startswith("With equal time, faster kernels read more text")
    chosen = [replace(e, recipe=e.recipe.replace(training={"select": "bleu"})) for e in done.plan.entrants]
    by_bleu = Comparison(replace(done.plan, entrants=tuple(chosen)), done.results)
    assert "the weights with the highest validation BLEU among" in methods(by_bleu)
    assert "the weights with the lowest validation loss among" in methods(done)


def test_differences_have_their_sign_and_verdict(monkeypatch):
    found = []
    monkeypatch.setattr(findings, "table", lambda rows, columns: found.append((rows, columns)) or "table")
    far, near = Difference("a", "b", 1.5, 0.25, 2.75, 0.02), Difference("b", "c", 0.5, -0.25, 1.25, 0.3)
    assert translation_report.differences(SimpleNamespace(telling=[far, near], enough_seeds=True)) == "table"
    ((rows, columns),) = found
    assert rows == [
        {"pair": "a – b", "difference": "1.50", "interval": "0.25 to 2.75", "verdict": "significant", "p": "0.02"},
        {"pair": "b – c", "difference": "0.50", "interval": "−0.25 to 1.25", "verdict": "not significant", "p": "0.3"},
    ]
    assert columns.keys() == rows[0].keys()
    assert translation_report.differences(SimpleNamespace(telling=[], enough_seeds=True)) == ""
    assert translation_report.ahead(far) == "It is 1.50 BLEU points ahead of b, the next best"


def test_figures_and_tables_by_length_show_what_the_rows_hold(uneven, monkeypatch):
    drawn, tables = [], []
    for name in ("line_chart", "interval_chart"):
        monkeypatch.setattr(translation_report, name, lambda what, **how: drawn.append((what, how)) or "<p></p>")
    monkeypatch.setattr(translation_report, "table", lambda *words: tables.append(words) or "<table></table>")
    sources = json.loads((uneven.folder / TEST).read_text())["sources"]
    page = "".join(TRANSLATION.report.samples(uneven))
    TRANSLATION.report.intervals(uneven)
    (lines, by_length), (marks, intervals) = drawn
    ((rows, columns),) = tables

    assert [line.name for line in lines] == ["bahdanau", "transformer"]
    lengths = [len(source.split()) for source in sources]
    for line in lines:
        row = next(row for row in uneven.rows if row["label"] == line.name)
        for (x, y), of in zip(line.points, row["by_length"], strict=True):
            inside = [n for n in lengths if of["shortest"] <= n <= (of["longest"] or 10**9)]
            assert (x, y) == pytest.approx((sum(inside) / len(inside), of["bleu"]))
    assert (by_length["log_y"], by_length["zero_y"], by_length["best"]) == (False, True, "bahdanau")
    assert by_length["title"] == "BLEU by the length of the source, mean over seeds"
    (x0, y0), *_, (x1, y1) = lines[0].points
    assert by_length["description"].startswith(f"bahdanau from {y0:.1f} at {x0:.0f} words to {y1:.1f} at {x1:.0f}; ")

    first = uneven.rows[0]["by_length"]
    assert [row["words"] for row in rows] == [
        f"over {of['shortest'] - 1}" if of["longest"] is None else f"{of['shortest'] or 1} – {of['longest']}"
        for of in first
    ]
    assert [row["sentences"] for row in rows] == [of["sentences"] for of in first]
    assert [row["bahdanau"] for row in rows] == [f"{of['bleu']:.2f}" for of in first]
    assert list(columns) == ["words", "sentences", "bahdanau", "transformer"]

    best = uneven.rows[0]
    assert [mark.name for mark in marks] == ["bahdanau", "transformer"]
    assert (marks[0].value, marks[0].low, marks[0].high) == (best["bleu"], best["bleu_low"], best["bleu_high"])
    assert (intervals["best"], intervals["log_x"]) == ("bahdanau", False)
    assert intervals["description"].startswith(
        f"Best first: bahdanau {best['bleu']:.2f} ({best['bleu_low']:.2f} to {best['bleu_high']:.2f}); transformer "
    )
    assert sources[3] in page
    assert sources[7] in page
    assert "only the second seed says this" not in page
    uneven.results["bahdanau", 1] = {"failed": "It failed."}
    later = "".join(TRANSLATION.report.samples(Comparison(uneven.plan, uneven.results)))
    assert "only the second seed says this" in later  # the first that has finished


def test_a_run_is_measured_on_the_test_split_in_the_words_of_the_plan(compared):
    done = compared({"bahdanau": [0.2]})
    done.plan.facts["bleu"] = {"tokenizer": "char", "why": "char"}
    run = TranslationRun.__new__(TranslationRun)
    run.evaluate = lambda *words, **more: (words, more)
    (asked,) = TRANSLATION.measure(done.plan, done.plan.entrants[0], run).values()
    assert asked == (("test",), {"lengths": True, "bleu_tokenizer": "char", "texts": True})


def test_examples_are_the_middles_of_equal_parts_from_short_to_long():
    lengths = [9, 1, 8, 2, 7, 3, 6, 4, 5, 10]
    test = Pairs(tuple(" ".join("a" * n) for n in lengths), ("",) * 10)
    assert [lengths[n] for n in _examples(test)] == [2, 4, 6, 8, 10]
    few = Pairs(("a b", "a", "a b"), ("",) * 3)
    assert _examples(few) == [1, 0, 2]
    assert _examples(Pairs((), ())) == []


def test_test_sentences_that_are_gone_are_missed_in_a_sentence(compared):
    done = compared({"bahdanau": [0.2]})
    for content in ("{", json.dumps({"sources": []})):
        (done.folder / TEST).write_text(content)
        with pytest.raises(RegardError, match=r"test\.json is damaged or missing"):
            read_test(done.plan)
    (done.folder / TEST).unlink()
    with pytest.raises(RegardError, match=r"test\.json is damaged or missing"):
        read_test(done.plan)


@pytest.fixture(scope="module")
def pairs_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("pairs") / "pairs.tsv"
    made = make_pairs(120, seed=5, longest=9)
    path.write_text("".join(f"{pair.source}\t{pair.target}\n" for pair in made), encoding="utf-8")
    return path


def test_the_ground_of_translators_is_their_pairs_and_all_are_tested_on_the_same(pairs_file):
    def recipe(joint):
        return compose("seq2seq", "tiny", {"data": {"corpus": str(pairs_file), "tokenizer": "char", "joint": joint}})

    ground = TRANSLATION.ground(recipe(True), "")
    facts = ground.facts
    kept = json.loads(ground.files[TEST])
    assert ground.files[TEST] == json.dumps(kept, indent=1, ensure_ascii=False) + "\n"
    assert len(kept["sources"]) == len(kept["references"]) == facts["pairs"]["test"]
    assert sum(facts["pairs"].values()) == 120
    assert facts["training_pairs"] == facts["pairs"]["train"]
    assert facts["tokenizer"]["joint"]
    assert facts["tokenizer"]["source_vocabulary"] == facts["tokenizer"]["vocabulary"]
    assert facts["bleu"] == {"tokenizer": "13a", "why": "13a, words between spaces"}
    assert (facts["beam"], facts["length_penalty"]) == (5, 1.0)
    assert facts["direction"] == "source → target"
    assert len(facts["examples"]) == 5
    apart = TRANSLATION.ground(recipe(False), "").facts["tokenizer"]
    assert not apart["joint"]
    with pytest.raises(RegardError, match="--prompt applies to language models"):
        TRANSLATION.ground(recipe(True), "They")


def test_the_plan_of_a_single_translator_holds_both_tokenizers_and_the_test(pairs_file, tmp_path):
    settings = {"data": {"tokenizer": "char", "joint": False}, "training": {"threads": 1}}
    plan = make_plan(Question(("seq2seq",), str(pairs_file), budget="1k", size="tiny", settings=settings), tmp_path)
    assert Plan.read(tmp_path) == plan
    tokenizers = plan.tokenizers
    assert tokenizers.source.digest != tokenizers.target.digest
    sources, references = read_test(plan)
    assert len(sources) == len(references) == plan.facts["pairs"]["test"]
    (tmp_path / TEST).write_text("{}")
    with pytest.raises(RegardError, match=r"test\.json"):
        Plan.read(tmp_path)


def test_escaped_references_are_refused_before_training(tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"a {n}\tthe cat &apos;s {n}\n" for n in range(120)), encoding="utf-8")
    recipe = compose("seq2seq", "tiny", {"data": {"corpus": str(path), "tokenizer": "char"}})
    with pytest.raises(RegardError, match="The references are escaped"):
        TRANSLATION.ground(recipe, "")
