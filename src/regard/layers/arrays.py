"""Converts the arguments of `regard.attention` (NumPy arrays, lists, tensors; one query or many) to tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.base.errors import RegardError

Array = Any  # a NumPy array or what becomes one, or a torch tensor


def alike(named: dict[str, Array]) -> list[Tensor]:
    """All as tensors of one floating-point dtype, on the device of the given tensors."""
    devices = [array.device for array in named.values() if isinstance(array, Tensor)]
    tensors = [as_tensor(name, array, devices[0] if devices else None) for name, array in named.items()]
    dtype = torch.get_default_dtype() if devices else torch.float64
    real = [tensor.dtype for tensor in tensors if tensor.is_floating_point()]
    for index, found in enumerate(real):
        dtype = torch.promote_types(dtype, found) if index else found
    return [tensor.to(dtype) for tensor in tensors]


def as_tensor(name: str, array: Array, device: torch.device | None) -> Tensor:
    try:
        tensor = array if isinstance(array, Tensor) else torch.as_tensor(np.array(array), device=device)
    except (TypeError, ValueError, RuntimeError):  # words, None, rows of unequal length
        raise RegardError(f"{name} must be numbers in rows of equal length, not {_short(array)}.") from None
    if tensor.is_complex():
        raise RegardError(f"{name} must be real numbers: give real and imaginary parts as components of their own.")
    return tensor


def _short(array: Array) -> str:
    words = " ".join(repr(array).split())
    return words if len(words) <= 60 else words[:59] + "…"


def broadcasts(*shapes: torch.Size) -> bool:
    try:
        torch.broadcast_shapes(*shapes)
    except RuntimeError:
        return False
    return True


def as_sequences(
    query: Tensor, keys: Tensor, values: Tensor
) -> tuple[Tensor, Tensor, Tensor, Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]]:
    """Queries […, Tq, d], keys […, m, d], values […, m, e], and a function that restores the user's shapes."""
    if keys.dim() == 0 or values.dim() == 0 or not keys.numel():
        raise RegardError(
            "A database needs keys and values: give keys [m, d] or [m] with m at least 1, values likewise."
        )
    numbers, plain = keys.dim() == 1, values.dim() == 1
    if numbers:
        query, keys = query[..., None], keys[:, None]
    if query.dim() == 0:
        raise RegardError("One number is a query only where keys are numbers: give keys of shape [m], or a query [d].")
    if plain:
        values = values[:, None]
    if keys.size(-2) != values.size(-2):
        raise RegardError(f"{keys.size(-2)} keys and {values.size(-2)} values do not pair up: give as many of each.")
    single = query.dim() == 1
    query = query[None] if single else query

    def back(output: Tensor, weights: Tensor, empty: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        output = output[..., 0] if plain else output
        if not single:
            return output, weights, empty
        return output[..., 0] if plain else output[..., 0, :], weights[..., 0, :], empty[..., 0]

    return query, keys, values, back


def may_see(mask: Array | None, query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    batches = [array.shape[:-2] for array in (query, keys, values)]
    if not broadcasts(*batches):
        raise RegardError(
            f"Batches of shape {', '.join(str(tuple(batch)) for batch in batches)} of query, keys and values do not go "
            "together: give equal ones, or 1 where all share one."
        )
    batch = torch.broadcast_shapes(*batches[:2])
    shape = (*batch, query.size(-2), keys.size(-2))
    if mask is None:
        return torch.ones(shape, dtype=torch.bool, device=query.device)
    seen = as_tensor("mask", mask, query.device).bool()
    try:
        seen = seen.expand(*torch.broadcast_shapes(seen.shape[:-2], batch), *shape[-2:])
    except RuntimeError:
        raise RegardError(f"mask has shape {tuple(seen.shape)} and must fit the weights', {shape}.") from None
    if not seen.any(dim=-1).all():
        raise RegardError("A query sees no key at all: let the mask be true for at least one key in every row.")
    return seen
