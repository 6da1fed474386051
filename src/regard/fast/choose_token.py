"""Who chooses the next word of every row, where it lies: nothing is asked of the device, so a CUDA graph can hold it.

On a GPU that has Triton one kernel does it (kernels/token_choice.py); elsewhere the reference, `sampling.pick`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from importlib.util import find_spec

import torch
from torch import Tensor

from regard.decoding.sampling import Sampling, least_logit, pick
from regard.systems.model import Model


class Choice:
    """By `pick`, among the words that are not forbidden."""

    def __init__(self, sampling: Sampling, forbidden: Sequence[int], device: torch.device) -> None:
        self.sampling = sampling
        self.forbidden = torch.tensor(list(forbidden), device=device) if forbidden else None

    def __call__(self, logits: Tensor, uniform: Tensor, written: Tensor, highest: Tensor) -> None:
        """From logits [R, V] and uniform [R] the next words to `written` [R], the highest logits to `highest` [R]."""
        tokens, top = pick(self.allowed(logits), self.sampling, uniform)
        written.copy_(tokens)
        highest.copy_(top)

    def allowed(self, logits: Tensor) -> Tensor:
        return logits if self.forbidden is None else logits.index_fill(-1, self.forbidden, -math.inf)


class FusedChoice(Choice):
    """By one kernel, and by PyTorch only what `top_k` leaves out."""

    def __init__(self, sampling: Sampling, forbidden: Sequence[int], device: torch.device, vocabulary: int) -> None:
        super().__init__(sampling, forbidden, device)
        limits = torch.tensor([sampling.temperature, sampling.top_p], dtype=torch.float64, device=device)
        self.limits = limits if sampling.temperature > 0 else None
        self.banned = None
        if self.forbidden is not None:
            self.banned = torch.zeros(vocabulary, dtype=torch.int8, device=device).index_fill_(0, self.forbidden, 1)

    def __call__(self, logits: Tensor, uniform: Tensor, written: Tensor, highest: Tensor) -> None:
        from regard.fast.kernels.token_choice import choose_into

        least = None
        if self.limits is not None and self.sampling.top_k:
            allowed = self.allowed(logits)
            least = least_logit(allowed, allowed.amax(-1), self.sampling)
        top_p = self.limits is not None and self.sampling.top_p < 1.0 and least is None
        choose_into(written, highest, logits, uniform, limits=self.limits, top_p=top_p, banned=self.banned, least=least)


def choice_of(model: Model, sampling: Sampling, forbidden: Sequence[int]) -> Choice:
    """The kernel weighs in fp64 what was computed in fp32 or less; for all else there is `pick`."""
    weight = next(model.parameters(), None)
    known = weight is not None and weight.is_cuda and weight.dtype in (torch.float32, torch.bfloat16, torch.float16)
    if known and torch.cuda.get_device_capability(model.device) >= (8, 0) and find_spec("triton") is not None:
        return FusedChoice(sampling, forbidden, model.device, model.vocabulary)
    return Choice(sampling, forbidden, model.device)
