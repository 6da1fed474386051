"""The command line as its users meet it: real files, real runs, real processes where it matters."""

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from regard.cli import main
from regard.comparison import processes

STARTERS = ("compare", "claims")  # commands that start processes of their own
TINY = ["--size", "tiny", "--data.tokenizer", "char", "--training.batch-tokens", "256", "--training.threads", "1"]


@pytest.fixture(autouse=True, scope="session")
def no_data_of_this_machine():
    os.environ.pop("REGARD_DATA", None)


@pytest.fixture(scope="session")
def text_file(tmp_path_factory):
    """A little text with regularities: enough lines for three splits."""
    subjects, verbs = ["The cat", "The dog", "A bird", "My friend"], ["sees", "hears", "follows", "likes"]
    objects = ["the house", "a tree", "the river", "some bread", "an old song"]
    lines = [f"{s} {v} {o}." for s in subjects for v in verbs for o in objects]
    path = tmp_path_factory.mktemp("text") / "my.txt"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def regard(capsys, monkeypatch):
    """Call the command line in this process: regard("evaluate", run) → (exit code, stdout, stderr)."""

    def call(*words, stdin=""):
        import io

        monkeypatch.setattr(
            sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin if isinstance(stdin, bytes) else stdin.encode()))
        )
        code = 0
        try:
            main([str(word) for word in words])
        except SystemExit as stop:
            code = stop.code or 0
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture(scope="session")
def trained(tmp_path_factory, text_file):
    """A finished run of each system, made by the command line: trained["lstm"]."""
    folder = tmp_path_factory.mktemp("runs")
    runs = {}
    for system, settings in {
        "ngram": ["--model.order", "4", "--data.tokenizer", "char"],
        "lstm": [*TINY, "--model.width", "32", "--training.steps", "30", "--training.evaluate-every", "15"],
        "gpt": [*TINY, "--model.width", "32", "--training.steps", "30", "--training.evaluate-every", "15"],
    }.items():
        main(["train", system, "--data", str(text_file), "--run", str(folder / system), *settings])
        runs[system] = folder / system
    return runs


@pytest.fixture(autouse=True, scope="session")
def warm_runs():
    """The processes of a comparison that begins in this one are forked. Those of a process begin as they always do."""
    with pytest.MonkeyPatch.context() as patch:
        if sys.platform == "linux":
            from forked import Started

            patch.setattr(processes, "subprocess", SimpleNamespace(Popen=Started, PIPE=subprocess.PIPE))
        yield


@pytest.fixture(scope="session")
def process():
    """Start the command line as a process of its own; where nothing is asked about its start, one that is forked."""

    def start(*words, safe=False, **options):  # safe: as the installed command, without the working folder on the path
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
        begin = subprocess.Popen
        if sys.platform == "linux" and not safe and options.keys() <= {"stdin"} and words[0] not in STARTERS:
            from forked import Started as begin
        return begin(
            [sys.executable, *(["-P"] if safe else []), "-m", "regard", *map(str, words)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            **options,
        )

    return start


@pytest.fixture
def wrong(regard):
    """Call the command line, expect it to refuse, and return the sentence."""

    def call(*words, stdin=""):
        code, out, errors = regard(*words, stdin=stdin)
        last = errors.strip().split("\n")[-1]
        assert code == 2, (code, out, errors)
        assert last.startswith("regard: ")
        assert "Traceback" not in errors
        return last

    return call
