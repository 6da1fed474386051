"""Labelling from the command line: a file of text⇥label in, labels with their probabilities out."""

import json
import math
import random

import pytest

import regard as package

MOODS = {"very good": ["lovely", "fine", "great"], "bad": ["awful", "poor", "sad"], "so so": ["plain", "usual", "grey"]}
LINES = ["a lovely film", "", "this was an awful day", "nothing but grey"]


@pytest.fixture(scope="session")
def moods(tmp_path_factory):
    """Three labels, two of them with a space, told apart by one word in a sentence; a further column is ignored."""
    draw, path = random.Random(0), tmp_path_factory.mktemp("moods") / "moods.tsv"
    lines = []
    for label, words in MOODS.items():
        for number in range(150):
            thing, day = draw.choice(["film", "book", "day", "song"]), draw.choice(["today", "again", "it was"])
            lines.append(f"a {draw.choice(words)} {thing} {day} {number}\t{label}\tnobody\n")
    path.write_text("".join(lines), encoding="utf-8")
    return path


TINY = [
    "--size", "tiny", "--data.tokenizer", "word", "--training.batch-tokens", "512", "--training.threads", "1",
    "--training.steps", "120", "--training.evaluate-every", "40", "--training.checkpoint-every", "40",
    "--training.device", "cpu",
]  # fmt: skip


@pytest.fixture(scope="session")
def labeller(tmp_path_factory, moods):
    from regard.cli import main

    folder = tmp_path_factory.mktemp("labeller") / "run"
    main(["train", "classifier", "--data", str(moods), "--run", str(folder), "--model.encoder", "gru", *TINY])
    return folder


def test_evaluation_counts_every_line_and_agrees_with_what_classify_prints(regard, labeller):
    code, out, _ = regard("evaluate", labeller, "--json")
    assert code == 0
    facts = json.loads(out)
    pairs = package.load(labeller).corpus().splits["test"]
    printed = regard("classify", labeller, stdin="".join(f"{line}\n" for line in pairs.sources))[1].splitlines()
    predicted = [line.split("\t")[0] for line in printed]
    right = sum(label == truth for label, truth in zip(predicted, pairs.targets, strict=True))
    assert facts["accuracy"] == right / len(pairs) > 0.9
    assert facts["accuracy_interval"][0] < facts["accuracy"] <= facts["accuracy_interval"][1]
    counts = {truth: sum(row.values()) for truth, row in facts["confusion"].items()}
    assert counts == {label: pairs.targets.count(label) for label in set(pairs.targets)}
    assert facts["labels"]["very good"]["lines"] == counts["very good"]
    scores = [json.loads(line) for line in _scores(regard, labeller, pairs)]
    assert facts["cross_entropy"] == pytest.approx(-sum(s["log_probability"] for s in scores) / len(pairs), rel=1e-6)


def _scores(regard, run, pairs):
    lines = "".join(f"{source}\t{target}\n" for source, target in zip(pairs.sources, pairs.targets))
    return regard("score", run, "--json", stdin=lines)[1].splitlines()


def test_the_table_names_labels_with_their_spaces(regard, labeller):
    code, out, _ = regard("evaluate", labeller, "--split", "valid")
    assert code == 0
    assert "95 % interval" in out
    assert any(line.split("  ")[0] == "very good" for line in out.splitlines())


def test_as_many_lines_come_out_as_went_in_and_the_batch_changes_nothing(regard, labeller):
    code, out, _ = regard("classify", labeller, stdin="\n".join(LINES) + "\n")
    found = out.split("\n")[:-1]
    assert code == 0
    assert [line.split("\t")[0] for line in found] == ["very good", "", "bad", "so so"]
    assert [regard("classify", labeller, stdin=f"{line}\n")[1].rstrip("\n") for line in LINES] == found
    run = package.load(labeller)
    assert run.classify(LINES) == ["very good", "", "bad", "so so"]
    assert run.classify(LINES[0]) == run(LINES[0]).label == "very good"
    assert sum(run(LINES[0]).labels.values()) == pytest.approx(1)


def test_n_best_are_all_labels_with_their_probabilities(regard, labeller):
    rows = [
        line.split("\t") for line in regard("classify", labeller, "--n-best", 3, stdin="a sad day\n\n")[1].splitlines()
    ]
    assert [row[0] for row in rows] == ["1", "1", "1", "2"]
    assert {row[1] for row in rows[:3]} == set(MOODS)
    line = json.loads(regard("classify", labeller, "--n-best", 3, "--json", stdin="a sad day\n")[1])
    shares = [one["probability"] for one in line["labels"]]
    assert shares == sorted(shares, reverse=True)
    assert sum(shares) == pytest.approx(1)
    scored = json.loads(regard("score", labeller, "--json", stdin=f"a sad day\t{line['labels'][0]['label']}\n")[1])
    assert math.exp(scored["log_probability"]) == pytest.approx(shares[0])


def test_pairs_of_a_file_that_cannot_be_scored_are_left_out_and_counted(regard, labeller, moods, tmp_path):
    first, *_ = whole = moods.read_text(encoding="utf-8").splitlines()
    text = first.partition("\t")[0]
    more = [f"{text}\t", f"{text}\tsplendid", f"\t{first.partition(chr(9))[2]}", f"{text} " * 300 + first]
    file = tmp_path / "more.tsv"
    file.write_text("".join(f"{line}\n" for line in [*whole[:3], *more, *whole[3:]]), encoding="utf-8")
    code, out, errors = regard("score", labeller, "--data", file)
    assert code == 0
    assert out == regard("score", labeller, "--data", moods)[1]
    total = len(whole) + 4
    assert f"4 of {total} pairs left out: 1 without a label, 1 with a label not seen in training, " in errors
    assert "1 without a text, 1 with more than 256 tokens." in errors


def test_a_files_labels_are_scored_as_they_stand(regard, labeller, moods):
    code, out, _ = regard("score", labeller, "--data", moods)
    rows = [line.split("\t") for line in out.splitlines()]
    assert code == 0
    assert [row[3] for row in rows] == [line.split("\t")[1] for line in moods.read_text("utf-8").splitlines()]
    assert all(float(row[0]) <= 0 and row[1] == "1" for row in rows)


def test_a_folder_of_splits_may_hold_labels_that_training_never_saw(regard, tmp_path, moods):
    lines = moods.read_text(encoding="utf-8").splitlines(keepends=True)
    random.Random(1).shuffle(lines)
    parts = {"train": lines[:400], "valid": lines[400:430], "test": [*lines[430:], "a strange day\tunheard of\n"]}
    for name, part in parts.items():
        (tmp_path / f"{name}.tsv").write_text("".join(part), encoding="utf-8")
    code, _, errors = regard("train", "classifier", "--data", tmp_path, "--run", tmp_path / "run", *TINY)
    assert code == 0, errors
    facts = json.loads(regard("evaluate", tmp_path / "run", "--json")[1])
    assert facts["unseen_labels"] == 1
    assert facts["labels"]["unheard of"]["recall"] == 0
    assert facts["lines"] == 21


def test_a_run_goes_on_is_fine_tuned_and_made_again_from_its_recipe(regard, labeller, moods, tmp_path):
    assert regard("resume", labeller)[0] == 0
    tuned = ["train", "--from", labeller, "--data", moods, "--run", tmp_path / "tuned", "--training.steps", 2]
    assert regard(*tuned)[0] == 0
    assert (tmp_path / "tuned/tokenizer.json").read_bytes() == (labeller / "tokenizer.json").read_bytes()
    code, _, errors = regard("train", labeller / "recipe.toml", "--run", tmp_path / "again", "--training.steps", 2)
    assert code == 0, errors
    for name in ("tokenizer.json", "tokenizer.source.json"):
        assert (tmp_path / "again" / name).read_bytes() == (labeller / name).read_bytes()


# -- what users get wrong --------------------------------------------------------------------------------------------


def test_the_verbs_of_others_name_the_right_one(wrong, labeller, trained):
    for verb in ("translate", "generate"):
        assert f"use `regard classify {labeller}`" in wrong(verb, labeller, stdin="a\n")
    assert "regard generate" in wrong("classify", trained["lstm"], stdin="a\n")
    assert "--beam does not apply" in wrong("evaluate", labeller, "--beam", 3)
    assert "--stream does not apply" in wrong("evaluate", labeller, "--stream")
    assert wrong("export", labeller, "--to", "arpa", "--out", labeller / "model.arpa")


def test_translations_are_no_labels(wrong, tmp_path):
    said = wrong("train", "classifier", "--data", "phrasebook", "--data.pairs", 300, "--run", tmp_path / "run")
    assert "looks like translation" in said
    assert not (tmp_path / "run").exists()


def test_settings_that_labels_have_no_use_for(wrong, moods, tmp_path):
    words = ["train", "classifier", "--data", moods, "--run", tmp_path / "run"]
    assert "BLEU" in wrong(*words, "--training.select", "bleu")
    assert "data.bpe_dropout" in wrong(*words, "--data.bpe-dropout", "0.1")
    assert "model.encoder" in wrong(*words, "--model.encoder", "cnn")
    assert "--data.swap" in wrong(*words, "--data.swap", "true")


def test_lines_that_cannot_be_labelled(wrong, regard, labeller):
    endless = "a fine day\n" + "word " * 10_000 + "\n"
    assert "Line 2 has 10,000 tokens" in wrong("classify", labeller, stdin=endless)
    assert regard("classify", labeller, "--truncate", stdin=endless)[1].count("\n") == 2
    assert "Line 1 has the label 'splendid'" in wrong("score", labeller, stdin="a fine day\tsplendid\n")
    assert "was not trained on" in wrong("score", labeller, stdin="a fine day\tsplendid\n")
    assert "--n-best" in wrong("classify", labeller, "--n-best", 0, stdin="a\n")
    assert "not UTF-8" in wrong("classify", labeller, stdin="é\n".encode("latin-1"))
