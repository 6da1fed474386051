"""The law of `regard.fast`: hide it from imports, and every system still trains, evaluates and answers, with the same
numbers in fp64."""

import json
import subprocess
import sys

import pytest

from regard.systems.catalogue import SYSTEMS

HIDE = "import sys; sys.modules['regard.fast'] = None; from regard.cli import main; main(sys.argv[1:])"
NUMBERS = """
import json, sys
if sys.argv[1] == "hidden":
    sys.modules["regard.fast"] = None
import torch, regard
from regard.runs.speed import install
from regard.base.install import as_written
assert (install is as_written) == (sys.argv[1] == "hidden")
run = regard.load(sys.argv[2])
run.model.double()
install(run.model)
facts = run.evaluate("valid")
print(json.dumps({name: facts[name] for name in ("perplexity", "accuracy", "nats_per_label") if name in facts}))
"""
TINY = ["--size", "tiny", "--training.steps", "6", "--training.batch-tokens", "256", "--training.threads", "1"]


def without_fast(*words, stdin=""):
    done = subprocess.run(
        [sys.executable, "-c", HIDE, *map(str, words)], capture_output=True, text=True, input=stdin, timeout=900
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def numbers(way, run):
    done = subprocess.run([sys.executable, "-c", NUMBERS, way, str(run)], capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def corpora(tmp_path_factory, text_file):
    folder = tmp_path_factory.mktemp("corpora")
    lines = text_file.read_text(encoding="utf-8").splitlines()
    pairs, labels = folder / "pairs.tsv", folder / "labels.tsv"
    pairs.write_text("".join(f"{line}\t{line.lower()[::-1]}\n" for line in lines), encoding="utf-8")
    labels.write_text("".join(f"{line}\t{'cat' if 'cat' in line else 'other'}\n" for line in lines), encoding="utf-8")
    return {"language": text_file, "translation": pairs, "classification": labels}


@pytest.mark.slow
@pytest.mark.parametrize("system", SYSTEMS, ids=lambda system: system.name)
def test_every_system_works_as_written(system, corpora, tmp_path):
    task = {"translate": "translation", "classify": "classification"}.get(system.task, system.task)
    task = next(kind for kind in corpora if kind.startswith(task[:5]))
    tiny = [] if system.name == "ngram" else TINY
    run = tmp_path / "run"
    without_fast("train", system.name, "--data", corpora[task], "--run", run, *tiny)
    if task == "language":
        assert without_fast("generate", run, "--prompt", "The", "--max-tokens", "8").startswith("The")
        assert without_fast("score", run, stdin="The cat sees the house.\n")
    elif task == "translation":
        assert without_fast("translate", run, "--beam", "2", stdin="The cat sees the house.\n").count("\n") == 1
    else:
        assert without_fast("classify", run, stdin="The cat sees the house.\n").count("\n") == 1
    assert json.loads(without_fast("inspect", run, "The cat", "--json"))
    hidden, shown = numbers("hidden", run), numbers("shown", run)
    assert hidden
    assert hidden == pytest.approx(shown, rel=1e-9)
