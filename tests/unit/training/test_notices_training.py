"""When a checkpoint is due, what a second signal does, what of a dialogue counts, and what is refused."""

import json
import math
import signal
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from regard.base.errors import RegardError, Stopped, Terminated
from regard.evaluation.perplexity import Method, token_losses
from regard.runs.recipe import compose
from regard.systems.catalogue import load_class
from regard.training import background_files, budget, optimizers
from regard.training.budget import BudgetClock, Progress
from regard.training.checkpoint import DIGEST, load_tensors, save_tensors, weights_digest
from regard.training.distributed import Group
from regard.training.hyperparameters import Training
from regard.training.interrupts import stop_on_signals
from regard.training.log import finite_or_none, perplexity_of
from regard.training.loop import Trainer
from regard.training.objective import Objective, TensorBatch
from regard.training.validation import TextValidation, ValidationResult
from small_trainers import Clock, ids, trainer


def training(system="lstm", **settings):
    return compose(system, "tiny", {"training": settings}).training


# -- when a checkpoint is due ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("every", "step", "waited", "given", "due"),
    [
        (4, 8, 0.0, {}, True),
        (4, 9, 0.0, {"validated": True}, False),
        (0, 9, 0.0, {"validated": True}, True),
        (0, 8, 0.0, {}, False),
        (4, 9, 60.0, {}, True),  # a minute after the last one
        (4, 9, 59.5, {}, False),
        (4, 9, 99.5, {"saving": 2.0}, False),  # fifty times as long as one takes
        (4, 9, 100.0, {"saving": 2.0}, True),
        (4, 9, 1e9, {"size": 2}, False),  # processes do not ask their own clocks
        (4, 8, 0.0, {"size": 2, "busy": True}, True),
        (4, 8, 0.0, {"busy": True}, False),
        (4, 9, 1e9, {"busy": True}, False),
        (4, 8, 1e9, {"stops": True}, False),
        (4, 100, 0.0, {"history": [(100, 2.0)]}, False),  # the last one follows at once
        (4, 100, 0.0, {"history": [(99, 2.0)]}, True),
        (4, 96, 0.0, {"history": [(96, 2.0)]}, True),
    ],
)
def test_a_checkpoint_is_due_by_steps_validations_and_minutes(every, step, waited, given, due):
    settings = training(steps=100, checkpoint_every=every)
    progress = Progress(step=step, elapsed=500.0 + waited, history=given.get("history", []))
    clock = BudgetClock(settings, progress, Group(0, given.get("size", 1)))
    clock.saved, clock.saving = 500.0, given.get("saving", 0.0)
    asked = {"stops": given.get("stops", False), "busy": given.get("busy", False)}
    assert clock.checkpoint_is_due(given.get("validated", False), **asked) is due


def test_a_clock_goes_on_from_its_checkpoint_and_from_the_seconds_of_an_older_one(monkeypatch):
    now = Clock()
    monkeypatch.setattr(budget, "time", now)
    for progress, wanted in ((Progress(elapsed=30.0, seconds=9.0), 30.0), (Progress(seconds=9.0), 9.0)):
        clock = BudgetClock(training(), Progress(), Group())
        clock.resumed(progress)
        assert (clock.progress, clock.saved, progress.elapsed) == (progress, wanted, wanted)
        now.now += 2.5
        assert clock.sync() is False
        assert (progress.elapsed, progress.seconds, clock.writing) == (wanted + 2.5, 9.0, 0.0)
        assert clock.sync(True, 1.5) is True
        assert clock.writing == 1.5
        began, now.now = now.now, now.now + 0.25
        assert [clock.overhead("saving", began) for _ in range(2)] == [0.25, 0.25]
        assert progress.overhead_seconds == {"saving": 0.5}


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_every_row_of_a_batch_belongs_to_one_process_and_the_others_count_for_nothing(size):
    for rows in range(1, 13):
        groups = [Group(rank, size) for rank in range(size)]
        taken = [[*range(rows)[one.local_rows(rows)]] for one in groups]
        assert all(taken)  # every process reads something
        counted = [row for one, own in zip(groups, taken, strict=True) if one.loss_weight(rows) for row in own]
        assert counted == list(range(rows))
        assert {one.loss_weight(rows) for one in groups} <= {0.0, 1.0}
        assert [(one.is_first, one.alone) for one in groups] == [(n == 0, size == 1) for n in range(size)]


# -- signals ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def handlers():
    """The test may leave others: they are put back."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield before
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize(("number", "error"), [(signal.SIGTERM, Terminated), (signal.SIGINT, KeyboardInterrupt)])
def test_a_second_signal_ends_the_process_as_its_first_one_asked(tmp_path, number, error, handlers):
    one = SimpleNamespace(stop_requested=False, stop_signal=None, group=Group())

    def twice():
        signal.raise_signal(number)
        assert (one.stop_requested, one.stop_signal) == (True, number)
        signal.raise_signal(number)

    with pytest.raises(KeyboardInterrupt) as ended, stop_on_signals(one):
        twice()
    assert type(ended.value) is error
    assert {each: signal.getsignal(each) for each in handlers} == handlers
    stopped = trainer(tmp_path, "gpt", steps=3)
    step = stopped.step
    stopped.step = lambda: signal.raise_signal(number) or step()
    with pytest.raises(Stopped) as ended:
        stopped.train()
    assert (ended.value.signal, ended.value.step) == (number, 1)


@pytest.mark.parametrize(("size", "error", "kept"), [
    (2, RuntimeError, True), (2, ConnectionError, True), (1, RuntimeError, False), (2, ValueError, False),
])  # fmt: skip
def test_while_torchrun_ends_the_others_a_signal_still_asks_to_stop(size, error, kept, handlers):
    one = SimpleNamespace(stop_requested=False, stop_signal=None, group=Group(0, size))
    with pytest.raises(error), stop_on_signals(one):
        raise error
    assert all((signal.getsignal(number) is not handler) is kept for number, handler in handlers.items())


# -- what counts -----------------------------------------------------------------------------------------------------


def test_of_a_dialogue_the_chosen_tokens_count_in_training_and_validation(tmp_path):
    model, text = trainer(tmp_path, "gpt").model.double().eval(), ids(70, seed=2)
    tokens, targets = (torch.from_numpy(text[n : n + 48].astype(np.int64)).view(3, 16) for n in (0, 1))
    counted = torch.arange(48).view(3, 16) % 3 == 0
    losses, _ = model.loss(tokens, targets)
    found, count, _ = Objective(model)(TensorBatch(tokens, targets, None, counted=counted), None)
    assert int(count) == 16
    assert float(found.detach()) == pytest.approx(float(losses[counted].sum().detach()))
    found, count, _ = Objective(model)(TensorBatch(tokens, targets, None, counted=counted & False), None)
    assert (float(found.detach()), int(count)) == (0.0, 1)  # a batch of questions alone: 0 / 1
    each = np.concatenate([*token_losses(model, text, Method.in_training(model), eos=0, begin=7)])
    assert TextValidation(text, 0, 7)(model).loss == pytest.approx(each.mean())
    assert TextValidation(text, 0)(model).loss != pytest.approx(each.mean())
    chosen = np.arange(70) % 4 == 1
    assert TextValidation(text, 0, 7, chosen)(model).loss == pytest.approx(each[chosen].mean())
    assert TextValidation(text, 0, 7, chosen & False)(model).loss == 0.0


# -- files -----------------------------------------------------------------------------------------------------------


def test_the_digest_of_weights_is_that_of_their_file_without_a_note(tmp_path):
    weights = {"b": torch.arange(6.0).view(2, 3).mT, "a": torch.ones(2, dtype=torch.int64)}
    save_tensors(tmp_path / "w.safetensors", weights)
    content = (tmp_path / "w.safetensors").read_bytes()
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    assert json.loads(header["__metadata__"]["regard"]) == {DIGEST: weights_digest(weights)}
    others = [{**weights, "b": weights["b"] + 1e-6}, {"c": weights["b"], "a": weights["a"]},
              {**weights, "a": weights["a"].int()}, {**weights, "b": weights["b"].mT}]  # fmt: skip
    assert len({weights_digest(one) for one in (weights, *others)}) == 5


def test_the_best_weights_say_their_step_loss_and_other_figures(tmp_path):
    one = trainer(tmp_path, "gpt")
    one.files.save_best(7, ValidationResult(2.5, {"bleu": 31.0}, "bleu"), one.files.copy_weights())
    tensors, note = load_tensors(tmp_path / "model.safetensors")
    assert note == {"step": 7, "validation_loss": 2.5, "bleu": 31.0}
    assert tensors.keys() == one.model.state_dict().keys()


def test_a_checkpoint_of_other_weights_is_not_loaded_in_part(tmp_path):
    one = trainer(tmp_path, "gpt")
    one.save()
    path, before = tmp_path / "training.safetensors", one.model.embedding.table.weight.clone()
    tensors, note = load_tensors(path)
    name = next(name for name in tensors if name.startswith("model/") and "embedding" not in name)
    save_tensors(path, {(each + "s" if each == name else each): part + 1 for each, part in tensors.items()}, note)
    with pytest.raises(RuntimeError, match="other weights"):
        one.restore()
    assert torch.equal(one.model.embedding.table.weight, before)


def test_copies_for_a_gpu_are_counted_in_blocks_of_powers_of_two():
    held = {"weights": {"a": torch.zeros(3), "b": torch.zeros(4)}, "checkpoint": {"c": torch.zeros(17)}}
    for device, size in (("cpu", 12 + 16 + 68), ("cuda", 16 + 16 + 128)):
        writer = background_files.FileWriter(torch.device(device))
        writer.copies = held
        assert writer.host_bytes == size


# -- settings and clipping -------------------------------------------------------------------------------------------


def test_windows_rows_and_averages_that_do_not_go_together_are_refused_and_their_limits_are_not():
    assert training(batch_tokens=64, window=64).rows == 1
    with pytest.raises(RegardError, match=r"batch_tokens \(63\) must hold at least one window of 64 tokens"):
        training(batch_tokens=63, window=64)
    assert training(batch_tokens=64, window=16, accumulate=4).accumulate == 4
    with pytest.raises(RegardError, match=r"accumulate \(5\) cannot exceed the 4 rows"):
        training(batch_tokens=64, window=16, accumulate=5)
    with pytest.raises(RegardError, match="both average the weights"):
        training(ema=0.9, optimizer="asgd")
    assert [Training(window=0).for_context(context).window for context in (None, 24)] == [64, 24]
    assert training(window=24).for_context(24).window == training(window=24).for_context(None).window == 24
    with pytest.raises(RegardError, match=r"window \(25\) cannot exceed model.context \(24\)"):
        training(window=25).for_context(24)
    text, pairs = training(batches="windows"), training("transformer", label_smoothing=0.25, consistency=3.0, keep=2)
    assert (text.carries, text.terms, text.kept, text.on_pairs) == (False, {}, 0, False)
    assert training(batches="stream").carries
    assert (pairs.terms, pairs.kept, pairs.on_pairs) == ({"smoothing": 0.25, "consistency": 3.0}, 2, True)


def test_every_setting_of_an_optimizer_reaches_it_and_the_average_and_the_objective(tmp_path):
    one = trainer(
        tmp_path / "one", "gpt", learning_rate=0.25, weight_decay=0.125, beta2=0.75, ema=0.5, snapshots=3, clip=0.0
    )
    matrices, vectors = one.optimizer.param_groups
    assert [group["weight_decay"] for group in (matrices, vectors)] == [0.125, 0.0]
    assert all((group["lr"], group["betas"]) == (0.25, (0.9, 0.75)) for group in (matrices, vectors))
    assert all(weight.dim() >= 2 for weight in matrices["params"])
    assert (one.average.decay, one.files.snapshots, one.files.keep) == (0.5, 3, 0)
    assert trainer(tmp_path / "two", "gpt").average.decay == 1.0  # all steps alike, once averaging has begun
    turned = trainer(tmp_path / "three", "gpt", optimizer="muon", weight_decay=0.125).optimizer.param_groups
    assert [(group["orthogonal"], group["weight_decay"]) for group in turned] == [
        (False, 0.125), (False, 0.0), (True, 0.125)
    ]  # fmt: skip
    settings = training("transformer", label_smoothing=0.25, consistency=3.0, keep=2)
    model = load_class("transformer")(11, compose("transformer", "tiny", {"model": {"width": 16}}).model)
    pairs = Trainer(model, SimpleNamespace(steps_per_epoch=1), None, settings, tmp_path)
    assert (pairs.objective.smoothing, pairs.objective.consistency, pairs.files.keep) == (0.25, 3.0, 2)


@pytest.mark.parametrize("kind", ["whole", "sharded", "on a CPU", "without a fused step", "none"])
def test_a_fused_step_on_a_gpu_takes_the_divisor_along_and_every_other_gradient_is_scaled(kind, monkeypatch):
    clipped = []
    monkeypatch.setattr(torch.nn.utils, "clip_grad_norm_", lambda weights, most: clipped.append((list(weights), most)))
    monkeypatch.setattr(optimizers, "divisor", lambda gradients, most: (gradients, most))
    gradient = SimpleNamespace(is_cuda=kind != "on a CPU", **({"full_tensor": None} if kind == "sharded" else {}))
    weights = [SimpleNamespace(grad=None if kind == "none" else gradient), SimpleNamespace(grad=None)]
    own, rates = [("w", torch.nn.Parameter(torch.ones(1)))], {"learning_rate": 0.1, "weight_decay": 0.0, "beta2": 0.9}
    optimizer = optimizers.build_optimizer("sgd" if kind == "without a fused step" else "adamw", own, **rates)
    optimizers.clip(SimpleNamespace(parameters=lambda: iter(weights)), 0.5, optimizer)
    if kind == "whole":
        assert (optimizer.grad_scale, clipped) == (([gradient], 0.5), [])
    else:
        assert clipped == [(weights, 0.5)]
        assert not hasattr(optimizer, "grad_scale")


def test_a_perplexity_that_no_number_holds_is_infinite():
    assert perplexity_of(0.0) == 1.0
    assert perplexity_of(800.0) == math.inf
    assert [finite_or_none(value) for value in (1.5, math.inf, -math.inf, math.nan, "valid", 3)] == [
        1.5, None, None, None, "valid", 3,
    ]  # fmt: skip
