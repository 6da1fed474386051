"""The law of `regard.fast`: hide it from imports, and every system still trains, evaluates and answers, with the same
numbers in fp64."""

import json
import subprocess
import sys

import pytest

import regard
from regard.base.install import as_written
from regard.runs.speed import install
from regard.systems.catalogue import SYSTEMS

HIDDEN = """
import contextlib, io, json, sys, traceback
sys.modules["regard.fast"] = None
from regard.base.install import as_written
from regard.cli import main
from regard.runs.speed import install
from regard import load
assert install is as_written
sys.stdout = io.StringIO()

def answers(words, typed):
    sys.stdin = io.TextIOWrapper(io.BytesIO(typed.encode()))
    with contextlib.redirect_stdout(io.StringIO()) as said:
        main(words)
    return said.getvalue()

def numbers(folder):
    run = load(folder)
    run.model.double()
    return run.evaluate("valid")

for name, (folder, commands) in json.loads(sys.argv[1]).items():
    try:
        found = {"said": [answers(*command) for command in commands], "numbers": numbers(folder)}
    except (Exception, SystemExit):
        found = {"failed": traceback.format_exc()}
    print(json.dumps({name: found}), file=sys.__stdout__)
"""
TINY = ["--size", "tiny", "--training.steps", "6", "--training.batch-tokens", "256", "--training.threads", "1"]
LINE = "The cat sees the house.\n"
ANSWERS = {
    "language model": [("generate", "--prompt", "The", "--max-tokens", "8"), ("score",)],
    "translation": [("translate", "--beam", "2")],
    "classification": [("classify",)],
}


@pytest.fixture(scope="module")
def found(tmp_path_factory, text_file):
    """What one process without `regard.fast` makes of every system."""
    folder = tmp_path_factory.mktemp("hidden")
    lines = text_file.read_text(encoding="utf-8").splitlines()
    pairs, labels = folder / "pairs.tsv", folder / "labels.tsv"
    pairs.write_text("".join(f"{line}\t{line.lower()[::-1]}\n" for line in lines), encoding="utf-8")
    labels.write_text("".join(f"{line}\t{'cat' if 'cat' in line else 'other'}\n" for line in lines), encoding="utf-8")
    corpora = {"language model": text_file, "translation": pairs, "classification": labels}
    work = {}
    for system in SYSTEMS:
        run, tiny = str(folder / system.name), [] if system.trained == "counting" else TINY
        train = ["train", system.name, "--data", str(corpora[system.task]), "--run", run, *tiny]
        asked = [([verb, run, *how], "" if verb == "generate" else LINE) for verb, *how in ANSWERS[system.task]]
        work[system.name] = run, [(train, ""), *asked, (["inspect", run, "The cat", "--json"], "")]
    command = [sys.executable, "-c", HIDDEN, json.dumps(work)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    answers = {name: found for line in done.stdout.splitlines() for name, found in json.loads(line).items()}
    return {name: (run, answers[name]) for name, (run, _) in work.items()}


@pytest.mark.slow
@pytest.mark.parametrize("system", SYSTEMS, ids=lambda system: system.name)
def test_every_system_works_as_written(system, found):
    folder, hidden = found[system.name]
    assert "failed" not in hidden, hidden["failed"]
    _, *said, trace = hidden["said"]
    assert json.loads(trace)
    assert all(said)
    if system.task == "language model":
        assert said[0].startswith("The")
    else:
        assert said[0].count("\n") == 1
    assert install is not as_written
    run = regard.load(folder)
    run.model.double()
    install(run.model)
    shown = run.evaluate("valid")
    names = {"perplexity", "accuracy", "nats_per_label"} & shown.keys()
    assert names
    assert {name: hidden["numbers"][name] for name in names} == pytest.approx(
        {name: shown[name] for name in names}, rel=1e-9
    )
