"""The language model of gated recurrent units: an LSTM's idea with two gates and no separate cell.

    x_t = E[w_t],   h_t = GRU(x_t, h_{t-1})  in each layer,   P(w_{t+1}) = softmax(W_o h_t + b)

Cho et al. 2014; the unit of Bahdanau's encoder. The equations of the unit are in layers/recurrent.py.
"""

from __future__ import annotations

from regard.layers.recurrent import GRU
from regard.systems.recurrent_stack import RecurrentModel, RecurrentSettings

Settings = RecurrentSettings


class GRUModel(RecurrentModel):
    def __init__(self, vocabulary: int, settings: Settings) -> None:
        super().__init__(vocabulary, settings, GRU)
