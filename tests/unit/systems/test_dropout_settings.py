"""Each dropout setting acts in training wherever its words say, and nowhere else; so does `explain`.

The laws run in eval(), where a dropout that was forgotten changes nothing. Here each setting of a system has a rate of
its own, and one training pass counts the tensors that are dropped at that rate: {rate: {what: how often}}.
"""

import dataclasses
from collections import Counter, defaultdict

import pytest
import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

from regard.runs.recipe import compose
from regard.systems.catalogue import SYSTEMS, load_class

V, WIDTH, INNER, EMBEDDING, READ, WRITTEN = 17, 8, 20, 6, 7, 5  # all different, so that a size says what it is
SIZES = {
    (3, WRITTEN, WIDTH): "hidden",
    (3, WRITTEN, EMBEDDING): "words",
    (3, WRITTEN, INNER): "inner",
    (3, READ, WIDTH): "source hidden",
    (3, READ, 2 * WIDTH): "source hidden, both directions",
    (3, READ, EMBEDDING): "source words",
    (3, READ, INNER): "source inner",
    (3, 1, WIDTH): "hidden, for all steps",
    (3, 1, EMBEDDING): "words, for all steps",
    (3, WIDTH): "pooled",
    (3, 2 * WIDTH): "pooled, both directions",
    (V,): "vocabulary",
    (4 * WIDTH, WIDTH): "recurrent weights",
}


class Dropped(TorchFunctionMode):
    """Counts what is dropped, by the rate."""

    def __init__(self):
        super().__init__()
        self.found = defaultdict(Counter)

    def __torch_function__(self, function, types, arguments=(), named=None):
        named = named or {}
        if function is F.dropout:
            values, rate, training = [*arguments, *([0.5, True][len(arguments) - 1 :])][:3]
            rate, training = named.get("p", rate), named.get("training", training)
            if training and rate:
                self.found[rate]["weights" if values.dim() == 4 else SIZES[tuple(values.shape)]] += 1
        elif function is F.scaled_dot_product_attention and named.get("dropout_p"):
            self.found[named["dropout_p"]]["weights"] += 1
        elif function in (torch.lstm, torch.gru, torch.rnn_tanh, torch.rnn_relu):
            assert not arguments[5], "the fused layers drop between layers by themselves: count them"
        return function(*arguments, **named)


def dropped(model, path):
    """{setting: {what: how often}} of one pass over a batch, in training, by `path`: loss or explain."""
    tokens = torch.randint(V, (3, WRITTEN))
    source = [torch.randint(V, (3, READ))] if hasattr(model, "encode") else []
    with Dropped() as seen:
        if path == "loss":
            model.loss(tokens, tokens, model.begin(*source) if source else None)
        else:
            state = None
            if source:
                encoded, _ = model.explain_encode(*source, None)
                state = model.begin_from(encoded, *source, None)
            model.explain(tokens, state)
    names = {getattr(model.settings, name): name for name in rates(model.settings)}
    return {names[rate]: dict(what) for rate, what in seen.found.items()}


def rates(settings):
    return [field.name for field in dataclasses.fields(settings) if field.name.startswith("dropout")]


RECURRENT = {"width": WIDTH, "embedding": EMBEDDING, "tied": False}
ATTENTION = {"width": WIDTH, "heads": 2, "context": 16, "feedforward": INNER}
CASES = [
    ("rnn", {**RECURRENT, "layers": 3}, {"dropout": {"words": 1, "hidden": 2 + 1}}),
    ("rnn", {**RECURRENT, "layers": 1}, {"dropout": {"words": 1, "hidden": 1}}),
    ("gru", {**RECURRENT, "layers": 3}, {"dropout": {"words": 1, "hidden": 2 + 1}}),
    ("lstm", {**RECURRENT, "layers": 3}, {
        "dropout_embedding": {"vocabulary": 1}, "dropout_input": {"words": 1}, "dropout_between": {"hidden": 2},
        "dropout": {"hidden": 1}, "dropout_recurrent": {"recurrent weights": 3},
    }),
    ("lstm", {**RECURRENT, "layers": 3, "variational": True}, {
        "dropout_embedding": {"vocabulary": 1}, "dropout_input": {"words, for all steps": 1},
        "dropout_between": {"hidden, for all steps": 2}, "dropout": {"hidden, for all steps": 1},
        "dropout_recurrent": {"recurrent weights": 3},
    }),
    ("nnlm", {"width": WIDTH, "embedding": EMBEDDING}, {"dropout": {"words": 1, "hidden": 1}}),
    ("dan", {**RECURRENT, "layers": 2}, {"dropout": {"words": 1, "hidden": 1}}),
    ("self-attention", {"width": WIDTH, "context": 16}, {"dropout": {"hidden": 1, "weights": 1}}),
    ("gpt", {**ATTENTION, "layers": 3}, {"dropout": {"hidden": 1 + 2 * 3, "weights": 3}}),
    ("gpt", {**ATTENTION, "layers": 3, "norm": "post"}, {"dropout": {"hidden": 1 + 2 * 3, "weights": 3}}),
    ("llama", {**ATTENTION, "layers": 3}, {"dropout": {"hidden": 1 + 2 * 3, "weights": 3}}),
    ("linear-attention", {**ATTENTION, "layers": 3}, {"dropout": {"hidden": 1 + 2 * 3}}),
    ("mingru", {"width": WIDTH, "feedforward": INNER, "layers": 3}, {"dropout": {"hidden": 1 + 2 * 3}}),
    *(("seq2seq", {**RECURRENT, "cell": cell, "layers": 3}, {
        "dropout": {"source words": 1, "source hidden": 2, "words": 1, "hidden": 2 + 1},
    }) for cell in ("rnn", "gru", "lstm")),
    *(("bahdanau", {**RECURRENT, "feed": feed, "layers": 3}, {
        "dropout": {"source words": 1, "source hidden, both directions": 2, "words": 1 + 1, "hidden": 2},
    }) for feed in (True, False)),
    *(("transformer", {**ATTENTION, "norm": norm, "layers": 3, "decoder_layers": 2}, {
        "dropout": {"source hidden": 1 + 2 * 3, "hidden": 1 + 3 * 2}, "dropout_attention": {"weights": 3 + 2 * 2},
        "dropout_activation": {"source inner": 3, "inner": 2},
    }) for norm in ("pre", "post")),
    ("classifier", {"encoder": "dan", "width": WIDTH, "embedding": EMBEDDING, "layers": 2},
     {"dropout": {"source words": 1, "pooled": 1}}),
    *(("classifier", {"encoder": cell, "width": WIDTH, "embedding": EMBEDDING, "layers": 3}, {
        "dropout": {"source words": 1, "source hidden, both directions": 2, "pooled, both directions": 1},
    }) for cell in ("rnn", "gru", "lstm")),
    ("classifier", {"encoder": "self-attention", "width": WIDTH, "heads": 2, "layers": 3},
     {"dropout": {"source hidden": 1 + 3, "pooled": 1}}),
    ("classifier", {"encoder": "transformer", "width": WIDTH, "heads": 2, "layers": 3},
     {"dropout": {"source hidden": 1 + 2 * 3, "pooled": 1}}),
]  # fmt: skip


@pytest.mark.parametrize("path", ["loss", "explain"])
@pytest.mark.parametrize(
    ("system", "model", "expected"), CASES, ids=lambda value: value if isinstance(value, str) else ""
)
def test_each_dropout_setting_reaches_every_place_that_it_names(system, model, expected, path):
    every = rates(compose(system, "tiny").model)
    chosen = {name: 0.11 + number / 100 for number, name in enumerate(every)}
    built = load_class(system)(V, compose(system, "tiny", {"model": {**model, **chosen}}).model)
    assert dropped(built.train(), path) == expected
    assert dropped(built.eval(), path) == {}


def test_every_system_with_a_dropout_setting_is_among_the_cases():
    trained = {system.name for system in SYSTEMS if rates(compose(system.name, "tiny").model)}
    assert trained == {system for system, *_ in CASES}
