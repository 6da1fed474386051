"""Small models that contain a user's function, for the laws, and random models whose steps it may call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from regard.laws.registry import VOCABULARY, Build
from regard.layers.embedding import Embedding, Output
from regard.layers.layer import Layer
from regard.layers.position import Position
from regard.layers.recurrent import LSTM
from regard.layers.state import State
from regard.learn.exercises.grading import RandomInputs
from regard.systems.model import Model, Stack

WIDTH = 6


def model_of(layer: Callable[[], Layer], position: Callable[[], Position] | None = None) -> Build:
    """Builds a language model with one such layer between embedding and prediction."""

    def build(vocabulary: int = VOCABULARY, *, learner: bool = False) -> Model:
        embedding = Embedding(vocabulary, WIDTH, position() if position else None)
        return Stack(embedding, [layer()], Output(WIDTH, vocabulary, tied=False, bias=True))

    return build


class RandomModel:
    """A small LSTM with random weights, large enough that every word it reads matters."""

    def __init__(self, random: RandomInputs, vocabulary: int) -> None:
        self.model = Stack(
            Embedding(vocabulary, WIDTH), [LSTM(WIDTH, WIDTH)], Output(WIDTH, vocabulary, tied=False, bias=False)
        ).double()
        self.model.eval()
        with torch.no_grad():
            for weight in self.model.parameters():
                weight.copy_(1.5 * random.normal(*weight.shape))

    def begin(self, rows: int) -> State:
        return self.model.begin(rows=rows)


class RowsStep(RandomModel):
    """step(tokens [R], state) → logits [R, V], state"""

    def __call__(self, tokens: Tensor, state: Any) -> tuple[Tensor, Any]:
        logits, state = self.model(tokens[:, None], state)
        return logits[:, 0], state


class OneStep(RandomModel):
    """step(token, state) → logits [V], state"""

    def __call__(self, token: int, state: Any) -> tuple[Tensor, Any]:
        with torch.no_grad():
            logits, state = self.model(torch.tensor([[int(token)]]), state)
        return logits[0, 0], state
