"""Weights at work: those that a prediction p depends on, ∂(rᵀp)/∂w ≠ 0 for a random r.

A weight of a certain position has no gradient if the text does not reach that position. So a model that shares its
weights over positions has as many at work after a long text as after a short one.
"""

from __future__ import annotations

import torch
from torch import Tensor

from regard.systems.model import Model

ROUNDING = 1e-12  # of the largest gradient: a key bias, to which softmax is invariant, has only rounding errors


def weights_at_work(model: Model, predictions: Tensor) -> int:
    """The number of weights that the predictions [texts, V] depend on, in any text; without the embedding table, where
    it would count the words that occur."""
    weights = [weight for weight in model.parameters() if weight is not word_vectors(model)]
    side = torch.randn_like(predictions)
    reached = torch.autograd.grad((predictions * side).sum(), weights, allow_unused=True)
    sizes = torch.cat([gradient.abs().flatten() for gradient in reached if gradient is not None])
    return int((sizes > ROUNDING * sizes.max()).sum())


def word_vectors(model: Model) -> Tensor:
    return model.get_submodule("embedding.table").get_parameter("weight")
