"""Translators in the honest table: the task is plain from what is asked, intervals are Koehn's and cover seeds too."""

import html
import json
import math
import re
from dataclasses import replace

import numpy as np
import pytest
import sacrebleu

from regard.base.errors import RegardError
from regard.compare.comparison import Comparison
from regard.compare.comparison_page import comparison_page
from regard.compare.findings import finding, measured, methods, notes, tied_with_best
from regard.compare.plan import Entrant, Plan
from regard.compare.question import Question, match_for
from regard.compare.translation_task import TEST, TRANSLATION
from regard.compare.width import match_parameters, size_of
from regard.evaluation.bleu import Statistics, by_length, quality
from regard.evaluation.intervals import interval
from regard.evaluation.paired import paired_bootstrap
from regard.report.offline_page import script_of
from regard.report.page import prose
from regard.text.tokenizer import Tokenizer

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
            "corpus": {"name": "phrasebook", "checksum": "c0ffee", "notes": ["Made by seed 0."]},
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
        "By BLEU: bahdanau, transformer, seq2seq (best first). All differences are significant: no 95 %"
    )
    assert [row["alignment_error_rate"] for row in done.rows] == [0.25, None, None]
    assert "alignment_error_rate" in done.columns


def test_every_run_and_the_intervals_have_the_words_that_the_plan_chose(compared):
    done = compared({"seq2seq": [0.6], "bahdanau": [0.2]})
    done.plan.facts["bleu"] = {"tokenizer": "char", "why": "char, since the references are Thai"}
    done = Comparison(done.plan, done.results)
    references = json.loads((done.folder / TEST).read_text())["references"]
    for row in done.rows:
        written = done.results[row["label"], 1]["evaluation"]["translations"]
        assert row["bleu"] == pytest.approx(sacrebleu.corpus_bleu(written, [references], tokenize="char").score)
        assert row["bleu_low"] < row["bleu"] < row["bleu_high"]
    assert any("char, since the references are Thai" in line for line in TRANSLATION.report.conditions(done))


def test_a_column_that_nobody_can_fill_is_left_out(compared):
    assert "alignment_error_rate" not in compared({"seq2seq": [0.6], "bahdanau": [0.2]}).columns


def test_with_one_seed_a_difference_is_koehns_paired_bootstrap(compared):
    done = compared({"bahdanau": [0.3], "transformer": [0.32]})
    (found,) = done.differences
    references = json.loads((done.folder / TEST).read_text())["references"]
    written = {label: done.results[label, 1]["evaluation"]["translations"] for label in (found.better, found.worse)}
    known = paired_bootstrap(*(Statistics.of("bleu", texts, references) for texts in written.values()))
    assert (found.by, found.low, found.high) == pytest.approx((known.difference, known.low, known.high))
    assert found.beyond == (not known.low <= 0 <= known.high)
    wide = [row["bleu_high"] - row["bleu_low"] for row in done.rows]
    assert found.high - found.low < sum(wide)


def test_seeds_that_differ_widen_an_interval_as_students_t_asks(compared):
    done = compared({"bahdanau": [0.2, 0.3], "transformer": [0.5, 0.5]})
    one, two = done.rows[0]["bleus"]
    assert done.rows[0]["bleu"] == pytest.approx((one + two) / 2)
    luck = done.scores.draws["bahdanau"] - np.mean(
        [_single(done, seed) for seed in (1, 2)], axis=0
    )  # what is left when the drawn sentences are taken away
    spread = abs(one - two) / math.sqrt(2) / math.sqrt(2)
    low, high = interval(luck)
    assert high == pytest.approx(12.706 * spread, rel=0.15)  # t with one degree of freedom, 97.5 %
    assert low == pytest.approx(-12.706 * spread, rel=0.15)


def _single(done, seed):
    from regard.evaluation.intervals import DRAWS
    from regard.evaluation.paired import resampled, resamplings

    counts = done.scores.counts["bahdanau"][seed - 1]
    return np.concatenate([resampled(counts, times) for times in resamplings(len(counts.counts), DRAWS)])


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
    (said,) = (note for note in notes(done) if note.startswith("Not all were trained alike"))
    for label, each in settings.items():
        assert f"{label}: {each.optimizer}, learning rate {each.learning_rate:g}, {each.schedule}" in said
    same = [replace(e, recipe=done.plan.entrants[0].recipe) for e in done.plan.entrants]
    alike = Comparison(replace(done.plan, entrants=tuple(same)), done.results)
    assert not any("trained alike" in note for note in notes(alike))


@pytest.mark.parametrize(
    ("midway", "said"),
    [
        (2.5, "the order at equal seconds is transformer, bahdanau; at equal tokens (100 tokens, what the slowest had"),
        (
            2.005,
            "at equal tokens (100 tokens, what the slowest had read at its end), perplexities were within 1 % of each",
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
    done = compared({"seq2seq": [0.6, 0.7], "bahdanau": [0.2, 0.3], "transformer": [0.4, 0.4]}, curves)
    page = comparison_page(done)
    page = page.replace(OURS, "", 1)
    assert not re.search(r"(?:src|href|action)\s*=|url\(|@import|https?://|<script", page)
    assert page.count("<svg role=") == 4  # intervals, two courses, BLEU by length
    assert page.count('<dl class="facts texts">') == 2
    for label in LADDER:
        assert page.count(f"<dt>{label}</dt>") == 2
        assert done.results[label, 1]["evaluation"]["translations"][3] in page
    assert "over seeds, drawn from Student" in page
    assert re.search(r"sacreBLEU: BLEU nrefs:1\|[^ ]+, chrF nrefs:1\|", methods(done))
    sizes = [of["sentences"] for of in done.rows[0]["by_length"]]
    assert sum(sizes) == 60
    assert all(f">{size}</td>" in page for size in sizes)


def test_the_page_begins_with_what_was_found_and_folds_the_fine_print(compared):
    curves = {label: [(100, 10.0, 3.0), (200, 20.0, 1.0)] for label in LADDER}
    done = compared({"seq2seq": [0.7], "bahdanau": [0.1], "transformer": [0.6]}, curves)
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
    assert finding(done).endswith("is not significant.")
    page = comparison_page(done)
    badges = re.findall(r"scope=row>(\w+) <span class=\"tag\">(.*?)</span>", page)
    assert dict(badges) == {"seq2seq": "tied best", "bahdanau": "tied best"}
    assert "One seed: " in re.sub(r"<details>.*?</details>", "", page, flags=re.DOTALL)  # a limit of the finding
    assert "While they learned" not in page  # no curve has a course


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
    assert done.ranking.endswith("contains zero: seq2seq and bahdanau.")
    assert "<!doctype html>" in comparison_page(done)
