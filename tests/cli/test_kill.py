"""Killed at any moment and resumed, a run ends with the same bits as one that never stopped."""

import json
import signal

import pytest
from safetensors import SafetensorError

from interrupted import bits, step_of, wait_for_step
from regard.training import background_files, checkpoint
from regard.training.checkpoint import load_tensors

SETTINGS = [
    "--size", "tiny", "--data.tokenizer", "char", "--model.width", "24", "--model.dropout", "0.1", "--seed", "5",
    "--training.steps", "400", "--training.batch-tokens", "512", "--training.evaluate-every", "90",
    "--training.checkpoint-every", "25", "--training.threads", "1",
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("system", ["lstm", "gpt"])
def test_any_kill_and_resume_gives_the_same_bits(system, process, regard, text_file, tmp_path):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    code, _, errors = regard("train", system, "--data", text_file, "--run", whole, *SETTINGS)
    assert code == 0, errors

    started = process("train", system, "--data", text_file, "--run", cut, *SETTINGS)
    wait_for_step(cut, 25, started)
    started.kill()  # SIGKILL: no warning, nothing can be tidied up
    started.wait()
    (cut / "metrics.jsonl").open("a").write('{"step": 399, "loss": 1.0}\n{"step": 4')  # what a crash may leave

    for number, expected in ((signal.SIGTERM, 143), (signal.SIGINT, 130)):
        before = load_tensors(cut / "training.safetensors")[1]["progress"]["step"]
        started = process("resume", cut)
        wait_for_step(cut, before + 25, started)
        started.send_signal(number)
        _, errors = started.communicate()
        assert started.returncode == expected, errors
        assert "regard resume" in errors
        assert "Traceback" not in errors

    code, _, errors = regard("resume", cut)
    assert code == 0, errors
    assert bits(cut) == bits(whole)
    rows = [json.loads(line) for line in (cut / "metrics.jsonl").read_text().splitlines()]
    steps = [row["step"] for row in rows]
    assert steps == sorted(steps)
    assert [row["step"] for row in rows if "split" in row] == [90, 180, 270, 360, 400]  # each validation once


def test_resuming_a_finished_run_changes_nothing(regard, trained):
    before = bits(trained["lstm"])
    code, out, errors = regard("resume", trained["lstm"])
    assert code == 0
    assert "is already finished" in errors
    assert out.strip() == str(trained["lstm"])
    assert bits(trained["lstm"]) == before


def test_a_disk_that_is_full_beside_the_training_is_one_sentence(regard, text_file, tmp_path, monkeypatch):
    monkeypatch.setattr(background_files, "BESIDE", ("cpu",))  # as on a GPU
    monkeypatch.setattr(background_files.FileWriter, "is_busy", lambda writer, kind: False)  # none is left out
    save, saved = checkpoint.save_file, []

    def full(*given, **named):
        saved.append(given)
        if len(saved) == 3:
            raise SafetensorError("I/O error: No space left on device (os error 28)")
        save(*given, **named)

    monkeypatch.setattr(checkpoint, "save_file", full)
    settings = [*SETTINGS, "--training.steps", "8", "--training.checkpoint-every", "2"]
    code, _, errors = regard("train", "lstm", "--data", text_file, "--run", tmp_path / "run", *settings)
    sentences = [line for line in errors.splitlines() if line.startswith("regard: ")]
    assert (code, len(sentences)) == (2, 1), errors
    assert "The disk is full, so" in sentences[0]
    assert "the previous contents are unchanged" in sentences[0]
    assert step_of(tmp_path / "run") == 2
    code, _, errors = regard("resume", tmp_path / "run")
    assert code == 0, errors
    assert step_of(tmp_path / "run") == 8
