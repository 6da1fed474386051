"""Several processes train as one does: the same losses and order of samples, one voice, nothing lost when one dies."""

import json
import os
import signal
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interrupted import step_of, wait_for_step
from regard.corpora.phrasebook import make_pairs
from regard.training.checkpoint import load_tensors
from regard.training.distributed import Group
from regard.training.interrupts import stop_on_signals
from torchrun_command import ended, ranks, torchrun

SETTINGS = [
    "--size", "tiny", "--training.steps", "30", "--training.evaluate-every", "10", "--training.checkpoint-every", "10",
    "--training.batch-tokens", "600", "--training.threads", "1", "--training.device", "cpu", "--model.dropout", "0.0",
]  # fmt: skip


@given(st.integers(1, 40), st.integers(1, 9))
def test_every_row_of_a_batch_belongs_to_one_process(rows, size):
    groups = [Group(rank, size) for rank in range(size)]
    read = [row for group in groups if group.loss_weight(rows) for row in range(rows)[group.local_rows(rows)]]
    assert read == list(range(rows))
    assert all(len(range(rows)[group.local_rows(rows)]) >= 1 for group in groups)  # all take part in every exchange


def test_a_process_whose_exchange_failed_is_not_ended_before_it_says_so():
    """torchrun ends the others as soon as one has died."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    trainer = SimpleNamespace(group=Group(0, 2), stop_requested=False)
    try:
        with pytest.raises(RuntimeError, match="closed by peer"), stop_on_signals(trainer):
            raise RuntimeError("Connection closed by peer")
        os.kill(os.getpid(), signal.SIGTERM)
        assert trainer.stop_requested
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def validations(run):
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return {line["step"]: line["loss"] for line in lines if line.get("split") == "valid"}


@pytest.fixture(scope="module")
def corpora(tmp_path_factory, text_file):
    pairs = tmp_path_factory.mktemp("pairs") / "pairs.tsv"
    pairs.write_text("".join(f"{p.source}\t{p.target}\n" for p in make_pairs(200, seed=1, longest=8)), encoding="utf-8")
    return {"text": text_file, "pairs": pairs}


CASES = [
    ("gpt", "text", []),  # windows
    # five rows: two processes have two and three of them, and must still cut them into as many parts
    ("gpt", "text", ["--training.shard", "true", "--training.accumulate", "3", "--training.batch-tokens", "320"]),
    ("gpt", "text", ["--training.shard", "true", "--training.optimizer", "muon"]),  # whole matrices are turned
    ("lstm", "text", []),  # a state is carried from window to window
    ("transformer", "pairs", ["--training.ema", "0.9"]),  # ragged, so averages of averages would be wrong
]
NAMES = ["gpt", "gpt-sharded", "gpt-muon", "lstm", "transformer"]


@pytest.mark.slow
@pytest.mark.parametrize(("system", "data", "more"), CASES, ids=NAMES)
def test_two_processes_have_the_losses_of_one(system, data, more, corpora, regard, tmp_path, warm):
    words = ["train", system, "--data", corpora[data], *SETTINGS, *more]
    with ranks(warm, tmp_path, *words, "--run", "two") as together:  # below, torchrun itself starts them
        assert regard(*words, "--run", tmp_path / "one")[0] == 0
        code, out, errors = ended(*together)
    assert code == 0, errors
    assert out == "two\n"  # one voice
    assert errors.count("best validation") == 1
    one, two = validations(tmp_path / "one"), validations(tmp_path / "two")
    assert list(one) == list(two) == [10, 20, 30]
    assert list(two.values()) == pytest.approx(list(one.values()), rel=1e-5)
    weights = [load_tensors(tmp_path / name / "model.safetensors")[0] for name in ("one", "two")]
    assert {name: tensor.shape for name, tensor in weights[0].items()} == {n: t.shape for n, t in weights[1].items()}


@pytest.mark.slow
def test_a_process_dies_and_another_number_of_them_goes_on(corpora, regard, tmp_path):
    words = ["train", "lstm", "--data", corpora["text"], *SETTINGS, "--training.steps", "120"]
    words += ["--training.evaluate-every", "40"]
    assert regard(*words, "--run", tmp_path / "one")[0] == 0
    together = torchrun(tmp_path, *words, "--run", "two")
    wait_for_step(tmp_path / "two", 10, together)
    os.kill(worker(together.pid, rank=1), signal.SIGKILL)
    code, _, errors = ended(together)
    assert code != 0
    assert "Another process of this training run ended" in errors
    assert "resume two" in errors
    assert step_of(tmp_path / "two") < 120
    code, _, errors = regard("resume", tmp_path / "two")
    assert code == 0, errors
    one, two = validations(tmp_path / "one"), validations(tmp_path / "two")
    assert list(two) == list(one)
    assert list(two.values()) == pytest.approx(list(one.values()), rel=1e-3)  # rounding grows from step to step


def worker(launcher, rank):
    """The process of that rank among the launcher's children."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1])
            if parent == launcher and f"\0RANK={rank}\0".encode() in b"\0" + (folder / "environ").read_bytes() + b"\0":
                return int(folder.name)
        except OSError:
            continue
    raise AssertionError(f"no process of rank {rank}")


@pytest.mark.slow
def test_what_cannot_be_shared_is_refused_in_a_sentence(corpora, tmp_path):
    code, _, errors = ended(torchrun(tmp_path, "train", "ngram", "--data", corpora["text"], "--run", "n"))
    assert code != 0
    assert "is trained by counting in one process: run it without torchrun" in errors
    assert not (tmp_path / "n").exists()
