"""Files that are not what was written: a run is refused with the file's name, a cache is made again."""

import json
import shutil

import numpy as np
import pytest

from regard.base.errors import RegardError
from regard.training.checkpoint import load_tensors

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
    assert "tokenizer.source.json does not belong there" in wrong("evaluate", run)
    (run / "tokenizer.source.json").unlink()
    (run / "tokenizer.json").unlink()
    assert "tokenizer.json is missing" in wrong("evaluate", run)


def test_runs_of_an_older_version_still_open(run, regard):
    facts = json.loads((run / "run.json").read_text())
    del facts["files"], facts["recipe"]
    (run / "run.json").write_text(json.dumps(facts))
    assert regard("evaluate", run)[0] == 0


@pytest.mark.parametrize("change, said", [
    (("width = 32", "width = 16"), "model.width was 32 and is 16"),
    (("seed = 1", "seed = 2"), "training.seed was 1 and is 2"),
    (("steps = 30", "steps = 60"), "training.steps was 30 and is 60"),
    (('size = "tiny"', 'size = "small"'), "size was 'tiny' and is 'small'"),
    (('system = "lstm"', 'system = "gru"'), "gru has no setting model."),
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
