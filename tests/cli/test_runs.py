"""`regard runs`: what it lists, what it compares, and what it never touches."""

import errno
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from regard.base.digests import DIGEST, with_digest
from regard.base.locks import is_locked, try_lock
from regard.runs.store.history import read_metrics


@pytest.fixture
def shelf(trained, tmp_path, monkeypatch):
    """A folder of runs: two finished, one counted, and a comparison's."""
    monkeypatch.chdir(tmp_path)
    for system in ("lstm", "gpt", "ngram"):
        shutil.copytree(trained[system], tmp_path / "runs" / system)
    return tmp_path / "runs"


def listed(regard, *words):
    code, out, errors = regard("runs", *words, "--json")
    assert code == 0, errors
    return {row["run"]: row for row in json.loads(out)}


def test_a_list_says_what_each_run_is_and_its_best_validation(regard, shelf):
    rows = listed(regard)
    assert set(rows) == {"runs/lstm", "runs/gpt", "runs/ngram"}
    row, facts = rows["runs/lstm"], json.loads((shelf / "lstm" / "run.json").read_text())
    checked = [entry for entry in read_metrics(shelf / "lstm" / "metrics.jsonl") if entry.get("split") == "valid"]
    best = min(checked, key=lambda entry: entry["loss"])
    assert row["system"] == "lstm"
    assert row["data"] == "my.txt"
    assert row["state"] == "done"
    assert row["parameters"] == facts["parameters"]
    assert row["best"] == pytest.approx(best["perplexity"])
    assert (row["measure"], row["best_step"], row["step"]) == ("perplexity", best["step"], 30)
    assert row["bytes"] == sum(path.stat().st_size for path in (shelf / "lstm").rglob("*") if path.is_file())
    assert rows["runs/ngram"]["state"] == "done"
    _, out, _ = regard("runs", shelf)
    assert "best validation" in out
    assert "perplexity" in out


def test_runs_are_found_below_and_hidden_folders_and_loops_are_not_entered(regard, shelf):
    (shelf / "compare-my" / "deep").mkdir(parents=True)
    shutil.move(shelf / "gpt", shelf / "compare-my" / "gpt")
    (shelf / "loop").symlink_to(shelf, target_is_directory=True)
    shutil.copytree(shelf / "lstm", shelf / ".hidden" / "lstm")
    assert set(listed(regard)) == {"runs/lstm", "runs/ngram", "runs/compare-my/gpt"}
    assert set(listed(regard, "runs/lstm")) == {"runs/lstm"}


def test_every_state_is_told(regard, shelf, text_file, process):
    words = ["train", "lstm", "--data", text_file, "--run", shelf / "killed", "--size", "tiny"]
    training = process(*words, "--training.steps", "100000", "--training.checkpoint-every", "1")
    while not (shelf / "killed" / "run.json").exists():
        assert training.poll() is None, training.stderr.read()
        time.sleep(0.02)
    assert listed(regard)["runs/killed"]["state"] == "running"
    assert "still training" in regard("runs", "remove", "runs/killed", "--yes")[2]
    assert "Another process" in regard("runs", "rename", "runs/killed", "other")[2]
    training.send_signal(signal.SIGKILL)
    training.communicate()
    assert listed(regard)["runs/killed"]["state"] == "stopped"

    (shelf / "lstm" / "run.json").write_text("{")
    with open(shelf / "gpt" / "model.safetensors", "r+b") as file:
        file.truncate(1000)
    (shelf / "ngram" / "recipe.toml").unlink()
    (shelf / "begun").mkdir()
    (shelf / "begun" / ".beginning").touch()
    rows = listed(regard)
    assert {name: row["state"] for name, row in rows.items()} == {
        "runs/killed": "stopped",
        "runs/lstm": "damaged",
        "runs/gpt": "damaged",
        "runs/ngram": "damaged",
        "runs/begun": "not begun",
    }
    assert "run.json is damaged" in rows["runs/lstm"]["why"]
    assert "truncated" in rows["runs/gpt"]["why"]
    _, out, _ = regard("runs")
    assert "recipe.toml is missing" in out
    assert "not begun: runs/begun is not a run yet: its training ended before the first step" in " ".join(out.split())


def test_a_hundred_runs_are_listed_without_torch_and_without_their_weights(shelf):
    """A file of 64 GiB, of which the disk holds only the header, is listed like any other."""
    size = 64 << 30
    header = json.dumps({"w": {"dtype": "F32", "shape": [size // 4], "data_offsets": [0, size]}}).encode()
    with open(shelf / "lstm" / "model.safetensors", "wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        file.truncate(8 + len(header) + size)
    for number in range(100):
        shutil.copytree(shelf / "ngram", shelf / f"n{number}")
    code = (
        "import sys\nfrom regard.cli import main\nmain(['runs', '--json'])\n"
        "assert 'torch' not in sys.modules, 'torch was loaded'\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert len(rows) == 103
    assert {row["state"] for row in rows} == {"done"}


def test_listing_does_not_keep_a_training_from_beginning(shelf):
    lock = shelf / "lstm" / ".lock"
    assert not is_locked(lock)
    with try_lock(lock):
        assert is_locked(lock)
    assert not is_locked(lock)
    assert not is_locked(shelf / "nowhere" / ".lock")
    assert not (shelf / "nowhere").exists()


def test_a_comparison_shows_figures_and_only_the_settings_that_differ(regard, shelf):
    code, out, _ = regard("runs", "compare", "runs/lstm", "runs/gpt", "--json")
    assert code == 0
    found = json.loads(out)
    assert found["settings"]["system"] == ["lstm", "gpt"]
    assert "model.width" not in found["settings"]
    assert found["settings"]["model.heads"][0] is None
    assert found["figures"]["step"] == [30, 30]
    assert found["note"] == ""
    _, out, _ = regard("runs", "compare", "runs/lstm", "runs/gpt", "runs/ngram")
    assert "best validation" in out
    assert "Only one of the runs has" in out
    shutil.copytree(shelf / "lstm", shelf / "twin")
    assert "All settings are identical." in regard("runs", "compare", "runs/lstm", "runs/twin")[1]


def test_figures_that_cannot_be_compared_are_said_to_be(regard, shelf):
    facts = json.loads((shelf / "gpt" / "run.json").read_text())
    facts.pop(DIGEST)  # of what stood there before
    (shelf / "gpt" / "run.json").write_text(json.dumps(with_digest(facts | {"files": {"tokenizer.json": "another"}})))
    assert "tokenizers differ" in regard("runs", "compare", "runs/lstm", "runs/gpt")[1]
    (shelf / "gpt" / "run.json").write_text(json.dumps(with_digest(facts | {"corpus": {"name": "x", "checksum": "y"}})))
    assert "different data" in regard("runs", "compare", "runs/lstm", "runs/gpt")[1]


def test_a_renamed_run_is_the_same_run(regard, shelf, text_file):
    before = regard("evaluate", "runs/lstm", "--data", text_file, "--json")[1]
    assert regard("runs", "rename", "runs/lstm", "mine") == (0, "runs/mine\n", "")
    after = regard("evaluate", "runs/mine", "--data", text_file, "--json")[1]
    assert json.loads(after)["perplexity"] == json.loads(before)["perplexity"]
    assert not (shelf / "lstm").exists()


def test_a_name_that_is_taken_or_none_is_refused(wrong, shelf):
    assert "already exists" in wrong("runs", "rename", "runs/lstm", "gpt")
    for name in ("a/b", "..", ".hidden", "", "a\nb"):
        assert "is not a valid name" in wrong("runs", "rename", "runs/lstm", name)
    (shelf / "comparison.json").write_text("{}")
    assert "comparison" in wrong("runs", "rename", "runs/lstm", "mine")
    assert (shelf / "lstm" / "run.json").exists()


def test_removal_takes_only_what_regard_wrote(regard, shelf, tmp_path):
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "00000001.safetensors").write_text("mine")
    (shelf / "lstm" / "kept").symlink_to(precious, target_is_directory=True)
    (shelf / "lstm" / "notes.txt").write_text("mine")
    shutil.copytree(shelf / "gpt", shelf / "lstm" / "inner")
    code, out, errors = regard("runs", "remove", "runs/lstm", "runs/ngram", "--yes")
    assert (code, out) == (0, "runs/lstm\nruns/ngram\n")
    assert "runs/lstm/inner, runs/lstm/kept, runs/lstm/notes.txt" in errors
    assert (precious / "00000001.safetensors").read_text() == "mine"
    assert sorted(path.name for path in (shelf / "lstm").iterdir()) == ["inner", "kept", "notes.txt"]
    assert not (shelf / "ngram").exists()
    assert set(listed(regard)) == {"runs/gpt", "runs/lstm/inner"}


def test_what_is_not_a_run_or_a_link_to_one_is_refused_before_anything_is_removed(wrong, shelf, tmp_path):
    (shelf / "link").symlink_to(shelf / "gpt", target_is_directory=True)
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").touch()
    assert "is a symbolic link" in wrong("runs", "remove", "runs/lstm", "runs/link", "--yes")
    assert "is not a run" in wrong("runs", "remove", "runs/lstm", "photos", "--yes")
    assert "is not a run" in wrong("runs", "remove", "runs", "--yes")
    assert "There is no run" in wrong("runs", "remove", "runs/nothing", "--yes")
    assert "add --yes" in wrong("runs", "remove", "runs/lstm")
    assert "Name the runs" in wrong("runs", "remove")
    assert (shelf / "lstm" / "run.json").exists()
    assert (tmp_path / "photos" / "cat.jpg").exists()


@pytest.mark.parametrize("stays", [".lock", "run.json"])
def test_a_removal_that_a_broken_disk_cut_short_can_be_made_again(regard, wrong, shelf, monkeypatch, stays):
    unlink = Path.unlink

    def broken(path, missing_ok=False):
        if path.name == stays:
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        unlink(path, missing_ok)

    with monkeypatch.context() as disk:
        disk.setattr(Path, "unlink", broken)
        assert os.strerror(errno.EIO) in wrong("runs", "remove", "runs/lstm", "--yes")
    assert stays in [path.name for path in (shelf / "lstm").iterdir()]
    assert regard("runs", "remove", "runs/lstm", "--yes")[0] == 0
    assert not (shelf / "lstm").exists()


def test_a_damaged_run_can_be_removed(regard, shelf):
    (shelf / "lstm" / "run.json").unlink()
    (shelf / "gpt" / "run.json").write_text("{")
    assert regard("runs", "remove", "runs/lstm", "runs/gpt", "--yes")[0] == 0
    assert not (shelf / "lstm").exists()
    assert not (shelf / "gpt").exists()


@pytest.mark.parametrize("files", [
    {"run.json": '{"name": "my marathon"}', "result.json": "{}"},
    {"run.json": "{}", "recipe.toml": 'system = "lstm"\n[data]\n[training]\n'},
    {"run.json": '{"format": 1}'},
    {"run.json": "not JSON"},
    {"recipe.toml": 'soup = "leek"', "model.safetensors": "mine"},
    {"recipe.toml": 'system = "steam"\n[data]\n[training]\n', "model.safetensors": "mine"},
    {".beginning": "of my novel", "metrics.jsonl": "mine"},
])  # fmt: skip
def test_a_strangers_files_with_the_names_of_a_run_are_not_removed(wrong, shelf, tmp_path, files):
    (tmp_path / "mine").mkdir()
    for name, content in files.items():
        (tmp_path / "mine" / name).write_text(content)
    assert "were not written by Regard" in wrong("runs", "remove", "runs/lstm", "mine", "--yes")
    assert {path.name: path.read_text() for path in (tmp_path / "mine").iterdir()} == files
    assert (shelf / "lstm").exists()


def test_only_weights_named_by_their_step_and_the_recorded_code_are_removed(regard, shelf):
    run = shelf / "lstm"
    for folder in ("kept", "snapshots"):
        (run / folder).mkdir(exist_ok=True)
        for name in ("00000001.safetensors", "mine.safetensors"):
            (run / folder / name).write_text("x")
    facts = json.loads((run / "run.json").read_text())
    for name in ("copy.py", "changed.py"):
        (run / name).write_text("class Mine: ...")
    facts.pop(DIGEST)
    facts["code"] = {"file": "copy.py", "sha256": hashlib.sha256(b"class Mine: ...").hexdigest()}
    (run / "run.json").write_text(json.dumps(with_digest(facts)))
    code, _, errors = regard("runs", "remove", "runs/lstm", "--yes")
    assert code == 0
    assert "runs/lstm/changed.py, runs/lstm/kept/mine.safetensors, runs/lstm/snapshots/mine.safetensors" in errors
    left = {str(path.relative_to(run)) for path in run.rglob("*") if path.is_file()}
    assert left == {"changed.py", "kept/mine.safetensors", "snapshots/mine.safetensors"}


def test_a_copy_of_code_that_was_changed_stays(regard, shelf):
    run = shelf / "gpt"
    facts = json.loads((run / "run.json").read_text())
    facts.pop(DIGEST)
    (run / "run.json").write_text(json.dumps(with_digest(facts | {"code": {"file": "mine.py", "sha256": "0" * 64}})))
    (run / "mine.py").write_text("work of a week")
    assert "runs/gpt/mine.py" in regard("runs", "remove", "runs/gpt", "--yes")[2]
    assert (run / "mine.py").read_text() == "work of a week"


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no pseudo-terminals")
@pytest.mark.parametrize("answer, goes", [("y", True), ("n", False), ("", False)])
def test_on_a_terminal_it_asks(shelf, answer, goes):
    import pty

    ours, theirs = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-m", "regard", "runs", "remove", "runs/lstm"], stdin=theirs, stderr=subprocess.PIPE, text=True
    )
    os.close(theirs)
    os.write(ours, f"{answer}\n".encode())
    _, errors = child.communicate()
    os.close(ours)
    assert child.returncode == 0
    assert "Remove runs/lstm (" in errors
    assert (shelf / "lstm").exists() is not goes


def test_a_misspelt_command_is_not_taken_for_a_folder_in_silence(wrong, shelf):
    assert "did you mean remove?" in wrong("runs", "remvoe")
    assert "There is no folder elsewhere" in wrong("runs", "elsewhere")
    assert "two runs" in wrong("runs", "compare", "runs/lstm")
    assert "There is no run" in wrong("runs", "compare", "runs/lstm", "runs/nothing")
