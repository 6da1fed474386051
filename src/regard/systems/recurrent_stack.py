"""The base of the recurrent language models: a stack of layers between an embedding and a prediction.

    x_t = E[w_t],   h_t, … = layer(x_t, h_{t-1}, …)  in each layer,   P(w_{t+1}) = softmax(W_o h_t + b)

Dropout acts on the input, between layers and on the output, never between steps (Zaremba et al. 2014). Tied, W_o = E,
and the last layer is as wide as the embedding.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from torch import nn

from regard.base.settings import MAX_LAYERS, RATE, CheckedSettings, setting
from regard.layers.embedding import Embedding, Output
from regard.layers.layer import Layer
from regard.systems.model import Stack

AS_DROPOUT = -1.0  # use the common rate


@dataclass(frozen=True)
class RecurrentSettings(CheckedSettings):
    layers: int = setting(2, "number of layers", ge=1, le=MAX_LAYERS)
    width: int = setting(256, "size of a layer's hidden state", ge=1)
    embedding: int = setting(0, "size of a word vector; 0 = width", ge=0)
    dropout: float = setting(0.1, "dropout rate on the input, between layers and on the output", **RATE)
    tied: bool = setting(
        True, "predict with the embedding matrix (weight tying); the last layer is then as wide as the embedding"
    )

    def rate(self, place: str) -> float:
        """The dropout rate on the "input" or "between" layers: its own setting if the system has one."""
        own = float(getattr(self, f"dropout_{place}", AS_DROPOUT))
        return self.dropout if own == AS_DROPOUT else own


class RecurrentModel(Stack):
    """`layer(inputs, width)` makes each layer."""

    def __init__(
        self,
        vocabulary: int,
        settings: RecurrentSettings,
        layer: Callable[[int, int], Layer],
        *,
        dropout: type[nn.Module] = nn.Dropout,
        word_dropout: float = 0.0,
    ) -> None:
        embedding = settings.embedding or settings.width
        widths = [
            embedding,
            *[settings.width] * settings.layers,
        ]  # input width of each layer, and output width of the last
        if settings.tied:
            widths[-1] = embedding
        super().__init__(
            Embedding(vocabulary, embedding, word_dropout=word_dropout),
            (layer(inputs, width) for inputs, width in pairwise(widths)),
            Output(widths[-1], vocabulary, tied=settings.tied, bias=True),
            entry=dropout(settings.rate("input")),
            between=dropout(settings.rate("between")),
            finish=dropout(settings.dropout),
        )
        self.settings = settings
        # Small: if tied they are also the output weights, and an untrained model should prefer no word.
        nn.init.uniform_(self.embedding.table.weight, -0.1, 0.1)
