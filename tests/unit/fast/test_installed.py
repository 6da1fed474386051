"""A model with all rows that fit this machine reads as the written one: cut, ragged, growing and fixed."""

import copy

import pytest
import torch

from regard.fast import install, uninstall
from regard.layers.position import POSITIONS
from regard.layers.state import map_state
from regard.systems import gpt, llama

CALLS = [(5, [5, 2]), (1, None), (1, [0, 1]), (3, [3, 1])]
MODELS = {position: lambda position=position: tiny(position) for position in POSITIONS}
MODELS["llama"] = lambda: llama.Llama(11, llama.Settings(layers=2, width=16, heads=4, context=12))


def tiny(position):
    return gpt.GPT(11, gpt.Settings(layers=2, width=12, heads=2, context=12, position=position))


def read(model, capacity):
    torch.manual_seed(1)
    state, found = model.begin(rows=2, capacity=capacity), []
    for columns, lengths in CALLS:
        logits, state = model(
            torch.randint(11, (2, columns)), state, None if lengths is None else torch.tensor(lengths)
        )
        found += [logits[row, : columns if lengths is None else lengths[row]] for row in range(2)]
        state = map_state(torch.clone, state)
    return torch.cat(found)


@pytest.mark.parametrize("capacity", [None, 12])
@pytest.mark.parametrize("name", MODELS)
def test_an_installed_model_reads_as_the_written_one(name, capacity):
    torch.manual_seed(0)
    model = MODELS[name]().double().eval()
    written = read(model, capacity)
    used = {row.name for row in install(model)}
    assert ("causal attention without a mask" in used) == (name in POSITIONS and name != "alibi")
    assert ("grouped queries without a mask" in used) == (name == "llama")
    torch.testing.assert_close(read(model, capacity), written)
    torch.testing.assert_close(read(copy.deepcopy(model), capacity), written)
    uninstall(model)
    assert torch.equal(read(model, capacity), written)
