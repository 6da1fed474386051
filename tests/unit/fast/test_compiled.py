"""Compiled blocks compute what written blocks do, once compiled for all of them, and only for full batches."""

import numpy as np
import pytest
import torch
from torch._dynamo.utils import counters

from regard.base.errors import RegardError
from regard.fast import Use
from regard.fast.attention import fused_block
from regard.fast.attention.fused_block import BY_HAND, is_gpt2s
from regard.fast.table import install, installed, is_swapped
from regard.fast.training.compiled import Compiled, compiles
from regard.runs.recipe import compose
from regard.systems import gpt, lstm
from regard.text.batches.text_batches import Batch, Windows
from regard.training.hyperparameters import Training
from regard.training.loop import Trainer
from regard.training.objective import Objective, to_device

CPU = torch.device("cpu")


def model(**changes) -> gpt.GPT:
    torch.manual_seed(0)
    return gpt.GPT(31, gpt.Settings(layers=3, width=16, heads=2, context=16, dropout=0.0, **changes)).train()


def batch(rows: int, columns: int, lengths: list[int] | None = None):
    tokens = np.random.default_rng(0).integers(0, 31, (rows, columns + 1))
    given = None if lengths is None else np.array(lengths)
    return to_device(Batch(tokens[:, :-1], tokens[:, 1:], given, True), CPU)


def gradients(objective: Objective, given, compiled: Compiled | None) -> list[torch.Tensor]:
    objective.zero_grad()
    if compiled is None:
        objective(given, None)[0].backward()
    else:
        with compiled.reading(given):
            objective(given, None)[0].backward()
    return [weight.grad.clone() for weight in objective.parameters()]


@pytest.mark.parametrize("changes", [{}, {"position": "rotary"}, {"norm": "post"}, {"bias": False, "tied": False}])
def test_one_compilation_without_a_break_serves_all_blocks_and_changes_no_gradient(changes):
    torch._dynamo.reset()
    counters.clear()
    objective = Objective(model(**changes), keeps=False)
    compiled = Compiled(objective.model, backend="aot_eager")  # the tracing is what is ours; kernels are the compiler's
    names = list(objective.state_dict())
    for _ in range(2):
        for one, other in zip(gradients(objective, batch(4, 16), compiled), gradients(objective, batch(4, 16), None)):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)
    assert counters["stats"]["unique_graphs"] == 1
    assert not counters["graph_break"]
    assert list(objective.state_dict()) == names


def test_what_was_installed_is_there_again_after_a_compiled_batch():
    torch._dynamo.reset()
    counters.clear()
    objective = Objective(model(), keeps=False)
    install(objective.model, Use(training=True, compile="on"))
    block = objective.model.layers[0]
    block.forward = block.forward  # as a row of its own would put it there
    before, attend = vars(block)["forward"], vars(block.attention)["forward"]
    compiled = Compiled(objective.model, backend="aot_eager")
    for one, other in zip(gradients(objective, batch(4, 16), compiled), gradients(objective, batch(4, 16), None)):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)
    assert vars(block)["forward"] is before
    assert vars(block.attention)["forward"] is attend
    assert not counters["graph_break"]


def test_batches_of_other_shapes_are_read_as_written():
    torch._dynamo.reset()
    counters.clear()
    objective = Objective(model(), keeps=False)
    compiled = Compiled(objective.model, backend="aot_eager")
    for rows, columns, lengths in [(4, 16, [16, 2, 3, 4]), (4, 16, None), (3, 16, None), (2, 5, [5, 1]), (4, 16, None)]:
        gradients(objective, batch(rows, columns, lengths), compiled)
        assert counters["stats"]["unique_graphs"] == (0 if lengths == [16, 2, 3, 4] else 1)
    objective.model.eval()
    objective.model(torch.zeros(1, 3, dtype=torch.int64))
    assert counters["stats"]["unique_graphs"] == 1


def test_it_is_asked_for_or_pays():
    assert not compiles(model(), Training())  # on a CPU never by itself
    assert compiles(model(), Training(compile="on"))
    recurrent = lstm.LSTMModel(31, lstm.Settings(width=8))
    assert not compiles(recurrent, Training())
    for other, settings in [
        (model(), Training(compile="on", batches="stream")),  # a cache that grows is another shape each time
        (recurrent, Training(compile="on")),
    ]:
        with pytest.raises(RegardError, match="leave it at auto"):
            compiles(other, settings)


@pytest.mark.parametrize(
    ("budget", "steps", "pays"), [("10m", 1, True), ("20s", 1, False), ("", 10, False), ("", 10_000_000, True)]
)
def test_on_a_gpu_a_long_training_is_compiled(monkeypatch, budget, steps, pays):
    monkeypatch.setattr(gpt.GPT, "device", torch.device("cuda"))
    assert compiles(model(), Training(budget=budget, steps=steps)) is pays


@pytest.mark.parametrize(
    ("changes", "can"),
    [
        ({}, True),
        ({"bias": False}, True),
        ({"position": "rotary"}, False),
        ({"position": "alibi"}, False),
        ({"activation": "relu"}, False),
    ],
)
def test_blocks_that_are_not_gpt_2s_are_not_trained_by_hand(changes, can):
    assert is_gpt2s(model(**changes).layers[0]) is can
    dropping = gpt.GPT(31, gpt.Settings(layers=1, width=16, heads=2, context=16, dropout=0.1, **changes))
    assert not is_gpt2s(dropping.layers[0])


@pytest.mark.parametrize(
    ("use", "by_hand"),
    [
        (Use(training=True, bf16=True), True),
        (Use(training=True, bf16=True, compile="on"), False),
        (Use(training=True, bf16=True, compile="off"), False),
        (Use(training=True), False),
        (Use(), False),
    ],
)
def test_by_hand_is_for_training_in_bf16_unless_compiling_was_chosen(use, by_hand, monkeypatch):
    assert BY_HAND.allows(model(), use) is not None  # a narrow one
    monkeypatch.setattr(fused_block, "LEAST_WIDTH", 16)
    assert (BY_HAND.allows(model(), use) is None) is by_hand
    assert BY_HAND.allows(model(norm="post"), use) is not None


def test_on_a_cpu_blocks_are_not_trained_by_hand():
    written = model()
    install(written, Use(training=True, bf16=True))
    assert not installed(written, BY_HAND)


def test_the_trainer_takes_the_same_steps_compiled(tmp_path, monkeypatch):
    torch._dynamo.reset()
    monkeypatch.setattr("regard.fast.training.compiled.Compiled", lambda given: Compiled(given, backend="aot_eager"))
    text = np.random.default_rng(0).integers(1, 31, 16 * 9 + 5)  # the last batch of an epoch is smaller

    def losses(compile: str) -> list[float]:
        settings = compose("gpt", None, {"training": {"compile": compile, "batch_tokens": 64, "window": 16}}).training
        trainer = Trainer(
            model(), Windows(text, 4, 16, 0, seed=1), lambda model: None, settings, tmp_path, install=install
        )
        assert is_swapped(trainer.forward) == (compile == "on")
        trainer.model.train()
        return [float(trainer.step()[0]) for _ in range(7)]

    assert losses("on") == pytest.approx(losses("off"), rel=1e-5)
