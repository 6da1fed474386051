"""Optimizers and learning-rate schedules.

AdamW (Loshchilov & Hutter 2019), Muon (muon.py), SGD, and SGD averaged once validation stops improving (Merity et al.
2018, after Polyak & Juditsky 1992); the moving average of any of them. Schedules are functions of the step and of the
share of the budget that is spent, without a hidden counter, so a resumed run continues on the same curve.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from regard.training.eager import SGD, AdamW
from regard.training.muon import Muon

FLOOR = 0.1  # cosine ends at this share of the peak
PLATEAU_FACTOR = 0.25  # as in Mikolov's and PyTorch's recurrent recipes
MIN_WARMUP_STEPS = 200  # steps
AVERAGE_AFTER = 5  # validations without a new best before averaging begins


def build_optimizer(
    kind: str,
    parameters: Iterable[tuple[str, nn.Parameter]],
    *,
    learning_rate: float,
    weight_decay: float,
    beta2: float,
    captured: bool = False,
    hidden: Sequence[nn.Parameter] = (),
) -> torch.optim.Optimizer:
    """Weight decay applies to matrices, not to biases and gains. `captured`: for a CUDA graph; `hidden`: the matrices
    that Muon trains."""
    trained = [p for _, p in parameters if p.requires_grad]
    inside = {id(p) for p in hidden} if kind == "muon" else set()
    matrices = [p for p in trained if p.dim() >= 2 and id(p) not in inside]
    orthogonal = [p for p in trained if id(p) in inside]
    vectors = [p for p in trained if p.dim() < 2]
    groups = [{"params": matrices, "weight_decay": weight_decay}, {"params": vectors, "weight_decay": 0.0}]
    groups += [{"params": orthogonal, "weight_decay": weight_decay, "orthogonal": True}]
    groups = [group for group in groups if group["params"]]
    device = trained[0].device
    # A graph would record a Python number as a constant.
    rate = torch.tensor(learning_rate, device=device) if captured else learning_rate
    fused = device.type in ("cpu", "cuda")  # one pass over the weights instead of several
    if kind in ("adamw", "muon"):
        family = Muon if kind == "muon" else AdamW
        return family(groups, lr=rate, betas=(0.9, beta2), fused=fused, capturable=captured)
    return SGD(groups, lr=rate, fused=fused)


def clip(model: nn.Module, most: float, optimizer: torch.optim.Optimizer) -> None:
    """Clips the gradient norm to `most`. Fused AdamW on a GPU applies the factor (`grad_scale`) as it reads the
    gradient, which saves a pass."""
    gradients = [weight.grad for weight in model.parameters() if weight.grad is not None]
    fused = isinstance(optimizer, torch.optim.AdamW) and optimizer.defaults["fused"]
    if fused and gradients and all(part.is_cuda and not hasattr(part, "full_tensor") for part in gradients):
        optimizer.grad_scale = divisor(gradients, most)  # type: ignore[attr-defined]
    else:
        torch.nn.utils.clip_grad_norm_(model.parameters(), most)


def divisor(gradients: Sequence[Tensor], most: float) -> Tensor:
    """The divisor of clipped gradients."""
    norm = torch.nn.utils.get_total_norm(gradients).float()
    return ((norm + 1e-6) / most).clamp(min=1.0)


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


def learning_rate_at(
    schedule: str, peak: float, step: int, warmup: int, spent: float, drops: int, decay: float = 1.0
) -> float:
    """`spent`: share of the budget used, 0 to 1. `drops`: how often the rate was lowered so far: after validations
    without improvement (plateau), or after each epoch (decay)."""
    if warmup and step < warmup:
        return peak * (step + 1) / warmup
    if schedule == "cosine":
        return peak * (FLOOR + (1 - FLOOR) * 0.5 * (1 + math.cos(math.pi * min(spent, 1.0))))
    if schedule == "inverse-sqrt":
        return peak * math.sqrt(max(warmup, 1) / max(step, 1, warmup))
    if schedule == "plateau":
        return float(peak * PLATEAU_FACTOR**drops)
    if schedule == "decay":
        return float(peak * decay**drops)
    return peak


def warmup_within(warmup: int, step: int, spent: float) -> int:
    """The warm-up of a budget in seconds: at most a tenth of the steps that it has room for, at this pace, or up to
    `MIN_WARMUP_STEPS` steps, which some networks need, if this is at most a third."""
    if not spent:
        return warmup
    room = step / spent
    return min(warmup, max(round(room / 10), min(MIN_WARMUP_STEPS, round(room / 3))))


def averaging_is_due(losses: Sequence[float]) -> bool:
    """Merity's non-monotone trigger: the last validation is worse than the best one before the last few."""
    return len(losses) > AVERAGE_AFTER + 1 and losses[-1] > min(losses[: -AVERAGE_AFTER - 1])


class WeightAverage:
    """A mean of the weights over steps: w̄ ← w̄ + max(6/(n + 5), 1 − decay) (w − w̄) after the n-th.

    After the first 6/(1 − decay) steps, this is the exponential moving average. Before, it averages about the last
    sixth of the steps, so that a short training does not keep its earliest weights in the mean. With decay 1, all steps
    since averaging began have the same weight 1/n.
    """

    def __init__(self, decay: float) -> None:
        self.decay = decay
        self.weights: dict[str, Tensor] = {}
        self.count = 0

    @property
    def active(self) -> bool:
        return self.count > 0

    @torch.no_grad()
    def add(self, model: nn.Module) -> None:
        self.count += 1
        named = dict(model.named_parameters())
        if self.count == 1:
            self.weights = {name: parameter.detach().clone() for name, parameter in named.items()}
            return
        held, new = [self.weights[name] for name in named], [parameter.detach() for parameter in named.values()]
        share = 1 / self.count if self.decay == 1 else max(6 / (self.count + 5), 1 - self.decay)
        torch._foreach_lerp_(held, new, share)

    @torch.no_grad()
    def swap(self, model: nn.Module) -> None:
        """Exchange the model's weights with the mean; a second swap undoes the first."""
        for name, parameter in model.named_parameters():
            held = parameter.detach().clone()
            parameter.copy_(self.weights[name])
            self.weights[name].copy_(held)
