"""The recurrent network as a language model: one hidden state, rewritten at every word.

    x_t = E[w_t],   h_t = f(W_x x_t + W_h h_{t-1} + b)  in each layer,   P(w_{t+1}) = softmax(W_o h_t + b)

Elman 1990; as a language model Mikolov et al. 2010, with the sigmoid as f. ReLU with the identity as the first W_h:
Le et al. 2015.
"""

from __future__ import annotations

from dataclasses import dataclass

from regard.base.settings import setting
from regard.layers.recurrent import ACTIVATIONS, INITIALISATIONS, Elman
from regard.systems.recurrent_stack import RecurrentModel, RecurrentSettings


@dataclass(frozen=True)
class Settings(RecurrentSettings):
    activation: str = setting("tanh", "activation function f: {}", choices=ACTIVATIONS)
    initialisation: str = setting(
        "default",
        "initial W_h: default (uniform), orthogonal, or identity; the last two have no bias",
        choices=INITIALISATIONS,
    )


class RNN(RecurrentModel):
    def __init__(self, vocabulary: int, settings: Settings) -> None:
        super().__init__(
            vocabulary,
            settings,
            lambda inputs, width: Elman(
                inputs, width, activation=settings.activation, initialisation=settings.initialisation
            ),
        )
