"""A run finds its data from where it lies itself, says where it looked, and knows what it was trained on."""

import json
import shutil

import pytest

from regard.cli import main
from regard.corpora.phrasebook import make_pairs

TINY = ["--size", "tiny", "--training.steps", "4", "--training.evaluate-every", "2", "--training.threads", "1"]


@pytest.fixture(scope="module")
def home(tmp_path_factory, text_file):
    """A folder with texts and runs, made by someone else."""
    folder = tmp_path_factory.mktemp("someone") / "home"
    folder.mkdir()
    shutil.copy(text_file, folder / "my.txt")
    pairs = [f"{p.source}\t{p.target}\n" for p in make_pairs(120, seed=3, longest=6)]
    (folder / "pairs.tsv").write_text("".join(pairs), encoding="utf-8")
    (folder / "more.tsv").write_text("Good day.\tBonjour.\n", encoding="utf-8")
    main(["train", "ngram", "--data", str(folder / "my.txt"), "--run", str(folder / "runs" / "counted")])
    also = ["--data.also", f"{folder / 'more.tsv'}:2"]
    main(["train", "seq2seq", "--data", str(folder / "pairs.tsv"), "--run", str(folder / "runs" / "s"), *TINY, *also])
    return folder


def test_a_run_and_its_data_may_be_moved_together_and_name_no_place_of_their_maker(regard, home, tmp_path, monkeypatch):
    for run in ("counted", "s"):
        assert str(home) not in (home / "runs" / run / "recipe.toml").read_text()
    moved = tmp_path / "elsewhere"
    shutil.copytree(home, moved)
    before = json.loads(regard("evaluate", home / "runs" / "s", "--json")[1])
    home.rename(home.with_name("away"))
    try:
        after = json.loads(regard("evaluate", moved / "runs" / "s", "--json")[1])
        assert after["bleu"] == before["bleu"]
        assert regard("evaluate", moved / "runs" / "counted")[0] == 0
        assert regard("resume", moved / "runs" / "s")[0] == 0
        monkeypatch.chdir(tmp_path)
        again = regard("train", "elsewhere/runs/s/recipe.toml", "--run", "again", "--training.steps", 2)
        assert again[0] == 0, again[2]
        assert regard("evaluate", "again")[0] == 0
    finally:
        home.with_name("away").rename(home)


def test_data_that_are_gone_were_looked_for_at_places_that_are_named(regard, wrong, home, tmp_path, monkeypatch):
    run = tmp_path / "counted"
    shutil.copytree(home / "runs" / "counted", run)
    monkeypatch.chdir(tmp_path)
    said = wrong("evaluate", "counted")
    for place in (tmp_path.parent / "my.txt", run / "my.txt", tmp_path / "my.txt"):
        assert str(place) in said
    shutil.copy(home / "my.txt", tmp_path / "my.txt")
    assert regard("evaluate", "counted")[0] == 0
    with (tmp_path / "my.txt").open("a") as stream:
        stream.write("One more line.\n")
    assert "has changed since" in wrong("evaluate", "counted")


def test_an_evaluation_on_other_data_says_how_much_of_it_was_trained_on(regard, home, tmp_path):
    counted, pairs = home / "runs" / "counted", home / "runs" / "s"
    share = {}
    for split in ("train", "test", ""):
        words = ["--split", split] if split else []
        facts = json.loads(regard("evaluate", counted, "--data", home / "my.txt", *words, "--json")[1])
        share[split] = facts["share_seen_in_training"]
    assert share == {"train": 1.0, "test": 0.0, "": 0.0}  # of the run's own file what was held out
    (tmp_path / "copy.txt").write_bytes((home / "my.txt").read_bytes())
    facts = json.loads(regard("evaluate", counted, "--data", tmp_path / "copy.txt", "--json")[1])
    assert facts["split"] == "whole file"
    assert 0.5 < facts["share_seen_in_training"] < 1
    facts = json.loads(regard("evaluate", pairs, "--data", home / "pairs.tsv", "--json")[1])
    assert facts["share_seen_in_training"] == pytest.approx(108 / 120)
    assert facts["seen_in_training"] == "108 of 120 pairs (90.0 %) were trained on"
    assert "seen_in_training" not in json.loads(regard("evaluate", pairs, "--json")[1])
    alone = tmp_path / "alone"
    shutil.copytree(counted, alone)
    facts = json.loads(regard("evaluate", alone, "--data", home / "my.txt", "--json")[1])
    assert facts["share_seen_in_training"] is None
    assert "Regard looked for" in facts["seen_in_training"]


@pytest.mark.parametrize("system", ["transformer", "classifier"])
def test_pairs_that_training_dropped_were_not_trained_on(regard, tmp_path, system):
    """Twenty sources are longer than data.longest, and ten pairs have an empty side."""
    answers = ["odd", "even"] if system == "classifier" else [f"answer {n}" for n in range(90)]
    rows = [f"question {n}\t{answers[n % len(answers)]}" for n in range(90)]
    for n in range(20):
        rows[4 * n] = "long " * 40 + rows[4 * n]
    rows += [f"question {n}\t" for n in range(90, 100)]
    folder = tmp_path / "data"
    folder.mkdir()
    for split, part in {"train": rows, "valid": ["hold out 1\todd", "hold out 2\teven"]}.items():
        (folder / f"{split}.tsv").write_text("".join(f"{row}\n" for row in part), encoding="utf-8")
    small = ["--size", "tiny", "--training.steps", 1, "--data.tokenizer", "word", "--data.longest", 20]
    code, _, errors = regard("train", system, "--data", folder, "--run", tmp_path / "run", *small)
    assert code == 0, errors
    assert "30 of 100 pairs dropped" in errors
    facts = json.loads(regard("evaluate", tmp_path / "run", "--data", folder / "train.tsv", "--json")[1])
    left_out = facts.get("left_out", 0)  # of labels: those with an empty side are not evaluated
    assert left_out == (10 if system == "classifier" else 0)
    assert facts["seen_in_training"].startswith(f"70 of {100 - left_out} pairs")
