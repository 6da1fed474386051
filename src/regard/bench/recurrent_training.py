"""Recurrent language models: layers of LSTM or tanh RNN between tied word vectors, the state carried along the text.

The peer is torch.nn.LSTM or nn.RNN of two layers with the same word vectors and prediction, its step launched
kernel by kernel, and replayed as one CUDA graph. There is no dropout. The limit counts operations only; the sequential
dependence of steps is a tighter bound.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.bench.contenders import BenchRow, BenchSetup, Contender, Cost
from regard.bench.training_step import LEARNING, PlainTraining, RegardTraining, random_tokens
from regard.layers.state import State
from regard.runs.recipe import Recipe, compose
from regard.systems.lstm import LSTMModel
from regard.systems.rnn import RNN
from regard.text.batches.text_batches import Streams
from regard.training.objective import TensorBatch

LAYERS = 2
STEPS = 200  # before the text starts again
LSTM_SHAPES = {  # width, rows, window
    "full": [(650, 20, 35), (1500, 20, 35), (1024, 64, 256)],
    "small": [(200, 20, 35), (400, 20, 35)],
    "quick": [(24, 4, 8)],
}
RNN_SHAPES = {"full": [(1500, 20, 35)], "small": [(400, 20, 35)], "quick": [(24, 4, 8)]}


class PlainRecurrent(nn.Module):
    """A language model around one of PyTorch's own recurrent modules."""

    def __init__(self, kind: type[nn.LSTM] | type[nn.RNN], vocabulary: int, width: int) -> None:
        super().__init__()
        self.words = nn.Embedding(vocabulary, width)
        self.recurrent = kind(width, width, num_layers=LAYERS, batch_first=True)
        self.bias = nn.Parameter(torch.zeros(vocabulary))
        nn.init.uniform_(self.words.weight, -0.1, 0.1)

    def begin(self, rows: int) -> State:
        names = ("hidden", "cell") if isinstance(self.recurrent, nn.LSTM) else ("hidden",)
        return {name: self.bias.new_zeros(LAYERS, rows, self.words.embedding_dim) for name in names}

    def loss(self, batch: TensorBatch, state: State | None) -> tuple[Tensor, State]:
        assert state is not None
        past: Any = tuple(state.values()) if len(state) > 1 else state["hidden"]
        hidden, past = self.recurrent(self.words(batch.tokens), past)
        logits = F.linear(hidden, self.words.weight, self.bias)
        loss = F.cross_entropy(logits.flatten(0, 1).float(), batch.targets.flatten())
        return loss, dict(zip(state, past if isinstance(past, tuple) else (past,), strict=True))


def lstm_rows(place: BenchSetup) -> list[BenchRow]:
    return [row("lstm", place, *shape) for shape in LSTM_SHAPES[place.size]]


def rnn_rows(place: BenchSetup) -> list[BenchRow]:
    return [row("rnn", place, *shape) for shape in RNN_SHAPES[place.size]]


def row(system: str, place: BenchSetup, width: int, rows: int, window: int) -> BenchRow:
    vocabulary = place.of(10_000, 2000, 100)
    settings = recipe(system, width, rows, window)
    batches = Streams(random_tokens(vocabulary, rows * window * STEPS), rows, window, 0)
    kind = nn.LSTM if system == "lstm" else nn.RNN

    def model() -> LSTMModel | RNN:
        torch.manual_seed(1)
        return (LSTMModel if system == "lstm" else RNN)(vocabulary, settings.model)

    def plain(captured: bool) -> PlainTraining:
        torch.manual_seed(1)
        net = PlainRecurrent(kind, vocabulary, width).to(place.device)
        return PlainTraining(net, net.loss, batches, place, begin=net.begin, captured=captured)

    return BenchRow(
        f"{system}-train {LAYERS}×{width}",
        place,
        f"{rows}×{window} tokens, {vocabulary} words, {place.precision}",
        [
            Contender("Regard", lambda: RegardTraining(model(), batches, settings.training, place)),
            Contender(f"torch.nn.{kind.__name__}", partial(plain, False)),
            Contender(f"torch.nn.{kind.__name__} in a CUDA graph", partial(plain, True), needs_gpu=True),
        ],
        Cost(operations=model().flops_per_token),
        warm_up=place.of(6, 4, 1),
        calls=place.of(5 if window > 100 else 50, 10, 1),
    )


def recipe(system: str, width: int, rows: int, window: int) -> Recipe:
    model = {"layers": LAYERS, "width": width, "embedding": 0, "dropout": 0.0}
    return compose(
        system, None, {"model": model, "training": LEARNING | {"batch_tokens": rows * window, "window": window}}
    )
