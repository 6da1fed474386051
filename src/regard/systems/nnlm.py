"""The neural probabilistic language model: the last n − 1 words, concatenated, through one tanh layer.

    x = [E[w_{t-n+2}] ; … ; E[w_t]],   P(w_{t+1}) = softmax(b + W x + U tanh(d + H x))

Bengio et al. 2003; W, the direct connections, are optional as in the paper. Before the start of a text there is
a trained vector. It sees n − 1 words, but reads a text of any length.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from regard.base.errors import RegardError
from regard.base.settings import RATE, CheckedSettings, setting
from regard.layers.context import Window
from regard.layers.embedding import Embedding, Output
from regard.systems.model import Stack


@dataclass(frozen=True)
class Settings(CheckedSettings):
    order: int = setting(8, "n: the predicted word and the n − 1 words before it", ge=2)
    width: int = setting(256, "size of the tanh layer", ge=1)
    embedding: int = setting(64, "size of a word vector; 0 = width", ge=0)
    direct: bool = setting(False, "direct connections from the word vectors to the prediction")
    tied: bool = setting(
        False, "predict with the embedding matrix (weight tying); the tanh layer is then as wide as the embedding"
    )
    dropout: float = setting(0.0, "dropout rate on the word vectors and on the tanh layer", **RATE)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.tied and self.embedding not in (0, self.width):
            raise RegardError(
                f"model.tied predicts with the word vectors, so model.embedding ({self.embedding}) must "
                f"equal model.width ({self.width}) or be 0."
            )


class HiddenLayer(nn.Module):
    """x → tanh(d + H x), followed by x itself if there are direct connections."""

    def __init__(self, inputs: int, width: int, *, direct: bool, dropout: float) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, width)
        self.direct = direct
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.dropout(self.linear(x).tanh())
        return torch.cat([hidden, x], dim=-1) if self.direct else hidden


class NNLM(Stack):
    def __init__(self, vocabulary: int, settings: Settings) -> None:
        embedding = settings.embedding or settings.width
        window = Window(embedding, settings.order - 1)
        super().__init__(
            Embedding(vocabulary, embedding),
            [window],
            Output(settings.width, vocabulary, tied=settings.tied, bias=True),
            entry=nn.Dropout(settings.dropout),
            finish=HiddenLayer(window.width, settings.width, direct=settings.direct, dropout=settings.dropout),
        )
        self.settings = settings
        self.direct = nn.Linear(window.width, vocabulary, bias=False) if settings.direct else None
        nn.init.uniform_(self.embedding.table.weight, -0.1, 0.1)

    def predict(self, hidden: Tensor) -> Tensor:
        if self.direct is None:
            return super().predict(hidden)
        hidden, words = hidden.split([self.settings.width, self.direct.in_features], dim=-1)
        return super().predict(hidden) + self.direct(words)  # b + U tanh(…) + W x
