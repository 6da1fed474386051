"""The deep averaging network as a language model: the average of all words so far, without order.

    c_t = (E[w_1] + … + E[w_t]) / t,   h = f(W_k … f(W_1 c_t + b_1) … + b_k),   P(w_{t+1}) = softmax(W_o h + b)

Iyyer et al. 2015, who classified sentences with it. With no layers it is their neural bag of words.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from torch import nn

from regard.base.settings import MAX_LAYERS, RATE, CheckedSettings, setting
from regard.layers.context import Average
from regard.layers.embedding import Embedding, Output
from regard.systems.model import Stack


@dataclass(frozen=True)
class Settings(CheckedSettings):
    layers: int = setting(2, "feed-forward layers on top of the average", ge=0, le=MAX_LAYERS)
    width: int = setting(256, "size of a feed-forward layer", ge=1)
    embedding: int = setting(0, "size of a word vector; 0 = width", ge=0)
    activation: str = setting("tanh", "activation function f: {}", choices=("tanh", "relu"))
    dropout: float = setting(0.0, "dropout rate on the average and on the output", **RATE)
    tied: bool = setting(
        True, "predict with the embedding matrix (weight tying); the last layer is then as wide as the embedding"
    )


class DAN(Stack):
    def __init__(self, vocabulary: int, settings: Settings) -> None:
        embedding = settings.embedding or settings.width
        widths = [embedding, *[settings.width] * settings.layers]
        if settings.tied:
            widths[-1] = embedding
        feedforward: list[nn.Module] = [nn.Dropout(settings.dropout)]
        for inputs, width in pairwise(widths):
            feedforward += [nn.Linear(inputs, width), nn.Tanh() if settings.activation == "tanh" else nn.ReLU()]
        super().__init__(
            Embedding(vocabulary, embedding),
            [Average(embedding)],
            Output(widths[-1], vocabulary, tied=settings.tied, bias=True),
            finish=nn.Sequential(*feedforward, nn.Dropout(settings.dropout)),
        )
        self.settings = settings
        nn.init.uniform_(self.embedding.table.weight, -0.1, 0.1)
