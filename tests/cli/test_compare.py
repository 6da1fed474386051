"""`regard compare` as its users meet it: real trainings in real processes, small enough to wait for."""

import csv
import json
import math
import os
import re
import signal
import sys

import pytest

import regard as package
from interrupted import step_of, wait_for_step
from regard.cli import main
from regard.evaluation.perplexity import Method
from regard.report.offline_page import script_of
from regard.training.checkpoint import load_tensors

SMALL = [
    "--size", "tiny", "--data.tokenizer", "char", "--model.width", "32", "--training.threads", "1",
    "--training.batch-tokens", "256", "--training.warmup", "10",
]  # fmt: skip

OURS = f"<script>{script_of('report')}</script>"  # the lab's charts


@pytest.fixture(scope="module")
def compared(tmp_path_factory, text_file):
    """lstm and gpt with two seeds, beside the two n-grams."""
    folder = tmp_path_factory.mktemp("compared")
    words = ["compare", "gpt", "lstm", "--data", str(text_file), "--budget", "3k", "--seeds", "2", *SMALL]
    words += ["--run", str(folder / "c"), "--csv", str(folder / "t.csv"), "--latex", str(folder / "t.tex")]
    main(words)
    return folder


def again(regard, compared, text_file, *more):
    """The same comparison once more: nothing is left to train."""
    words = ["compare", "gpt", "lstm", "--data", text_file, "--budget", "3k", "--seeds", "2", *SMALL]
    return regard(*words, "--run", compared / "c", *more)


@pytest.fixture
def rows(regard, compared, text_file):
    code, out, errors = again(regard, compared, text_file, "--json")
    assert code == 0, errors
    assert "6 of 6 runs were already finished; nothing is left to do" in errors
    return json.loads(out)


def test_every_row_has_its_numbers_and_an_interval_around_its_perplexity(rows):
    assert {row["label"]: row["seeds"] for row in rows} == {"2-gram": 1, "5-gram": 1, "lstm": 2, "gpt": 2}
    assert rows == sorted(rows, key=lambda row: row["perplexity"])  # best first, as in every table
    for row in rows:
        assert row["perplexity_low"] < row["perplexity"] < row["perplexity_high"]
        assert row["perplexity"] == pytest.approx(math.prod(row["perplexities"]) ** (1 / row["seeds"]), rel=1e-6)
        assert row["bits_per_character"] == pytest.approx(math.log2(row["perplexity"]), rel=1e-6)  # by characters
        for key in ("parameters", "training_tokens_per_second", "generation_tokens_per_second", "peak_memory_bytes"):
            assert row[key] > 0
        assert row["sample"].startswith(rows[0]["sample"].split()[0])


def test_every_neural_system_reads_the_same_tokens_to_within_a_step(rows):
    seen = {row["label"]: row["tokens_seen"] for row in rows}
    for label in ("lstm", "gpt"):
        assert 3000 <= seen[label] < 3000 + 256
    assert seen["2-gram"] == seen["5-gram"]  # the whole training text, counted once


def test_all_share_one_tokenizer_and_are_tested_on_the_same_segments(compared, rows):
    folder = compared / "c"
    digests = {path.read_bytes() for path in folder.glob("**/tokenizer.json")}
    assert len(digests) == 1
    results = [json.loads(path.read_text())["evaluation"] for path in folder.glob("*/result.json")]
    assert len(results) == 6
    assert {result["method"] for result in results} == {Method(32, 32).sentence}  # the gpt's context is 64
    assert len({tuple(result["documents"]["tokens"]) for result in results}) == 1
    assert len(results[0]["documents"]["tokens"]) >= 20
    run = package.load(folder / "lstm-seed2")
    single = run.evaluate(segment=64)  # the verb `evaluate` agrees
    assert any(single["perplexity"] == pytest.approx(result["perplexity"]) for result in results)


def test_the_table_says_who_differs_and_how_it_was_measured(regard, compared, text_file):
    code, out, errors = again(regard, compared, text_file)
    assert code == 0, errors
    for words in ("95 % interval", "tokens seen", "By perplexity: ", "documents", "<unk>", "segments of 32 tokens"):
        assert words in out
    assert str(compared / "c" / "report.html") in out


def test_csv_and_latex_hold_the_table_and_are_never_written_over(regard, compared, text_file, rows):
    with open(compared / "t.csv", encoding="utf-8", newline="") as file:
        read = list(csv.DictReader(file))
    assert [row["label"] for row in read] == [row["label"] for row in rows]
    assert [float(row["perplexity"]) for row in read] == [row["perplexity"] for row in rows]
    lines = [line for line in (compared / "t.tex").read_text().splitlines() if line.endswith(r"\\")]
    assert len(lines) == 5
    assert len({len(re.findall(r"(?<!\\)&", line)) for line in lines}) == 1
    for option in ("--csv", "--latex"):
        before = (compared / "t.csv").read_text()
        code, _, errors = again(regard, compared, text_file, option, compared / "t.csv")
        assert code == 2
        assert "already exists" in errors
        assert (compared / "t.csv").read_text() == before


def test_the_report_is_one_file_that_asks_for_nothing(compared, rows):
    report = (compared / "c" / "report.html").read_text(encoding="utf-8").replace(OURS, "", 1)
    assert not re.search(r"""(?:src|href|srcset|action|data)\s*=\s*["']?\s*(?:https?:)?//""", report)
    assert not re.search(r"https?://|url\(|@import|<script|<link|<iframe|<img", report)
    assert report.count("<svg role=") == 3
    assert report.count("<desc>") == 3
    for row in rows:
        assert f"<h3>{row['label']}</h3>" in report
    for words in (
        "checksum",
        "tokenizer of",
        "corrected for the number of pairs (Holm 1979)",
        "seeds 1 to 2",
        "PyTorch",
        "regard compare gpt",
    ):
        assert words in report


def test_a_folder_is_never_written_over(regard, compared, text_file, tmp_path):
    before = (compared / "c" / "comparison.json").read_text()
    words = ["compare", "gpt", "lstm", "--data", text_file, "--budget", "4k", "--seeds", "2", *SMALL]
    code, _, errors = regard(*words, "--run", compared / "c")
    assert code == 2
    assert "contains a different comparison (its budget differs)" in errors
    assert (compared / "c" / "comparison.json").read_text() == before
    (tmp_path / "notes.txt").write_text("mine")
    code, _, errors = regard(*words, "--run", tmp_path)
    assert code == 2
    assert "already exists" in errors
    assert os.listdir(tmp_path) == ["notes.txt"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["lstm"], "--data"),
        (["lsmt", "--data", "pyref"], "did you mean lstm"),
        (["lstm", "--data", "pyref", "--match", "tokens", "--budget", "60s"], "needs a budget in tokens"),
        (["lstm", "--data", "pyref", "--model.haeds", "2"], "No system in this comparison"),
        (["lstm", "--data", "pyref", "--sedes", "2"], "There is no option --sedes: did you mean --seeds?"),
        (["lstm", "--data", "nowhere.txt"], "There is no corpus"),
        (["lstm", "--data", "pyref", "--training.device", "abacus"], "abacus"),
    ],
)
def test_a_wrong_question_is_answered_in_one_sentence_and_leaves_nothing(
    regard, tmp_path, monkeypatch, words, sentence
):
    monkeypatch.chdir(tmp_path)
    code, out, errors = regard("compare", *words)
    assert code == 2
    assert sentence in errors.splitlines()[-1]
    assert out == ""
    assert not list(tmp_path.iterdir())


def test_equal_seconds_and_the_python_twin(text_file, tmp_path):
    done = package.compare(
        "lstm",
        data=text_file,
        match="seconds",
        budget="0.5s",
        seeds=1,
        size="tiny",
        run=tmp_path / "c",
        settings={"data": {"tokenizer": "word"}, "model": {"width": 16}, "training": {"threads": 1, "warmup": 5}},
    )
    lstm = next(row for row in done.rows if row["label"] == "lstm")
    assert lstm["training_seconds"] >= 0.5
    assert lstm["tokens_seen"] > 0
    assert lstm["bits_per_character"] is None  # words do not say where the spaces were
    assert "2-gram" in done.table()
    assert "bits/char" not in done.table() + done.report.read_text(encoding="utf-8")  # nobody has them
    assert done.report.read_text(encoding="utf-8").startswith("<!doctype html>")
    progress = load_tensors(tmp_path / "c" / "lstm" / "training.safetensors")[1]["progress"]
    assert 1 <= len(progress["history"]) <= min(20, progress["step"])  # few steps on a slow machine, but never more


def test_a_run_that_fails_does_not_take_the_others_with_it(regard, text_file, tmp_path):
    words = ["compare", "lstm", "gpt", "--data", text_file, "--budget", "3k", "--seeds", "1", *SMALL]
    words += ["--run", tmp_path / "c"]
    code, out, errors = regard(*words, "--training.learning-rate", "1e30", "--training.clip", "0")
    assert code == 2
    assert re.search(r"^5-gram +1948 +\d", out, re.M)
    assert "the loss became" in errors.lower()
    assert f"run the same command with --run {tmp_path / 'c'}." in errors


@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_an_interrupted_comparison_goes_on_where_it_stopped(regard, process, text_file, tmp_path, warm, monkeypatch):
    folder = tmp_path / "c"
    words = ["compare", "lstm", "--data", text_file, "--match", "parameters", "--budget", "60k", "--size", "tiny",
             "--data.tokenizer", "char", "--training.threads", "1", "--training.batch-tokens", "256",
             "--seeds", "1", "--run", folder]  # fmt: skip

    def stop(number):
        """Start it, wait until the lstm has learned something more, end it."""
        started = process(*words)
        wait_for_step(folder / "lstm", step_of(folder / "lstm") + 1, started)
        started.send_signal(number)
        _, errors = started.communicate()  # until nobody holds its stderr: an orphan, too, has saved and ended
        return started.returncode, errors

    with monkeypatch.context() as patch:
        patch.setattr(sys, "executable", warm)
        code, errors = stop(signal.SIGTERM)
    assert code == 143
    assert f"run the same command with --run {folder}" in errors
    counted = (folder / "5-gram" / "result.json").stat().st_mtime_ns
    step = step_of(folder / "lstm")
    code, errors = stop(signal.SIGKILL)
    assert "2 of 3 runs were already finished" in errors
    assert "lstm: continuing where it stopped" in errors
    assert step_of(folder / "lstm") > step
    code, out, errors = regard(*words, "--json")
    assert code == 0, errors
    assert "continuing where it stopped" in errors
    lstm = next(row for row in json.loads(out) if row["label"] == "lstm")
    assert lstm["tokens_seen"] >= 60_000
    assert (folder / "5-gram" / "result.json").stat().st_mtime_ns == counted
    entries = [json.loads(line) for line in (folder / "lstm" / "metrics.jsonl").read_text().splitlines()]
    steps = [entry["step"] for entry in entries if entry.get("split") == "valid"]
    assert steps == sorted(set(steps))  # one curve, without a seam
    target = json.loads((folder / "comparison.json").read_text())["facts"]["target_parameters"]
    assert lstm["parameters"] == pytest.approx(target, rel=0.02)
