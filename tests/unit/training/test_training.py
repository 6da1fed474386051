"""The loop: what is killed and resumed ends with the same bits, micro-batches change nothing, errors lose nothing."""

import json
import math
import sys

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from regard.base.errors import RegardError, Stopped
from regard.layers.state import map_state
from regard.training.checkpoint import load_tensors, save_tensors
from regard.training.checkpointing import subsample_steps, weights_in
from regard.training.metrics import cut_metrics
from regard.training.optimizers import WeightAverage, build_optimizer, learning_rate_at
from regard.training.validation import ValidationResult
from small_trainers import VOCABULARY, Clock, bits, set_clock, trainer

NEVER_STOPPED = {}  # the folder of each training that was made


def never_stopped(tmp_path_factory, system, settings):
    name = f"{system} {settings}"
    if name not in NEVER_STOPPED:
        whole = trainer(tmp_path_factory.mktemp("whole"), system, **settings)
        whole.save()
        whole.train()
        NEVER_STOPPED[name] = whole.folder
    return NEVER_STOPPED[name]


@pytest.mark.parametrize(
    "system, settings",
    [
        ("lstm", {}),
        ("gpt", {}),
        ("lstm", {"optimizer": "sgd", "schedule": "plateau", "learning_rate": 1.0}),
        ("lstm", {"optimizer": "asgd", "learning_rate": 4.0, "evaluate_every": 1, "steps": 20}),
        ("gpt", {"schedule": "inverse-sqrt", "accumulate": 3, "budget": "1500"}),
        ("lstm", {"batches": "windows", "accumulate": 2}),
        ("nnlm", {}),
        ("dan", {"batches": "stream"}),
        ("self-attention", {"accumulate": 2}),
        ("self-attention", {"optimizer": "muon"}),
        ("lstm", {"optimizer": "muon", "schedule": "plateau"}),
        ("lstm", {"validations": 5, "checkpoint_every": 0, "schedule": "plateau"}),
        ("gpt", {"validations": 4, "checkpoint_every": 0, "budget": "1500"}),
    ],
)
@pytest.mark.parametrize("stop", [1, 4, 7])
def test_a_stopped_and_resumed_run_ends_with_the_same_bits(tmp_path, tmp_path_factory, system, settings, stop):
    whole = never_stopped(tmp_path_factory, system, settings)
    first = trainer(tmp_path / "cut", system, **settings)
    first.save()
    batch = first.batches.batch

    class Interrupting:
        def batch(self, step):
            if step == stop:
                first.stop_requested = True
            return batch(step)

    first.batches = Interrupting()
    with pytest.raises(Stopped):
        first.train()
    torch.manual_seed(999)  # whatever happened in between
    second = trainer(tmp_path / "cut", system, **settings)
    second.restore()
    assert second.progress.step == stop + 1
    second.train()
    assert bits(tmp_path / "cut") == bits(whole)
    assert bits(tmp_path / "cut", "model.safetensors") == bits(whole, "model.safetensors")
    if settings.get("optimizer") == "asgd":
        assert second.average.active  # else this case tested nothing


def test_a_checkpoint_written_before_a_hard_kill_is_enough(tmp_path):
    """kill -9 leaves whatever was last renamed into place: continue from each checkpoint and compare."""
    whole = trainer(tmp_path / "whole")
    whole.save()
    whole.train()
    killed = trainer(tmp_path / "killed")
    killed.save()

    class Killed(Exception):
        pass

    save = killed.save

    def save_then_die(**_):
        save()
        if killed.progress.step == 8:
            raise Killed

    killed.save = save_then_die
    with pytest.raises(Killed):
        killed.train()
    resumed = trainer(tmp_path / "killed")
    resumed.restore()
    resumed.train()
    assert bits(tmp_path / "killed") == bits(tmp_path / "whole")


@pytest.mark.parametrize("system", ["lstm", "gpt"])
@pytest.mark.parametrize("parts", [2, 3, 8])
def test_micro_batches_give_the_gradient_of_the_whole_batch(tmp_path, system, parts):
    """Law 12: k micro-batches = one batch, also for ragged rows and carried state."""
    whole, cut = (trainer(tmp_path, system, accumulate=k) for k in (1, parts))
    for each in (whole, cut):
        each.model.double().eval()  # eval: dropout would draw different masks
    last = whole.batches.steps_per_epoch - 1  # the ragged one
    for step in (0, 1, last):
        losses = [each.runner.gradient(each.batches.batch(step)) for each in (whole, cut)]
        assert float(losses[0][0]) == pytest.approx(float(losses[1][0]), abs=1e-12)
        for a, b in zip(whole.model.parameters(), cut.model.parameters()):
            assert torch.allclose(a.grad, b.grad, rtol=0, atol=1e-12)


def test_the_loss_is_the_mean_over_all_tokens_of_the_batch_not_a_mean_of_means(tmp_path):
    one = trainer(tmp_path, "lstm")
    one.model.eval()
    step = one.batches.steps_per_epoch - 1
    batch = one.batches.batch(step)
    assert batch.lengths is not None
    assert len(set(batch.lengths.tolist())) > 1
    loss, count = one.runner.gradient(batch)
    assert count == batch.lengths.sum()
    by_hand = 0.0
    for row, length in enumerate(batch.lengths):
        if length:
            tokens = torch.from_numpy(batch.tokens[row : row + 1, :length])
            logits, _ = one.model(tokens)
            by_hand += float(F.cross_entropy(logits[0], torch.from_numpy(batch.targets[row, :length]), reduction="sum"))
    assert float(loss) == pytest.approx(by_hand / count, rel=1e-5)


@pytest.mark.parametrize("most", [0.01, 1e6])
def test_a_step_is_no_longer_than_a_clipped_gradient(tmp_path, most):
    settings = {"optimizer": "sgd", "learning_rate": 1.0, "warmup": 0, "schedule": "constant", "weight_decay": 0.0}
    one, other = (trainer(tmp_path, "gpt", clip=clip, **settings) for clip in (most, 0.0))  # nothing is dropped
    lengths = []
    for each in (one, other):
        before = [weight.detach().clone() for weight in each.model.parameters()]
        each.step()
        moved = [after.detach() - was for after, was in zip(each.model.parameters(), before, strict=True)]
        lengths.append(torch.nn.utils.get_total_norm(moved).item())
    assert lengths[0] == pytest.approx(min(most, lengths[1]), rel=1e-3)


def test_training_lowers_the_loss_and_leaves_a_learning_curve(tmp_path):
    one = trainer(tmp_path, "lstm", steps=80, evaluate_every=20, learning_rate=0.01)
    one.train()
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    curve = [line["loss"] for line in lines if line.get("split") == "valid"]
    assert len(curve) == 4
    assert curve[0] < math.log(VOCABULARY)
    assert curve[-1] < curve[0] - 0.1
    assert one.progress.tokens > 0


def test_metrics_are_cut_back_to_the_checkpoint(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n{"step": 4}\n{"step": 5}\n{"step": 6, "lo')
    cut_metrics(path, 4)
    assert path.read_text() == '{"step": 1}\n{"step": 4}\n'


def test_what_a_resume_computes_with_lies_as_in_pytorchs_own_memory(tmp_path):
    """Matrix products may round otherwise where numbers are aligned otherwise, as they are in a file."""
    trainer(tmp_path, "lstm", steps=2, evaluate_every=2).train()
    one = trainer(tmp_path, "lstm", steps=4, evaluate_every=2)
    one.restore()
    moments = [value for values in one.optimizer.state.values() for value in values.values()]
    carried = []
    map_state(lambda leaf: carried.append(leaf), one.state or {})
    assert all(tensor.data_ptr() % 64 == 0 for tensor in [*moments, *carried])


def test_early_stopping_ends_a_run_that_no_longer_improves(tmp_path):
    one = trainer(tmp_path, "lstm", steps=500, evaluate_every=1, patience=3, learning_rate=1e-9, warmup=0)
    one.progress.best = 0.0  # nothing can beat this
    one.train()
    assert one.progress.step == 3


def test_a_loss_that_is_not_finite_stops_and_keeps_the_last_good_weights(tmp_path):
    one = trainer(tmp_path, "lstm", optimizer="sgd", learning_rate=1e30, clip=0, warmup=0)
    one.save()
    before = bits(tmp_path)
    with pytest.raises(RegardError, match=r"The loss became (nan|inf) at step [12];.*learning_rate"):
        one.train()
    assert bits(tmp_path) == before
    tensors, _ = load_tensors(tmp_path / "training.safetensors")
    assert all(bool(torch.isfinite(t.float()).all()) for t in tensors.values())


@pytest.mark.skipif(sys.platform == "win32", reason="needs a limit on file sizes")
def test_a_disk_with_no_room_leaves_the_old_file_whole(tmp_path):
    import resource

    path = tmp_path / "weights.safetensors"
    save_tensors(path, {"w": torch.arange(5)}, {"step": 1})
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        with pytest.raises(RegardError, match=r"could not be saved .*; the previous contents are unchanged"):
            save_tensors(path, {"w": torch.zeros(100_000)}, {"step": 2})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    tensors, note = load_tensors(path)
    assert note == {"step": 1}
    assert tensors["w"].tolist() == [0, 1, 2, 3, 4]
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_a_damaged_weights_file_is_refused_in_one_sentence(tmp_path):
    path = tmp_path / "weights.safetensors"
    save_tensors(path, {"w": torch.arange(500)})
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(RegardError, match="damaged or truncated"):
        load_tensors(path)


def test_a_checkpoint_that_is_replaced_while_it_is_read_is_read_again(tmp_path, monkeypatch):
    path = tmp_path / "training.safetensors"
    save_tensors(path, {"w": torch.zeros(50)}, {"step": 1})
    opened = torch.UntypedStorage.from_file  # the numbers, once the library has read the header

    def replaced(*given, **named):
        if not seen:
            save_tensors(path, {"w": torch.ones(50)}, {"step": 2})
        seen.append(given)
        return opened(*given, **named)

    seen = []
    monkeypatch.setattr(torch.UntypedStorage, "from_file", replaced)
    tensors, note = load_tensors(path)
    assert (note, tensors["w"].sum().item(), len(seen)) == ({"step": 2}, 50, 2)


def test_schedules_follow_their_formulas():
    def rate(schedule, step, spent=0.0, drops=0):
        return learning_rate_at(schedule, 1.0, step, 10, spent, drops)

    assert [rate("constant", step) for step in (0, 4, 9, 10, 99)] == [0.1, 0.5, 1.0, 1.0, 1.0]
    assert rate("cosine", 10, 0.0) == 1.0
    assert rate("cosine", 50, 0.5) == pytest.approx(0.55)
    assert rate("cosine", 99, 1.0) == pytest.approx(0.1)
    assert rate("inverse-sqrt", 40) == pytest.approx(0.5)
    assert rate("plateau", 40, drops=2) == pytest.approx(1 / 16)


def test_a_plateau_lowers_the_rate_when_a_validation_is_no_better_and_only_then(tmp_path):
    one = trainer(tmp_path, "gpt", optimizer="sgd", schedule="plateau", learning_rate=1.0, warmup=0, evaluate_every=1)
    losses, rates = [3.0, 2.0, 2.5, 1.0, 1.0, 0.5, *[0.1] * 6], []

    def validation(model):
        rates.append(one.optimizer.param_groups[0]["lr"])  # of the step before
        return ValidationResult(losses[len(rates) - 1])

    one.validation = validation
    one.train()
    assert rates[:7] == [1.0, 1.0, 1.0, 0.25, 0.25, 0.0625, 0.0625]


@pytest.mark.parametrize(("kind", "theirs"), [("adamw", torch.optim.AdamW), ("sgd", torch.optim.SGD)])
def test_an_optimiser_does_what_pytorchs_does(kind, theirs):
    results = []
    for own in (True, False):
        torch.manual_seed(0)
        model = torch.nn.Linear(5, 3, bias=False)
        if own:
            rates = {"learning_rate": 0.1, "weight_decay": 0.2 * (kind == "adamw"), "beta2": 0.9}
            optimizer = build_optimizer(kind, model.named_parameters(), **rates)
        else:
            more = {"betas": (0.9, 0.9), "weight_decay": 0.2} if kind == "adamw" else {}
            optimizer = theirs(model.parameters(), lr=0.1, fused=True, **more)
        for step in range(4):
            optimizer.zero_grad()
            model(torch.ones(2, 5) * (step + 1)).square().sum().backward()
            optimizer.step()
            assert torch.is_grad_enabled()
            optimizer.load_state_dict(optimizer.state_dict())
        results.append(model.weight.detach().tolist())
    assert results[0] == results[1]


@pytest.mark.parametrize("kind", ["adamw", "sgd", "muon"])
def test_weight_decay_shrinks_matrices_and_leaves_biases_and_gains_alone(kind):
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.LayerNorm(2))
    before = [weight.detach().clone() for weight in model.parameters()]
    optimizer = build_optimizer(kind, model.named_parameters(), learning_rate=0.5, weight_decay=0.2, beta2=0.99)
    for weight in model.parameters():
        weight.grad = torch.zeros_like(weight)  # nothing else moves them
    optimizer.step()
    for was, now in zip(before, model.parameters(), strict=True):
        torch.testing.assert_close(now.detach(), was * (0.9 if was.dim() == 2 else 1.0))


@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_adam_forgets_squared_gradients_as_beta2_says(kind):
    """Two steps by hand: v̂ = (β₂(1 − β₂) g₁² + (1 − β₂) g₂²) / (1 − β₂²), and m̂ likewise with β₁ = 0.9."""
    model, rate = torch.nn.Linear(1, 1, bias=False), 0.1
    optimizer = build_optimizer(kind, model.named_parameters(), learning_rate=rate, weight_decay=0.0, beta2=0.6)
    with torch.no_grad():
        model.weight.fill_(1.0)
    for gradient in (2.0, 1.0):
        model.weight.grad = torch.full_like(model.weight, gradient)
        optimizer.step()
    mean = (0.9 * 0.1 * 2.0 + 0.1 * 1.0) / (1 - 0.9**2)
    square = (0.6 * 0.4 * 4.0 + 0.4 * 1.0) / (1 - 0.6**2)
    assert model.weight.item() == pytest.approx(1.0 - rate - rate * mean / math.sqrt(square), abs=1e-6)


def test_the_average_is_the_mean_of_the_weights_seen():
    model = torch.nn.Linear(2, 1, bias=False)
    average, values = WeightAverage(1.0), [1.0, 2.0, 6.0]
    for value in values:
        with torch.no_grad():
            model.weight.fill_(value)
        average.add(model)
    average.swap(model)
    assert torch.allclose(model.weight, torch.full((1, 2), 3.0))
    average.swap(model)
    assert torch.allclose(model.weight, torch.full((1, 2), 6.0))


def averaged(decay, values):
    model, average = torch.nn.Linear(1, 1, bias=False).double(), WeightAverage(decay)
    for value in values:
        with torch.no_grad():
            model.weight.fill_(value)
        average.add(model)
    return average.weights["weight"].item()


def test_of_a_short_training_the_last_sixth_is_averaged_whatever_the_decay():
    """Weights n⁵ on the n-th step: the mean of 1 … N is 6/7 N, where the mean of all would be N/2."""
    for decay in (0.999, 0.9999):
        assert averaged(decay, range(1, 601)) == pytest.approx(6 / 7 * 600, rel=0.01)
    assert averaged(1.0, range(1, 601)) == pytest.approx(300.5)


def test_of_a_long_training_the_average_is_the_exponential_one():
    values, expected = np.random.default_rng(0).normal(size=2000), 0.0
    for value in values:
        expected += 0.02 * (value - expected)
    assert averaged(0.98, values) == pytest.approx(expected, abs=1e-9)


def test_snapshots_are_spread_over_the_whole_training_and_a_resume_leaves_the_same(tmp_path):
    def moments(folder):
        return [int(path.stem) for path in weights_in(folder / "snapshots")]

    for count in range(1, 40):
        few = sorted(subsample_steps(range(count), 6))
        assert few[-1] == count - 1
        assert few[0] == 0
        assert len(few) <= 6 <= 2 * len(few) + 1 or count < 6
    settings = {"steps": 20, "evaluate_every": 2, "snapshots": 4}
    trainer(tmp_path / "one", **settings).train()
    assert moments(tmp_path / "one") == [0, 8, 16, 20]
    other = trainer(tmp_path / "other", **settings)
    other.callbacks = (lambda row: setattr(other, "stop_requested", row["step"] == 10),)
    with pytest.raises(Stopped):
        other.train()
    again = trainer(tmp_path / "other", **settings)
    again.restore()
    again.train()
    assert moments(tmp_path / "other") == moments(tmp_path / "one")
    for step in moments(tmp_path / "one"):
        assert bits(tmp_path / "one", f"snapshots/{step:08d}.safetensors") == bits(
            tmp_path / "other", f"snapshots/{step:08d}.safetensors"
        )


@pytest.fixture
def timed(tmp_path, monkeypatch):
    """A trainer whose start takes 20 s, a step 1 s, a validation 8 s, a checkpoint 2 s."""

    def make(budget, **training):
        clock = Clock()
        set_clock(monkeypatch, clock)
        monkeypatch.setattr("regard.training.budget.SAVED_SECONDS", math.inf)  # checkpoints come by steps alone
        made = trainer(tmp_path / "run", budget=budget, warmup=0, schedule="cosine", **training)
        made.step = clock.passing(1.0, made.step)
        made.validate = clock.passing(8.0, made.validate)
        made.files._write = clock.passing(2.0, made.files._write)
        clock.now += 20.0
        return made, clock

    return make


@pytest.mark.parametrize("every", [7, 10_000])
def test_seconds_are_those_of_the_whole_command(timed, every):
    made, clock = timed("100s", evaluate_every=every, checkpoint_every=10_000)
    rates = []
    made.callbacks = (lambda row: rates.append(row.get("learning_rate")),)
    at = made.train()
    assert clock.now - 100.0 == pytest.approx(100, abs=3)  # with the last validation and the last checkpoint
    assert at.elapsed == pytest.approx(clock.now - 100.0, abs=2.5)  # the last checkpoint itself
    assert at.started == 20.0
    assert at.seconds == at.step
    rates = [rate for rate in rates if rate is not None]
    assert rates[0] == pytest.approx(made.settings.learning_rate, rel=0.01)  # the schedule begins with the first step
    assert rates[-1] < 0.15 * made.settings.learning_rate  # and ends with the last


def test_seconds_of_steps_leave_out_everything_else(timed):
    made, clock = timed("30s of steps", evaluate_every=5)
    at = made.train()
    assert at.step == at.seconds == 30
    assert clock.now - 100.0 > 80


def test_a_start_that_takes_all_the_time_leaves_half_of_it_for_steps(timed):
    made, _ = timed("10s", evaluate_every=10_000)
    at = made.train()
    assert at.started == 20.0
    assert 2 <= at.step <= 5


def test_the_clock_of_a_resumed_run_goes_on(timed):
    made, clock = timed("100s", evaluate_every=10, checkpoint_every=5)
    step = made.step

    def interrupted():
        made.stop_requested = made.progress.step == 14
        return step()

    made.step = interrupted
    with pytest.raises(Stopped):
        made.train()
    spent = clock.now - 100.0
    again, clock = timed("100s", evaluate_every=10, checkpoint_every=5)
    again.restore()
    again.train()
    assert spent + clock.now - 100.0 == pytest.approx(100, abs=5)
