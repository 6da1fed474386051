"""The language model of gated recurrent units: an LSTM's idea with two gates and no separate cell.

    x_t = E[w_t],   h_t = GRU(x_t, h_{t-1})  in each layer,   P(w_{t+1}) = softmax(W_o h_t + b)

Cho et al. 2014; the unit of Bahdanau's encoder. The equations of the unit stand in layers/recurrent.py.
"""

from __future__ import annotations

from regard.layers.recurrent import GRU
from regard.systems.recurrent_stack import RecurrentModel, RecurrentSettings

Settings = RecurrentSettings

SIZES: dict[str, dict[str, object]] = {
    "tiny": {"layers": 1, "width": 128, "dropout": 0.0, "training.learning_rate": 1e-2},
    "small": {"layers": 2, "width": 256, "dropout": 0.1},
    "medium": {"layers": 2, "width": 650, "dropout": 0.5, "training.learning_rate": 1e-3},
    "large": {"layers": 2, "width": 1500, "dropout": 0.6, "training.learning_rate": 1e-3, "training.clip": 0.25},
}
TRAINING: dict[str, object] = {
    "batches": "stream",
    "window": 64,
    "batch_tokens": 2048,
    "optimizer": "adamw",
    "learning_rate": 1e-3,
    "schedule": "cosine",
    "clip": 1.0,
}


class GRUModel(RecurrentModel):
    def __init__(self, vocabulary: int, settings: Settings) -> None:
        super().__init__(vocabulary, settings, GRU)
