"""A fine-tuned run names its parent, and knows what its ancestors were trained on."""

import json
import re
import shutil
import tomllib
from random import Random

import pytest

from regard.cli import main

TINY = ["--size", "tiny", "--model.width", "16", "--training.steps", "2", "--training.threads", "1"]
TEXT = [*TINY, "--data.tokenizer", "char", "--training.batch-tokens", "256"]
WORDS = ["cat", "dog", "bird", "house", "tree", "river", "bread", "old", "new", "big", "red", "sees", "hears", "likes"]


def lines(seed, count):
    draw = Random(seed)
    return [" ".join(draw.choices(WORDS, k=5)) + f" {seed}-{number}" for number in range(count)]


def write(path, some):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(some) + "\n", encoding="utf-8")
    return path


def tune(parent, data, run, *more):
    main(["train", "--from", str(parent), "--data", str(data), "--run", str(run), "--training.steps", "1", *more])
    return run


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """p is trained on p.txt, c is p trained on c.txt, g is c trained on g.txt; likewise for pairs and for labels."""
    place = tmp_path_factory.mktemp("family")
    for seed, name in enumerate("pcg"):
        write(place / f"{name}.txt", lines(seed, 50))
    for system in ("lstm", "gpt"):
        main(["train", system, "--data", f"{place}/p.txt", "--run", f"{place}/{system}", *TEXT])
        tune(place / system, place / "c.txt", place / f"{system}-c")
    tune(place / "lstm-c", place / "g.txt", place / "lstm-g")
    for seed, name in enumerate("pc"):
        sources, targets = lines(seed, 60), lines(seed + 10, 60)
        write(place / f"{name}.tsv", map("\t".join, zip(sources, targets)))
        write(place / f"{name}-labels.tsv", (f"{line}\t{'good' if 'old' in line else 'bad'}" for line in sources))
    for system, ending in (("transformer", ".tsv"), ("classifier", "-labels.tsv")):
        main(["train", system, "--data", f"{place}/p{ending}", "--run", f"{place}/{system}", *TINY])
        tune(place / system, place / f"c{ending}", place / f"{system}-c")
    return place


@pytest.fixture
def copy(place, tmp_path):
    shutil.copytree(place, tmp_path / "copy")
    return tmp_path / "copy"


def seen(regard, run, *data):
    code, out, errors = regard("evaluate", run, *data, "--json")
    assert code == 0, errors
    return json.loads(out[out.index("{") :])  # after what trainings of this test printed


@pytest.mark.parametrize("system", ["lstm", "gpt"])
def test_lines_that_the_parent_was_trained_on_count(regard, place, system):
    whole = ["--data", place / "p.txt", "--split", "all"]
    parent, child = seen(regard, place / system, *whole), seen(regard, place / f"{system}-c", *whole)
    assert 0.8 < parent["share_seen_in_training"] == child["share_seen_in_training"] < 1
    count = re.match(r"\d+ of 50 lines", parent["seen_in_training"])[0]
    assert child["seen_in_training"].startswith(f"{count} (")
    assert child["seen_in_training"].endswith("of them by the runs that it started from")
    own = seen(regard, place / f"{system}-c", "--data", place / "c.txt", "--split", "all")
    assert own["share_seen_in_training"] > 0.8
    assert "started from" not in own["seen_in_training"]


def test_a_grandchild_counts_all_of_them(regard, place):
    for name in "pcg":
        found = seen(regard, place / "lstm-g", "--data", place / f"{name}.txt", "--split", "all")
        assert 0.8 < found["share_seen_in_training"] < 1
    other = write(place / "other.txt", lines(7, 20))
    assert seen(regard, place / "lstm-g", "--data", other)["share_seen_in_training"] == 0


@pytest.mark.parametrize(("system", "data"), [("transformer", "p.tsv"), ("classifier", "p-labels.tsv")])
def test_pairs_that_the_parent_was_trained_on_count(regard, place, system, data):
    parent, child = (seen(regard, place / run, "--data", place / data) for run in (system, f"{system}-c"))
    assert 0.8 < parent["share_seen_in_training"] == child["share_seen_in_training"] < 1


def test_the_record_names_every_ancestor(regard, place):
    facts = json.loads((place / "lstm-g" / "run.json").read_text(encoding="utf-8"))
    assert [one["run"] for one in facts["ancestors"]] == ["lstm-c", "lstm"]
    assert [one["corpus"]["name"] for one in facts["ancestors"]] == ["c.txt", "p.txt"]
    assert [one["recipe"]["data"]["corpus"] for one in facts["ancestors"]] == ["./c.txt", "./p.txt"]
    start = tomllib.loads((place / "lstm-g" / "recipe.toml").read_text(encoding="utf-8"))["from"]
    assert start == {"run": "../lstm-c", "weights": facts["ancestors"][0]["weights"]}
    assert str(place) not in json.dumps(facts["ancestors"])


def test_every_page_and_list_names_the_parent(regard, place, tmp_path):
    weights = json.loads((place / "gpt-c" / "run.json").read_text(encoding="utf-8"))["ancestors"][0]["weights"]
    rows = {row["run"].rpartition("/")[2]: row["from"] for row in json.loads(regard("runs", place, "--json")[1])}
    assert (rows["lstm"], rows["lstm-c"], rows["lstm-g"]) == (None, "lstm", "lstm-c")
    assert re.search(r"^from +– +gpt$", regard("runs", "compare", place / "gpt", place / "gpt-c")[1], re.M)
    assert weights in (place / "gpt-c" / "report.html").read_text(encoding="utf-8")
    code, _, errors = regard("export", place / "gpt-c", "--to", "huggingface", "--out", tmp_path / "hf")
    assert code == 0, errors
    card = (tmp_path / "hf" / "README.md").read_text(encoding="utf-8")
    assert f"Fine-tuned from gpt: weights {weights}, trained on p.txt" in card
    assert f'[from]\nrun = "../gpt"\nweights = "{weights}"' in card


def test_the_recipe_of_a_fine_tuned_run_makes_the_same_weights_again(regard, copy):
    for run in ("lstm-c", "transformer-c", "classifier-c"):
        code, _, errors = regard("train", copy / run / "recipe.toml", "--run", copy / "again")
        assert code == 0, errors
        assert (copy / "again" / "model.safetensors").read_bytes() == (copy / run / "model.safetensors").read_bytes()
        shutil.rmtree(copy / "again")


def test_its_own_settings_hold_when_a_recipe_starts_from_the_parent_again(regard, copy):
    tune(copy / "gpt", copy / "c.txt", copy / "dropped", "--model.dropout", "0.25")
    code, _, errors = regard("train", copy / "dropped" / "recipe.toml", "--run", copy / "again")
    assert code == 0, errors
    assert tomllib.loads((copy / "again" / "recipe.toml").read_text(encoding="utf-8"))["model"]["dropout"] == 0.25


def test_a_recipe_whose_parent_is_gone_or_another_is_refused(regard, copy):
    recipe, again = copy / "lstm-c" / "recipe.toml", copy / "again"
    (copy / "lstm").rename(copy / "elsewhere")
    code, _, errors = regard("train", recipe, "--run", again)
    assert code == 2
    assert f"starts from the run {copy / 'lstm'}, which is missing" in errors
    main(["train", "lstm", "--data", f"{copy}/p.txt", "--run", f"{copy}/lstm", "--seed", "5", *TEXT])
    for more in ([], ["--from", copy / "lstm"]):
        code, _, errors = regard("train", recipe, "--run", again, *more)
        assert code == 2
        assert f"{copy / 'lstm'} is not the run that this recipe starts from" in errors
        assert not again.exists()
    code, _, errors = regard("train", recipe, "--run", again, "--from", copy / "elsewhere")
    assert code == 0, errors
    assert (again / "model.safetensors").read_bytes() == (copy / "lstm-c" / "model.safetensors").read_bytes()


def test_a_printed_recipe_starts_from_the_same_run(regard, copy):
    words = ["--from", copy / "lstm", "--data", copy / "c.txt", "--training.steps", "1"]
    printed = write(copy / "printed.toml", regard("train", *words, "--print-recipe")[1].splitlines())
    code, _, errors = regard("train", printed, "--run", copy / "again")
    assert code == 0, errors
    assert (copy / "again" / "model.safetensors").read_bytes() == (copy / "lstm-c" / "model.safetensors").read_bytes()


def test_what_the_ancestors_read_is_known_when_they_and_their_text_are_gone(regard, copy):
    for name in ("lstm", "lstm-c"):
        shutil.rmtree(copy / name)
    whole = ["--data", (copy / "p.txt").rename(copy / "asked.txt"), "--split", "all"]
    assert seen(regard, copy / "lstm-g", *whole)["share_seen_in_training"] > 0.8


def test_a_child_of_an_imported_run_does_not_know(regard, copy):
    for words in (
        ["export", copy / "gpt", "--to", "huggingface", "--out", copy / "hf"],
        ["import", copy / "hf", "--run", copy / "imported"],
    ):
        code, _, errors = regard(*words)
        assert code == 0, errors
    tuned = ["train", "--from", copy / "imported", "--data", copy / "c.txt", "--training.steps", "1"]
    code, _, errors = regard(*tuned, "--run", copy / "child")
    assert code == 0, errors
    assert (
        "may have been trained on, since it is unknown what imported, from which it started, was trained on" in errors
    )
    tune(copy / "child", copy / "g.txt", copy / "grandchild")
    for run in ("imported", "child", "grandchild"):
        found = seen(regard, copy / run, "--data", copy / "p.txt", "--split", "all")
        assert found["seen_in_training"].startswith("unknown: ")
        assert found["share_seen_in_training"] is None
    found = seen(regard, copy / "grandchild", "--data", copy / "c.txt", "--split", "all")
    assert re.search(r"^unknown: .*; at least 4\d of 50 lines", found["seen_in_training"])


def test_a_parent_whose_text_is_gone_leaves_its_lines_unknown(regard, copy):
    (copy / "p.txt").rename(copy / "moved.txt")
    tune(copy / "lstm", copy / "c.txt", copy / "child")
    found = seen(regard, copy / "child", "--data", copy / "moved.txt", "--split", "all")
    assert found["seen_in_training"].startswith("unknown: what lstm, from which it started, was trained on")
    facts = json.loads((copy / "child" / "run.json").read_text(encoding="utf-8"))
    assert str(copy) not in json.dumps([facts["ancestors"], facts["corpus"]])  # a record travels without this path


def test_held_out_lines_that_the_parent_was_trained_on_are_reported(regard, copy):
    """The parent's text, cut otherwise: what is now test was trained on before."""
    text = (copy / "p.txt").read_text(encoding="utf-8").splitlines()
    write(copy / "cut" / "train.txt", text[20:])
    write(copy / "cut" / "valid.txt", lines(8, 10))
    write(copy / "cut" / "test.txt", text[:20])
    tuned = ["train", "--from", copy / "lstm", "--data", copy / "cut", "--run", copy / "leaky", "--training.steps", "1"]
    code, _, errors = regard(*tuned)
    assert code == 0, errors
    count = int(re.search(r"(\d+) of 20 lines of test \(.* are not held out: lstm", errors)[1])
    assert count > 10
    assert "lines of valid" not in errors
    found = seen(regard, copy / "leaky")
    assert found["seen_in_training"].startswith(f"{count} of 20 lines")
    assert f"{count} of 20 lines of test" in (copy / "leaky" / "report.html").read_text(encoding="utf-8")
    main(["train", "--from", str(copy / "lstm"), "--data", f"{copy}/p.txt", "--run", f"{copy}/same"])
    assert seen(regard, copy / "same")["share_seen_in_training"] == 0  # drawn by hash, so the same lines are held out


def test_an_archive_and_a_new_name_keep_the_record(regard, copy, tmp_path):
    code, _, errors = regard("runs", "rename", copy / "lstm-g", "renamed")
    assert code == 0, errors
    for words in (
        ["export", copy / "renamed", "--to", "archive", "--out", tmp_path / "g.zip"],
        ["import", tmp_path / "g.zip", "--run", tmp_path / "imported"],
    ):
        code, _, errors = regard(*words)
        assert code == 0, errors
    facts = (json.loads((run / "run.json").read_text("utf-8")) for run in (copy / "renamed", tmp_path / "imported"))
    assert len({json.dumps(one["ancestors"]) for one in facts}) == 1
    assert "copy" not in (tmp_path / "imported" / "recipe.toml").read_text(encoding="utf-8")
    shutil.copy(copy / "g.txt", tmp_path / "imported")
    whole = ["--data", copy / "p.txt", "--split", "all"]
    assert seen(regard, tmp_path / "imported", *whole)["share_seen_in_training"] > 0.8
    shutil.copytree(copy / "lstm-c", tmp_path / "lstm-c")  # beside the run, where its recipe looks for it
    code, _, errors = regard("train", tmp_path / "imported" / "recipe.toml", "--run", tmp_path / "again")
    assert code == 0, errors


def test_a_stopped_child_resumes_without_its_parent_and_is_removed_whole(regard, copy):
    shutil.rmtree(copy / "lstm")
    assert regard("resume", copy / "lstm-c")[0] == 0
    assert regard("runs", "remove", copy / "lstm-c", "--yes")[0] == 0
    assert not (copy / "lstm-c").exists()


@pytest.mark.parametrize("section", ['from = "lstm"', "[from]", "[from]\nrun = 3", '[from]\nrun = "x"\nmore = "y"'])
def test_a_wrong_from_section_is_one_sentence(regard, tmp_path, section):
    recipe = write(tmp_path / "mine.toml", ['system = "lstm"', section])
    code, _, errors = regard("train", recipe, "--run", tmp_path / "x")
    assert code == 2
    assert "[from] must have two settings" in errors


def test_from_is_not_a_setting(regard, tmp_path):
    code, _, errors = regard("train", "lstm", "--from.run", "x", "--run", tmp_path / "x")
    assert code == 2
    assert "--from RUN" in errors
