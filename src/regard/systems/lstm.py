"""The LSTM language model: layers of long short-term memory between an embedding and a prediction.

    x_t = E[w_t],   h_t, c_t = LSTM(x_t, h_{t-1}, c_{t-1})  in each layer,   P(w_{t+1}) = softmax(W_o h_t + b)

Hochreiter & Schmidhuber 1997; as a language model Sundermeyer et al. 2012; regularised as in Zaremba et al. 2014
(dropout between layers) and Merity et al. 2018 (AWD-LSTM: weight-drop, variational dropout, tied weights).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from torch import nn

from regard.errors import RegardError
from regard.layers.dropout import VariationalDropout
from regard.layers.embedding import Embedding, Output
from regard.layers.recurrent import LSTM
from regard.settings import at_least, setting
from regard.systems.model import Stack


@dataclass(frozen=True)
class Settings:
    layers: int = setting(2, "LSTM layers, one above the other")
    width: int = setting(256, "components of a layer's hidden state and cell")
    embedding: int = setting(0, "components of a word vector; 0 = width")
    dropout: float = setting(0.1, "rate on the input, between layers and on the output")
    dropout_embedding: float = setting(0.0, "rate at which whole words are dropped")
    dropout_recurrent: float = setting(0.0, "rate at which recurrent connections are dropped (weight-drop)")
    variational: bool = setting(False, "drop the same components at every time step of a window")
    tied: bool = setting(True, "predict with the embedding's matrix; the last layer is then as wide as the embedding")
    forget_bias: float = setting(1.0, "initial bias of the forget gate; 0 forgets half at every step")

    def __post_init__(self) -> None:
        at_least("model.layers", self.layers, 1)
        at_least("model.width", self.width, 1)
        at_least("model.embedding", self.embedding, 0)
        for name in ("dropout", "dropout_embedding", "dropout_recurrent"):
            if not 0.0 <= getattr(self, name) < 1.0:
                raise RegardError(f"model.{name} must be at least 0 and below 1, not {getattr(self, name)}.")


SIZES: dict[str, dict[str, object]] = {
    "tiny": {"layers": 1, "width": 128, "dropout": 0.0},
    "small": {"layers": 2, "width": 256, "dropout": 0.1},
    "medium": {"layers": 2, "width": 650, "dropout": 0.5, "training.learning_rate": 1e-3},
    "large": {
        "layers": 3,
        "width": 1150,
        "embedding": 400,
        "dropout": 0.4,
        "dropout_embedding": 0.1,
        "dropout_recurrent": 0.5,
        "variational": True,
        "training.learning_rate": 1e-3,
        "training.clip": 0.25,
    },
}
TRAINING: dict[str, object] = {
    "batches": "stream",
    "window": 64,
    "batch_tokens": 2048,
    "optimizer": "adamw",
    "learning_rate": 3e-3,
    "schedule": "cosine",
    "clip": 1.0,
}


class LSTMModel(Stack):
    def __init__(self, vocabulary: int, settings: Settings) -> None:
        embedding = settings.embedding or settings.width
        widths = [embedding, *[settings.width] * settings.layers]  # what goes into each layer, and out of the last
        if settings.tied:
            widths[-1] = embedding
        layers = (
            LSTM(
                inputs,
                width,
                forget_bias=settings.forget_bias,
                dropout_recurrent=settings.dropout_recurrent,
            )
            for inputs, width in pairwise(widths)
        )
        dropout = VariationalDropout if settings.variational else nn.Dropout
        super().__init__(
            Embedding(vocabulary, embedding, word_dropout=settings.dropout_embedding),
            layers,
            Output(widths[-1], vocabulary, tied=settings.tied, bias=True),
            entry=dropout(settings.dropout),
            between=dropout(settings.dropout),
            finish=dropout(settings.dropout),
        )
        self.settings = settings
        # Small, because tied they are also the prediction's weights, and an untrained model should prefer no word.
        nn.init.uniform_(self.embedding.table.weight, -0.1, 0.1)
