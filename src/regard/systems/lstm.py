"""The LSTM language model: layers of long short-term memory between an embedding and a prediction.

    x_t = E[w_t],   h_t, c_t = LSTM(x_t, h_{t-1}, c_{t-1})  in each layer,   P(w_{t+1}) = softmax(W_o h_t + b)

Hochreiter & Schmidhuber 1997; as a language model Sundermeyer et al. 2012; regularized as in Zaremba et al. 2014
(dropout between layers) and Merity et al. 2018 (AWD-LSTM: weight-drop, variational dropout, tied weights). In
training, an AWD-LSTM has an auxiliary loss on large and on changing outputs h of its last layer; m: the dropout mask.

    α |m ∗ h_t|² + β |h_t − h_{t-1}|²,   means over the components          Merity et al. 2017
"""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor, nn

from regard.base.errors import RegardError
from regard.base.settings import RATE, setting
from regard.layers.dropout import VariationalDropout
from regard.layers.recurrent import LSTM
from regard.systems.recurrent_stack import AS_DROPOUT, RecurrentModel, RecurrentSettings


@dataclass(frozen=True)
class Settings(RecurrentSettings):
    dropout_input: float = setting(
        -1.0, "dropout rate on the word vectors; -1 = model.dropout", **RATE, unset=AS_DROPOUT
    )
    dropout_between: float = setting(-1.0, "dropout rate between layers; -1 = model.dropout", **RATE, unset=AS_DROPOUT)
    dropout_embedding: float = setting(0.0, "rate at which whole words are dropped", **RATE)
    dropout_recurrent: float = setting(0.0, "rate at which recurrent weights are dropped", **RATE)
    variational: bool = setting(False, "drop the same components at every time step of a window")
    forget_bias: float = setting(1.0, "initial bias of the forget gate; 0 forgets half at every step")
    penalty_size: float = setting(0.0, "α: penalty on large outputs while training (activation regularization)", ge=0)
    penalty_change: float = setting(0.0, "β: penalty on outputs that change from word to word while training", ge=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.penalty_change and not self.variational:
            raise RegardError(
                "model.penalty_change compares outputs with the same components dropped: set model.variational to true."
            )


class LSTMModel(RecurrentModel):
    settings: Settings

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

    def auxiliary_loss(self, hidden: Tensor) -> Tensor | None:
        return self._penalty(hidden) if self.settings.penalty_size or self.settings.penalty_change else None

    def _penalty(self, dropped: Tensor) -> Tensor:
        """From the last layer's outputs after dropout, [R, T, D] → [R, T]."""
        size = dropped.square().mean(dim=-1)
        # All steps share one mask, whose kept components are scaled up: on average 1 / (1 − rate) of the raw change.
        change = (1 - self.settings.dropout) * dropped.diff(dim=1).square().mean(dim=-1)
        return self.settings.penalty_size * size + self.settings.penalty_change * F.pad(change, (1, 0))
