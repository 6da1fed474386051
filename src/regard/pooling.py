"""Attention pooling on its own: a query to a database of keys and values.

    Attention(q, D) = Σ_i α(q, k_i) v_i,      D = {(k_1, v_1), …, (k_m, v_m)}

α of scores.py    softmax of a score, or a kernel over its sum        Bahdanau et al. 2015; Nadaraya, Watson 1964
uniform           α = 1/m: average pooling
look-up           α = 1 where q = k, else 0: what a database does

The kernels also estimate the density that keys were drawn from, f(q) = Σ_i K(‖q − k_i‖ / h) / (m hᵈ ∫K): Parzen 1962.

    found = regard.attention(query, keys, values, score="gaussian", bandwidth=0.5)
    found.output, found.weights
"""

from __future__ import annotations

from collections.abc import Callable
from math import gamma, pi
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from regard.base.arguments import checked
from regard.base.errors import RegardError
from regard.base.settings import check_choice, did_you_mean
from regard.layers.scores import KERNELS, SCORES, Score, by_ratio, by_softmax, named_score
from regard.layers.state import State

Array = Any  # a NumPy array or what becomes one, or a torch tensor
NAMES = (*SCORES, "uniform", "look-up")
WEIGHTS = {"bilinear": {"M"}, "additive": {"W_q", "W_k", "v"}}  # the weights that a score needs


class Pooled(NamedTuple):
    """The result of `attention`.

    Attributes:
        output: The weighted averages […, Tq, values' width].
        weights: […, Tq, m], at least 0; each row sums to 1.
        empty: […, Tq] bool: True if no key was near enough (0/0); the weights of that query are then uniform.
    """

    output: Array
    weights: Array
    empty: Array


def attention(
    query: Array,
    keys: Array,
    values: Array,
    score: str | Score | Callable[[Array, Array], Array] = "dot",
    *,
    bandwidth: float | None = None,
    mask: Array | None = None,
    M: Array | None = None,
    W_q: Array | None = None,
    W_k: Array | None = None,
    v: Array | None = None,
) -> Pooled:
    """Average the values, weighted by how well their keys match the query.

    If any argument is a torch tensor, the results are tensors and gradients flow through them; otherwise they are NumPy
    arrays. Leading dimensions are batch dimensions and broadcast.

    Args:
        query: […, Tq, d], or one query [d]. If the keys are [m], numbers in any shape.
        keys: […, m, d], or m numbers [m].
        values: […, m, e], or m numbers [m].
        score: A name ("dot", "gaussian", "look-up", …), a Score with trained weights, or a function of queries and
            keys that returns scores […, Tq, m], to which the softmax is applied.
        bandwidth: The bandwidth h of a kernel. Default: 1.
        mask: […, Tq, m]: False hides a key from a query.
        M: The weights of the bilinear score [d, d′].
        W_q: The query weights of the additive score [w, d].
        W_k: The key weights of the additive score [w, d′].
        v: The output weights of the additive score [w].

    Returns:
        The weighted averages, the weights, and a mask that is True for queries without a key near enough.

    Raises:
        RegardError: If a shape, a name or a weight is invalid.
    """
    named = {"M": M, "W_q": W_q, "W_k": W_k, "v": v}
    given = {name: weight for name, weight in named.items() if weight is not None}
    _check_settings(score, bandwidth, set(given))
    numeric = not any(isinstance(one, Tensor) for one in (query, keys, values, *given.values()))
    query, keys, values, *weights = alike({"query": query, "keys": keys, "values": values, **given})
    query, keys, values, shape = as_sequences(query, keys, values)
    visible = may_see(mask, query, keys, values)

    if isinstance(score, Score):
        parts = _by_score(score, query, keys, visible)
    elif isinstance(score, str):
        parts = _by_name(score, query, keys, visible, bandwidth or 1.0, dict(zip(given, weights, strict=True)))
    else:
        asked = score(query.numpy(), keys.numpy()) if numeric else score(query, keys)
        parts = by_softmax(_scores(asked, query, visible), visible)
    alpha = parts["weights"]
    empty = parts.get("empty", torch.zeros(alpha.shape[:-1], dtype=torch.bool, device=alpha.device))
    found = shape(alpha @ values, alpha, empty)  # Σ_i α(q, k_i) v_i
    return Pooled(*(part.detach().numpy() if numeric else part for part in found))


@checked
def density(query: Array, keys: Array, kernel: str = "gaussian", *, bandwidth: float = 1.0) -> Array:
    """Estimate, at each query, the probability density that the keys were drawn from.

    Args:
        query: As in `attention`.
        keys: As in `attention`.
        kernel: "gaussian", "boxcar", "triangular" or "epanechnikov".
        bandwidth: The bandwidth h of the kernel.

    Returns:
        The density […, Tq].

    Raises:
        RegardError: If a shape or a name is invalid.
    """
    check_choice("kernel", kernel, KERNELS)
    _check_settings(kernel, bandwidth, set())
    numeric = not isinstance(query, Tensor) and not isinstance(keys, Tensor)
    query, keys = alike({"query": query, "keys": keys})
    query, keys, _, shape = as_sequences(query, keys, torch.zeros_like(keys))
    may_see(None, query, keys, keys)
    _check_widths(kernel, query.size(-1), keys.size(-1), {})
    u = named_score(kernel, query.size(-1), bandwidth=bandwidth).score(query, keys)
    near = u.exp() if kernel == "gaussian" else u  # K(u), […, Tq, m]
    total = near.mean(dim=-1) / (bandwidth ** keys.size(-1) * integral(kernel, keys.size(-1)))
    found = shape(near, near, total)[2]
    return found.detach().numpy() if numeric else found


def integral(kernel: str, width: int) -> float:
    """∫ K(‖x‖) dx over all x of that width."""
    ball = pi ** (width / 2) / gamma(width / 2 + 1)  # the volume where ‖x‖ ≤ 1
    shares = {"boxcar": 1.0, "triangular": 1 / (width + 1), "epanechnikov": 2 / (width + 2)}
    return (2 * pi) ** (width / 2) if kernel == "gaussian" else ball * shares[kernel]


# -- weights ---------------------------------------------------------------------------------------------------------


def _by_name(
    score: str, query: Tensor, keys: Tensor, visible: Tensor, bandwidth: float, given: dict[str, Tensor]
) -> State:
    _check_widths(score, query.size(-1), keys.size(-1), given)
    match score:
        case "uniform":
            return by_softmax(query.new_zeros(visible.shape), visible)
        case "look-up":
            same = (query[..., :, None, :] == keys[..., None, :, :]).all(dim=-1)
            return by_ratio(same.to(query.dtype), visible)
        case "bilinear":
            return by_softmax(query @ given["M"] @ keys.transpose(-2, -1), visible)
        case "additive":
            asked, answered = query @ given["W_q"].T, keys @ given["W_k"].T
            both = asked[..., :, None, :] + answered[..., None, :, :]  # […, Tq, m, w]
            return by_softmax(both.tanh() @ given["v"].flatten(), visible)
    return named_score(score, query.size(-1), bandwidth=bandwidth).explain(query, keys, visible)


def _by_score(score: Score, query: Tensor, keys: Tensor, visible: Tensor) -> State:
    try:
        return score.explain(query, keys, visible)
    except RuntimeError as error:
        raise RegardError(
            f"This {type(score).__name__} cannot compare queries of width {query.size(-1)} with keys of width "
            f"{keys.size(-1)} in {query.dtype}: give it inputs of the widths and dtype that it was made for."
        ) from error


def _scores(asked: Any, query: Tensor, visible: Tensor) -> Tensor:
    """Checks that a user's score function returned a score for each query and key."""
    scores = as_tensor("what the score function returns", asked, query.device)
    if scores.shape[-2:] != visible.shape[-2:] or not broadcasts(scores.shape[:-2], visible.shape[:-2]):
        raise RegardError(
            f"The score function returned shape {tuple(scores.shape)}: return one score per query and key, in "
            f"shape {tuple(visible.shape)}."
        )
    return scores.to(torch.promote_types(scores.dtype, query.dtype))


# -- arguments -------------------------------------------------------------------------------------------------------


def _check_settings(score: object, bandwidth: float | None, given: set[str]) -> None:
    if not isinstance(score, (str, Score)) and not callable(score):
        raise RegardError(f"score must be a name ({', '.join(NAMES)}), a Score or a function, not {score!r}.")
    if isinstance(score, str) and score not in NAMES:
        raise RegardError(f"There is no score {score!r}{did_you_mean(score, NAMES)}")
    if bandwidth is not None and score not in KERNELS:
        raise RegardError(
            f"bandwidth belongs to a kernel ({', '.join(KERNELS)}): leave it out, or choose one as score."
        )
    if bandwidth is not None and (not isinstance(bandwidth, (Real, np.number)) or not bandwidth > 0.0):
        raise RegardError(
            f"bandwidth must be a number above 0, not {bandwidth!r}: to select only the nearest key, use a very "
            f"small one."
        )
    needed = WEIGHTS.get(score, set()) if isinstance(score, str) else set()
    if given != needed:
        needs = f"score {score} needs {', '.join(sorted(needed)) or 'no weights'}"
        raise RegardError(
            f"{needs}, but got {', '.join(sorted(given)) or 'none'}: give exactly the weights that it needs."
        )


def _check_widths(score: str, query: int, key: int, given: dict[str, Tensor]) -> None:
    if score not in ("uniform", *WEIGHTS) and query != key:
        raise RegardError(
            f"Queries of width {query} and keys of width {key} cannot be compared by {score}: "
            "use score bilinear or additive, which map one to the other."
        )
    inner = given["v"].numel() if "v" in given else 0
    needed = {"M": (query, key), "W_q": (inner, query), "W_k": (inner, key)}
    for name, weight in given.items():
        if name in needed and weight.shape != needed[name]:
            raise RegardError(
                f"{name} has shape {tuple(weight.shape)} where queries of width {query} and keys of width {key} need "
                f"{needed[name]}: M is [d, d′], W_q [w, d], W_k [w, d′] and v [w]."
            )


# -- arrays ------------------------------------------------------------------------------------------------------------


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
        raise RegardError(f"{name} must be real numbers: give real and imaginary parts as separate components.")
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
            "Attention needs keys and values: give keys of shape [m, d] or [m] with m at least 1, and the "
            "same number of values."
        )
    numbers, plain = keys.dim() == 1, values.dim() == 1
    if numbers:
        query, keys = query[..., None], keys[:, None]
    if query.dim() == 0:
        raise RegardError(
            "A single number can be a query only if the keys are numbers: give keys of shape [m], or a query [d]."
        )
    if plain:
        values = values[:, None]
    if keys.size(-2) != values.size(-2):
        raise RegardError(
            f"{keys.size(-2)} keys and {values.size(-2)} values do not match: give the same number of each."
        )
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
            "The batch shapes of query, keys and values do not match "
            f"({', '.join(str(tuple(batch)) for batch in batches)}): make them equal, or use "
            "size 1 where one is shared."
        )
    batch = torch.broadcast_shapes(*batches[:2])
    shape = (*batch, query.size(-2), keys.size(-2))
    if mask is None:
        return torch.ones(shape, dtype=torch.bool, device=query.device)
    seen = as_tensor("mask", mask, query.device).bool()
    try:
        seen = seen.expand(*torch.broadcast_shapes(seen.shape[:-2], batch), *shape[-2:])
    except RuntimeError:
        raise RegardError(f"mask has shape {tuple(seen.shape)} but must fit the weights' shape, {shape}.") from None
    if not seen.any(dim=-1).all():
        raise RegardError("A query has no key to attend to: make the mask true for at least one key in every row.")
    return seen
