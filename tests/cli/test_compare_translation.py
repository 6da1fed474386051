"""`regard compare` for translators: the same pairs, tokens, search and test sentences for all; one table by BLEU."""

import csv
import json
import re
import signal

import pytest

import regard as package
from interrupted import wait_for_step
from regard.cli import main
from regard.corpora.phrasebook import make_pairs
from regard.report.offline_page import script_of

SMALL = [
    "--size", "tiny", "--model.width", "32", "--training.batch-tokens", "512", "--training.threads", "1",
    "--training.warmup", "10",
]  # fmt: skip

OURS = f"<script>{script_of('report')}</script>"  # the lab's charts


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    path = tmp_path_factory.mktemp("pairs") / "pairs.tsv"
    made = make_pairs(300, seed=5, longest=9)
    path.write_text("".join(f"{pair.source}\t{pair.target}\n" for pair in made), encoding="utf-8")
    return path


def question(pairs):
    return ["compare", "transformer", "seq2seq", "--data", str(pairs), "--match", "tokens", "--budget", "4k",
            "--seeds", "2", "--jobs", "2", *SMALL]  # fmt: skip


@pytest.fixture(scope="module")
def compared(tmp_path_factory, pairs):
    folder = tmp_path_factory.mktemp("compared")
    files = ["--csv", str(folder / "t.csv"), "--latex", str(folder / "t.tex")]
    main([*question(pairs), "--run", str(folder / "c"), *files])
    return folder


@pytest.fixture
def rows(regard, compared, pairs):
    code, out, errors = regard(*question(pairs), "--run", compared / "c", "--json")
    assert code == 0, errors
    assert "4 of 4 runs were already finished; nothing is left to do" in errors
    return json.loads(out)


def test_every_row_has_its_numbers_best_first(rows):
    assert {row["label"] for row in rows} == {"seq2seq", "transformer"}
    assert rows[0]["bleu"] >= rows[1]["bleu"]
    for row in rows:
        assert row["seeds"] == 2
        assert row["bleu"] == pytest.approx(sum(row["bleus"]) / 2)
        assert row["bleu_low"] <= row["bleu"] <= row["bleu_high"]
        assert 0 <= row["chrf"] <= 100  # zero is right for a system that has not yet learned to write anything
        for key in ("parameters", "perplexity", "training_tokens_per_second", "sentences_per_second",
                    "peak_memory_bytes", "training_seconds"):  # fmt: skip
            assert row[key] > 0
        assert row["alignment_error_rate"] is None  # a file knows no gold
        assert 4000 <= row["tokens_seen"] < 4000 + 512  # of the targets


def test_all_share_tokenizer_and_test_pairs_and_evaluate_agrees(compared, rows):
    folder = compared / "c"
    assert len({path.read_bytes() for path in folder.glob("**/tokenizer.json")}) == 1
    kept = json.loads((folder / "test.json").read_text(encoding="utf-8"))
    run = package.load(folder / "transformer-seed2")
    test = run.corpus().splits["test"]
    assert (kept["sources"], kept["references"]) == (list(test.sources), list(test.targets))
    evaluated = run.evaluate(texts=True)
    noted = json.loads((folder / "transformer-seed2" / "result.json").read_text(encoding="utf-8"))["evaluation"]
    assert evaluated["translations"] == noted["translations"]
    row = next(row for row in rows if row["label"] == "transformer")
    assert row["bleus"][1] == pytest.approx(evaluated["bleu"]["score"])
    assert row["bleu_signature"] == evaluated["bleu"]["signature"]


def test_table_csv_latex_and_report_say_the_same(regard, compared, pairs, rows):
    code, out, errors = regard(*question(pairs), "--run", compared / "c")
    assert code == 0, errors
    for words in ("95 % interval", "By BLEU: ", "beam 5 and length penalty 1", "nrefs:1|case:mixed", "chrF", "shared"):
        assert words in out
    with open(compared / "t.csv", encoding="utf-8", newline="") as file:
        read = list(csv.DictReader(file))
    assert [float(row["bleu"]) for row in read] == [row["bleu"] for row in rows]
    lines = [line for line in (compared / "t.tex").read_text().splitlines() if line.endswith(r"\\")]
    assert len(lines) == 3
    report = (compared / "c" / "report.html").read_text(encoding="utf-8").replace(OURS, "", 1)
    assert not re.search(r"https?://|url\(|@import|<script|<link|<iframe|<img", report)
    assert report.count("<svg role=") == 4
    for words in ("checksum", "bpe tokenizer of", "Holm 1979", "seeds 1 to 2", "regard compare transformer seq2seq",
                  "<span>--jobs</span> 2</pre>"):  # fmt: skip
        assert words in report


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["seq2seq", "lstm"], "compare systems for the same task"),
        (["seq2seq", "--prompt", "They"], "--prompt applies to language models"),
        (["seq2seq", "--budget", "9s", "--jobs", "2"], "--match seconds measures time"),
        (["seq2seq", "--data.tokeniser", "char"], "did you mean data.tokenizer?"),
    ],
)
def test_a_wrong_question_is_answered_in_one_sentence(regard, tmp_path, monkeypatch, pairs, words, sentence):
    monkeypatch.chdir(tmp_path)
    code, out, errors = regard("compare", *words, "--data", pairs)
    assert code == 2
    assert sentence in errors.splitlines()[-1]
    assert out == ""
    assert not list(tmp_path.iterdir())


def test_a_time_as_budget_matches_seconds_and_the_phrasebook_is_translated(tmp_path):
    done = package.compare(
        data="phrasebook",
        budget="0.5s",
        seeds=1,
        size="tiny",
        run=tmp_path / "c",
        settings={
            "data": {"pairs": 400, "words": 8},
            "model": {"width": 16},
            "training": {"threads": 1, "batch_tokens": 512, "validation_pairs": 20},
        },
    )
    assert {row["label"] for row in done.rows} == {"seq2seq", "bahdanau", "transformer"}
    assert all(row["training_seconds"] >= 0.5 for row in done.rows)
    assert "every system trained for 0.5 s" in done.title
    errors = {row["label"]: row["alignment_error_rate"] for row in done.rows}
    assert errors["seq2seq"] is None  # it looks nowhere
    assert 0 <= errors["bahdanau"] <= 1
    assert 0 <= errors["transformer"] <= 1


def test_a_stopped_comparison_goes_on_where_it_stopped(regard, process, pairs, tmp_path):
    folder = tmp_path / "c"
    words = ["compare", "seq2seq", "--data", pairs, "--budget", "60k", "--seeds", "1", *SMALL, "--run", folder]
    started = process(*words)
    wait_for_step(folder / "seq2seq", 1, started)
    started.send_signal(signal.SIGTERM)
    _, errors = started.communicate()
    assert started.returncode == 143, errors
    code, out, errors = regard(*words, "--json")
    assert code == 0, errors
    assert "seq2seq: continuing where it stopped" in errors
    (row,) = json.loads(out)
    assert row["tokens_seen"] >= 60_000
