"""Weights at work: those that a prediction depends on, told by their gradient, as ∂(rᵀp)/∂w ≠ 0, r a random side.

A weight that belongs to a place in the text has no gradient where the text does not reach that place. So a model that
shares its weights across a text has as many at work after a long text as after a short one.
"""

from __future__ import annotations

import torch
from torch import Tensor

from regard.systems.model import Model

ROUNDING = 1e-12  # of the largest gradient: a bias of keys, which softmax takes no notice of, shows rounding alone


def weights_at_work(model: Model, predictions: Tensor) -> int:
    """How many the predictions [texts, V] depend on, in any of the texts; without the table of word vectors, in which
    the words that occur decide."""
    weights = [weight for weight in model.parameters() if weight is not word_vectors(model)]
    side = torch.randn_like(predictions)
    reached = torch.autograd.grad((predictions * side).sum(), weights, allow_unused=True)
    sizes = torch.cat([gradient.abs().flatten() for gradient in reached if gradient is not None])
    return int((sizes > ROUNDING * sizes.max()).sum())


def word_vectors(model: Model) -> Tensor:
    return model.get_submodule("embedding.table").get_parameter("weight")
