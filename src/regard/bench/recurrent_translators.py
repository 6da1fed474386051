"""The recurrent translators, seq2seq and Bahdanau's, of width 512 on a GPU: whole training steps on pairs.

The peers are the same nets in plain PyTorch: `nn.LSTM` reads and writes; a loop over `nn.GRUCell` with attention before
every step. All sentences have the same length, so nothing is padded, and there is no dropout.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.bench.contenders import BenchRow, BenchSetup, Contender, Cost
from regard.bench.training_step import LEARNING, PlainTraining, RegardTraining
from regard.bench.translators import SMOOTHING, random_pairs, vocabulary
from regard.layers.state import State
from regard.runs.recipe import compose
from regard.systems.catalogue import load_class
from regard.text.batches.pair_batches import PairBatches
from regard.text.batches.pair_shapes import ShapedPairBatches
from regard.training.objective import TensorBatch


class PlainTranslator(nn.Module):
    """Word vectors that both sides share and that also predict."""

    def __init__(self, vocabulary: int, words: int, inputs: int) -> None:
        super().__init__()
        self.words = nn.Embedding(vocabulary, words)
        self.readout = nn.Linear(inputs, words)
        self.bias = nn.Parameter(torch.zeros(vocabulary))
        nn.init.normal_(self.words.weight, std=0.5 * words**-0.5)

    def read(self, tokens: Tensor) -> Tensor:
        return self.words(tokens) * self.words.embedding_dim**0.5

    def hidden(self, source: Tensor, tokens: Tensor) -> Tensor:
        raise NotImplementedError

    def loss(self, batch: TensorBatch, state: State | None) -> tuple[Tensor, None]:
        assert batch.source is not None
        logits = F.linear(self.hidden(batch.source, batch.tokens), self.words.weight, self.bias).flatten(0, 1)
        return F.cross_entropy(logits.float(), batch.targets.flatten(), label_smoothing=SMOOTHING), None


class PlainSeq2Seq(PlainTranslator):
    def __init__(self, vocabulary: int, words: int, width: int, layers: int) -> None:
        super().__init__(vocabulary, words, width)
        self.encoder = nn.LSTM(words, width, layers, batch_first=True)
        self.decoder = nn.LSTM(words, width, layers, batch_first=True)

    def hidden(self, source: Tensor, tokens: Tensor) -> Tensor:
        _, last = self.encoder(self.read(source.flip(1)))
        return self.readout(self.decoder(self.read(tokens), last)[0])


class PlainBahdanau(PlainTranslator):
    def __init__(self, vocabulary: int, words: int, width: int, layers: int) -> None:
        super().__init__(vocabulary, words, 3 * width + words)
        self.encoder = nn.GRU(words, width, layers, batch_first=True, bidirectional=True)
        self.bridge = nn.Linear(2 * width, width)
        self.query, self.key = nn.Linear(width, width, bias=False), nn.Linear(2 * width, width, bias=False)
        self.judge = nn.Linear(width, 1, bias=False)
        self.cell = nn.GRUCell(words + 2 * width, width)

    def hidden(self, source: Tensor, tokens: Tensor) -> Tensor:
        memory, last = self.encoder(self.read(source))
        state, keys, words = self.bridge(torch.cat([*last], dim=-1)).tanh(), self.key(memory), self.read(tokens)
        written: list[Tensor] = []
        for word in words.unbind(dim=1):
            weights = self.judge((self.query(state)[:, None] + keys).tanh()).softmax(dim=1)  # [R, S, 1]
            context = (weights * memory).sum(dim=1)
            state = self.cell(torch.cat([word, context], dim=-1), state)
            written.append(torch.cat([state, context, word], dim=-1))
        return self.readout(torch.stack(written, dim=1)).tanh()


def row(system: str, layers: int, peer: Callable[[int, int, int, int], PlainTranslator], place: BenchSetup) -> BenchRow:
    rows, length = place.of(512, 32, 4), place.of(32, 16, 6)
    width, words = place.of(512, 128, 32), place.of(256, 64, 16)
    shape = {"width": width, "embedding": words, "layers": layers, "dropout": 0.0}
    learning = LEARNING | {"batch_tokens": 2 * rows * length, "label_smoothing": SMOOTHING}
    settings = compose(system, None, {"model": shape, "training": learning})
    pairs = PairBatches(random_pairs(vocabulary(place), 8 * rows, length), 2 * rows * length, seed=1)
    batches = ShapedPairBatches.of(pairs) if place.device.type == "cuda" else pairs  # as `regard train` has them

    def regard() -> RegardTraining:
        torch.manual_seed(1)
        return RegardTraining(load_class(system)(vocabulary(place), settings.model), batches, settings.training, place)

    def plain() -> PlainTraining:
        torch.manual_seed(1)
        net = peer(vocabulary(place), words, width, layers)
        return PlainTraining(net, net.loss, batches, place)

    return BenchRow(
        f"{system}-train",
        place,
        f"{layers}+{layers}×{width}, {rows} pairs of {length}+{length} tokens, {place.precision}",
        [Contender("Regard", regard), Contender("plain PyTorch", plain)],
        Cost(operations=load_class(system)(vocabulary(place), settings.model).flops_per_token),
        warm_up=place.of(6, 4, 1),
        calls=place.of(20, 10, 1),
        unit="target tokens/s",
    )


def rows(place: BenchSetup) -> list[BenchRow]:
    return [row("seq2seq", 2, PlainSeq2Seq, place), row("bahdanau", 1, PlainBahdanau, place)]
