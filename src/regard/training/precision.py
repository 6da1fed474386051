"""Training in bf16: products under autocast, and running sums in full precision.

A layer names in `exact` the methods that sum over a whole text; a rounding error there would grow with the text.
"""

from __future__ import annotations

from collections.abc import Callable
from types import MethodType
from typing import Any

import torch
from torch import nn


def keep_exact(model: nn.Module) -> None:
    """Runs the methods that layers name in `exact` without autocast."""
    for module in model.modules():
        for name in getattr(module, "exact", ()):
            module.__dict__[name] = MethodType(_without_autocast(getattr(type(module), name)), module)


def _without_autocast(method: Callable[..., Any]) -> Callable[..., Any]:
    def call(self: Any, first: torch.Tensor, *rest: Any) -> Any:
        with torch.autocast(first.device.type, enabled=False):
            return method(self, first, *rest)

    return call
