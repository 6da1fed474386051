"""`regard compare --on`: submitit's local executor and a Ray cluster of this machine give the table of a local run."""

import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import redirect_stdout

import pytest

from interrupted import step_of, wait_for_step
from regard.cli import main
from regard.comparison import elsewhere
from regard.comparison.elsewhere import Child

SMALL = [
    "--size", "tiny", "--data.tokenizer", "char", "--model.width", "16", "--training.threads", "1",
    "--training.batch-tokens", "256", "--training.device", "cpu",
]  # fmt: skip
MEASURED = ("second", "memory")  # in the names of what depends on the machine and its load


def numbers(out):
    """What the table says, without speeds, times and memory."""
    return [{key: row[key] for key in row if not any(word in key for word in MEASURED)} for row in json.loads(out)]


def question(text_file, folder, *more):
    return [
        "compare",
        "lstm",
        "--data",
        text_file,
        "--budget",
        "2k",
        "--seeds",
        "1",
        *SMALL,
        "--run",
        folder,
        "--json",
        *more,
    ]


@pytest.fixture(scope="module")
def here(tmp_path_factory, text_file):
    """The rows of a local comparison."""
    folder = tmp_path_factory.mktemp("here")
    with redirect_stdout(io.StringIO()) as out:
        main([*map(str, question(text_file, folder / "c"))])
    return numbers(out.getvalue())


@pytest.fixture
def local_executor(monkeypatch):
    """Submitit with processes of this machine instead of Slurm's jobs."""
    pytest.importorskip("submitit", reason="submitit is not installed: pip install 'regard[slurm]'")
    monkeypatch.setattr(elsewhere, "CLUSTER", "local")


@pytest.mark.slow
def test_jobs_of_submitit_give_the_local_table(regard, here, text_file, tmp_path, local_executor):
    code, out, errors = regard(*question(text_file, tmp_path / "c", "--on", "slurm:partition=gpu,time=5"))
    assert code == 0, errors
    assert numbers(out) == here
    assert list((tmp_path / "c" / "slurm").glob("*_log.out"))
    code, out, errors = regard(*question(text_file, tmp_path / "c", "--on", "slurm"))
    assert "nothing is left to do" in errors
    assert numbers(out) == here


@pytest.mark.slow
def test_tasks_of_ray_give_the_local_table(here, text_file, tmp_path):
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'regard[ray]'")
    words = question(text_file, tmp_path / "c", "--on", "ray")  # a process of its own, whose cluster ends with it
    done = subprocess.run([sys.executable, "-m", "regard", *map(str, words)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert numbers(done.stdout) == here


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_an_interrupted_comparison_goes_on_where_it_stopped(regard, text_file, tmp_path, local_executor):
    folder = tmp_path / "c"
    words = [
        "compare",
        "lstm",
        "--data",
        text_file,
        "--budget",
        "60k",
        "--seeds",
        "1",
        *SMALL,
        "--run",
        folder,
        "--json",
    ]
    code = "from regard.comparison import elsewhere\nelsewhere.CLUSTER = 'local'\nfrom regard.cli import main\nmain()\n"
    started = subprocess.Popen(
        [sys.executable, "-c", code, *map(str, words), "--on", "slurm"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    wait_for_step(folder / "lstm", 1, started)
    started.send_signal(signal.SIGINT)
    _, errors = started.communicate()
    assert started.returncode == 130, errors
    assert f"run the same command with --run {folder}" in errors
    step = step_of(folder / "lstm")
    assert step >= 1
    code, out, errors = regard(*words)  # here, as if it had begun here
    assert code == 0, errors
    assert "continuing where it stopped" in errors
    assert next(row for row in json.loads(out) if row["label"] == "lstm")["tokens_seen"] >= 60_000


def test_a_run_that_fails_or_is_killed_says_so_as_here(tmp_path):
    code, sentence, _ = Child([str(tmp_path / "nowhere"), "lstm", "1", "1"], 1)()
    assert code == 2
    assert "comparison.json" in sentence

    child = Child([str(tmp_path / "nowhere"), "lstm", "1", "1"], 1)
    ended = []
    waiting = threading.Thread(target=lambda: ended.append(child()))
    waiting.start()
    while child.process is None:
        time.sleep(0.001)
    child.process.kill()
    waiting.join()
    assert ended[0][0] == -signal.SIGKILL


def test_a_preempted_job_is_queued_again_as_it_was(tmp_path, local_executor):
    child = Child([str(tmp_path), "lstm", "1", "1"], 3)
    again = child.checkpoint().function
    assert (again.words, again.folder, again.settings) == (child.words, child.folder, child.settings)
    assert again.settings["OMP_NUM_THREADS"] == "3"


def test_what_is_wrong_is_said_before_anything_is_trained(wrong, text_file, tmp_path, monkeypatch):
    words = ["compare", "lstm", "--data", text_file, "--run", tmp_path / "c"]
    assert "--on must be one of slurm, ray" in wrong(*words, "--on", "moon")
    assert "takes key=value" in wrong(*words, "--on", "ray:gpus")
    if elsewhere.find_spec("ray"):
        assert "--on ray takes gpus=N and address=…, not partition" in wrong(*words, "--on", "ray:partition=x")
    monkeypatch.setattr(elsewhere.shutil, "which", lambda name: None)
    if elsewhere.find_spec("submitit"):
        assert "Slurm is not available here" in wrong(*words, "--on", "slurm")
    monkeypatch.setattr(elsewhere, "find_spec", lambda name: None)
    assert "pip install 'regard[slurm]'" in wrong(*words, "--on", "slurm")
    assert "pip install 'regard[ray]'" in wrong(*words, "--on", "ray")
    assert not (tmp_path / "c").exists()
