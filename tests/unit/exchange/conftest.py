"""Runs to exchange: built, not trained, with weights large enough that every part of the model counts."""

from pathlib import Path

import pytest
import torch

import regard
from one_registry import one_registry
from regard.runs.recipe import compose
from regard.runs.store.create import write_facts, write_folder
from regard.runs.store.folder import Tokenizers, build_model
from regard.runs.store.lock import new_folder
from regard.systems.catalogue import find
from regard.text.tokenizers.tokenizer import Tokenizer
from regard.training.checkpoint import save_tensors

LINES = [
    "The ship left the harbour at dawn, and nobody (not even the captain) saw it go.",
    "Où vont-ils ? Ils vont à la maison, et ils y restent.",
    "Three ships; 2 captains: one sea!",
    "Das Schiff verließ den Hafen. The harbour was empty, the sea was calm.",
] * 3
SMALL = {
    "gpt": {"layers": 2, "width": 24, "heads": 3, "context": 48, "dropout": 0.0},
    "llama": {"layers": 2, "width": 24, "heads": 6, "key_value_heads": 2, "context": 48, "dropout": 0.0},
    "transformer": {"layers": 2, "decoder_layers": 3, "width": 24, "heads": 3, "dropout": 0.0},
}


def make_run(folder: Path, system: str, *, tokenizer: str = "bpe", joint: bool = True, **model: object) -> Path:
    cut = Tokenizer.train(LINES, tokenizer, normalise="nfc" if tokenizer in ("word", "char") else "none")
    data: dict[str, object] = {"corpus": "", "tokenizer": cut.kind, "vocabulary": cut.vocabulary}
    task = find(system).task
    joint = joint and task == "translation"
    if task == "translation":
        data["joint"] = joint
    recipe = compose(system, "tiny", {"data": data, "model": {**SMALL.get(system, {}), **model}})
    source = None if task == "language model" else cut if joint else Tokenizer.train(LINES, "char")
    tokenizers = Tokenizers(cut, source)
    torch.manual_seed(0)
    built = build_model(recipe, tokenizers)
    with torch.no_grad():
        for weight in built.parameters():
            weight.add_(torch.randn_like(weight) * (0.3 if weight.dim() == 1 else 0.1))
    with new_folder(recipe, folder) as made:
        write_folder(made, recipe, tokenizers)
        save_tensors(made / "model.safetensors", built.state_dict())
        write_facts(made, recipe, built, {"name": "harbour"})
    return folder


@pytest.fixture(autouse=True, scope="session")
def operators_once():
    with one_registry():
        yield


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    """A run by system and settings, made once."""
    made: dict[str, Path] = {}

    def get(system: str, **settings):
        key = repr((system, sorted(settings.items())))
        if key not in made:
            made[key] = make_run(tmp_path_factory.mktemp("run") / system, system, **settings)
        return regard.load(made[key], device="cpu")

    return get
