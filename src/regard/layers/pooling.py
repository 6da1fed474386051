"""Attention pooling, by itself: what a query finds in a database of keys and values.

Attention(q, D) = Σ_i α(q, k_i) v_i,      D = {(k_1, v_1), …, (k_m, v_m)}

α of scores.py    softmax of a score, or a kernel over its sum        Bahdanau et al. 2015; Nadaraya, Watson 1964
uniform           α = 1/m: average pooling
look-up           α = 1 where q = k, else 0: what a database does

found = regard.attention(query, keys, values, score="gaussian", bandwidth=0.5)
found.output, found.weights
"""

from __future__ import annotations

from collections.abc import Callable
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call

from regard.errors import RegardError
from regard.layers.scores import KERNELS, SCORES, Boxcar, Score, named_score
from regard.settings import meant

Array = Any  # a NumPy array or what becomes one, or a torch tensor
NAMES = (*SCORES, "uniform", "look-up")


class Pooled(NamedTuple):
    output: Array  # […, Tq, values' width]
    weights: Array  # […, Tq, m]: at least 0, and each row sums to 1
    empty: Array  # […, Tq] bool: no key was near enough, 0/0, and the weights are uniform; `empty.sum()` counts them


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
    """The values' average, weighted by how well their keys answer the query. Nothing scales unless the score says so.

    Queries are […, Tq, d] or one of them, [d]; keys […, m, d]; values […, m, e]; what stands before is a batch, and
    broadcasts. Keys [m] are m numbers, and so are then the queries, in any shape; values [m] are m numbers.

    `score` is a name, a Score with trained weights of its own, or a function of queries and keys that returns scores
    […, Tq, m], of which the softmax is taken. A kernel has a `bandwidth` h, 1 unless given; bilinear needs M [d, d′],
    additive W_q [w, d], W_k [w, d′] and v [w]. Where `mask` […, Tq, m] is false a key is not seen.

    NumPy in, NumPy out; if anything given is a torch tensor, so is the answer, and gradients flow.
    """
    named = {"M": M, "W_q": W_q, "W_k": W_k, "v": v}
    given = {name: weight for name, weight in named.items() if weight is not None}
    _check_settings(score, bandwidth, set(given))
    numeric = not any(isinstance(one, Tensor) for one in (query, keys, values, *given.values()))
    query, keys, values, *weights = _alike({"query": query, "keys": keys, "values": values, **given})
    query, keys, values, shape = _as_sequences(query, keys, values)
    visible = _visible(mask, query, keys, values)

    parts = _weigh(score, bandwidth, weights, query, keys, visible, numeric)
    alpha = parts["weights"]
    empty = parts.get("empty", torch.zeros(alpha.shape[:-1], dtype=torch.bool, device=alpha.device))
    found = shape(alpha @ values, alpha, empty)
    return Pooled(*(part.detach().numpy() for part in found)) if numeric else found


def _weigh(
    score: Any,
    bandwidth: float | None,
    weights: list[Tensor],
    query: Tensor,
    keys: Tensor,
    visible: Tensor,
    numeric: bool,
) -> dict[str, Tensor]:
    """{"weights": […, Tq, m]}, and "empty" where a row could be."""
    if isinstance(score, Score):
        try:
            return score.explain(query, keys, visible)
        except RuntimeError as error:
            raise RegardError(
                f"This {type(score).__name__} cannot compare queries of width {query.size(-1)} with keys of width "
                f"{keys.size(-1)} in {query.dtype}: give it what it was made for."
            ) from error
    if not isinstance(score, str):
        asked = score(query.numpy(), keys.numpy()) if numeric else score(query, keys)
        return Score(0, 0).weigh(_scores(asked, query, visible), visible)
    if score == "uniform":
        return Score(0, 0).weigh(torch.zeros_like(visible, dtype=query.dtype), visible)
    if score not in ("bilinear", "additive") and query.size(-1) != keys.size(-1):
        raise RegardError(
            f"Queries of width {query.size(-1)} and keys of width {keys.size(-1)} cannot be compared by {score}: "
            "use score bilinear or additive, which map one to the other."
        )
    if score == "look-up":
        same = (query[..., :, None, :] == keys[..., None, :, :]).all(dim=-1)
        return Boxcar(0, 0).weigh(same.to(query.dtype), visible)
    if weights:
        return {"weights": _by_given_weights(score, weights, query, keys, visible)}
    return named_score(score, query.size(-1), bandwidth=bandwidth or 1.0).explain(query, keys, visible)


def _scores(asked: Any, query: Tensor, visible: Tensor) -> Tensor:
    """What a function of queries and keys returned, if it is a score for each pair."""
    scores = _tensor("what the score function returns", asked, query.device)
    if scores.shape[-2:] != visible.shape[-2:] or not _broadcasts(scores.shape[:-2], visible.shape[:-2]):
        raise RegardError(
            f"The score function returned shape {tuple(scores.shape)}: return a score for each query and key, "
            f"{tuple(visible.shape)}."
        )
    return scores.to(torch.promote_types(scores.dtype, query.dtype))


def _by_given_weights(score: str, weights: list[Tensor], query: Tensor, keys: Tensor, visible: Tensor) -> Tensor:
    """The weights of a bilinear (M) or additive score (W_q, W_k, v)."""
    if score == "additive":
        *weights, judge = weights
        weights.append(judge.reshape(1, -1))
    width = weights[-1].size(-1) if weights[-1].dim() else 1
    with torch.device("meta"):  # the score's own first weights are never drawn: the given ones take their place
        rule = named_score(score, query.size(-1), keys.size(-1), width=width)
    named = dict(zip((name for name, _ in rule.named_parameters()), weights, strict=True))
    for name, parameter in rule.named_parameters():
        if parameter.shape != named[name].shape:
            raise RegardError(
                f"A weight of {score} has shape {tuple(named[name].shape)} where queries of width {query.size(-1)} and "
                f"keys of width {keys.size(-1)} need {tuple(parameter.shape)}: M is [d, d′], W_q [w, d], W_k [w, d′]."
            )
    return functional_call(rule, named, (query, keys, visible))


def _check_settings(score: object, bandwidth: float | None, given: set[str]) -> None:
    if not isinstance(score, (str, Score)) and not callable(score):
        raise RegardError(f"score must be a name ({', '.join(NAMES)}), a Score or a function, not {score!r}.")
    if isinstance(score, str) and score not in NAMES:
        raise RegardError(f"There is no score {score!r}{meant(score, NAMES)}")
    if bandwidth is not None and score not in KERNELS:
        raise RegardError(
            f"bandwidth belongs to a kernel ({', '.join(KERNELS)}): leave it out, or choose one as score."
        )
    if bandwidth is not None and (not isinstance(bandwidth, (Real, np.number)) or not bandwidth > 0.0):
        raise RegardError(
            f"bandwidth must be a number above 0, not {bandwidth!r}: for the nearest key alone take a very small one."
        )
    needed = {"bilinear": {"M"}, "additive": {"W_q", "W_k", "v"}}.get(score, set()) if isinstance(score, str) else set()
    if given != needed:
        needs = f"score {score} needs {', '.join(sorted(needed)) or 'no weights'}"
        raise RegardError(f"{needs}, and was given {', '.join(sorted(given)) or 'none'}: give exactly what it needs.")


def _alike(named: dict[str, Array]) -> list[Tensor]:
    """All as tensors of one precision, on the device of those that are tensors; whole numbers become real ones."""
    devices = [array.device for array in named.values() if isinstance(array, Tensor)]
    tensors = [_tensor(name, array, devices[0] if devices else None) for name, array in named.items()]
    dtype = torch.get_default_dtype() if devices else torch.float64
    real = [tensor.dtype for tensor in tensors if tensor.is_floating_point()]
    for index, found in enumerate(real):
        dtype = torch.promote_types(dtype, found) if index else found
    return [tensor.to(dtype) for tensor in tensors]


def _tensor(name: str, array: Array, device: torch.device | None) -> Tensor:
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


def _broadcasts(*shapes: torch.Size) -> bool:
    try:
        torch.broadcast_shapes(*shapes)
    except RuntimeError:
        return False
    return True


def _as_sequences(
    query: Tensor, keys: Tensor, values: Tensor
) -> tuple[Tensor, Tensor, Tensor, Callable[[Tensor, Tensor, Tensor], Pooled]]:
    """Queries […, Tq, d], keys […, m, d], values […, m, e], and the way back to the shapes that were meant."""
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

    def back(output: Tensor, weights: Tensor, empty: Tensor) -> Pooled:
        output = output[..., 0] if plain else output
        if not single:
            return Pooled(output, weights, empty)
        return Pooled(output[..., 0] if plain else output[..., 0, :], weights[..., 0, :], empty[..., 0])

    return query, keys, values, back


def _visible(mask: Array | None, query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    batches = [array.shape[:-2] for array in (query, keys, values)]
    if not _broadcasts(*batches):
        raise RegardError(
            f"Batches of shape {', '.join(str(tuple(batch)) for batch in batches)} of query, keys and values do not go "
            "together: give equal ones, or 1 where all share one."
        )
    batch = torch.broadcast_shapes(*batches[:2])
    shape = (*batch, query.size(-2), keys.size(-2))
    if mask is None:
        return torch.ones(shape, dtype=torch.bool, device=query.device)
    seen = _tensor("mask", mask, query.device).bool()
    try:
        seen = seen.expand(*torch.broadcast_shapes(seen.shape[:-2], batch), *shape[-2:])
    except RuntimeError:
        raise RegardError(f"mask has shape {tuple(seen.shape)} and must fit the weights', {shape}.") from None
    if not seen.any(dim=-1).all():
        raise RegardError("A query sees no key at all: let the mask be true for at least one key in every row.")
    return seen
