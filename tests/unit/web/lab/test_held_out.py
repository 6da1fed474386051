"""Sentences that a run was not trained on, and whether it has learned more than a bigram knows."""

import math

import pytest

from regard.cli import main
from regard.runs.load import load
from regard.web.lab.held_out import held_out, progress_of

LINES = [f"{s} {v} {o}." for s in ("A cat", "A dog", "A bird") for v in ("sees", "hears") for o in "abcdefghijklmnop"]


def trained(folder, steps, *words):
    text = folder / "text.txt"
    text.write_text("\n".join(LINES) + "\n", encoding="utf-8")
    few = ["--size", "tiny", "--model.width", "32", "--training.steps", str(steps), "--training.threads", "1"]
    main(["train", "lstm", "--data", str(text), "--data.tokenizer", "char", *few, *words, "--run", str(folder / "run")])
    return folder / "run"


def test_sentences_are_those_of_validation_and_never_of_training(tmp_path):
    run = trained(tmp_path, 1)
    corpus = load(run, device="cpu").corpus()
    found = held_out(run)
    assert [line for line, _ in found] == list(corpus.splits["valid"])
    assert not {line for line, _ in found} & set(corpus.splits["train"])
    (tmp_path / "text.txt").unlink()
    assert held_out(run) == found  # the text is not opened again


@pytest.mark.parametrize(("steps", "learned"), [(2, False), (150, True)])
def test_what_has_learned_is_better_than_a_bigram(steps, learned, tmp_path):
    run = trained(tmp_path, steps, "--training.learning-rate", "0.01")
    found = progress_of(run)
    assert (found["perplexity"] < found["bigram"]) is learned
    assert 1 <= found["step"] <= steps


def test_the_bigram_is_the_one_that_is_trained_as_a_system(tmp_path):
    run = trained(tmp_path, 1)
    words = ["--data", str(tmp_path / "text.txt"), "--data.tokenizer", "char", "--model.order", "2"]
    main(["train", "ngram", *words, "--run", str(tmp_path / "bigram")])
    true = load(tmp_path / "bigram", device="cpu").evaluate(split="valid")["perplexity"]
    assert math.isclose(progress_of(run)["bigram"], true, rel_tol=1e-6)
    assert progress_of(tmp_path / "bigram")["bigram"] is None  # it was counted: there is nothing to learn


def test_nothing_is_said_where_the_text_is_gone(tmp_path):
    run = trained(tmp_path, 1)
    (tmp_path / "text.txt").unlink()
    assert progress_of(run)["bigram"] is None
