"""What the laws are tested on: every system of the catalogue, small, in all its variants, and every layer."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from itertools import product
from typing import Any

import numpy as np
import torch

from regard.layers.attention import CausalSelfAttention
from regard.layers.blocks import FeedForward, PostNormBlock, PreNormBlock
from regard.layers.embedding import Embedding, Output
from regard.layers.layer import Layer
from regard.layers.recurrent import LSTM
from regard.systems.catalogue import SYSTEMS, find
from regard.systems.model import Model, Stack

VOCABULARY = 17
CONTEXT = 24  # no law reads more than this

SMALL: dict[str, dict[str, Any]] = {  # smaller than tiny: laws do not depend on size
    "lstm": {"layers": 2, "width": 8, "dropout": 0.3, "dropout_recurrent": 0.3, "dropout_embedding": 0.2},
    "gpt": {"layers": 2, "width": 32, "heads": 2, "context": CONTEXT, "dropout": 0.3},
}
VARIANTS: dict[str, list[dict[str, Any]]] = {
    "ngram": [{"order": order, "smoothing": how} for order in (1, 2, 4) for how in ("kneser-ney", "counts")],
    "lstm": [
        {},
        {"tied": False},
        {"embedding": 20},
        {"embedding": 20, "tied": False, "layers": 3},
        {"variational": True, "layers": 1},
    ],
    "gpt": [
        {"norm": norm, "position": position, "combine": combine, "tied": combine == "add"}
        for norm, position, combine in product(
            ("pre", "post"), ("index", "one-hot", "sine", "sinusoid", "learned"), ("add", "concatenate")
        )
    ]
    + [{"norm": norm, "position": position} for norm, position in product(("pre", "post"), ("none", "rotary"))]
    + [{"bias": False, "activation": "relu", "feedforward": 12, "tied": False}],
}
SUBJECTS = [(system.name, tuple(variant.items())) for system in SYSTEMS for variant in VARIANTS.get(system.name, [{}])]
NEURAL = [subject for subject in SUBJECTS if find(subject[0]).trained == "gradient"]
LAYERS: dict[str, Callable[[], Layer]] = {
    "lstm": lambda: LSTM(8, 8),
    "lstm, wider": lambda: LSTM(8, 12, forget_bias=0.0, dropout_recurrent=0.5),
    "attention": lambda: CausalSelfAttention(8, 2),
    "attention, rotary": lambda: CausalSelfAttention(8, 2, rotary=True, bias=False, dropout=0.5),
    "attention, one head": lambda: CausalSelfAttention(8, 1),
    "pre-norm block": lambda: PreNormBlock(CausalSelfAttention(8, 2), FeedForward(8, 16, dropout=0.5)),
    "post-norm block": lambda: PostNormBlock(CausalSelfAttention(8, 2), FeedForward(8, 16, activation="relu")),
}


def title(subject: object) -> str:
    if isinstance(subject, str):
        return subject
    name, variant = subject  # type: ignore[misc]
    return " ".join([name, *(f"{key}={value}" for key, value in variant)])


def untrained(subject: tuple[str, tuple[tuple[str, Any], ...]], vocabulary: int = VOCABULARY, **settings: Any) -> Model:
    """The system as a user would get it, in eval() and fp64."""
    name, variant = subject
    file, _, attribute = find(name).target.partition(":")
    module = import_module(file)
    tiny = {key: value for key, value in module.SIZES["tiny"].items() if "." not in key}
    chosen = module.Settings(**{**tiny, **SMALL.get(name, {}), **dict(variant), **settings})
    return getattr(module, attribute)(vocabulary, chosen).double().eval()


@cache
def build(subject: tuple[str, tuple[tuple[str, Any], ...]]) -> Model:
    """The system with weights large enough for every part to matter; a counted one has counted a little random text."""
    torch.manual_seed(0)
    model = untrained(subject)
    if find(subject[0]).trained == "counting":
        model.count(np.random.default_rng(0).integers(0, VOCABULARY, 400))  # type: ignore[operator]
        return model.double()
    return stir(model)


@cache
def carry(layer: str) -> Model:
    """A layer between an embedding and a prediction, which is all the laws need to see it."""
    torch.manual_seed(0)
    made = LAYERS[layer]()
    width: int = getattr(made, "width", 8)
    model = Stack(Embedding(VOCABULARY, 8), [made], Output(width, VOCABULARY, tied=False, bias=False))
    return stir(model.double().eval())


def stir(model: Model) -> Model:
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.3 * torch.randn_like(weight))
    return model
