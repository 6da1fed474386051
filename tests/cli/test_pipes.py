"""A line is answered before the next one is written; how lines come changes no answer."""

import subprocess
from threading import Thread

import pytest

import regard as package
from regard.cli import main
from regard.corpora.phrasebook import make_pairs

PATIENCE = 240  # seconds that a busy machine may take to import torch; no answer at all is what fails
SMALL = ["--size", "tiny", "--training.steps", "2", "--training.batch-tokens", "256", "--training.threads", "1"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory, trained):
    folder = tmp_path_factory.mktemp("piped")
    pairs = [*make_pairs(120, seed=3, longest=8)]
    (folder / "pairs.tsv").write_text("".join(f"{p.source}\t{p.target}\n" for p in pairs), encoding="utf-8")
    labelled = "".join(f"{p.source}\t{'long' if len(p.source) > 25 else 'short'}\n" for p in pairs)
    (folder / "labels.tsv").write_text(labelled, encoding="utf-8")
    for system, data in {"transformer": "pairs", "classifier": "labels"}.items():
        main(["train", system, "--data", str(folder / f"{data}.tsv"), "--run", str(folder / system), *SMALL])
    return trained | {system: folder / system for system in ("transformer", "classifier")}


def answer(process):
    """The next line that a process writes, or None if it writes nothing."""
    found = []
    reading = Thread(target=lambda: found.append(process.stdout.readline()), daemon=True)
    reading.start()
    reading.join(PATIENCE)
    return found[0] if found else None


LINES = {
    ("score", "lstm"): ["The cat sees the house.", "A bird hears a tree.", "x"],
    ("score", "transformer"): ["They are watching.\tIls regardent.", "They see.\tIls voient."],
    ("score", "classifier"): ["They are watching.\tshort", "They see.\tlong"],
    ("translate", "transformer"): ["They are watching.", "", "They see the house."],
    ("classify", "classifier"): ["They are watching.", "", "They see the house."],
}


@pytest.mark.parametrize("verb, system", LINES)
def test_each_line_is_answered_before_the_pipe_is_closed_and_as_it_is_among_others(regard, process, runs, verb, system):
    lines = LINES[verb, system]
    with process(verb, runs[system], stdin=subprocess.PIPE) as running:
        try:
            answers = []
            for line in lines:
                running.stdin.write(line + "\n")
                running.stdin.flush()
                answers.append(answer(running))
                assert answers[-1] is not None
            running.stdin.close()
            assert running.wait(PATIENCE) == 0, running.stderr.read()
        finally:
            running.kill()
    code, out, _ = regard(verb, runs[system], stdin="\n".join(lines) + "\n")
    assert code == 0
    assert "".join(answers) == out


def test_a_process_that_refuses_a_line_ends_though_its_pipe_stays_open(process, runs):
    with process("score", runs["transformer"], stdin=subprocess.PIPE) as running:
        try:
            running.stdin.write("no tab\n")
            running.stdin.flush()
            assert running.wait(PATIENCE) == 2
            assert "Line 1 of the input has one field" in running.stderr.read()
        finally:
            running.kill()


def test_draws_are_numbered_through_all_batches_and_so_are_lines_that_are_refused(process, runs, regard):
    words = ["translate", runs["transformer"], "--temperature", "1", "--seed", "3", "--n-best", "2"]
    lines = ["They are watching.", "They see the house.", "They are watching."]
    with process(*words, stdin=subprocess.PIPE) as running:
        try:
            answers = []
            for line in lines:
                running.stdin.write(line + "\n")
                running.stdin.flush()
                answers += [answer(running), answer(running)]
            running.stdin.write("They see. " * 300 + "\n")
            running.stdin.flush()
            assert running.wait(PATIENCE) == 2
            assert "Line 4 has" in running.stderr.read()
        finally:
            running.kill()
    _, out, _ = regard(*words, stdin="\n".join(lines) + "\n")
    texts = [line.split("\t")[::3] for line in out.split("\n")[:-1]]  # number and text
    assert [line.rstrip("\n").split("\t")[::3] for line in answers] == texts


@pytest.mark.parametrize("system", ["ngram", "lstm", "gpt"])
def test_a_lines_score_is_the_same_to_the_last_bit_whatever_stands_around_it(runs, system):
    run = package.load(runs[system])
    lines = ["A bird hears a tree.", "x", "", "The dog\nlikes the house.", "My friend follows an old song."] * 3
    together = [score.log_probabilities for score in run.score(lines)]
    assert together == [next(iter(run.score([line]))).log_probabilities for line in lines]


@pytest.mark.parametrize("system, target", [("transformer", "Ils voient."), ("classifier", "short")])
def test_a_pairs_score_is_the_same_to_the_last_bit_whatever_stands_around_it(runs, system, target):
    run = package.load(runs[system])
    pairs = [(source, target) for source in ("They see.", "They are watching the old house.", "x", "a b c d") * 3]
    together = [score.log_probabilities for score in run.score(pairs)]
    assert together == [next(iter(run.score([pair]))).log_probabilities for pair in pairs]


def test_the_help_shows_the_symbol_that_ends_a_sentence(regard):
    assert "<eos>" in regard("translate", "--help")[1]
