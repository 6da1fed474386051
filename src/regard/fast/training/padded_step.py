"""A training step on padded weights: forward, backward, clipping, AdamW, and the bf16 copies for the next forward pass.

The written step is `StepRunner.backward` and `optimizer_step` with `torch.optim.AdamW`. This one keeps that optimizer's
state: checkpoints are the same, and steps of both kinds may take turns (padded_weights.py, kernels/padded.py).
"""

from __future__ import annotations

import torch
from torch import Tensor

from regard.fast.recurrence.padded_weights import PaddedWeight, using
from regard.fast.table import has_triton
from regard.layers.recurrent import Recurrent
from regard.layers.state import State, detach
from regard.systems.recurrent_stack import RecurrentModel
from regard.training.eager import AdamW
from regard.training.loop import Trainer
from regard.training.objective import TensorBatch, count


class PaddedStep:
    """A whole step: forward, backward, clipping and AdamW. It never waits for the device, so a graph can record it."""

    def __init__(self, trainer: Trainer) -> None:
        self.trainer, self.optimizer = trainer, trainer.optimizer
        groups = self.optimizer.param_groups
        self.weights = {id(w): PaddedWeight(w) for group in groups for w in group["params"]}
        self.one = torch.ones((), device=trainer.device)

    def __call__(self, batch: TensorBatch, state: State | None) -> tuple[Tensor, State | None]:
        self.optimizer.zero_grad(set_to_none=True)
        with using({key: held for key, held in self.weights.items() if held.weight.dim() == 2}):
            loss, after = self.trainer.forward(batch, state)
            loss = loss / count(batch)
            loss.backward()
        self.trainer.runner.changed_weights = True
        self.optimizer_step()
        return loss.detach(), detach(after) if self.trainer.carries else None

    @torch.no_grad()
    def optimizer_step(self) -> None:
        """`StepRunner.optimizer_step`, with the optimizer's own state."""
        from regard.fast.kernels.padded import Part, adamw

        parts: list[Part] = []
        for group in self.optimizer.param_groups:
            for weight in group["params"]:
                held = self.weights[id(weight)]
                if (found := held.take(self.one)) is not None:
                    moments = self._moments(weight)
                    parts.append(Part(weight, *found, *moments, group["lr"], group["weight_decay"], held.half))
        group = self.optimizer.param_groups[0]
        adamw(parts, group["betas"], group["eps"], self.trainer.settings.clip)

    def _moments(self, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """m, v and the number of steps, which begin as in `torch.optim.AdamW`."""
        state = self.optimizer.state[weight]
        if not state:
            state["step"] = torch.zeros((), device=weight.device)
            state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(weight), torch.zeros_like(weight)
        return state["exp_avg"], state["exp_avg_sq"], state["step"]

    def refresh(self) -> None:
        """Before a recorded step: weights that were changed since the last one are copied."""
        for held in self.weights.values():
            held.refresh()

    def forget(self) -> None:
        """After a step of PyTorch's optimizer, which does not count a weight's versions."""
        for held in self.weights.values():
            held.version = -1


def takes(trainer: Trainer) -> bool:
    """True for AdamW in bf16 on a recurrent net, with one backward pass per step."""
    model, settings = trainer.model, trainer.settings
    recurrent = isinstance(model, RecurrentModel) and all(isinstance(layer, Recurrent) for layer in model.layers)
    if not (recurrent and trainer.bf16 and trainer.device.type == "cuda" and has_triton()):
        return False
    optimizer, groups = trainer.optimizer, trainer.optimizer.param_groups
    plain = type(optimizer) is AdamW and not any(group["amsgrad"] or group["maximize"] for group in groups)
    exact = all(w.dtype == torch.float32 and w.is_contiguous() for group in groups for w in group["params"])
    rates = all(isinstance(group["lr"], Tensor) for group in groups)
    return plain and exact and rates and settings.accumulate == 1
