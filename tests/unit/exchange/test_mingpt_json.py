"""A real GPT that others trained (it sorts six letters) computes here what it computed there, layer by layer."""

import base64
import json
import os
from pathlib import Path

import pytest
import torch

import regard
from regard.base.errors import RegardError
from regard.exchange import hf_gpt2
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


@torch.no_grad()
def test_the_letters_of_a_file_have_the_probabilities_that_its_weights_give_them(runs, tmp_path, capsys):
    """The weights of a GPT with its own boundary, stored as minGPT stores them: linear maps as [out, in]."""
    model = runs("gpt", tied=False).model
    tensors = hf_gpt2.tensors_of(model)
    head = tensors.pop("output.weight")[:5]
    tensors["wte.weight"] = tensors["wte.weight"][:5]
    named = {"lm_head.weight": head, **{hf_gpt2.PREFIX + name: one for name, one in tensors.items()}}
    there = {
        name: {"shape": list(one.shape), "data": base64.b64encode(one.contiguous().numpy().tobytes()).decode()}
        for name, one in named.items()
    }
    config = {"vocab_size": 5, "n_layer": 2, "n_embd": 24, "n_head": 3, "block_size": 48}
    (tmp_path / "five.json").write_text(json.dumps({"config": config, **there}))
    run = regard.load(import_file(tmp_path / "five.json", tmp_path / "run"), device="cpu")
    assert run.tokenizer.tokens == ["<eos>", "<unk>", *"ABCDE"]
    ids = torch.tensor([[0, 3, 2, 4, 4, 1]])
    ours, theirs = run.model(ids + 2)[0][..., 2:], model(ids)[0][..., :5]
    assert torch.allclose(ours.log_softmax(-1), theirs.log_softmax(-1), atol=1e-5)
    assert not run.model.state_dict()["embedding.table.weight"][:2].any()
    assert (run.recipe.model.context, run.recipe.model.tied, run.recipe.size) == (48, False, "")
    said = capsys.readouterr().err
    assert f"imported {sum(one.numel() for one in run.model.parameters()):,} parameters, with a vocabulary of 5" in said
    assert "the scores of lines are not" in said
    with pytest.raises(RegardError, match="--tokenizer does not apply: this model reads characters"):
        import_file(tmp_path / "five.json", tmp_path / "other", tmp_path / "five.json")


@pytest.mark.parametrize("size", [0, 27])
def test_there_is_a_letter_for_each_character(size, tmp_path):
    (tmp_path / "x.json").write_text(json.dumps({"config": {"vocab_size": size}}))
    with pytest.raises(RegardError, match=f"vocab_size is {size}, but Regard supports at most 26 characters"):
        import_file(tmp_path / "x.json", tmp_path / "run")
