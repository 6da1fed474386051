"""When memory runs out: one sentence with the setting to change, and a checkpoint that loses nothing."""

import hashlib
import json
import os
import resource
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from forked import forked
from regard.base import device
from regard.base.device import device_memory
from regard.base.errors import RegardError, Stopped
from regard.runs.recipe import compose
from regard.systems.catalogue import load_class
from regard.text.batches.text_batches import Streams, Windows
from regard.training.checkpoint import load_tensors
from regard.training.loop import Trainer
from regard.training.out_of_memory import how_to_go_on, is_out_of_memory, largest_steps
from regard.training.validation import TextValidation

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory is limited as Linux does it")
IDS = (np.arange(3003) % 11).astype(np.uint16)


@contextmanager
def little_memory(more=400 << 20):
    """The process may take so many bytes more of its address space, and no others."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + more, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)


class Growing:
    """The batches of a training, but for the one of a step, which has far more rows than memory holds."""

    def __init__(self, batches, step, rows=600_000):
        self.batches, self.step, self.rows, self.steps_per_epoch = batches, step, rows, batches.steps_per_epoch

    def batch(self, step):
        batch = self.batches.batch(step)
        if step != self.step:
            return batch
        more = [np.resize(part, (self.rows, part.shape[1])) for part in (batch.tokens, batch.targets)]
        return replace(batch, tokens=more[0], targets=more[1], lengths=None, fresh=True)


def trainer(folder, system="gpt", **training):
    model = {"gpt": {"layers": 1, "width": 16, "heads": 2, "context": 16, "dropout": 0.2}, "lstm": {"width": 16}}
    settings = {"steps": 12, "batch_tokens": 128, "window": 16, "warmup": 3, "evaluate_every": 5, "checkpoint_every": 4}
    recipe = compose(system, "tiny", {"model": model[system], "training": {**settings, "seed": 3, **training}})
    torch.manual_seed(3)
    kind = recipe.training
    rows = (IDS, kind.rows, kind.window, 0)
    batches = Streams(*rows) if kind.batches == "stream" else Windows(*rows, kind.seed)
    folder.mkdir(exist_ok=True)
    return Trainer(load_class(system)(11, recipe.model), batches, TextValidation(IDS[:400], 0), kind, folder)


def bits(folder):
    tensors, note = load_tensors(folder / "training.safetensors")
    for clock in ("seconds", "elapsed", "started", "besides"):
        note["progress"].pop(clock)
    return {name: hashlib.sha256(tensor.numpy().tobytes()).hexdigest() for name, tensor in tensors.items()}, note


@pytest.mark.parametrize("step", [0, 6])
@pytest.mark.parametrize("system", ["gpt", "lstm"])
def test_a_step_that_does_not_fit_ends_with_a_sentence_and_the_step_before_on_disk(tmp_path, system, step):
    whole = trainer(tmp_path / "whole", system)
    whole.save()
    whole.train()
    short = trainer(tmp_path / "short", system)
    short.save()
    short.batches = Growing(short.batches, step)
    with little_memory(), pytest.raises(RegardError) as said:
        short.train()
    assert f"regard resume {tmp_path / 'short'} --training.accumulate 2" in str(said.value)
    assert ("in the very first step" if step == 0 else "in step 7") in str(said.value)
    assert f"from step {step}" in str(said.value)
    again = trainer(tmp_path / "short", system)
    again.restore()
    assert again.progress.step == step
    again.train()
    assert bits(tmp_path / "short") == bits(tmp_path / "whole")


def test_a_validation_that_does_not_fit_is_made_up_for(tmp_path):
    whole = trainer(tmp_path / "whole")
    whole.save()
    whole.train()
    short = trainer(tmp_path / "short")
    short.save()
    judge, calls = short.validate, []

    def too_much():
        calls.append(short.progress.step)
        if len(calls) == 2:
            torch.empty(1 << 40)
        return judge()

    short.validate = too_much
    with little_memory(), pytest.raises(RegardError, match=r"in the validation after step 10: .*smaller model"):
        short.train()
    again = trainer(tmp_path / "short")
    again.restore()
    assert again.progress.step == 10
    again.train()
    assert bits(tmp_path / "short") == bits(tmp_path / "whole")


def test_weights_in_the_middle_of_an_update_are_not_saved(tmp_path):
    short = trainer(tmp_path / "short")
    short.save()
    update = short.optimizer.step

    def half(*_):
        if short.progress.step == 6:
            short.model.embedding.table.weight.data.fill_(7)
            torch.empty(1 << 40)
        return update()

    short.optimizer.step = half
    with little_memory(), pytest.raises(RegardError, match="continues from its last checkpoint"):
        short.train()
    again = trainer(tmp_path / "short")
    again.restore()
    assert again.progress.step == 4
    assert again.model.embedding.table.weight.max().item() < 7


def test_rows_one_at_a_time_cannot_be_divided_further(tmp_path):
    short = trainer(tmp_path / "short", batch_tokens=16, window=16)
    short.save()
    forward = short.objective.forward

    def large(*given):
        torch.empty(1 << 40)
        return forward(*given)

    short.objective.forward = large
    with (
        little_memory(),
        pytest.raises(RegardError, match=r"smaller training.window \(now 16\), training.batch_tokens"),
    ):
        short.train()


def test_other_errors_stay_what_they_are(tmp_path):
    assert not is_out_of_memory(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
    assert not is_out_of_memory(Stopped(3))
    assert is_out_of_memory(torch.OutOfMemoryError("CUDA out of memory."))
    masked = RuntimeError("operation failed due to a previous error during capture")
    masked.__context__ = torch.OutOfMemoryError("CUDA out of memory.")
    assert is_out_of_memory(masked)
    broken = trainer(tmp_path / "broken")
    broken.batches = None
    with pytest.raises(AttributeError):
        broken.train()


def test_the_steps_that_stand_out_have_the_most_targets_and_the_longest_rows():
    class Uneven:
        steps_per_epoch = 50

        def batch(self, step):
            rows, columns = {7: (9, 4), 11: (2, 9), 49: (1, 3)}.get(step, (5, 4))
            return type("Some", (), {"targets": np.zeros((rows, columns))})

    assert largest_steps(Uneven(), 100) == [7, 11, 49]
    assert largest_steps(Uneven(), 10) == [0, 7, 9]
    assert largest_steps(Uneven(), 0) == largest_steps(Uneven(), 1) == [0]


def test_the_first_500_steps_are_searched_and_the_last():
    class Growing:
        steps_per_epoch = 2000

        def batch(self, step):
            return type("Some", (), {"targets": np.zeros((1, 5 + step if step < 700 else 1))})

    assert largest_steps(Growing(), 3000) == [499, 1999]


@pytest.mark.parametrize("limit", [None, "max\n", "1000000\n", f"{1 << 60}\n"])
def test_memory_is_the_machines_or_what_a_container_may_take(tmp_path, monkeypatch, limit):
    if limit is not None:
        (tmp_path / "memory.max").write_text(limit)
    monkeypatch.setattr(device, "Path", lambda path: tmp_path / Path(path).name)
    monkeypatch.setattr(device.os, "sysconf", {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 1000}.__getitem__)
    assert device_memory(torch.device("cpu")) == (1_000_000 if limit == "1000000\n" else 4_096_000)


def test_the_sentence_names_what_helps_where_memory_ran_out():
    def said(doing, system="gpt", step=6, rows=8, saved=True, **training):
        settings = compose(system, "tiny", {"training": training}).training
        return how_to_go_on(Path("mine"), settings, torch.device("cpu"), step, doing, rows=rows, saved=saved)

    assert said("step").startswith("Out of memory on cpu in step 7: `regard resume mine --training.accumulate 2`")
    assert "continues from step 6 with each batch in 2 parts" in said("step")
    assert "--training.accumulate 8` continues from its last checkpoint" in said("step", accumulate=4, saved=False)
    assert "--training.accumulate 5`" in said("step", accumulate=4, rows=5)
    assert "in the very first step: " in said("step", step=0)
    window = compose("gpt", "tiny").training.window
    whole = said("step", accumulate=4, rows=4)
    assert f"smaller training.window (now {window}), training.batch_tokens (now " in whole
    assert whole.endswith(") or model.")
    assert "a smaller data.longest, training.batch_tokens" in said("step", "transformer", rows=1)
    assert said("update").endswith("in step 7: free some memory, then run `regard resume mine`; it continues from step "
                                   "6. Or train again with a smaller model.")  # fmt: skip
    assert "in the validation after step 6: free some" in said("validation")


def test_the_chain_of_causes_is_searched():
    for error in (MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory"), OSError("ALLOC_FAILED")):
        assert is_out_of_memory(error)
        other = RuntimeError("?")
        other.__cause__, other.__context__ = RuntimeError("!"), None
        other.__cause__.__context__ = error
        assert is_out_of_memory(other)
    assert not is_out_of_memory(None)


@pytest.mark.slow
def test_the_command_that_is_named_goes_on_with_less_memory(tmp_path):
    def limited(*words):
        return forked(*words, cwd=tmp_path, memory=400 << 20)

    words = ["train", "gpt", "--size", "tiny", "--run", "mine", "--training.batch-tokens", 131072]
    outcome = limited(*words, "--training.steps", 2, "--training.threads", 1)
    first = "regard: Out of memory on cpu in the very first step: `regard resume mine --training.accumulate 2`"
    assert outcome.said.startswith(first), outcome
    for _ in range(8):
        words = outcome.said.split("`")[1].split()[1:]
        outcome = limited(*words)
        if outcome.code == 0:
            break
        assert outcome.kind == "refused", outcome
        assert "`" in outcome.said
    assert outcome.code == 0
    assert f"accumulate = {words[-1]}" in (tmp_path / "mine" / "recipe.toml").read_text()


MEASURED = """
import sys, torch
from regard.cli import main
from regard.runs.dry_run import peak_memory
main(sys.argv[1:])
print(peak_memory(torch.device("cpu")))
"""

# glibc keeps much of what is freed, and how much varies by a fifth from run to run: here it gives everything back.
EXACT = os.environ | {"MALLOC_ARENA_MAX": "1", "MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "words", [["gpt", "--training.batch-tokens", 8192], ["transformer", "--training.ema", 0.9, "--data.pairs", 1000]]
)
def test_the_memory_that_a_dry_run_states_is_what_the_training_takes(tmp_path, words):
    words = ["train", *map(str, words), "--size", "tiny", "--training.steps", "2", "--training.threads", "1"]
    words += ["--training.evaluate-every", "1"]
    for more in (["--dry-run", "--json"], ["--run", "mine"]):
        command = [sys.executable, "-c", MEASURED, *words, *more]
        done = subprocess.run(command, cwd=tmp_path, env=EXACT, capture_output=True, text=True, check=True)
        if "--dry-run" in more:
            stated = json.loads(done.stdout[: done.stdout.rindex("}") + 1])
    taken = int(done.stdout.split()[-1])
    assert stated["peak_memory_bytes"] == pytest.approx(taken, rel=0.05)
    assert stated["peak_memory_bytes"] > 10 * stated["weights_gradients_optimizer_bytes"]


def test_a_run_keeps_what_decides_its_result(tmp_path):
    from regard.runs.resume import _changed

    recipe = compose("gpt", "tiny", {})
    assert _changed(recipe, {"training": {"accumulate": "4"}}).training.accumulate == 4
    for section, name in (("training", "learning_rate"), ("model", "width"), ("data", "corpus")):
        with pytest.raises(RegardError, match=f"cannot change its {section}.{name}"):
            _changed(recipe, {section: {name: "1"}})
