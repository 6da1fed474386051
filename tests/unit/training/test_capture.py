"""What a captured training step rests on, where no GPU is needed: the settings, the schedules."""

import json
from concurrent.futures import Future
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from regard.base.errors import RegardError
from regard.fast.compile_ahead import Compiling
from regard.fast.table import install, is_swapped
from regard.fast.training import captured_step
from regard.fast.training.captured_step import Captured, CapturedStep, captures, overwrite_at_once
from regard.layers.state import map_state, overwrite
from regard.runs.recipe import compose
from regard.systems.lstm import LSTMModel, Settings
from regard.text.batches.text_batches import Batch
from regard.training import log
from regard.training.budget import Progress
from regard.training.log import TrainingLog
from regard.training.optimizers import AVERAGE_AFTER, averaging_is_due, build_optimizer, learning_rate_at
from small_trainers import trainer


def training(**settings):
    return compose("lstm", "tiny", {"training": settings}).training


def test_nothing_is_captured_on_a_cpu_and_asking_for_it_says_so():
    model = LSTMModel(11, Settings(width=8))
    assert not captures(model, training())
    assert not captures(model, training(capture="off"))
    with pytest.raises(RegardError, match="needs a CUDA device"):
        captures(model, training(capture="on"))
    with pytest.raises(RegardError, match=r"training\.capture"):
        training(capture="yes")


def test_text_with_padding_and_dialogues_fit_unless_lengths_are_read_on_the_host():
    words = np.zeros((2, 3), np.int64)
    whole, ragged = (Batch(words, words, lengths, fresh=True) for lengths in (None, np.array([3, 1])))
    counted = Batch(words, words, None, fresh=True, counted=words == 0)
    assert all(Captured(None, shapes=6).fits(batch) for batch in (whole, ragged, counted))
    packing = Captured(None, shapes=6, ragged=False)
    assert [packing.fits(batch) for batch in (whole, ragged, counted)] == [True, False, True]
    full = Captured(None, shapes=0)
    assert not full.fits(whole)


class Steps(CapturedStep):
    """Notes how each step was taken; a graph is played by an update of the state."""

    def __init__(self, monkeypatch, one, compiled=False):
        super().__init__(one)
        self.known, self.taken, self.threads = compiled, [], []
        install(one.objective, device=one.device, training=True)
        assert is_swapped(one.objective.text)
        monkeypatch.setattr(captured_step, "is_compiled", lambda device, *told: self.known)
        monkeypatch.setattr(captured_step, "start_compiling", lambda *given, **options: self.start())
        monkeypatch.setattr(self, "captured", self)

    def start(self):
        self.threads.append(Future())
        self.taken.append("compiles")
        return Compiling(self.threads[-1:], lambda: setattr(self, "known", True))

    def fits(self, batch):
        return True

    def is_new(self, batch):
        return "captured" not in self.taken

    def __call__(self, *given):
        if len(given) == 1:
            return super().__call__(*given)
        self.taken.append("captured")
        return torch.zeros(()), given[1]

    def backward(self, *given):
        self.taken.append("rows" if is_swapped(self.trainer.objective.text) else "written")
        return super().backward(*given)


def test_the_first_step_of_a_training_is_the_written_one_and_the_next_waits_for_the_kernels(tmp_path, monkeypatch):
    one = trainer(tmp_path, "lstm")
    steps = one.runner = Steps(monkeypatch, one)
    steps.begins_as_written = True
    one.step()
    assert steps.taken == ["written"]
    assert is_swapped(one.objective.text)
    monkeypatch.setattr(
        captured_step.Compiling, "wait", lambda self: [each.done() or each.set_result(None) for each in self.kernels]
    )
    one.step()
    one.step()
    assert steps.taken == ["written", "compiles", "captured", "captured"]


@pytest.mark.parametrize("compiled", [False, True])
def test_a_budget_in_seconds_goes_on_as_written_while_kernels_are_compiled(tmp_path, monkeypatch, compiled):
    one = trainer(tmp_path, "lstm", budget="60s")
    steps = one.runner = Steps(monkeypatch, one, compiled)
    steps.begins_as_written = True
    for _ in range(3):
        one.step()
    begun = ["captured", "captured", "captured"] if compiled else ["written", "compiles", "written", "written"]
    assert steps.taken == begun
    if not compiled:
        steps.threads[0].set_exception(RuntimeError("does not compile"))  # its launch will say so
        one.step()
        assert steps.taken[-2:] == ["written", "captured"]
    assert one.progress.step == len(steps.taken) - (not compiled)


def test_a_training_that_goes_on_or_is_measured_takes_no_written_step(tmp_path, monkeypatch):
    one = trainer(tmp_path, "lstm")
    steps = one.runner = Steps(monkeypatch, one, compiled=True)
    one.step()
    assert steps.taken == ["captured"]
    steps = one.runner = Steps(monkeypatch, one, compiled=True)
    steps.begins_as_written = True
    one.step()  # the second of the training, the first of this process
    assert steps.taken == ["captured"]


@pytest.mark.parametrize("budget", ["", "60s"])
def test_a_translator_waits_for_its_kernels(tmp_path, monkeypatch, budget):
    one = trainer(tmp_path, "lstm", budget=budget)
    steps = one.runner = Steps(monkeypatch, one)
    steps.begins_as_written = True
    monkeypatch.setattr(type(one.settings), "on_pairs", True)
    monkeypatch.setattr(
        captured_step.Compiling, "wait", lambda self: [each.done() or each.set_result(None) for each in self.kernels]
    )
    one.step()
    assert steps.taken == ["compiles", "captured"]


def test_a_written_step_without_memory_is_taken_by_the_kernels_with_the_same_random_numbers(tmp_path, monkeypatch):
    one = trainer(tmp_path, "lstm")
    steps = one.runner = Steps(monkeypatch, one)
    steps.begins_as_written, drawn = True, []
    monkeypatch.setattr(
        captured_step.Compiling, "wait", lambda self: [each.done() or each.set_result(None) for each in self.kernels]
    )

    def without_memory(*given):
        drawn.append(torch.rand(()))
        raise torch.cuda.OutOfMemoryError

    steps.backward = without_memory
    one.step()
    assert steps.taken == ["compiles", "captured"]
    assert torch.rand(()) == drawn[0]
    steps.known, steps.compiling = False, captured_step.Compiling()
    steps.backward, steps.begins_as_written, steps.began = CapturedStep.backward.__get__(steps), True, False
    one.progress.step, steps.taken = 0, []
    one.optimizer.step = without_memory  # weights may have changed: no second attempt
    with pytest.raises(torch.cuda.OutOfMemoryError):
        one.step()


def test_a_captured_optimiser_takes_its_rate_from_a_tensor():
    parameters = [("w", torch.nn.Parameter(torch.ones(2, 2)))]
    rates = {"learning_rate": 0.5, "weight_decay": 0.0, "beta2": 0.9}
    plain = build_optimizer("sgd", parameters, **rates)
    captured = build_optimizer("sgd", parameters, **rates, captured=True)
    rates_of = [type(group["lr"]) for one in (plain, captured) for group in one.param_groups[:1]]
    assert rates_of == [float, torch.Tensor]  # a graph would record a number as a constant
    assert plain.param_groups[0]["lr"] == 0.5
    assert torch.equal(captured.param_groups[0]["lr"], torch.tensor(0.5))


def test_the_rate_decays_in_every_epoch_after_the_first_few():
    """Zaremba et al. 2014, their medium model: six epochs at 1, then divided by 1.2 after each."""
    rates = [learning_rate_at("decay", 1.0, 0, 0, 0.0, max(0, epoch + 1 - 6), 1 / 1.2) for epoch in range(39)]
    assert rates[:6] == [1.0] * 6
    assert rates[6] == pytest.approx(1 / 1.2)
    assert rates[38] == pytest.approx(1.2**-33)


def test_averaging_begins_when_validation_is_worse_than_an_older_one():
    """Merity et al. 2018, algorithm 1: v_t > min over all but the last n before it."""
    falling = [float(10 - k) for k in range(10)]
    assert not any(averaging_is_due(falling[:k]) for k in range(11))
    jagged = [5.0] + [6.0] * AVERAGE_AFTER  # the 5 is among the last n of them
    assert not averaging_is_due(jagged)
    assert averaging_is_due([*jagged, 5.5])
    assert not averaging_is_due([*jagged, 4.9])


def test_the_speed_in_the_log_counts_the_time_for_which_the_device_was_waited_for(monkeypatch, tmp_path):
    """A host that replays graphs is far ahead of the device; asking for the losses is when it waits."""
    seconds, stack = [0.0], torch.stack

    def slow(*arguments):
        seconds[0] += 3.0
        return stack(*arguments)

    monkeypatch.setattr(log, "time", SimpleNamespace(monotonic=lambda: seconds[0]))  # not that of other threads
    monkeypatch.setattr(log.torch, "stack", slow)
    written = TrainingLog(tmp_path / "metrics.jsonl", Silent(), Progress())
    assert written.trained(torch.tensor(2.0), 100, 0.1) is None
    seconds[0] = 1.0
    assert written.trained(torch.tensor(4.0), 300, 0.1) == pytest.approx(3.5)
    assert json.loads((tmp_path / "metrics.jsonl").read_text())["tokens_per_second"] == 100.0  # 400 in 1 + 3 seconds


class Silent:
    def say(self, words):
        pass


def test_a_state_that_is_overwritten_at_once_is_overwritten():
    model = LSTMModel(11, Settings(width=8))
    first, (_, after) = model.begin(rows=3), model(torch.randint(11, (3, 4)))
    one, other = (map_state(torch.Tensor.clone, first) for _ in range(2))
    addresses = map_state(lambda leaf: torch.tensor(leaf.data_ptr()), other)
    overwrite(one, after)
    overwrite_at_once(other, after)
    overwrite_at_once(other, other)  # onto itself
    assert str(one) == str(other)
    assert str(addresses) == str(map_state(lambda leaf: torch.tensor(leaf.data_ptr()), other))
    assert torch.equal(other["seen"], torch.full((3,), 4))
