"""What the laws are tested on: every system of the catalogue, small, in all its variants, and every layer."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from importlib import import_module
from itertools import cycle, product
from random import Random
from typing import Any

import numpy as np
import torch

from regard.laws.closeness import RandomCase
from regard.layers.attention import CausalSelfAttention, GroupedQueryAttention, SelfAttention
from regard.layers.blocks import FeedForward, GatedFeedForward, PostNormBlock, PreNormBlock, RMSNormBlock
from regard.layers.cell import Cell
from regard.layers.context import Average, Window
from regard.layers.embedding import Embedding, Output
from regard.layers.layer import Layer
from regard.layers.matrix_state import LinearAttention
from regard.layers.position import INPUT_POSITIONS, ALiBi, Rotary
from regard.layers.recurrent import ACTIVATIONS, GRU, INITIALISATIONS, LSTM, Elman
from regard.layers.scan import MinGRU, MinGRUBlock
from regard.layers.scores import SCORES
from regard.layers.state import State
from regard.systems.catalogue import SYSTEMS, find
from regard.systems.model import Model, Stack
from regard.systems.sizes import sizes_of

VOCABULARY = 17
CONTEXT = 24  # no law reads more than this

SMALL: dict[str, dict[str, Any]] = {  # smaller than tiny: laws do not depend on size
    "lstm": {"layers": 2, "width": 8, "dropout": 0.3, "dropout_recurrent": 0.3, "dropout_embedding": 0.2},
    "rnn": {"layers": 2, "width": 8, "dropout": 0.3},
    "gru": {"layers": 2, "width": 8, "dropout": 0.3},
    "nnlm": {"order": 4, "width": 12, "embedding": 8, "dropout": 0.3},
    "dan": {"layers": 2, "width": 8, "dropout": 0.3},
    "self-attention": {"width": 32, "context": CONTEXT, "dropout": 0.3},
    "gpt": {"layers": 2, "width": 32, "heads": 2, "context": CONTEXT, "dropout": 0.3},
    "linear-attention": {"layers": 2, "width": 32, "heads": 2, "context": CONTEXT, "dropout": 0.3},
    "mingru": {"layers": 2, "width": 16, "dropout": 0.3},
    "llama": {"layers": 2, "width": 32, "heads": 4, "context": CONTEXT, "dropout": 0.3},
    "seq2seq": {"layers": 2, "width": 8, "embedding": 6, "dropout": 0.3},
    "bahdanau": {"layers": 1, "width": 8, "embedding": 6, "dropout": 0.3},
    "transformer": {"layers": 2, "width": 32, "heads": 2, "feedforward": 24, "context": CONTEXT, "dropout": 0.3},
    "classifier": {"layers": 2, "width": 8, "heads": 2, "dropout": 0.3},
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
    "rnn": [
        *({"activation": f, "initialisation": first} for f in ACTIVATIONS for first in INITIALISATIONS),
        {"embedding": 20},
        {"embedding": 20, "tied": False, "layers": 3, "activation": "sigmoid"},
    ],
    "nnlm": [
        {},
        {"order": 2},
        {"order": 7, "direct": True},
        {"embedding": 0, "tied": True},
        {"embedding": 0, "tied": True, "direct": True, "order": 3},
    ],
    "gru": [{}, {"embedding": 20}, {"embedding": 20, "tied": False, "layers": 3}],
    "dan": [{"layers": depth} for depth in (0, 1, 3)]
    + [{"embedding": 20}, {"embedding": 20, "tied": False, "activation": "relu"}],
    "self-attention": [
        *({"score": score, "bandwidth": 2.0} for score in SCORES),
        *({"score": score, "projections": False, "bandwidth": 3.0} for score in SCORES),
        *({"activation": f, "score": "dot", "tied": True} for f in ("tanh", "relu")),
        *({"position": place} for place in INPUT_POSITIONS[1:]),
        *({"position": place, "combine": "concatenate", "score": "additive"} for place in INPUT_POSITIONS[1:]),
    ],
    "gpt": [
        {"norm": norm, "position": position, "combine": combine, "tied": combine == "add"}
        for norm, (position, combine) in zip(
            cycle(("pre", "post", "post", "pre")),
            product(("index", "one-hot", "sine", "sinusoid", "learned"), ("add", "concatenate")),
            strict=False,
        )
    ]
    + [{"norm": norm, "position": position} for norm, position in product(("pre", "post"), ("none", "rotary", "alibi"))]
    + [{"bias": False, "activation": "relu", "feedforward": 12, "tied": False}],
    "linear-attention": [
        {},
        {"feature": "relu", "decay": "fixed", "position": "none"},
        {"feature": "elu", "decay": "gated", "rule": "delta", "position": "none"},
        {"feature": "gaussian", "features": 24, "norm": "post", "position": "learned", "decay": "gated"},
        {"feature": "relu", "rule": "delta", "tied": False},
    ],
    "mingru": [{}, {"tied": False, "expansion": 0.7, "feedforward": 12, "layers": 1}],
    "llama": [{}, {"key_value_heads": 1, "tied": False}, {"key_value_heads": 4, "feedforward": 12}],
    "seq2seq": [
        {"cell": "lstm"},
        {"cell": "gru", "reverse": False, "tied": False},
        {"cell": "rnn", "layers": 1, "embedding": 0, "shared": False},
    ],
    "bahdanau": [
        *({"score": score} for score in SCORES),
        {"cell": "lstm", "layers": 2, "tied": False},
        {"cell": "rnn", "embedding": 0, "shared": False},
        *({"feed": False, "score": score} for score in ("additive", "dot", "epanechnikov")),
        {"feed": False, "cell": "lstm", "layers": 2},
    ],
    "transformer": [
        {"norm": "pre"},
        {"norm": "post", "decoder_layers": 1},
        {"norm": "post", "position": "rotary", "activation": "gelu"},
        {"position": "alibi"},
        {"position": "learned", "shared": False, "dropout_attention": 0.2, "dropout_activation": 0.2},
        {"position": "none", "tied": False},
        {"position": "learned", "combine": "concatenate", "tied": False},
        {"position": "one-hot"},
        {"position": "index", "combine": "concatenate", "tied": False, "norm": "post"},
    ],
    "classifier": [
        {"encoder": "dan"},
        {"encoder": "dan", "layers": 0, "embedding": 6},
        {"encoder": "rnn"},
        {"encoder": "rnn", "bidirectional": False, "pool": "last"},
        {"encoder": "lstm"},
        {"encoder": "lstm", "pool": "last", "embedding": 6},
        {"encoder": "gru"},
        {"encoder": "gru", "bidirectional": False, "pool": "last"},
        {"encoder": "self-attention"},
        {"encoder": "self-attention", "position": "rotary"},
        {"encoder": "transformer", "position": "alibi"},
        {"encoder": "transformer"},
        {"encoder": "transformer", "position": "none", "pool": "last"},
        {"encoder": "transformer", "position": "rotary", "pool": "last"},
    ],
}


def subjects(task: str) -> list[tuple[str, tuple[tuple[str, Any], ...]]]:
    return [
        (system.name, tuple(variant.items()))
        for system in SYSTEMS
        if system.task == task
        for variant in VARIANTS.get(system.name, [{}])
    ]


SUBJECTS = subjects("language model")
TRANSLATORS = subjects("translation")
CLASSIFIERS = subjects("classification")
NEURAL = [subject for subject in SUBJECTS + TRANSLATORS + CLASSIFIERS if find(subject[0]).trained == "gradient"]
# Those that can learn "their books" and "their dog". A window of one word cannot. Bare attention has no other way to
# show the current word than to look at it, and where that saturates it sees nothing else (gradients of a softmax die
# with the gap between scores): some of its variants, and not only from some first weights, end there.
BARE = [("self-attention", (("score", score),)) for score in ("scaled-dot", "additive", "gaussian", "triangular")]
LEARNERS = BARE + [
    subject for subject in NEURAL if subject[0] != "self-attention" and subject != ("nnlm", (("order", 2),))
]


class Fading(Cell):
    """A cell as a stranger would write it: one step, two things carried, one more to show."""

    memory = ("hidden", "trace")

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__(inputs, width)
        self.input = torch.nn.Linear(inputs, width)

    def step(self, x: torch.Tensor, state: State) -> State:
        drive = self.input(x).tanh()
        trace = 0.9 * state["trace"] + drive
        return {"hidden": drive - 0.5 * state["hidden"] + trace, "trace": trace, "drive": drive}


LAYERS: dict[str, Callable[[], Layer]] = {
    "lstm": lambda: LSTM(8, 8),
    "lstm, wider": lambda: LSTM(8, 12, forget_bias=0.0, dropout_recurrent=0.5),
    "elman": lambda: Elman(8, 8),
    "elman, wider, sigmoid": lambda: Elman(8, 12, activation="sigmoid"),
    "elman, narrower, relu": lambda: Elman(8, 5, activation="relu", initialisation="identity"),
    "gru": lambda: GRU(8, 8),
    "gru, wider": lambda: GRU(8, 12),
    "cell": lambda: Fading(8, 12),
    "average": lambda: Average(8),
    "window": lambda: Window(8, 3),
    "window, one word": lambda: Window(8, 1),
    **{f"bare attention, {score}": partial(SelfAttention, 8, score=score, bandwidth=3.0) for score in SCORES},
    "bare attention, no projections": lambda: SelfAttention(8, projections=False, dropout=0.5),
    "attention": lambda: CausalSelfAttention(8, 2),
    "attention, rotary": lambda: CausalSelfAttention(8, 2, position=Rotary(), bias=False, dropout=0.5),
    "attention, alibi": lambda: CausalSelfAttention(8, 2, position=ALiBi(), dropout=0.5),
    "attention, one head": lambda: CausalSelfAttention(8, 1),
    "attention, grouped": lambda: GroupedQueryAttention(8, 4, 2, position=Rotary(), dropout=0.5),
    "rms-norm block": lambda: RMSNormBlock(GroupedQueryAttention(8, 2, 1, bias=False), GatedFeedForward(8, 12)),
    "linear attention": lambda: LinearAttention(8, 2),
    "linear attention, relu, fixed, delta": lambda: LinearAttention(8, 2, feature="relu", decay="fixed", rule="delta"),
    "linear attention, gaussian, gated": lambda: LinearAttention(8, 2, feature="gaussian", decay="gated"),
    "linear attention, gated, delta": lambda: LinearAttention(8, 1, decay="gated", rule="delta"),
    "minimal gru": lambda: MinGRU(8, 12),
    "minimal gru's block": lambda: MinGRUBlock(8, 12, FeedForward(8, 16), dropout=0.5),
    "pre-norm block": lambda: PreNormBlock(CausalSelfAttention(8, 2), FeedForward(8, 16, dropout=0.5)),
    "post-norm block": lambda: PostNormBlock(CausalSelfAttention(8, 2), FeedForward(8, 16, activation="relu")),
}


def title(subject: object) -> str:
    if isinstance(subject, str):
        return subject
    name, variant = subject  # type: ignore[misc]
    return " ".join([name, *(f"{key}={value}" for key, value in variant)])


def draws(law: Callable[..., None], subject: object) -> list[RandomCase]:
    """Three cases, others for each law and subject, and always the same."""
    random = Random(f"{law.__name__} {title(subject)}")
    rows, columns = random.sample(range(2, 5), 3), random.sample(range(2, 7), 3)
    return [RandomCase(random.randrange(10_000), *size) for size in zip(rows, columns)]


def untrained(subject: tuple[str, tuple[tuple[str, Any], ...]], vocabulary: int = VOCABULARY, **settings: Any) -> Model:
    """The system as a user would get it, in eval() and fp64."""
    name, variant = subject
    file, _, attribute = find(name).target.partition(":")
    module = import_module(file)
    tiny = sizes_of(name).of("tiny")
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
