"""The next token of every row by one kernel (kernels/token_choice.py); the reference is `decoding.sampling.pick`."""

from __future__ import annotations

import torch
from torch import Tensor

from regard.decoding.sampling import least_logit
from regard.decoding.writer import DecodingStep
from regard.fast.table import Row, Use, Why, needs_triton


class TokenChoice:
    """`DecodingStep.choose` by the kernel; only the bound of `top_k` is computed by PyTorch."""

    def __init__(self, step: DecodingStep) -> None:
        self.step, sampling = step, step.sampling
        limits = torch.tensor([sampling.temperature, sampling.top_p], dtype=torch.float64, device=step.device)
        self.limits = limits if sampling.temperature > 0 else None
        self.banned = None
        if step.banned is not None:
            self.banned = torch.zeros(step.model.vocabulary, dtype=torch.int8, device=step.device)
            self.banned.index_fill_(0, step.banned, 1)

    def __call__(self, logits: Tensor, uniform: Tensor, written: Tensor, highest: Tensor) -> None:
        from regard.fast.kernels.token_choice import choose_into

        least, sampling = None, self.step.sampling
        if self.limits is not None and sampling.top_k:
            allowed = self.step.allowed(logits)
            least = least_logit(allowed, allowed.amax(-1), sampling)
        top_p = self.limits is not None and sampling.top_p < 1.0 and least is None
        choose_into(written, highest, logits, uniform, limits=self.limits, top_p=top_p, banned=self.banned, least=least)


def allows(step: DecodingStep, use: Use) -> Why:
    """The kernel computes in fp64 from logits of at most 32 bits."""
    weight = next(step.model.parameters(), None)
    if weight is None or weight.dtype not in (torch.float32, torch.bfloat16, torch.float16):
        return "it supports only logits of at most 32 bits"
    return "it does not support min_p" if step.sampling.min_p else None


def needs(device: torch.device) -> Why:
    if why := needs_triton(device):
        return why
    return None if torch.cuda.get_device_capability(device) >= (8, 0) else "it needs a GPU of compute capability 8.0"


ROWS = (
    Row(
        "next token by one kernel",
        "regard.decoding.writer:DecodingStep.choose",
        makes=TokenChoice,
        allows=allows,
        needs=needs,
    ),
)
