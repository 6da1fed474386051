"""Weights in 8 bits for generation on a CPU, which reads every weight once for each token.

    W_nk ≈ s_n q_nk,   s_n = max_k |W_nk| / 127,   q an integer from −127 to 127

`EightBit` takes the place of a weight and answers `F.linear` and `F.embedding`. One column (a decoding step) is
multiplied by PyTorch's own kernel, which reads q and sums in fp32 over activations in bf16. More columns (a prompt, an
evaluation) are multiplied in fp32 with the weight s q. So a text does not depend on what else is in its batch. Unlike
a row of the table this changes what the model predicts; docs/guides/foreign-models.md says by how much.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from regard.base.errors import RegardError
from regard.base.numbers import with_article
from regard.layers.blocks import PreNormBlock, RMSNormBlock
from regard.systems.model import Model, Stack

LARGEST = 127
MULTIPLE = 32  # the kernel reads a row of weights in parts of at most this many; other widths stay in fp32


class EightBit(Tensor):
    """A matrix [N, K] in 8 bits, with one scale per row; to anything else that asks it is its fp32 values."""

    codes: Tensor  # [N, K], int8
    scales: Tensor  # [N], bf16

    @staticmethod
    def of(weight: Tensor) -> EightBit:
        """The nearest matrix that 8 bits can hold; scales are rounded first, so their rounding costs nothing."""
        weight = weight.detach().float()
        largest = torch.maximum(weight.amax(1), -weight.amin(1))
        scales = (largest / LARGEST).clamp_min(torch.finfo(torch.bfloat16).tiny).bfloat16()
        codes = (weight / scales.float()[:, None]).round_().clamp_(-LARGEST, LARGEST)
        return EightBit.made(codes.to(torch.int8), scales)

    @staticmethod
    def made(codes: Tensor, scales: Tensor) -> EightBit:
        made: EightBit = Tensor._make_wrapper_subclass(EightBit, codes.shape, dtype=torch.float32)
        made.codes, made.scales = codes, scales
        return made

    def whole(self) -> Tensor:
        return self.codes.float() * self.scales.float()[:, None]

    def rows(self, which: Tensor) -> Tensor:
        return self.codes[which].float() * self.scales[which].float()[..., None]

    def times(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """W x + b."""
        if x.dim() > 2 and x.size(-2) != 1:
            return F.linear(x, self.whole().to(x.dtype), bias)
        flat = x.reshape(-1, x.size(-1)).bfloat16()
        y = torch._weight_int8pack_mm(flat, self.codes, self.scales).to(x.dtype).view(*x.shape[:-1], -1)
        return y if bias is None else y + bias

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        given, named = list(args), kwargs or {}
        if func is F.linear and isinstance(given[1], EightBit):
            return given[1].times(given[0], *given[2:], **named)
        if func is F.embedding and isinstance(given[1], EightBit):
            return given[1].rows(given[0])
        with torch._C.DisableTorchFunctionSubclass():  # its results are plain tensors
            return func(*given, **named)

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        given, named = list(args), dict(kwargs or {})
        if func in (torch.ops.aten.detach.default, torch.ops.aten.alias.default):
            return EightBit.made(given[0].codes, given[0].scales)
        given, named = tree_map_only(EightBit, EightBit.whole, (given, named))
        return func(*given, **named)


def use_eight_bits(model: Model) -> None:
    """Replace the matrices that a decoding step multiplies with; the others, and vectors, stay in fp32."""
    blocks = isinstance(model, Stack) and all(type(layer) in (PreNormBlock, RMSNormBlock) for layer in model.layers)
    if not blocks:
        raise RegardError(
            f"--precision int8 supports only gpt and llama, but this model is {with_article(type(model).__name__)}: "
            "leave --precision out."
        )
    if any(weight.device.type != "cpu" for weight in model.parameters()):
        raise RegardError("--precision int8 runs on a CPU: add --device cpu, or use --precision bf16.")
    try:
        EightBit.of(torch.ones(MULTIPLE, MULTIPLE)).times(torch.ones(1, MULTIPLE))
    except (AttributeError, NotImplementedError, RuntimeError):
        raise RegardError(
            f"--precision int8 needs a matrix product of 8-bit weights, which this PyTorch ({torch.__version__}) does "
            "not support on this machine: use --precision bf16 or fp32."
        ) from None
    assert isinstance(model, Stack)
    tied = [model.embedding.table] if model.output.weight is None else []
    owners = [part for part in model.modules() if isinstance(part, nn.Linear) or part is model.output or part in tied]
    for part in owners:
        if part.weight is not None and part.weight.size(1) % MULTIPLE == 0:
            part.weight = nn.Parameter(EightBit.of(part.weight), requires_grad=False)
