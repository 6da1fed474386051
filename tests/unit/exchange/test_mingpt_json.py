"""A real GPT that others trained (it sorts six letters) computes here what it computed there, layer by layer."""

import base64
import json
import os
from pathlib import Path

import pytest
import torch

import regard
from regard.base.errors import RegardError
from regard.exchange.formats import import_file

FOLDER = Path(os.environ.get("REGARD_DATA") or "/nonexistent") / "checkpoints" / "gpt-nano-sort"


def stored(values):
    return torch.frombuffer(bytearray(base64.b64decode(values["data"])), dtype=torch.float32).reshape(values["shape"])


@pytest.fixture(scope="module")
def activations():
    if not FOLDER.is_dir():
        pytest.skip("REGARD_DATA is not set or has no checkpoints/gpt-nano-sort: no real checkpoint on this machine")
    found = json.loads((FOLDER / "gpt-nano-sort-t0-partials.json").read_text())
    return {name: stored(values) for name, values in found.items() if name != "config"}


@pytest.fixture(scope="module")
def sorter(activations, tmp_path_factory):
    return regard.load(import_file(FOLDER / "gpt-nano-sort-model.json", tmp_path_factory.mktemp("sort") / "run"))


@torch.no_grad()
def test_every_stored_activation_is_ours(sorter, activations):
    logits, _, parts = sorter.model.explain(activations["idx"].long() + 2)  # <eos> and <unk> come first
    first = parts["layers"]["0"]
    seen = torch.ones(11, 11, dtype=torch.bool).tril()
    ours = {
        "x": parts["embedding"],
        "att": first["attention"]["scores"].masked_fill(~seen, 0.0),
        "attSm": first["attention"]["weights"],
        "yProj": first["attention"]["output"],
        "attnResid": parts["embedding"] + first["attention"]["output"],
        "mlp": first["feedforward"],
        "mlpResid": first["hidden"],
        "block0": first["hidden"],
        "block1": parts["layers"]["1"]["hidden"],
        "block2": parts["layers"]["2"]["hidden"],
        "ln_f": parts["hidden"],
        "lm_head": logits[..., 2:],
        "probs": logits[..., 2:].softmax(-1),
    }
    theirs = {**activations, "att": activations["att"].masked_fill(~seen, 0.0)}
    gaps = {name: float((value - theirs[name]).abs().max()) for name, value in ours.items()}
    assert max(gaps.values()) < 2e-5, gaps


@torch.no_grad()
def test_it_still_sorts(sorter):
    model = sorter.model
    for letters in ("CBABBC", "AABACC", "CCCAAA"):
        ids = ["ABC".index(letter) + 2 for letter in letters]
        for _ in range(6):
            ids.append(int(model(torch.tensor([ids]))[0][0, -1, 2:].argmax()) + 2)
        assert "".join("ABC"[n - 2] for n in ids[6:]) == "".join(sorted(letters))


@pytest.mark.parametrize("content, said", [
    ({}, "without a model config"),
    ({"config": {"vocab_size": 3, "n_layer": 1, "n_embd": 4, "n_head": 1, "block_size": 5}}, "has no tensor"),
    ({"config": {"vocab_size": 900}}, "at most 26 characters"),
    ({"config": {"vocab_size": 3, "n_layer": 1, "n_embd": 4, "n_head": 1, "block_size": 5},
      "transformer.wte.weight": {"shape": [3, 4], "data": "AAAA"}}, "which does not match its shape"),
    ({"config": {"vocab_size": 3, "n_layer": 1, "n_embd": 4, "n_head": 1, "block_size": 5},
      "transformer.wte.weight": {"shape": [3, "x"], "data": "AAAA"}}, "is not a tensor"),
    ({"config": {"vocab_size": 3, "n_layer": 1, "n_embd": 4, "n_head": 1, "block_size": 5},
      "transformer.wte.weight": {"shape": [0], "data": "é"}}, "not valid base64"),
])  # fmt: skip
def test_a_wrong_file_is_one_sentence(tmp_path, content, said):
    (tmp_path / "x.json").write_text(json.dumps(content))
    with pytest.raises(RegardError, match=said):
        import_file(tmp_path / "x.json", tmp_path / "run")
    assert not (tmp_path / "run").exists()
