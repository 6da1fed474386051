"""The laws of a user's own file: which errors come before any law, which are left to a law, and with which settings."""

import sys

import pytest
import torch

from regard.base.errors import RegardError
from regard.laws import registry
from regard.laws.registry import builder, run_laws
from regard.systems.own import code as own

CELL = """
import torch
from regard.layers.cell import Cell

class Mine(Cell):
    memory = ("hidden", "idle")
    def __init__(self, inputs, width):
        super().__init__(inputs, width)
        self.input = torch.nn.Linear(inputs, width)
    def step(self, x, state):
        return {"hidden": 0.5 * state["hidden"] + self.input(x).tanh(), "idle": IDLE}
"""
WHOLE = """
from dataclasses import dataclass
from regard.base.errors import RegardError
from regard.systems.gpt import GPT, Settings as Known

@dataclass(frozen=True)
class Settings(Known):
    def __post_init__(self):
        super().__post_init__()
        if self.width in (16, 32):
            raise RegardError("no such width")

SIZES = {"tiny": {"layers": 1, "width": 8, "heads": 1, "context": 20, "dropout": 0.2, "sizeless": 0}}
class Mine(GPT): pass
"""


@pytest.fixture
def named(tmp_path, monkeypatch):
    for name in ("_named_here", "_in_use", "_loaded"):
        monkeypatch.setattr(own, name, type(getattr(own, name))())
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    before = set(sys.modules)

    def write(text):
        (tmp_path / "mine.py").write_text(text)
        return "./mine.py:Mine"

    yield write
    for name in set(sys.modules) - before:
        if name.startswith("own_"):
            del sys.modules[name]


def test_a_state_that_never_changes_is_noted_once_and_breaks_no_law(named, monkeypatch):
    noted = []
    monkeypatch.setattr(registry, "say", noted.append)
    build = builder(named(CELL.replace("IDLE", 'state["idle"]')))
    assert noted == [
        "note: the state's idle never changes, whatever the model reads: return its new value, or leave it out."
    ]
    assert [result.holds for result in run_laws(build, only=(1, 8))] == [True, True]
    model = build()
    assert [type(layer).__name__ for layer in model.layers] == ["Mine", "Mine"]
    assert (model.settings.width, model.settings.dropout, build(learner=True).settings.dropout) == (16, 0.3, 0.0)
    builder(named(CELL.replace("IDLE", 'state["idle"] + 1')))
    assert len(noted) == 1


def test_a_result_of_the_wrong_form_is_an_error_before_any_law_and_a_crash_breaks_its_law(named):
    with pytest.raises(RegardError, match=r"a step must return idle as a tensor, not as a int\."):
        builder(named(CELL.replace("IDLE", "0")))
    build = builder(named(CELL.replace("IDLE", "1 / 0")))
    (result,) = run_laws(build, only=(2,))
    assert not result.holds
    assert result.sentence.startswith("ZeroDivisionError: division by zero on line 11 of mine.py (return")


def test_settings_that_the_laws_would_choose_and_a_model_refuses_are_those_of_its_tiny_size(named):
    build = builder(named(WHOLE.replace(', "sizeless": 0', "")))
    small, learner = build().settings, build(29, learner=True)
    assert (small.layers, small.width, small.context, small.dropout) == (1, 8, 20, 0.2)
    assert (learner.settings.width, learner.settings.dropout, learner.vocabulary) == (8, 0.0, 29)
    assert torch.is_tensor(learner.embedding.table.weight)
