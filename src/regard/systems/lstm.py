"""The LSTM language model: layers of long short-term memory between an embedding and a prediction.

    x_t = E[w_t],   h_t, c_t = LSTM(x_t, h_{t-1}, c_{t-1})  in each layer,   P(w_{t+1}) = softmax(W_o h_t + b)

Hochreiter & Schmidhuber 1997; as a language model Sundermeyer et al. 2012; regularised as in Zaremba et al. 2014
(dropout between layers) and Merity et al. 2018 (AWD-LSTM: weight-drop, variational dropout, tied weights).
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from regard.layers.dropout import VariationalDropout
from regard.layers.recurrent import LSTM
from regard.settings import setting
from regard.systems.recurrent import RecurrentModel, RecurrentSettings


@dataclass(frozen=True)
class Settings(RecurrentSettings):
    dropout_embedding: float = setting(0.0, "rate at which whole words are dropped")
    dropout_recurrent: float = setting(0.0, "rate at which recurrent connections are dropped (weight-drop)")
    variational: bool = setting(False, "drop the same components at every time step of a window")
    forget_bias: float = setting(1.0, "initial bias of the forget gate; 0 forgets half at every step")


SIZES: dict[str, dict[str, object]] = {
    "tiny": {"layers": 1, "width": 128, "dropout": 0.0, "training.learning_rate": 1e-2},
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
    "learning_rate": 2e-3,
    "schedule": "cosine",
    "clip": 1.0,
}


class LSTMModel(RecurrentModel):
    def __init__(self, vocabulary: int, settings: Settings) -> None:
        super().__init__(
            vocabulary,
            settings,
            lambda inputs, width: LSTM(
                inputs, width, forget_bias=settings.forget_bias, dropout_recurrent=settings.dropout_recurrent
            ),
            dropout=VariationalDropout if settings.variational else nn.Dropout,
            word_dropout=settings.dropout_embedding,
        )
