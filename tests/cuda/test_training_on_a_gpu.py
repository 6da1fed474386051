"""Captured and compiled training steps are the plain ones; memory; batches made ahead."""

import threading
from dataclasses import replace
from importlib import import_module

import numpy as np
import pytest
import torch
from cuda_systems import NUMBERS, systems

from regard.base.errors import RegardError, Stopped
from regard.fast import compile_ahead
from regard.fast.known_kernels import KnownKernels
from regard.fast.table import install, is_swapped
from regard.fast.training.captured_step import captures
from regard.fast.training.linear_cross_entropy import linear_cross_entropy, rows_, written_rows_
from regard.runs.recipe import compose
from regard.systems import gpt
from regard.systems.catalogue import load_class
from regard.systems.lstm import LSTMModel
from regard.systems.lstm import Settings as LSTMSettings
from regard.text.batches.pair_batches import PairBatches
from regard.text.batches.pair_shapes import ShapedPairBatches
from regard.text.batches.text_batches import Streams, Windows
from regard.text.tokenizers.pair_tokens import TokenPairs, offsets_of
from regard.training import checkpointing
from regard.training.checkpoint import load_tensors
from regard.training.loop import Trainer
from regard.training.optimizers import clip
from regard.training.steps import StepRunner
from regard.training.validation import TextValidation, ValidationResult

# -- the training step in one graph ----------------------------------------------------------------------------------


def trainer(folder, model, capture, bf16=False, **training):
    """On a text that ends raggedly after seven windows, so that captured and plain steps take turns."""
    settings = {"steps": 17, "batch_tokens": 64, "window": 16, "warmup": 3, "evaluate_every": 4, "clip": 0.5}
    recipe = compose("lstm", "tiny", {"training": {**settings, "learning_rate": 1e-3, "capture": capture, **training}})
    kind, ids = recipe.training, np.random.default_rng(0).integers(50, size=4 * (7 * 16 + 5)).astype(np.uint16)
    batches = Streams(ids, 4, 16, 0) if kind.batches == "stream" else Windows(ids, 4, 16, 0, seed=1)
    folder.mkdir(exist_ok=True)
    return Trainer(model.cuda(), batches, TextValidation(ids[:100], 0), kind, folder, bf16=bf16, install=install)


def captured(run):
    """What records the steps of a training."""
    return run.runner.captured


def assert_same(one, other, losses=((), ()), atol=1e-5):
    for a, b in zip(*losses, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=0.0)
    for (name, a), b in zip(one.model.named_parameters(), other.model.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=atol, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.usefixtures("_exact")
@pytest.mark.parametrize("bf16", [False, True])
@pytest.mark.parametrize("number", NUMBERS)
def test_a_captured_training_step_is_the_plain_one_dropout_included(number, bf16, tmp_path):
    runs, losses = [], []
    for capture in ("off", "on"):
        model = systems()[number]
        batches = "stream" if number in (0, 1, 4, 5, 6) else "windows"
        runs.append(trainer(tmp_path / capture, model, capture, bf16, batches=batches))
        torch.manual_seed(5)
        runs[-1].model.train()
        losses.append([runs[-1].step()[0] for _ in range(17)])
    assert type(runs[0].runner) is StepRunner
    assert captured(runs[1]).graph is not None
    assert len({float(loss) for loss in losses[1]}) == 17  # each step's own, not the last one's seventeen times
    if bf16:
        return torch.testing.assert_close(torch.stack(losses[0]), torch.stack(losses[1]), rtol=1e-2, atol=0.0)
    assert_same(*runs, losses=losses)


LEARNING = [
    {},
    {"accumulate": 2},
    {"optimizer": "sgd", "schedule": "plateau", "learning_rate": 1.0, "weight_decay": 1e-3},
    {"optimizer": "sgd", "schedule": "decay", "learning_rate": 1.0, "decay": 0.5, "decay_after": 1},
    {"optimizer": "asgd", "learning_rate": 4.0, "evaluate_every": 1, "steps": 24},
]


@pytest.mark.usefixtures("_exact")
@pytest.mark.parametrize("settings", LEARNING)
def test_a_captured_training_ends_where_the_plain_one_does(settings, tmp_path):
    runs = []
    for capture in ("off", "auto"):
        runs.append(trainer(tmp_path / capture, systems()[0], capture, **settings))
        torch.manual_seed(5)
        runs[-1].train()
    assert captured(runs[1]).graph is not None
    assert_same(*runs)
    if settings.get("optimizer") == "asgd":
        assert all(run.average.active for run in runs)


@pytest.mark.parametrize("settings", LEARNING)
@pytest.mark.parametrize("stop", [1, 9, 13])
def test_a_captured_training_that_was_stopped_goes_on_where_it_was(settings, stop, tmp_path):
    whole = trainer(tmp_path / "whole", systems()[0], "on", **settings)
    torch.manual_seed(5)
    whole.train()
    first = trainer(tmp_path / "cut", systems()[0], "on", **settings)
    torch.manual_seed(5)
    batch = first.batches.batch

    def interrupting(step):
        first.stop_requested |= step == stop  # batches are made ahead, so this is some steps before
        return batch(step)

    first.batches.batch = interrupting
    with pytest.raises(Stopped):
        first.train()
    torch.manual_seed(999)
    second = trainer(tmp_path / "cut", systems()[0], "on", **settings)
    second.restore()
    second.train()
    assert second.progress.step == whole.progress.step
    assert_same(second, whole)


WITHOUT_DROPOUT = {
    "lstm": lambda: LSTMModel(50, LSTMSettings(layers=2, width=64, dropout=0.0)),
    "gpt": lambda: gpt.GPT(50, gpt.Settings(layers=2, width=64, heads=2, context=16, dropout=0.0)),
}


@pytest.mark.usefixtures("_exact")
@pytest.mark.parametrize("bf16", [False, True])
@pytest.mark.parametrize("budget", ["", "600s"])
@pytest.mark.parametrize("name", WITHOUT_DROPOUT)
def test_a_training_that_begins_as_written_goes_on_in_a_graph(name, budget, bf16, tmp_path, monkeypatch):
    runs, losses, known = [], [], KnownKernels()
    monkeypatch.setattr(compile_ahead, "compiled", lambda device: known)  # as in an empty cache
    for capture in ("off", "on"):
        torch.manual_seed(1)
        batches = "stream" if name == "lstm" else "windows"
        runs.append(trainer(tmp_path / capture, WITHOUT_DROPOUT[name](), capture, bf16, batches=batches, budget=budget))
        runs[-1].model.train()
        runs[-1].runner.begins_as_written = True
        losses.append([runs[-1].step()[0] for _ in range(2)])
        if capture == "on":
            assert captured(runs[-1]).graph is None
            runs[-1].runner.compiling.wait()
        losses[-1] += [runs[-1].step()[0] for _ in range(15)]
    assert captured(runs[1]).graph is not None
    if bf16:
        return torch.testing.assert_close(torch.stack(losses[0]), torch.stack(losses[1]), rtol=2e-2, atol=0.0)
    assert_same(*runs, losses=losses, atol=1e-4)  # the first update is another kernel's


def test_kernels_that_are_loaded_ahead_are_those_that_a_step_launches(tmp_path, monkeypatch):
    known = KnownKernels()
    monkeypatch.setattr(compile_ahead, "compiled", lambda device: known)
    for name, make in WITHOUT_DROPOUT.items():
        run = trainer(tmp_path / name, make(), "on", True, batches="stream" if name == "lstm" else "windows")
        run.model.train()
        for _ in range(5):
            run.step()
        launches = compile_ahead._kernels_of(run.device, run.model.settings)
        kernels = [getattr(import_module(module), kernel) for module, kernel, *_ in launches]
        assert kernels
        here = torch.cuda.current_device()
        before = [set(kernel.device_caches[here][0]) for kernel in kernels]
        compile_ahead._load_kernels(run.device, run.model.settings)
        assert [set(kernel.device_caches[here][0]) for kernel in kernels] == before


# -- pairs: a graph for each of a few shapes, and attention between short sentences ----------------------------------


def pair_trainer(folder, capture, bf16=False, size=None, system="transformer", **training):
    """Pairs of a few lengths, in batches so small that most of their shapes come several times."""
    random = np.random.default_rng(0)
    sides = []
    for _ in range(2):
        lengths = random.integers(2, 5, 120) ** 2 // 2
        ids, offsets = random.integers(1, 50, int(lengths.sum())).astype(np.uint16), offsets_of(lengths)
        ids[offsets[1:] - 1] = 0
        sides += [ids, offsets]
    pairs = TokenPairs(*sides, kept=np.arange(120), dropped={}, truncated=0, longest=256, characters=0, unknown=0)
    settings = {"steps": 40, "batch_tokens": 100, "warmup": 3, "evaluate_every": 20, "clip": 0.5, "keep": 0}
    shape = {"layers": 2, "width": 64, "dropout": 0.1}
    if system == "transformer":
        shape |= {"heads": 2, "feedforward": 96, "dropout_attention": 0.1}
    recipe = compose(
        system,
        "tiny",
        {"model": shape | (size or {}), "training": settings | {"learning_rate": 1e-3, "capture": capture} | training},
    )
    torch.manual_seed(0)
    model = load_class(system)(50, recipe.model).cuda()
    folder.mkdir(exist_ok=True)
    batches = ShapedPairBatches.of(PairBatches(pairs, 100, 1))
    run = Trainer(model, batches, lambda _: ValidationResult(1.0), recipe.training, folder, bf16=bf16, install=install)
    torch.manual_seed(5)
    run.model.train()
    return run


@pytest.mark.usefixtures("_exact")
@pytest.mark.parametrize("bf16", [False, True])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"consistency": 2.0, "ema": 0.9},
        {"accumulate": 2, "label_smoothing": 0.0},
        {"optimizer": "sgd"},
        {"system": "seq2seq"},
        {"system": "seq2seq", "size": {"cell": "gru"}},
        {"system": "bahdanau"},
        {"system": "bahdanau", "size": {"cell": "lstm", "score": "dot"}},
    ],
)
def test_a_captured_step_on_pairs_is_the_plain_one_in_every_shape(settings, bf16, tmp_path):
    runs = [pair_trainer(tmp_path / capture, capture, bf16, **settings) for capture in ("off", "auto")]
    losses, counts = [], []
    for run in runs:
        torch.manual_seed(5)
        steps = [run.step() for _ in range(40)]
        losses.append(torch.stack([loss for loss, _ in steps]))
        counts.append([count for _, count in steps])
    assert counts[0] == counts[1]
    assert type(runs[0].runner) is StepRunner
    assert sum(found.graph is not None for found in captured(runs[1]).recordings.values()) > 3
    torch.testing.assert_close(*losses, rtol=1e-2 if bf16 else 1e-4, atol=0.0)
    if not bf16:
        assert_same(*runs)


def test_a_captured_training_on_pairs_that_was_stopped_goes_on_where_it_was(tmp_path):
    whole, first = pair_trainer(tmp_path / "whole", "on"), pair_trainer(tmp_path / "cut", "on")
    torch.manual_seed(5)
    for _ in range(40):
        whole.step()
    torch.manual_seed(5)
    for _ in range(27):
        first.step()
    first.save()
    torch.manual_seed(999)
    second = pair_trainer(tmp_path / "cut", "on")
    second.restore()
    second.model.train()
    for _ in range(40 - 27):
        second.step()
    assert_same(second, whole)


@pytest.mark.parametrize("system", ["seq2seq", "bahdanau"])
def test_only_translators_whose_cells_have_gates_are_captured(system):
    for cell in ("rnn", "lstm", "gru"):
        model = load_class(system)(50, compose(system, "tiny", {"model": {"cell": cell}}).model).cuda()
        wanted = compose(system, "tiny", {"training": {"capture": "on"}}).training
        if cell != "rnn":
            assert captures(model, compose(system, "tiny").training)
            assert captures(model, wanted)
            continue
        assert not captures(model, compose(system, "tiny").training)
        with pytest.raises(RegardError, match="packs sources"):
            captures(model, wanted)


def test_steps_are_recorded_while_files_are_written_and_these_hold_what_was(tmp_path, monkeypatch):
    recorded, save = threading.Event(), checkpointing.save_tensors

    def later(*given):
        assert recorded.wait(60)
        save(*given)

    monkeypatch.setattr(checkpointing, "save_tensors", later)
    run = trainer(tmp_path / "run", systems()[0], "on", batches="stream")
    run.model.train()
    run.step()
    weights = {name: weight.clone() for name, weight in run.model.state_dict().items()}
    moments = [value["exp_avg"].clone() for value in run.optimizer.state.values()]
    run.save(wait=False)
    for _ in range(6):
        run.step()
    assert any(found.graph is not None for found in captured(run).recordings.values())
    recorded.set()
    run.files.writer.wait()
    run.files.writer.close()
    tensors, _ = load_tensors(run.folder / "training.safetensors")
    assert all(torch.equal(tensors[f"model/{name}"], weight.cpu()) for name, weight in weights.items())
    assert all(torch.equal(tensors[f"optimizer/{n}/exp_avg"], moment.cpu()) for n, moment in enumerate(moments))
    assert all(copy.is_pinned() for copy in run.files.writer.copies["checkpoint"].values())


@pytest.mark.parametrize("most", [0.1, 1e6])
def test_clipping_within_adamw_is_clipping_before_it(most):
    answers = []
    for within in (True, False):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(9, 5), torch.nn.Linear(5, 3)).cuda()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, eps=1e-2, fused=True)  # so that the length counts
        for _ in range(3):
            optimizer.zero_grad(set_to_none=True)
            model(torch.ones(4, 9, device="cuda")).square().sum().backward()
            if within:
                clip(model, most, optimizer)
            else:
                torch.nn.utils.clip_grad_norm_(model.parameters(), most)
            optimizer.step()
        answers.append([weight.detach() for weight in model.parameters()])
    for one, other in zip(*answers, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


# -- memory, batches made ahead, Muon --------------------------------------------------------------------------------


class Growing:
    """The batches of a training, but for the one of a step, which has far more rows than the GPU's memory holds."""

    def __init__(self, batches, step):
        self.batches, self.step, self.steps_per_epoch = batches, step, batches.steps_per_epoch

    def batch(self, step):
        batch = self.batches.batch(step)
        if step != self.step:
            return batch
        more = [np.resize(part, (200_000, part.shape[1])) for part in (batch.tokens, batch.targets)]
        return replace(batch, tokens=more[0], targets=more[1], lengths=None, fresh=True)


@pytest.mark.parametrize("number", [0, 2])
def test_a_step_that_does_not_fit_leaves_the_step_before_to_go_on_from(number, tmp_path):
    batches = {0: "stream", 2: "windows"}[number]
    ends = []
    for name in ("whole", "short"):
        run = trainer(tmp_path / name, systems()[number], "off", batches=batches)
        torch.manual_seed(5)
        run.save()
        if name == "short":
            run.batches = Growing(run.batches, 6)
            room = torch.cuda.memory_reserved() + (256 << 20)
            torch.cuda.set_per_process_memory_fraction(room / torch.cuda.get_device_properties(0).total_memory)
            with pytest.raises(RegardError, match=r"in step 7: `regard resume .* --training.accumulate 2` continues"):
                run.train()
            torch.cuda.set_per_process_memory_fraction(1.0)
            run = trainer(tmp_path / name, systems()[number], "off", batches=batches)
            run.restore()
            assert run.progress.step == 6
        run.train()
        ends.append(run)
    assert_same(*ends)


@pytest.mark.parametrize("capture", ["on", "off"])
def test_batches_made_ahead_change_nothing(capture, tmp_path):
    runs = []
    for ahead in (0, 4):
        runs.append(trainer(tmp_path / str(ahead), systems()[0], capture, batches="stream"))
        assert runs[-1].feed.ahead == 4  # on a GPU that is the default
        runs[-1].feed.ahead = ahead
        torch.manual_seed(5)
        runs[-1].train()
    assert_same(*runs)


def test_a_captured_step_of_muon_is_the_plain_one(tmp_path):
    runs = []
    for capture in ("off", "on"):
        runs.append(trainer(tmp_path / capture, systems()[2], capture, batches="windows", optimizer="muon"))
        torch.manual_seed(5)
        runs[-1].train()
    assert captured(runs[1]).graph is not None
    for a, b in zip(runs[0].model.parameters(), runs[1].model.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-2, atol=1e-4)  # matrices are turned in bf16


# -- the loss that never holds its logits; compiled blocks -----------------------------------------------------------


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("biased, masked", [(True, True), (False, False)])
@pytest.mark.parametrize("words, width", [(50, 30), (1000, 64), (33_278, 650)])
@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
@pytest.mark.usefixtures("_exact")
def test_the_fused_loss_is_the_plain_one_in_value_and_gradient(smoothing, biased, masked, words, width, precision):
    draw = torch.Generator("cuda").manual_seed(0)
    hidden = torch.randn(3, 40, width, device="cuda", generator=draw).requires_grad_()
    weight = (torch.randn(words, width, device="cuda", generator=draw) * width**-0.5).requires_grad_()
    bias = torch.randn(words, device="cuda", generator=draw).requires_grad_() if biased else None
    targets = torch.randint(words, (3, 40), device="cuda", generator=draw)
    valid = torch.rand(3, 40, device="cuda", generator=draw) < 0.7 if masked else torch.ones_like(targets).bool()
    of = [hidden, weight] + ([] if bias is None else [bias])
    with torch.autocast("cuda", torch.bfloat16, enabled=precision == torch.bfloat16):
        rows = (torch.nn.functional.linear(hidden, weight, bias)[valid].float(), targets[valid])
        plain = torch.nn.functional.cross_entropy(*rows, reduction="sum", label_smoothing=smoothing)
        given = {"valid": valid if masked else None, "smoothing": smoothing, "at_once": 35 * words}
        fused = linear_cross_entropy(hidden, weight, bias, targets, **given)
    error = 1e-4 if precision == torch.float32 else 1e-2  # of a gradient that bf16 rounds in other places
    torch.testing.assert_close(fused, plain, rtol=error / 10, atol=0.0)
    for one, other in zip(torch.autograd.grad(fused / 7, of), torch.autograd.grad(plain / 7, of), strict=True):
        assert (one - other).norm() < error * other.norm()


@pytest.mark.parametrize("words", [37, 10_000, 20_000])
@pytest.mark.parametrize("biased", [False, True])
def test_the_kernel_is_the_written_pass_over_rows(biased, words):
    torch.manual_seed(0)
    width, bias = -(-words // 64) * 64, torch.randn(words, device="cuda") if biased else None
    logits = torch.randn(70, width, device="cuda") * 5
    targets = torch.randint(-1, words, (70,), device="cuda")
    targets[:3] = -1
    other = logits.clone()
    costs, gradient = rows_(logits, bias, targets, words, 0.1, True)
    wanted, written = written_rows_(other, bias, targets, words, 0.1, True)
    torch.testing.assert_close(costs, wanted, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(gradient, written, rtol=1e-4, atol=1e-6)


def test_compiled_blocks_train_as_written_ones_do_also_after_a_stop(tmp_path):
    """The text ends raggedly, so compiled and written steps take turns; no dropout, which draws otherwise there."""
    losses = {}
    for compile in ("off", "on"):
        torch.manual_seed(0)
        model = gpt.GPT(50, gpt.Settings(layers=2, width=128, heads=2, context=16, dropout=0.0))
        run = trainer(tmp_path / compile, model, "off", True, batches="windows", compile=compile)
        assert is_swapped(run.forward) == (compile == "on")
        run.model.train()
        losses[compile] = [run.step()[0] for _ in range(17)]
        if compile == "on":
            run.save()
            after = [run.step()[0] for _ in range(3)]
            again = trainer(tmp_path / compile, model, "off", True, batches="windows", compile=compile)
            again.restore()
            again.model.train()
            torch.testing.assert_close([again.step()[0] for _ in range(3)], after, rtol=1e-4, atol=0.0)
    torch.testing.assert_close(losses["on"], losses["off"], rtol=1e-2, atol=0.0)
