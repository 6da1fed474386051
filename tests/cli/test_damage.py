"""Files that are not what was written: a run is refused with the file's name, a cache is made again."""

import json
import random
import re
import shutil

import numpy as np
import pytest

from regard.base.errors import RegardError
from regard.runs.store.facts import read_facts
from regard.runs.store.folder import MAY_CHANGE, MAY_MOVE, open_recipe
from regard.text.tokenizers import tokens
from regard.training.checkpoint import load_tensors
from regard.training.metrics import sound_metrics

SHORT = ["--size", "tiny", "--data.tokenizer", "char", "--training.batch-tokens", "256", "--training.threads", "1"]
SHORT += ["--model.width", "16", "--training.steps", "4", "--training.evaluate-every", "2"]


@pytest.fixture
def run(trained, tmp_path):
    return shutil.copytree(trained["lstm"], tmp_path / "run")


def flip(path, position):
    content = bytearray(path.read_bytes())
    content[position] ^= 0x10
    path.write_bytes(content)


def test_no_changed_byte_of_the_weights_goes_unnoticed(run):
    path = run / "model.safetensors"
    whole = path.read_bytes()
    for position in np.linspace(0, len(whole) - 1, 60).astype(int):
        flip(path, position)
        with pytest.raises(RegardError, match=r"model\.safetensors"):
            load_tensors(path)
        path.write_bytes(whole)
    load_tensors(path)


def flips(path, every=1):
    """A byte changed in some of its bits, one after the other; the file is whole again afterwards."""
    whole = path.read_bytes()
    draw = random.Random(1)
    for position in range(0, len(whole), every):
        byte = whole[position]
        changed = bytes([byte ^ draw.randrange(1, 256)])
        path.write_bytes(whole[:position] + changed + whole[position + 1 :])
        yield position, byte, changed
    path.write_bytes(whole)


def attempt(read, run):
    """What is read, or None and why it was refused."""
    try:
        return read(run), ""
    except RegardError as error:
        return None, str(error)


def test_no_changed_byte_of_the_facts_goes_unnoticed(run):
    """Blanks between entries mean nothing; whatever else is changed is refused or leaves the facts as they were."""
    path, whole = run / "run.json", read_facts(run)
    refused = 0
    for _ in flips(path, 3):
        found, said = attempt(read_facts, run)
        assert found == whole or "run.json" in said or "was written by Regard" in said
        refused += bool(said)
    assert refused > 0.3 * len(path.read_text().replace(" ", ""))


def test_no_changed_byte_of_the_learning_curve_goes_unnoticed(run, wrong):
    path = run / "metrics.jsonl"
    whole = sound_metrics(path)
    assert whole[0][-1]["step"] == 30
    assert whole[1] is None
    for position, byte, changed in flips(path):
        entries, damaged = sound_metrics(path)
        same = entries == whole[0] and changed in b"\n "  # the last line end
        assert damaged is not None or same, (position, byte, changed)
    flip(path, 20)
    assert "metrics.jsonl is damaged on line 1" in wrong("resume", run)


def test_a_changed_byte_of_the_recipe_is_refused_by_name_or_changes_nothing(run):
    path, whole = run / "recipe.toml", open_recipe(run)
    free = {f"training.{name}" for name in MAY_CHANGE} | {f"data.{name}" for name in MAY_MOVE}
    for position, *_ in flips(path, 3):
        recipe, said = attempt(open_recipe, run)
        if recipe is None:
            assert "recipe.toml" in said, position
            continue
        found, made = recipe.tree(), whole.tree()
        different = {
            f"{part}.{name}" for part in ("data", "model", "training") for name, value in found[part].items()
            if value != made[part][name]
        }  # fmt: skip
        assert different <= free
        assert {**found, "data": 0, "training": 0} == {**made, "data": 0, "training": 0}


def test_the_learning_curve_of_an_older_run_is_read_and_goes_on(run, regard):
    path = run / "metrics.jsonl"
    path.write_text(re.sub(r', "crc32": "\w+"', "", path.read_text()))
    entries, damaged = sound_metrics(path)
    assert (entries[-1]["step"], damaged) == (30, None)
    assert regard("resume", run)[0] == 0


@pytest.mark.parametrize("verb, name", [
    ("evaluate", "model.safetensors"), ("evaluate", "tokenizer.json"), ("resume", "training.safetensors"),
    ("resume", "tokenizer.json"),
])  # fmt: skip
def test_a_damaged_run_is_refused_with_the_files_name(run, wrong, verb, name):
    path = run / name
    flip(path, len(path.read_bytes()) * 2 // 3)
    assert str(path) in wrong(verb, run)


def test_a_tokenizer_more_or_less_is_refused(run, wrong):
    shutil.copy(run / "tokenizer.json", run / "tokenizer.source.json")
    assert "tokenizer.source.json does not belong in this folder" in wrong("evaluate", run)
    (run / "tokenizer.source.json").unlink()
    (run / "tokenizer.json").unlink()
    assert "tokenizer.json is missing" in wrong("evaluate", run)


def test_a_run_without_a_digest_is_refused_in_one_sentence(run, wrong):
    facts = json.loads((run / "run.json").read_text())
    del facts["blake2b"]
    (run / "run.json").write_text(json.dumps(facts))
    assert f"{run / 'run.json'} has no digest: it was written by an older version of Regard" in wrong("evaluate", run)


@pytest.mark.parametrize("change, said", [
    (("width = 32", "width = 16"), "model.width was 32 and is now 16"),
    (("seed = 1", "seed = 2"), "training.seed was 1 and is now 2"),
    (("steps = 30", "steps = 60"), "training.steps was 30 and is now 60"),
    (('size = "tiny"', 'size = "small"'), "size was 'tiny' and is now 'small'"),
    (('system = "lstm"', 'system = "gru"'), "recipe.toml is damaged or has been modified: gru has no setting model."),
    (("\nthreads = 1", "\nthreads = 2"), None),
])  # fmt: skip
def test_a_recipe_is_changed_in_the_file_as_little_as_on_the_command_line(run, wrong, regard, change, said):
    path = run / "recipe.toml"
    text = path.read_text()
    assert change[0] in text
    path.write_text(text.replace(*change))
    if said is None:
        assert regard("resume", run)[0] == 0
    else:
        for verb in ("resume", "evaluate"):
            assert said in wrong(verb, run)


def test_two_equal_runs_are_equal_files(regard, text_file, tmp_path):
    for system, settings in (("lstm", SHORT), ("ngram", [])):
        runs = [tmp_path / f"{system}{number}" for number in (1, 2)]
        for folder in runs:
            assert regard("train", system, "--data", text_file, "--run", folder, *settings)[0] == 0
        for name in ("model.safetensors", "tokenizer.json", "recipe.toml"):
            assert (runs[0] / name).read_bytes() == (runs[1] / name).read_bytes()


def test_a_damaged_cache_is_made_again(trained, regard, monkeypatch, tmp_path):
    def numbers():
        code, out, errors = regard("evaluate", trained["lstm"], "--json")
        assert code == 0, errors
        return {key: value for key, value in json.loads(out).items() if "second" not in key}

    monkeypatch.setenv("REGARD_CACHE", str(tmp_path))
    whole = numbers()
    (array,) = (tmp_path / "tokens").glob("*.npy")
    for path in (array, array.with_suffix(".json")):
        content = path.read_bytes()
        changed = content.replace(b"1", b"2")
        for damaged in (b"", content[:-1], content[: len(content) // 2], changed, content[:-1] + b"\xff"):
            path.write_bytes(damaged)
            assert numbers() == whole
            assert path.read_bytes() == content


def test_without_a_cache_that_can_be_written_evaluation_goes_on(trained, regard, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "file" / "cache"))
    tokens._scratch.cache_clear()  # a process notes this once
    code, out, errors = regard("evaluate", trained["ngram"], "--json")
    assert code == 0, errors
    assert json.loads(out)["perplexity"] > 1
    assert "cannot be written" in errors
    assert "REGARD_CACHE" in errors
