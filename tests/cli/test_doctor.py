"""`regard doctor`: what it says of this machine, also where the faster code is hidden, and what it deletes."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from regard.fast import on_this_machine

OLD, NEW = "0" * 32, "a" * 32
HIDE = "import sys; sys.modules['regard.fast'] = None; from regard.cli import main; main(['doctor', *sys.argv[1:]])"


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path))
    (tmp_path / "tokens").mkdir()
    for name, days in ((OLD, 40), (NEW, 2)):
        for suffix in (".npy", ".json"):
            file = tmp_path / "tokens" / f"{name}{suffix}"
            file.write_bytes(b"x" * 1000)
            then = file.stat().st_mtime - days * 86_400
            os.utime(file, (then, then))
    (tmp_path / "own-code.txt").write_text("not to be touched")
    return tmp_path


def test_the_table_of_faster_code_is_this_machines(regard, cache):
    code, out, _ = regard("doctor", "--device", "cpu", "--json")
    facts = json.loads(out)
    assert code == 0
    assert facts["machine"]["torch"] == torch.__version__
    assert {row["name"]: row["why_not"] for row in facts["faster_code"]} == {
        row.name: why for row, why in on_this_machine(torch.device("cpu"))
    }
    assert all(row["runs"] == (row["why_not"] is None) for row in facts["faster_code"])
    sizes = {part["part"]: part["bytes"] for part in facts["cache"]["parts"]}
    assert sizes == {"tokens": 4000, "own-code.txt": 17}


def test_people_read_tables(regard, cache):
    code, out, _ = regard("doctor", "--device", "cpu")
    assert code == 0
    for said in (str(cache), "it needs a CUDA device", "optional package", "pip install", "4 "):
        assert said in out


def test_without_the_faster_code_it_says_that_everything_runs_as_written(cache):
    done = subprocess.run([sys.executable, "-c", HIDE], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "everything runs on the reference implementation" in done.stdout


def test_only_old_tokens_are_deleted(regard, cache):
    code, _, errors = regard("doctor", "--prune", "30")
    assert code == 0
    assert "Deleted the tokens of 1 text older than 30 days" in errors
    left = {path.name for path in cache.rglob("*") if path.is_file()}
    assert left == {f"{NEW}.npy", f"{NEW}.json", "own-code.txt"}


def test_what_was_kept_of_a_corpus_grows_old_with_its_tokens(regard, cache):
    kept = [
        cache / "tokens" / f"{name}.{what}"
        for name in (OLD, NEW)
        for what in ("pairs", "tokenizer", "overlap", "split")
    ]
    for file in kept:
        file.write_bytes(b"x" * 100)
        then = (cache / "tokens" / f"{file.stem}.npy").stat().st_mtime
        os.utime(file, (then, then))
    assert "Deleted the tokens of 2 texts older than 30 days" in regard("doctor", "--prune", "30")[2]
    assert [file for file in kept if file.exists()] == kept[4:]


def test_a_part_of_the_cache_is_deleted_only_after_asking(regard, wrong, cache, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "precious").touch()
    (cache / "claims" / "results").mkdir(parents=True)
    (cache / "claims" / "results" / "hull-0123456789abcdef.json").write_text("x")
    (cache / "data").symlink_to(elsewhere, target_is_directory=True)
    assert "add --yes" in wrong("doctor", "--clear", "claims")
    assert (cache / "claims").exists()
    code, _, errors = regard("doctor", "--clear", "claims", "--yes")
    assert code == 0
    assert "Deleted" in errors
    assert not (cache / "claims").exists()
    assert "is a symbolic link" in wrong("doctor", "--clear", "data", "--yes")
    assert (elsewhere / "precious").exists()
    assert "nothing to delete" in regard("doctor", "--clear", "lists", "--yes")[2]
    assert "must be one of" in wrong("doctor", "--clear", "own-code.txt", "--yes")
    assert (cache / "own-code.txt").exists()


FILES = {  # of each part: what Regard writes there, and what it does not
    "tokens": (
        [
            f"{{h}}.{what}"
            for what in ("npy", "json", "lock", "part", "pairs", "tokenizer", "overlap", "split", "unseen", "digest")
        ]
        + [".{h}.json.01234567.part", ".{h}.pairs.lock", ".{h}.overlap.01234567.part"],
        ["weights.npy", "a/{h}.npy", "my.pairs", "{h}.tokenizer.json"],
    ),
    "data": (["enwik8/enwik8", ".enwik8.lock"], ["thesis.txt", "enwik8/notes.txt", "photos/enwik8"]),
    "phrasebook": (["20000-15-0123456789abcdef.json", ".20000-15-0123456789abcdef.json.lock"], ["mine.json"]),
    "lists": (["lines-0123456789ab.txt", "pairs-0123456789ab.jsonl"], ["lines.txt", "pairs-mine.jsonl"]),
    "back-translation": (["{h}.tsv"], ["mine.tsv"]),
    "ctranslate2": (["{h}/model.bin", "{h}/shared_vocabulary.json", ".lock"], ["mine/model.bin", "{h}/notes.txt"]),
    "claims": (
        ["results/hull-0123456789abcdef.json", "data/copy-0123456789ab/train.tsv", "models/.gpt-0123456789abcdef.lock"]
        + [f"models/gpt-0123456789abcdef/{name}" for name in ("run.json", "done.json", "kept/00000001.safetensors")],
        ["results/mine.json", "data/mine/train.tsv", "models/gpt-0123456789abcdef/mine.txt"],
    ),
}


@pytest.mark.parametrize("part", FILES)
def test_a_strangers_files_in_the_cache_stay_and_are_named(regard, cache, tmp_path_factory, part):
    shutil.rmtree(cache / "tokens")
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "precious").touch()
    own, other = ([cache / part / name.format(h="0" * 32) for name in names] for names in FILES[part])
    for file in (*own, *other):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("x")
        os.utime(file, (0, 0))
    (cache / part / "link").symlink_to(elsewhere, target_is_directory=True)
    if part == "tokens":
        errors = regard("doctor", "--prune", "1")[2]
        assert str(other[0]) in errors
        assert all(file.exists() for file in other)
    code, _, errors = regard("doctor", "--clear", part, "--yes")
    assert code == 0
    assert {path for path in cache.rglob("*") if path.is_file()} == {*other, cache / "own-code.txt"}
    assert all(str(file) in errors for file in other)
    assert (elsewhere / "precious").exists()


def test_what_it_cannot_do_is_one_sentence(wrong, cache):
    assert "--prune must be at least 0" in wrong("doctor", "--prune", "-1")
    assert "not available" in wrong("doctor", "--device", "toaster")


def test_it_works_where_there_is_no_cache_yet(regard, tmp_path, monkeypatch):
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "nowhere"))
    assert regard("doctor", "--prune", "1")[0] == 0
    assert not Path(tmp_path / "nowhere").exists()
