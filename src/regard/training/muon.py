"""Muon: momentum SGD whose update of a matrix is orthogonalized (Jordan et al. 2024).

    B ← μ B + (1 − μ) G,     G' = (1 − μ) G + μ B                              Nesterov's momentum of the gradient
    W ← W − η (λ W + 0.2 √max(A, B) O),     O = U Vᵀ where G' = U Σ Vᵀ         W is A × B

A gradient has a few large singular values; its orthogonal factor O gives all directions the same weight. O needs no
SVD: a few Newton-Schulz iterations X ← aX + (bXXᵀ + c(XXᵀ)²)X bring all singular values close to one (between about 0.7
and 1.2). The factor before O makes an update as large as AdamW's (Liu et al. 2025), so both share one learning rate and
weight decay. AdamW trains the rest: embeddings, output layer, biases and gains.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from regard.layers.embedding import Embedding, Output
from regard.systems.model import Model
from regard.training.distributed import gather_full, shard_like
from regard.training.eager import AdamW, Eager

MOMENTUM = 0.95
ROUNDS = 5
COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # Jordan's: the steepest at zero that still converge near one
SIZE = 0.2  # the root mean square of AdamW's updates


class Muon(Eager):
    """Muon for groups with `orthogonal`, AdamW for the others; `settings` are AdamW's.

    `torch.optim.Muon` has the same update, one matrix at a time. Here matrices of one shape are batched, and a learning
    rate that is a tensor is never read by the host, so a CUDA graph can record the step.
    """

    def __init__(self, groups: Sequence[Mapping[str, Any]], **settings: Any) -> None:
        self.adamw = AdamW([{"orthogonal": False, **group} for group in groups], **settings)
        super().__init__(self.adamw.param_groups, self.adamw.defaults)

    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            if group["orthogonal"]:
                self._orthogonal(group)
        # AdamW shares this optimizer's groups and state, which a resume replaces
        self.adamw.param_groups = [group for group in self.param_groups if not group["orthogonal"]]
        self.adamw.state = self.state
        self.adamw.step()

    @torch.no_grad()
    def _orthogonal(self, group: Mapping[str, Any]) -> None:
        alike: dict[torch.Size, list[Tensor]] = defaultdict(list)
        for weight in group["params"]:
            if weight.grad is not None:
                alike[weight.shape].append(weight)
        for shape, weights in alike.items():
            gradients = [weight.grad for weight in weights if weight.grad is not None]
            momenta = [self._momentum(weight) for weight in weights]
            torch._foreach_lerp_(momenta, gradients, 1 - MOMENTUM)
            ahead = torch._foreach_lerp(gradients, momenta, MOMENTUM)
            updates = orthogonalized(torch.stack([gather_full({"": update})[""] for update in ahead]))  # [N, A, B]
            updates = updates.to(weights[0].dtype) * (group["lr"] * (SIZE * max(shape) ** 0.5))
            torch._foreach_mul_(weights, 1 - group["lr"] * group["weight_decay"])
            torch._foreach_sub_(weights, [shard_like(update, w) for update, w in zip(updates, weights, strict=True)])

    def _momentum(self, weight: Tensor) -> Tensor:
        state = self.state[weight]
        if "momentum" not in state:
            state["momentum"] = torch.zeros_like(weight)
        return state["momentum"]


def orthogonalized(matrices: Tensor) -> Tensor:
    """Approximately UVᵀ for each matrix UΣVᵀ of [N, A, B]; in bf16 on a GPU, which is precise enough here."""
    a, b, c = COEFFICIENTS
    x = matrices / matrices.norm(dim=(-2, -1), keepdim=True).clamp(min=1e-7)  # no singular value above one
    x = x.bfloat16() if x.is_cuda else x
    tall = x.size(-2) > x.size(-1)
    x = x.mT if tall else x
    for _ in range(ROUNDS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if tall else x


def hidden_matrices(model: Model) -> list[nn.Parameter]:
    """The weights between hidden vectors: all matrices but embeddings and output layers."""
    words = {
        id(weight)
        for module in model.modules()
        if isinstance(module, (nn.Embedding, Embedding, Output)) or _predicts(module, model)
        for weight in module.parameters()
    }
    return [w for w in model.parameters() if w.dim() == 2 and min(w.shape) > 1 and id(w) not in words]


def _predicts(module: nn.Module, model: Model) -> bool:
    """True if the module adds to the logits, as the direct connections of Bengio et al. 2003 do."""
    return module in set(model.children()) and isinstance(module, nn.Linear) and module.out_features == model.vocabulary
