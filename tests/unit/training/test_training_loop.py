"""What the loop does besides steps, and when: its log, its clock, its files, its callbacks, its share of a group."""

import gc
import json
import math
import signal
import threading
import weakref
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
import torch

from regard.base.errors import RegardError, Stopped
from regard.text.batches.text_batches import Windows
from regard.training import budget as clocks
from regard.training import loop
from regard.training.budget import Progress
from regard.training.checkpoint import load_tensors, save_tensors
from regard.training.checkpointing import kept_weights, subsample_steps, weights_in
from regard.training.distributed import Group
from regard.training.log import TrainingLog
from regard.training.objective import Objective, TensorBatch, micro_batches, to_device
from regard.training.optimizers import (
    build_optimizer,
    clip,
    divisor,
    learning_rate_at,
    set_learning_rate,
    warmup_within,
)
from regard.training.out_of_memory import rescue
from regard.training.prefetch import PrefetchingLoader
from regard.training.probe import measure_steps, probe_peak_memory
from regard.training.steps import StepRunner
from regard.training.validation import PairValidation, TextValidation, ValidationResult, best_words
from small_trainers import VOCABULARY, Clock, ids, set_clock, trainer


class Bar:
    """Notes what it is shown."""

    def __init__(self):
        self.began, self.steps, self.said = (), [], []

    @contextmanager
    def __call__(self, *given):
        self.began = given
        yield self

    def advance(self, amount, note):
        self.steps.append((amount, note))

    def say(self, line):
        self.said.append(line)


@pytest.fixture
def bar(monkeypatch):
    bar = Bar()
    monkeypatch.setattr(loop, "progress", bar)
    return bar


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    set_clock(monkeypatch, clock)
    monkeypatch.setattr(clocks, "SAVED_SECONDS", math.inf)  # checkpoints come by steps alone
    return clock


def entries(folder):
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [{name: value for name, value in json.loads(line).items() if name != "crc32"} for line in lines]


def validations(folder):
    return [row for row in entries(folder) if "split" in row]


def small(folder, **settings):
    """Nothing is dropped, and a step takes no time worth mentioning."""
    return trainer(folder, "gpt", **{"evaluate_every": 1000, "checkpoint_every": 1000, "warmup": 0, **settings})


def judging(losses):
    """A validation that finds one loss after the other, and then always the last one."""
    seen = []

    def validation(model):
        model.eval()
        seen.append(losses[min(len(seen), len(losses) - 1)])
        return ValidationResult(seen[-1])

    return validation


# -- the log ---------------------------------------------------------------------------------------------------------


def test_the_log_is_a_mean_over_tokens_about_once_a_second(tmp_path, bar, clock):
    one = small(tmp_path, steps=5, learning_rate=0.5, schedule="constant", evaluate_every=4)
    losses, counts, seconds = [2.0, 4.0, 1.0, 3.0, 800.0], [100, 300, 50, 50, 70], [0.5, 0.5, 1.00006, 0.25, 2.0]
    one.validation = judging([math.log(8), 5.0])

    def step():
        n = one.progress.step
        clock.now += seconds[n]
        one.progress.step, one.progress.tokens = n + 1, one.progress.tokens + counts[n]
        return torch.tensor(losses[n], dtype=torch.float64), counts[n]

    one.step = step
    one.validate = clock.passing(0.5, one.validate)
    one.files._write = clock.passing(0.125, one.files._write)
    clock.now += 3.0
    at = one.train()
    rows = entries(tmp_path)
    trained = [row for row in rows if "split" not in row]
    assert [(row["step"], row["tokens"], row["loss"]) for row in trained] == [
        (2, 400, 3.5), (3, 450, 1.0), (4, 500, 3.0), (5, 570, 800.0)
    ]  # fmt: skip
    assert [row["tokens_per_second"] for row in trained] == [400.0, 50.0, 200.0, 35.0]
    assert [row["seconds"] for row in trained] == [0.5, 1.0, 2.25, 2.25]  # before the step, or the validation
    assert [row["elapsed"] for row in trained] == [3.5, 4.0, 5.25, 5.875]
    assert [row["perplexity"] for row in trained] == [math.exp(3.5), math.e, math.exp(3), None]  # JSON has no infinity
    assert [row["learning_rate"] for row in trained] == [0.5] * 4
    valid = [row for row in rows if "split" in row]
    assert [(row["split"], row["step"], row["loss"]) for row in valid] == [("valid", 4, math.log(8)), ("valid", 5, 5.0)]
    assert valid[0]["perplexity"] == pytest.approx(8.0)
    assert bar.began == ("training", 5, 0.0, " steps")
    assert bar.said == [
        "step 4: validation loss 2.0794, perplexity 8.00  best so far",
        "step 5: validation loss 5.0000, perplexity 148.41",
    ]
    assert [amount for amount, _ in bar.steps] == [1.0] * 5
    assert bar.steps[0][1] == ""
    assert bar.steps[1][1] == "loss 3.500 · perplexity 33.12 · 400 tokens/s"
    assert bar.steps[4][1] == "loss 800.000 · perplexity inf · 35 tokens/s · validation 11% of the time"
    assert at.overhead_seconds == {"validation": 1.125, "saving": 0.125}
    assert at.seconds == pytest.approx(4.25006)


def test_what_takes_more_than_a_twentieth_of_the_time_is_mentioned(tmp_path, clock):
    at = Progress(elapsed=160.0, overhead_seconds={"validation": 8.0, "saving": 9.6})
    log = TrainingLog(None, Bar(), at)
    clock.now += 1.0
    log.trained(torch.tensor(1.0), 10, 0.1)
    assert log.note.endswith("10 tokens/s · saving 6% of the time")


def test_other_figures_of_a_validation_are_logged_too(tmp_path):
    bar = Bar()
    log = TrainingLog(tmp_path / "metrics.jsonl", bar, Progress(step=3))
    log.validated(ValidationResult(0.0, {"bleu": 31.25}, "bleu"), False)
    assert bar.said == ["step 3: validation loss 0.0000, perplexity 1.00, BLEU 31.25"]
    assert entries(tmp_path)[0].items() >= {"split": "valid", "loss": 0.0, "perplexity": 1.0, "bleu": 31.25}.items()


def test_the_speed_leaves_out_the_validation_before(tmp_path, clock):
    log = TrainingLog(tmp_path / "metrics.jsonl", Bar(), Progress())
    log.trained(torch.tensor(9.0), 10, 0.1)  # not enough time has passed: it is written before the validation
    clock.now += 0.5
    assert log.write_pending() == 9.0
    assert entries(tmp_path)[-1]["tokens_per_second"] == 20.0
    clock.now += 30.0
    log.validated(ValidationResult(1.0), True)
    clock.now += 2.0
    assert log.trained(torch.tensor(3.0), 50, 0.1) == 3.0
    assert entries(tmp_path)[-1]["tokens_per_second"] == 25.0


def test_no_training_step_is_left_out_of_the_curve_however_often_it_is_validated(tmp_path, clock):
    """The clock stands still, so that no second ever passes."""
    one = small(tmp_path, steps=5, evaluate_every=2)
    losses = iter([1.0, 3.0, 5.0, 9.0, 2.0])

    def step():
        one.progress.step += 1
        return torch.tensor(next(losses)), 10

    one.step = step
    one.train()
    found = [(row["step"], row.get("split", "train"), row["loss"]) for row in entries(tmp_path)]
    assert [(step, loss) for step, split, loss in found if split == "train"] == [(2, 2.0), (4, 7.0), (5, 2.0)]
    assert [split for _, split, _ in found] == ["train", "valid"] * 3


def test_a_stop_leaves_no_training_step_out_of_the_curve(tmp_path, clock):
    one = small(tmp_path, steps=5)
    step = one.step

    def stopping():
        one.stop_requested = one.progress.step == 2
        return step()

    one.step = stopping
    with pytest.raises(Stopped):
        one.train()
    assert [row["step"] for row in entries(tmp_path)] == [3]


def test_a_loss_that_the_log_finds_not_to_be_finite_stops_the_training(tmp_path, clock):
    """On a GPU no step waits for its loss, so the log is where it is seen."""
    one = small(tmp_path)

    def step():
        clock.now += 1.0
        one.progress.step += 1
        return torch.tensor(math.nan), 10

    one.step = step
    with pytest.raises(RegardError, match=r"became nan at step 1; .*smaller training.learning_rate or training.clip"):
        one.train()
    one = small(tmp_path, clip=0)
    with pytest.raises(RegardError, match=r"smaller training.learning_rate, or training.clip 1\."):
        one.check_finite(math.inf)


def test_weights_and_losses_that_are_not_finite_are_never_saved(tmp_path):
    one = small(tmp_path)
    one.save()
    before = (tmp_path / "training.safetensors").read_bytes()
    one.validation = judging([math.nan])
    with pytest.raises(RegardError, match="became nan"):
        one._validate(TrainingLog(None, Bar(), one.progress))
    assert not (tmp_path / "model.safetensors").exists()
    with torch.no_grad():
        next(one.model.parameters())[0] = math.inf
    with pytest.raises(RegardError, match="became nan"):
        one.save()
    assert (tmp_path / "training.safetensors").read_bytes() == before


# -- the clock -------------------------------------------------------------------------------------------------------


def timed(folder, clock, budget, **settings):
    """A start of 20 s, steps of 1 s, validations of 8 s, files of 2 s."""
    one = small(folder, budget=budget, schedule="cosine", **settings)
    one.step = clock.passing(1.0, one.step)
    one.validate = clock.passing(8.0, one.validate)
    one.files._write = clock.passing(2.0, one.files._write)
    clock.now += 20.0
    return one


@pytest.mark.parametrize("every, validated", [(1000, [40, 60]), (30, [30, 60])])
def test_of_a_budget_of_seconds_the_end_is_left_free_for_the_last_validation_and_checkpoint(
    tmp_path, clock, every, validated
):
    """A first validation is made at half time, if there was none before, to see how long it takes."""
    began = clock.now
    one = timed(tmp_path, clock, "100s", evaluate_every=every)
    one.validation = judging([2.0, 1.0])
    step, shares = one.step, []

    def noting():
        ending = sum(10.0 for _ in one.progress.history[-1:])  # 8 + 2 for the weights; no checkpoint was written so far
        shares.append((one.clock.fraction(), (clock.now - began - 20.0) / (100.0 - 20.0 - ending)))
        return step()

    one.step = noting
    at = one.train()
    assert [step for step, _ in at.history] == validated
    assert all(share == pytest.approx(expected) for share, expected in shares)
    assert at.overhead_seconds == {"validation": 10.0 * len(at.history), "saving": 2.0}
    assert at.started == 20.0


def test_the_clock_is_looked_at_after_each_checkpoint(tmp_path, clock):
    began = clock.now
    one = timed(tmp_path, clock, "100s", checkpoint_every=1)
    step, shares = one.step, []

    def noting():
        if not one.progress.history:
            shares.append((one.clock.fraction(), (clock.now - began - 20.0) / 80.0))
        return step()

    one.step = noting
    one.train()
    assert len(shares) == 14  # 3 s each, until half of 80 s is over
    assert all(share == pytest.approx(expected) for share, expected in shares)


def test_at_least_half_of_the_time_is_for_steps(tmp_path, clock):
    one = timed(tmp_path, clock, "16s")
    one.clock.ending = 5.0
    one.progress.started, one.progress.elapsed = 20.0, 22.0
    assert one.clock.fraction() == 2.0 / 8.0
    one.progress.started, one.progress.elapsed = 1.0, 3.0
    assert one.clock.fraction() == 2.0 / 10.0


@pytest.mark.parametrize(
    "budget, spent, unit", [("", 3.0, " steps"), ("1k", 70.0, " tokens"), ("90s of steps", 5.0, " s")]
)
def test_what_is_spent_is_counted_in_the_unit_of_the_budget(tmp_path, budget, spent, unit):
    one = small(tmp_path, budget=budget, steps=12)
    one.progress = Progress(step=3, tokens=70, seconds=5.0, elapsed=9.0)
    assert one.clock.spent() == spent
    assert one.clock.unit == unit
    assert one.clock.fraction() == spent / one.clock.limit.amount


# -- validations spread over the budget ------------------------------------------------------------------------------


@pytest.mark.parametrize("validations", [1, 3, 7, 49, 50])
def test_of_steps_and_tokens_so_many_validations_are_made_evenly(tmp_path, validations):
    """A step reads 128 tokens. Nothing is computed but the count."""
    for budget in ({"steps": 50}, {"budget": str(50 * 128)}):
        one = counting(small(tmp_path, validations=validations, **budget))
        at = one.train()
        assert [step for step, _ in at.history] == [math.ceil(50 * n / validations) for n in range(1, validations + 1)]


@pytest.mark.parametrize("budget", ["100s of steps", "100s", "1M", ""])
def test_epochs_end_a_training_before_its_budget_with_all_validations_and_the_lowest_rate(
    tmp_path, clock, budget, monkeypatch
):
    monkeypatch.setattr(loop, "progress", bar := Bar())
    one = small(tmp_path, budget=budget, epochs=3, steps=100, validations=5, evaluate_every=1, schedule="cosine")
    one = counting(one, clock, 0.25)
    ends, rates, step = 3 * one.batches.steps_per_epoch, [], one.step

    def noting():
        rates.append(one.learning_rate / one.settings.learning_rate)
        return step()

    one.step = noting
    at = one.train()
    assert at.step == ends < 100
    assert [step for step, _ in at.history] == [math.ceil(ends * n / 5) for n in range(1, 6)]
    assert rates[-1] == pytest.approx(0.1 + 0.9 * (1 + math.cos(math.pi * (ends - 1) / ends)) / 2)
    notes = [note for note in bar.said if "training.epochs" in note]
    assert notes == ["ending: the text was read 3 times (training.epochs)"] * bool(budget)
    assert bar.began[1:] == ((ends, 0.0, " steps") if not budget else bar.began[1:])


def test_a_budget_that_ends_before_the_epochs_is_used_as_without_them(tmp_path):
    one = counting(small(tmp_path, budget=str(5 * 128), epochs=1000))
    assert one.train().step == 5


def test_every_number_of_validations_is_made_whatever_the_number_of_steps(tmp_path):
    """Also where 49 times 1/49 is less than 1."""
    for steps in range(1, 60):
        one = small(tmp_path, steps=steps, validations=steps)
        for one.progress.step in range(steps):
            one.progress.validated = float(one.progress.step)
            one.progress.step += 1
            assert one.clock.validation_is_due()


def test_fewer_steps_than_validations_are_validated_one_by_one(tmp_path):
    at = counting(small(tmp_path, steps=3, validations=20)).train()
    assert [step for step, _ in at.history] == [1, 2, 3]


def counting(one, clock=None, seconds=0.0):
    """The trainer, whose steps compute nothing and take so long."""

    def step():
        one.progress.step, one.progress.tokens = one.progress.step + 1, one.progress.tokens + 128
        if clock is not None:
            clock.now += seconds
        return torch.tensor(1.0), 128

    one.step, one.validation = step, judging([2.0])
    return one


@pytest.mark.parametrize("seconds", [0.03125, 0.25, 1.0, 2.5])
def test_however_fast_the_steps_of_a_budget_in_seconds_are_it_has_equally_many_validations(tmp_path, clock, seconds):
    one = counting(small(tmp_path, budget="50s of steps", validations=20), clock, seconds)
    one.validate = clock.passing(8.0, one.validate)  # however long they take
    at = one.train()
    assert len(at.history) == 20
    assert at.seconds == pytest.approx(50.0, abs=seconds)
    gaps = np.diff([0, *(step for step, _ in at.history)]) * seconds
    assert all(gap == pytest.approx(2.5, abs=seconds) for gap in gaps)


@pytest.mark.parametrize("seconds", [0.03125, 0.5])
def test_of_a_whole_commands_seconds_too(tmp_path, clock, seconds):
    one = counting(small(tmp_path, budget="100s", validations=10, evaluate_every=10), clock, seconds)
    one.validate = clock.passing(0.5, one.validate)
    clock.now += 20.0
    assert len(one.train().history) == 10
    assert clock.now - 100.0 == pytest.approx(100.0, abs=1.0)


def test_validations_that_take_long_leave_four_times_as_much_to_steps(tmp_path, clock):
    """Steps of 1 s and validations of 8 s, in 100 s: none before it is known how long one takes, then few."""
    one = counting(small(tmp_path, budget="100s", validations=10, evaluate_every=15), clock, 1.0)
    one.validate = clock.passing(8.0, one.validate)
    at = one.train()
    assert [step for step, _ in at.history] == [15, 47, 76]
    one = counting(small(tmp_path, budget="100s", validations=10, evaluate_every=1000), clock, 1.0)
    one.validate = clock.passing(8.0, one.validate)
    assert [step for step, _ in one.train().history] == [50, 82]


def test_a_checkpoint_follows_each_validation_where_no_steps_are_set(tmp_path):
    one, saved = counting(small(tmp_path, steps=12, validations=3, checkpoint_every=0)), []
    save = one.save
    one.save = lambda **_: (
        saved.append((one.progress.step, len(one.progress.history), one.progress.validated)) or save()
    )
    one.train()
    assert saved == [(4, 1, 4.0), (8, 2, 8.0), (12, 3, 12.0)]  # at the end once
    one.progress = Progress()
    saved.clear()
    one.clock.settings = replace(one.settings, checkpoint_every=5)
    one.train()
    assert [step for step, *_ in saved] == [5, 10, 12]


# -- when it ends ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("patience, ends", [(3, 8), (2, 4), (1, 3), (0, 12)])
def test_patience_counts_validations_since_the_best(tmp_path, bar, patience, ends):
    one = small(tmp_path, steps=12, evaluate_every=1, patience=patience)
    one.validation = judging([3.0, 2.0, 2.5, 2.5, 1.0, 1.5, 1.0])
    assert one.train().step == ends
    stopped = [line for line in bar.said if line.startswith("stopping")]
    words = f"stopping: {patience} validation{'s' * (patience > 1)} without improvement"
    assert stopped == ([words] if patience else [])


@pytest.mark.parametrize("rhythm", [{"evaluate_every": 4}, {"validations": 2}])
@pytest.mark.parametrize("patience, ends", [(1, 4), (2, 8)])
def test_patience_may_end_with_the_validation_that_is_made_up_for(tmp_path, patience, ends, rhythm):
    def again():
        one = small(tmp_path, steps=8, patience=patience, **rhythm)
        one.validation = judging([7.0])
        return one

    one = again()
    one.progress = Progress(step=4, best=5.0, best_step=2, history=[(2, 5.0)], validated=2.0)
    one.save()
    one = again()
    one.restore()
    at = one.train()
    assert at.step == ends
    assert at.history == [(2, 5.0), (4, 7.0)] + [(8, 7.0)] * (ends == 8)


def test_signals_stop_after_the_step_and_belong_to_the_caller_again_afterwards(tmp_path):
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in before:
        one = small(tmp_path, steps=5)
        step = one.step
        one.step = lambda step=step, number=number: signal.raise_signal(number) or step()
        with pytest.raises(Stopped):
            one.train()
        assert load_tensors(tmp_path / "training.safetensors")[1]["progress"]["step"] == 1
        assert {number: signal.getsignal(number) for number in before} == before
    one = small(tmp_path, steps=5)
    one.step = lambda: signal.raise_signal(signal.SIGINT) or signal.raise_signal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        one.train()


def test_a_training_in_another_thread_leaves_signals_alone(tmp_path):
    one, steps = small(tmp_path, steps=2), []
    thread = threading.Thread(target=lambda: steps.append(one.train().step))
    thread.start()
    thread.join()
    assert steps == [2]


@pytest.mark.parametrize("at", [1, 4])
def test_an_error_of_a_callback_ends_the_training_with_a_checkpoint(tmp_path, at):
    one = small(tmp_path, steps=4, evaluate_every=1)
    seen = []

    def failing(row):
        seen.extend([dict(row)] if "split" in row else [])
        row.clear()  # its own copy
        if len(seen) == at:
            raise OSError("the other side is gone")

    one.callbacks = (failing,)
    with pytest.raises(OSError, match="the other side is gone"):
        one.train()
    progress = load_tensors(tmp_path / "training.safetensors")[1]["progress"]
    # What fails at a validation ends the next step, which is validated, too.
    assert [row["step"] for row in validations(tmp_path)] == [*range(1, 1 + min(at + 1, 4))]
    assert progress["step"] == min(at + 1, 4)


# -- steps -----------------------------------------------------------------------------------------------------------


def test_before_the_first_step_nothing_was_done(tmp_path):
    one = small(tmp_path)
    one.save()
    progress = load_tensors(tmp_path / "training.safetensors")[1]["progress"]
    nothing = {"step": 0, "tokens": 0, "seconds": 0.0, "elapsed": 0.0, "started": 0.0, "besides": {}, "best": math.inf}
    nothing |= {"criterion": "loss", "best_step": -1, "stuck": 0, "drops": 0, "averaged": 0, "finished": False}
    assert progress == nothing | {"history": [], "validated": 0.0}
    assert Progress().as_note() == progress
    assert Progress.from_note(progress) == Progress()
    assert one.runner.warm_up_steps == 0
    assert not one.runner.needs_tensor_learning_rate


def test_the_model_is_in_training_during_steps_also_after_a_validation(tmp_path):
    one = small(tmp_path, steps=4, evaluate_every=2)
    one.validation = judging([1.0])
    one.model.eval()
    modes, step = [], one.step
    one.step = lambda: modes.append(one.model.training) or step()
    one.train()
    assert modes == [True] * 4


def test_a_stream_goes_on_with_the_state_after_the_window_before(tmp_path):
    one = trainer(tmp_path, "lstm")
    one.model.double().eval()
    first, second = (one.batches.batch(step) for step in (0, 1))
    begins = float(one.runner.gradient(first)[0])
    goes_on = float(one.runner.gradient(second)[0])
    tokens = torch.from_numpy(np.concatenate([first.tokens, second.tokens], axis=1))
    targets = torch.from_numpy(np.concatenate([first.targets, second.targets], axis=1))
    logits, _ = one.model(tokens)  # both windows as one
    losses = torch.nn.functional.cross_entropy(logits.mT, targets, reduction="none")
    window = first.tokens.shape[1]
    assert begins == pytest.approx(losses[:, :window].mean().item(), rel=1e-9)
    assert goes_on == pytest.approx(losses[:, window:].mean().item(), rel=1e-9)
    assert float(one.runner.gradient(first)[0]) == pytest.approx(begins, rel=1e-9)  # an epoch begins afresh


def test_a_text_model_leaves_three_files(tmp_path):
    one = small(tmp_path, steps=4, evaluate_every=2)
    one.train()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "metrics.jsonl", "model.safetensors", "training.safetensors"
    ]  # fmt: skip
    assert not one.average.active


def test_the_rate_decays_with_the_epochs(tmp_path):
    one = small(tmp_path, schedule="decay", decay=0.5, decay_after=2, learning_rate=1.0, batch_tokens=1024, steps=12)
    assert one.batches.steps_per_epoch == 3
    rates = []
    for step in range(12):
        one.progress.step = step
        rates.append(one.learning_rate)
    assert rates == [1.0] * 6 + [0.5] * 3 + [0.25] * 3


def test_the_rate_rises_to_its_peak_and_the_schedule_begins_there(tmp_path):
    one = small(tmp_path, schedule="inverse-sqrt", learning_rate=1.0, warmup=4, steps=12)
    rates = []
    for _ in range(6):
        rates.append(one.learning_rate)
        one.step()
        assert one.optimizer.param_groups[0]["lr"] == rates[-1]
    assert rates == [0.25, 0.5, 0.75, 1.0, 1.0, pytest.approx(math.sqrt(4 / 5))]


@pytest.mark.parametrize(
    "warmup, step, spent, wanted",
    [
        (4000, 0, 0.0, 4000),  # nothing is known of the pace
        (4000, 500, 0.1, 500),  # room for 5000 steps
        (4000, 500, 0.25, 200),
        (4000, 50_000, 0.5, 4000),
        (4000, 150, 0.5, 100),  # room for 300 steps: a third
        (100, 15, 0.5, 10),
        (5, 15, 0.5, 5),
        (0, 5, 0.5, 0),
    ],
)
def test_the_warm_up_fits_into_a_budget_of_seconds(warmup, step, spent, wanted):
    assert warmup_within(warmup, step, spent) == wanted


@pytest.mark.parametrize("budget, wanted", [("100s", 120 / 198), ("100s of steps", 0.075), ("1M", 0.075)])
def test_only_a_budget_of_the_users_seconds_shortens_the_warm_up(tmp_path, budget, wanted):
    one = small(tmp_path, budget=budget, warmup=1600, learning_rate=1.0)
    one.progress = Progress(
        step=119, seconds=20.0, elapsed=20.0
    )  # of 100 s, so 595 steps have room, of which a third may be warm-up
    assert one.learning_rate == pytest.approx(wanted)


def test_every_schedule_is_its_formula_without_a_warm_up_too():
    assert learning_rate_at("inverse-sqrt", 2.0, 0, 0, 0.0, 0) == 2.0
    assert learning_rate_at("inverse-sqrt", 2.0, 9, 0, 0.0, 0) == pytest.approx(2 / 3)
    assert learning_rate_at("cosine", 2.0, 0, 0, 0.25, 0) == pytest.approx(2 * (0.1 + 0.9 * math.cos(math.pi / 8) ** 2))
    assert learning_rate_at("cosine", 2.0, 0, 0, 1.5, 0) == pytest.approx(0.2)
    assert learning_rate_at("plateau", 2.0, 5, 0, 0.0, 1) == 0.5
    assert learning_rate_at("decay", 2.0, 5, 0, 0.0, 3) == 2.0
    assert learning_rate_at("constant", 2.0, 5, 0, 0.9, 3) == 2.0


def test_sgd_is_averaged_from_the_validation_on_that_is_worse_than_an_older_one(tmp_path):
    settings = {"steps": 10, "evaluate_every": 1, "learning_rate": 0.5, "schedule": "constant"}
    losses = [5.0, *[6.0] * 5, 5.5, 9.0]  # due at the seventh

    def trained(optimizer):
        one = small(tmp_path, optimizer=optimizer, **settings)
        one.validation = judging(losses)
        weights, step = [], one.step

        def noting():
            result = step()
            weights.append(one.model.embedding.table.weight.detach().clone())
            return result

        one.step = noting
        at = one.train()
        return one, at, weights

    one, at, weights = trained("asgd")
    assert at.averaged == 4
    assert at.validations_since_best == 3  # counted anew for the average
    torch.testing.assert_close(one.average.weights["embedding.table.weight"], torch.stack(weights[6:]).mean(0))
    torch.testing.assert_close(one.model.embedding.table.weight.detach(), weights[-1])
    one, at, _ = trained("sgd")
    assert at.averaged == 0
    assert at.validations_since_best == 9


# -- a group ---------------------------------------------------------------------------------------------------------


class Ranks(Group):
    """A process of several, alone in its test: nothing is exchanged, and what would be is noted."""

    def __init__(self, rank, size):
        super().__init__(rank, size, [])

    def sum(self, tensor):
        return tensor

    def barrier(self):
        self.messages.append("barrier")

    @contextmanager
    def synchronizing(self, wrapped, *, last):
        self.messages.append(last)
        yield


@pytest.mark.parametrize("rows, accumulate", [(7, 1), (7, 3), (2, 4), (1, 2)])
def test_the_mean_of_all_processes_gradients_is_that_of_one(tmp_path, rows, accumulate):
    one = small(tmp_path, accumulate=accumulate)
    one.model.double().eval()
    whole = Windows(ids(), rows, 16, 0, 3).batch(0)
    loss, count = one.runner.gradient(whole)
    expected = [None if weight.grad is None else weight.grad.clone() for weight in one.model.parameters()]
    parts, sums, found = [], 0.0, [torch.zeros_like(weight) for weight in one.model.parameters()]
    for rank in range(3):
        one.group = Ranks(rank, 3)
        forward = one.forward

        def first(*given, forward=forward):
            if len(one.group.messages) == 1:
                assert all(weight.grad is None for weight in one.model.parameters())  # so they take no memory
            return forward(*given)

        one.forward = first
        its_loss, its_count = one.runner.gradient(whole)
        one.forward = forward
        sums += float(its_loss)
        assert its_count == count == whole.targets.size
        for sum_, weight in zip(found, one.model.parameters(), strict=True):
            sum_ += weight.grad / 3
        parts.append(one.group.messages)
    assert sums == pytest.approx(float(loss), rel=1e-12)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)
    most = min(accumulate, max(1, rows // 3))
    assert parts == [[False] * (most - 1) + [True]] * 3  # gradients are exchanged once, by all at the same time


def test_what_is_dropped_differs_between_steps_and_processes_and_not_between_trials(tmp_path):
    def seed(rank, step, seed=3):
        one = trainer(tmp_path, "lstm", seed=seed, batches="windows")
        one.group = Ranks(rank, 2)
        one.progress.step = step
        torch.manual_seed(77)
        one.step()
        return torch.initial_seed()

    assert seed(0, 0) == seed(0, 0) == 3 * 1_000_003 * 65_537
    assert seed(1, 5) == (3_000_009 + 5) * 65_537 + 1
    assert seed(1, 5, seed=4) == (4_000_012 + 5) * 65_537 + 1
    one = trainer(tmp_path, "lstm", batches="windows")
    torch.manual_seed(77)
    one.step()
    assert torch.initial_seed() == 77  # one process alone goes on with its generator


def test_a_stream_needs_a_row_for_every_process(tmp_path):
    one = trainer(tmp_path, "lstm", batch_tokens=32)
    one.group = Ranks(0, 3)
    with pytest.raises(
        RegardError, match="3 processes need at least 3 sequences per batch, but a batch has only 2: raise"
    ):
        one.step()


def test_processes_wait_for_each_other_after_a_restore(tmp_path):
    small(tmp_path).save()
    one = small(tmp_path)
    one.group = one.files.group = Ranks(1, 2)
    (tmp_path / "metrics.jsonl").write_text('{"step": 9}\n')
    one.restore()
    assert one.group.messages == ["barrier"]
    assert entries(tmp_path) == [{"step": 9}]  # the first process alone changes files


# -- installed functions ---------------------------------------------------------------------------------------------


def test_what_is_installed_is_told_what_it_is_for(tmp_path):
    given = small(tmp_path)
    calls = []
    settings = given.settings
    loop.Trainer(
        given.model, given.batches, given.validation, settings, tmp_path, bf16=True,
        install=lambda module, **facts: calls.append((type(module), facts)),
    )  # fmt: skip
    facts = {"device": torch.device("cpu"), "training": True, "bf16": True, "captured": False, "pairs": False}
    assert calls == [(loop.Trainer, {}), (Objective, facts | {"compile": settings.compile})]


def test_a_captured_step_is_refused_where_there_is_no_gpu(tmp_path):
    with pytest.raises(RegardError, match=r"training.capture on needs a CUDA device, not cpu"):
        small(tmp_path, capture="on")


def test_a_step_given_as_tensors_is_the_same_step(tmp_path):
    """As a recorded step calls it."""
    one = small(tmp_path)
    batch = one.batches.batch(0)
    loss, count = one.runner.gradient(batch)
    expected = [weight.grad.clone() for weight in one.model.parameters()]
    again, state = one.runner.backward(to_device(batch, one.device), None, torch.tensor(count), 1)
    assert state is None
    torch.testing.assert_close(again, loss)
    for weight, gradient in zip(one.model.parameters(), expected, strict=True):
        torch.testing.assert_close(weight.grad, gradient)


def test_text_that_is_read_in_one_call_leaves_no_cache(tmp_path):
    one = small(tmp_path)
    batch = to_device(one.batches.batch(0), one.device)
    begun = one.model.begin(rows=len(batch.tokens))
    assert Objective(one.model).initial_state(batch, None) is None
    assert Objective(one.model, keeps=False).initial_state(batch, begun) is begun
    empty = Objective(one.model, keeps=False).initial_state(batch, None)
    assert not any(empty["past"].values())
    assert empty["seen"].tolist() == [0]  # all rows begin together
    assert Objective(torch.nn.Identity(), keeps=False).initial_state(batch, None) is None
    assert not one.objective.keeps
    assert trainer(tmp_path, "lstm").objective.keeps


@pytest.mark.parametrize("rows", [1, 5, 6, 9])
@pytest.mark.parametrize("parts", [1, 2, 4, 7])
def test_micro_batches_are_all_rows_in_order_in_parts_of_about_one_size(rows, parts):
    batch = TensorBatch(torch.arange(rows)[:, None], torch.arange(rows)[:, None] + 100, torch.ones(rows))
    cut = micro_batches(batch, parts)
    assert len(cut) == min(parts, rows)
    assert [row for part, _ in cut for row in range(rows)[part]] == list(range(rows))
    sizes = [len(piece.tokens) for _, piece in cut]
    assert max(sizes) - min(sizes) <= 1
    for part, piece in cut:
        assert piece.tokens.flatten().tolist() == list(range(rows)[part])
        assert (piece.targets - 100).equal(piece.tokens)
        assert len(piece.lengths) == len(piece.tokens)
        assert piece.source is None


@pytest.mark.parametrize("most", [0.5, 3.0, 100.0])
def test_gradients_are_divided_by_what_clipping_divides_them_by(most):
    model = torch.nn.Linear(3, 2)
    for weight in model.parameters():
        weight.grad = torch.randn(weight.shape, generator=torch.Generator().manual_seed(1)) * 4
    gradients = [weight.grad.clone() for weight in model.parameters()]
    expected = [gradient / divisor(gradients, most) for gradient in gradients]
    clip(model, most, build_optimizer("adamw", model.named_parameters(), learning_rate=1, weight_decay=0, beta2=0.9))
    torch.testing.assert_close([weight.grad for weight in model.parameters()], expected)
    tiny = [torch.full((2,), 1e-6)]
    assert divisor(tiny, 1e-6).item() == pytest.approx(1 + math.sqrt(2), rel=1e-3)  # as torch adds 1e-6 to the norm


@pytest.mark.parametrize("rate", [0.5, torch.tensor(0.5)])
def test_a_rate_is_changed_where_it_is(rate):
    optimizer = torch.optim.SGD([{"params": [torch.ones(2)]}, {"params": [torch.ones(3)]}], lr=rate)
    held = [group["lr"] for group in optimizer.param_groups]
    set_learning_rate(optimizer, 0.25)
    assert [float(group["lr"]) for group in optimizer.param_groups] == [0.25, 0.25]
    if isinstance(rate, torch.Tensor):  # a recorded step reads this very tensor
        assert all(group["lr"] is one for group, one in zip(optimizer.param_groups, held, strict=True))


# -- files -----------------------------------------------------------------------------------------------------------


def test_moments_are_thinned_only_as_far_as_needed():
    assert subsample_steps(range(6), 6) == set(range(6))
    assert subsample_steps(range(7), 6) == {0, 2, 4, 6}
    assert subsample_steps(range(9), 1) == subsample_steps(range(9), 2) == {0, 8}
    assert subsample_steps([0, 5, 7, 12], 3) == {0, 7, 12}


def test_only_files_that_are_named_by_a_step_are_weights(tmp_path):
    for name in ("00000002", "10", "٣", "abc", "-1", "1.5"):
        save_tensors(tmp_path / "kept" / f"{name}.safetensors", {"w": torch.ones(1)})
    (tmp_path / "kept" / "00000003.txt").write_text("no weights")
    assert [path.stem for path in kept_weights(tmp_path)] == ["00000002", "10"]
    assert weights_in(tmp_path / "none") == []


@pytest.mark.parametrize("name", ["kept", "snapshots"])
def test_weights_are_not_written_through_a_link(tmp_path, name):
    (tmp_path / "elsewhere").mkdir()
    one = small(tmp_path / "run", steps=2, evaluate_every=1, snapshots=2)
    one.files.keep = 2
    (tmp_path / "run" / name).symlink_to(tmp_path / "elsewhere", target_is_directory=True)
    with pytest.raises(
        RegardError, match=f"{name} is a link that points outside the run: replace it with a real folder"
    ):
        one.train()
    assert not list((tmp_path / "elsewhere").iterdir())


def test_what_was_written_after_the_checkpoint_is_forgotten(tmp_path):
    def again():
        one = small(tmp_path, steps=8, evaluate_every=2, checkpoint_every=4, snapshots=100)
        one.files.keep = 3
        return one

    def moments():
        return [[int(path.stem) for path in weights_in(tmp_path / name)] for name in ("kept", "snapshots")]

    one = again()
    one.callbacks = (lambda row: row["step"] == 6 and one.group.__class__.nothing,)  # kills it: no such attribute
    one.save, save = lambda **_: one.progress.step == 4 and save(), one.save
    with pytest.raises(AttributeError):
        one.train()
    assert moments() == [[2, 4, 6], [0, 2, 4, 6]]
    assert [row["step"] for row in validations(tmp_path)] == [2, 4, 6]
    one = again()
    one.restore()
    assert one.progress.step == 4
    assert moments() == [[2, 4], [0, 2, 4]]
    assert [row["step"] for row in entries(tmp_path)] == [2, 2, 4, 4]
    one.train()
    assert moments() == [[4, 6, 8], [0, 2, 4, 6, 8]]


def test_a_checkpoint_from_a_gpu_goes_on_without_one(tmp_path):
    one = small(tmp_path)
    one.save()
    path = tmp_path / "training.safetensors"
    tensors, note = load_tensors(path)
    save_tensors(path, {**tensors, "random/cuda": torch.zeros(16, dtype=torch.uint8)}, note)
    one.restore()


def test_a_checkpoint_from_before_validations_were_spread_goes_on_as_it_would_have(tmp_path):
    settings = {"steps": 6, "evaluate_every": 2, "checkpoint_every": 3}
    whole = small(tmp_path / "whole", **settings).train()
    one = small(tmp_path / "one", **settings)
    one.callbacks = (lambda row: setattr(one, "stop_requested", row["step"] == 4),)
    with pytest.raises(Stopped):
        one.train()
    path = tmp_path / "one" / "training.safetensors"
    tensors, note = load_tensors(path)
    del note["progress"]["validated"]
    save_tensors(path, tensors, {"progress": note["progress"]})
    one = small(tmp_path / "one", **settings)
    one.restore()
    assert one.train().history == whole.history
    assert [step for step, _ in whole.history] == [2, 4, 6]


def test_weights_alone_are_no_checkpoint(tmp_path):
    save_tensors(tmp_path / "training.safetensors", {"w": torch.ones(2)}, {"step": 3})
    with pytest.raises(RegardError, match="not a training checkpoint"):
        small(tmp_path).restore()


# -- no memory -------------------------------------------------------------------------------------------------------


def without_memory(*_, **__):
    raise MemoryError


@pytest.fixture
def cycle():
    """What only the garbage collector frees."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


class Held:
    """As large as the tensors of a failed step."""

    def __init__(self):
        self.itself = self


def test_everything_of_the_failed_step_is_freed_before_the_checkpoint_is_written(tmp_path, cycle):
    one = small(tmp_path)
    one.runner.gradient(one.batches.batch(0))
    held = weakref.ref(Held())
    released = []

    class Recorded(StepRunner):  # holds memory
        def __call__(self, batch):
            without_memory()

        def release(self):
            released.append(True)

    one.runner = Recorded(one)
    save, found = one.save, []
    one.save = lambda: found.append((held(), one.model.embedding.table.weight.grad, bool(released))) or save()
    with pytest.raises(RegardError, match=r"in the very first step.* continues from step 0"):
        one.train()
    assert found == [(None, None, True)]


@pytest.mark.parametrize("doing", ["step", "update", "validation"])
@pytest.mark.parametrize("averages", [False, True])
def test_only_weights_that_are_whole_are_saved(tmp_path, doing, averages):
    one = small(tmp_path, steps=4, evaluate_every=4, optimizer="asgd")
    if averages:
        one.average.add(one.model)

    def from_third(method):
        return lambda *given: without_memory() if one.progress.step >= 3 else method(*given)

    if doing == "step":
        one.runner.gradient = from_third(one.runner.gradient)
    elif doing == "update":
        one.optimizer.step = from_third(one.optimizer.step)
    else:
        one.validate = without_memory
    step, saved = (4, not averages) if doing == "validation" else (3, doing == "step")
    with pytest.raises(RegardError, match=f"continues from {f'step {step}' if saved else 'its last checkpoint'}"):
        one.train()
    assert (tmp_path / "training.safetensors").exists() == saved


def test_the_checkpoint_itself_may_not_fit(tmp_path):
    one = small(tmp_path)
    one.runner.gradient = one.save = without_memory
    with pytest.raises(RegardError, match="continues from its last checkpoint"):
        one.train()


def test_memory_may_run_out_before_the_first_batch(tmp_path):
    one = small(tmp_path, snapshots=2)
    one.files.snapshot = without_memory
    with pytest.raises(
        RegardError, match=r"in the very first step: free some memory, then run .* continues from " r"step 0"
    ):
        one.train()


def test_of_several_processes_none_writes_a_checkpoint_and_each_has_its_rows(tmp_path):
    one = small(tmp_path, batch_tokens=96)
    one.group, one.rows = Ranks(0, 2), 6
    one.save = without_memory  # is not called
    assert "accumulate 2` continues from its last checkpoint" in rescue(one)
    one.rows = 3
    assert "Or train again with a smaller training.window (now 16)" in rescue(one)


# -- dry runs --------------------------------------------------------------------------------------------------------


def test_a_rehearsal_takes_the_largest_steps_twice_and_writes_the_files(tmp_path):
    one = small(tmp_path, optimizer="asgd")
    one.feed = PrefetchingLoader(one.batches, one.device, 2)
    last = one.batches.steps_per_epoch - 1
    steps, sizes, step = [], [], one.step

    def noting():
        assert one.model.training
        assert one.state is None
        steps.append(one.progress.step)
        return step()

    class Noted(TextValidation):
        def __call__(self, model):
            sizes.append(len(self.ids))
            model.eval()
            return ValidationResult(1.0)

    one.step, one.validation = noting, Noted(np.zeros(30_000, dtype=np.uint16), 0)
    probe_peak_memory(one, 1000)
    assert steps == [0, last] * 2
    assert sizes == [20_000] * 2
    assert one.average.count == 4  # a step adds to the mean as well, once there is one
    assert one.feed.thread is None
    assert (tmp_path / "model.safetensors").exists()
    assert (tmp_path / "training.safetensors").exists()


def test_a_rehearsal_repeats_each_step_until_it_has_its_full_speed(tmp_path):
    one = small(tmp_path)
    one.runner.warm_up_steps, one.validation = 3, judging([1.0])
    steps, step = [], one.step
    one.step = lambda: steps.append(one.progress.step) or step()
    probe_peak_memory(one, 1)
    assert steps == [0] * 6
    assert not one.average.active


@pytest.mark.parametrize("warm_up, steps", [(0, [0, 0, 1, 2]), (2, [0, 0, 0, 1, 1, 1, 2, 2, 2])])
def test_steps_are_measured_after_their_warm_up(tmp_path, clock, warm_up, steps):
    one = small(tmp_path)
    one.runner.warm_up_steps = warm_up
    taken = []

    def step():
        clock.now += 2.0 + len(taken)
        taken.append(one.progress.step)
        one.progress.tokens += 10 * len(taken)
        one.progress.step += 1

    one.step = step
    seconds, tokens = measure_steps(one, 3, clock.perf_counter)
    assert taken == steps
    measured = [n for n, number in enumerate(taken) if n + 1 == len(taken) or taken[n + 1] != number]
    assert seconds == sum(2.0 + n for n in measured) / 3
    assert tokens == sum(10 * (n + 1) for n in measured) / 3


def test_a_training_leaves_no_thread_behind(tmp_path):
    one = small(tmp_path, steps=2)
    one.feed = PrefetchingLoader(one.batches, one.device, 2)
    one.train()
    assert one.feed.thread is None


# -- validation ------------------------------------------------------------------------------------------------------


def test_pairs_are_judged_by_their_loss_or_by_bleu():
    by_loss = PairValidation(lambda model: 2.5)(None)
    assert (by_loss, by_loss.objective) == (ValidationResult(2.5), 2.5)
    by_bleu = PairValidation(lambda model: 2.5, lambda model: 30.0)(None)
    assert (by_bleu, by_bleu.objective) == (ValidationResult(2.5, {"bleu": 30.0}, "bleu"), -30.0)
    assert best_words(2.34567, "loss") == "loss 2.3457"
    assert best_words(-31.2, "bleu") == "BLEU 31.20"


def test_text_is_judged_by_the_mean_over_its_tokens(tmp_path):
    """An untrained output knows nothing: every token costs log V."""
    one = small(tmp_path)
    with torch.no_grad():
        for weight in one.model.parameters():
            weight.zero_()
    assert TextValidation(ids(90, seed=1), 0)(one.model).loss == pytest.approx(math.log(VOCABULARY))


@pytest.mark.parametrize("seconds, rest, wanted", [(0.0, 0, [1, 2, 3, 4, 4]), (0.0, 1e9, [1, 4]), (1e9, 0, [4])])
def test_slow_steps_are_saved_by_the_clock_too(tmp_path, monkeypatch, seconds, rest, wanted):
    """In no more than a minute of them something is saved, unless a checkpoint takes a large part of it."""
    monkeypatch.setattr(clocks, "SAVED_SECONDS", seconds)
    monkeypatch.setattr(clocks, "SAVED_REST", rest)
    one, saved = trainer(tmp_path, steps=4, evaluate_every=1000, checkpoint_every=1000), []
    save = one.save
    one.save = lambda wait=True: (saved.append(one.progress.step), save(wait))[1]
    one.train()
    assert saved == wanted


def test_a_signal_that_arrives_between_two_steps_is_not_lost(tmp_path):
    one = trainer(tmp_path, steps=6)
    sync = one.clock.sync

    def interrupted(stop=False, writing=0.0):
        answer = sync(stop, writing)
        one.stop_requested |= one.progress.step == 2  # the handler runs after the flag was read
        return answer

    one.clock.sync = interrupted
    with pytest.raises(Stopped):
        one.train()
    assert one.progress.step == 2  # the step that was under way
