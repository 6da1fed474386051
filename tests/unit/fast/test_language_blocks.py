"""Blocks in few passes: their kernels, and the calls that they take."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from regard.fast.attention import language_blocks
from regard.fast.attention.language_blocks import fits, knows
from regard.fast.table import Use
from regard.fast.training import captured_step
from regard.fast.training.captured_step import is_launch_bound
from regard.layers.state import span_of
from regard.runs.recipe import compose
from regard.systems import gpt, linear_attention, llama, mingru
from regard.systems.catalogue import load_class

SHAPE = {"layers": 1, "width": 32, "heads": 2, "context": 16}
TRAINED = Use(training=True, bf16=True)


@pytest.mark.slow
def test_the_kernels_are_the_blocks_one_after_the_other():
    pytest.importorskip("triton", reason="its interpreter")
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("language_blocks_on_cpu.py"))],
        env=os.environ | {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]


def call_fits(model, state, rows=2):
    tokens = torch.zeros(rows, 5, dtype=torch.long)
    return fits(model, tokens, state, span_of(state["seen"], None))


@pytest.fixture
def autocast(monkeypatch):
    monkeypatch.setattr(language_blocks.torch, "is_autocast_enabled", lambda kind: True)


@pytest.mark.parametrize("kind", [gpt, llama, linear_attention])
def test_only_a_text_that_is_read_in_one_call_is_taken(kind, autocast):
    model = {gpt: gpt.GPT, llama: llama.Llama, linear_attention: linear_attention.LinearTransformer}[kind](
        9, kind.Settings(**SHAPE)
    ).train()
    assert knows(model, TRAINED) is None
    assert call_fits(model, model.without_cache(2))
    assert not call_fits(model, model.begin(rows=2))
    assert not call_fits(model.eval(), model.without_cache(2))


def test_rows_at_different_positions_are_not_turned_alike(autocast):
    model = llama.Llama(9, llama.Settings(**SHAPE)).train()
    state = model.without_cache(2)
    assert not call_fits(model, state | {"seen": torch.tensor([0, 3])})


def test_a_recurrence_takes_any_state(autocast):
    model = mingru.MinGRUModel(9, mingru.Settings(layers=1, width=16)).train()
    assert call_fits(model, model.begin(rows=2))


@pytest.mark.parametrize(
    "model",
    [
        gpt.GPT(9, gpt.Settings(**SHAPE, position="alibi")),
        gpt.GPT(9, gpt.Settings(**SHAPE, bias=False)),
        llama.Llama(9, llama.Settings(**SHAPE, bias="all")),
    ],
)
def test_parts_without_a_kernel_are_refused(model):
    assert knows(model, TRAINED)


@pytest.mark.parametrize("use", [Use(bf16=True), Use(training=True), Use(training=True, bf16=True, compile="on")])
def test_other_uses_are_refused(use):
    assert knows(gpt.GPT(9, gpt.Settings(**SHAPE)), use)


@pytest.mark.parametrize("size, bound", [("tiny", True), ("small", True), ("medium", True), ("large", False)])
def test_small_steps_are_bound_by_launches(size, bound):
    recipe = compose("gpt", size)
    with torch.device("meta"):
        model = load_class("gpt")(10_000, recipe.model)
    assert is_launch_bound(model, recipe.training) == bound


def test_a_step_is_bound_by_launches_while_all_its_parts_take_longer_than_its_sums(monkeypatch):
    """One launch for each module without others below it: here eight of them, and 40 operations a token."""
    monkeypatch.setattr(captured_step, "RATE", 10.0)
    monkeypatch.setattr(captured_step, "LAUNCHING", 2.0)
    model = torch.nn.Sequential(*(torch.nn.Sequential(torch.nn.ReLU(), torch.nn.ReLU()) for _ in range(4)))
    model.flops_per_token = 40.0
    assert is_launch_bound(model, SimpleNamespace(batch_tokens=3))
    assert not is_launch_bound(model, SimpleNamespace(batch_tokens=4))
