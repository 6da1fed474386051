"""PyTorch's AdamW and SGD without its compiler.

Their methods import `torch._dynamo`, which takes as long as importing torch, only to be excluded from compilation.
Regard never compiles a step of its optimizers, so the same methods are here without that decorator.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import unwrap

import torch
from torch.optim import Optimizer


class Eager(Optimizer):
    add_param_group = unwrap(Optimizer.add_param_group)
    load_state_dict = unwrap(Optimizer.load_state_dict)
    state_dict = unwrap(Optimizer.state_dict)
    zero_grad = unwrap(Optimizer.zero_grad)


class AdamW(Eager, torch.optim.AdamW):
    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        _adam_step(self)


class SGD(Eager, torch.optim.SGD):
    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        _sgd_step(self)


_adam_step, _sgd_step = unwrap(torch.optim.AdamW.step), unwrap(torch.optim.SGD.step)
