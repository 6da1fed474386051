"""Converts the nested parts of `explain` to arrays by name, for a trace.

A layer's output is "hidden". The other values that a recurrent layer computes at each step (gates, cell, candidate) are
listed with it, including those of a user's own layer. Attention has "weights", at the top of a layer or in its
"attention"; linear attention also has its state after the last step, a "matrix", and the gates "decay" and "write" of
each step.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.layers.state import State

BESIDE = ("feedforward", "context")  # vectors inside a layer that are neither gates nor its output
LOOKS = ("scores", "weights", "empty", "average", "weight")  # parts of attention, or of an average
IN_ATTENTION = ("decay", "write")  # gates of linear attention, one for each head


@dataclass
class Inside:
    """Tensors by name, rows first; `arrays` converts them to the arrays of a Trace."""

    attention: dict[str, Any] = field(default_factory=dict)  # [R, heads, T, S]
    hidden: dict[str, Any] = field(default_factory=dict)  # [R, T, D]
    gates: dict[str, Any] = field(default_factory=dict)  # [R, T, D]
    matrices: dict[str, Any] = field(default_factory=dict)  # [R, heads, features, D]

    def arrays(self) -> Inside:
        """The first row of each, as an array."""
        return Inside(*({name: array(part) for name, part in kind.items()} for kind in vars(self).values()))


def look_inside(parts: State) -> Inside:
    """The inside of a language model or a decoder."""
    found = Inside()
    _add_vectors(found, parts, ("embedding",), "")
    for name, layer in parts.get("layers", {}).items():
        _add_layer(found, f"layer/{name}", layer)
        if (weights := weights_of(layer)) is not None:
            found.attention[f"{'average' if 'average' in layer else 'self'}/{name}"] = weights
    _add_vectors(found, parts, ("hidden",), "")
    return found


def look_inside_encoder(parts: State) -> Inside:
    """The same for an encoder, with names that begin with "encoder"."""
    found = Inside()
    _add_vectors(found, parts, ("embedding",), "encoder/")
    for name, layer in parts["layers"].items():
        place = f"encoder/{name}"
        ways = [way for way in ("forward", "backward") if way in layer]
        for way in ways:
            _add_layer(found, f"{place}/{way}", layer[way])
        if not ways:
            _add_layer(found, place, layer)
        if (weights := weights_of(layer)) is not None:
            found.attention[place] = weights
    return found


def weights_of(layer: State) -> Tensor | None:
    """The attention weights [R, heads, T, S]; None if the layer has no attention."""
    if "average" in layer and "weight" in layer:  # uniform weights over all words so far
        weight = layer["weight"]  # [R, T]
        return weight[:, None, :, None].expand(-1, -1, -1, weight.size(1)).tril()
    weights = layer.get("attention", layer).get("weights")
    return weights if weights is not None and weights.dim() == 4 else None


def _add_layer(found: Inside, place: str, layer: State) -> None:
    if "hidden" in layer:
        found.hidden[place] = layer["hidden"]
    for look in ("attention", "cross"):
        if isinstance(layer.get(look), dict) and "output" in layer[look]:
            found.hidden[f"{place}/{look}"] = layer[look]["output"]
    inside = layer.get("attention", layer)
    if "matrix" in inside:
        found.matrices[place] = inside["matrix"]
        found.gates.update({f"{place}/{name}": inside[name] for name in IN_ATTENTION if name in inside})
    _add_vectors(found, layer, BESIDE, f"{place}/")
    found.gates.update({f"{place}/{name}": gate for name, gate in _gates(layer)})


def _add_vectors(found: Inside, parts: State, names: tuple[str, ...], prefix: str) -> None:
    found.hidden.update({prefix + name: parts[name] for name in names if name in parts})


def _gates(layer: State) -> Iterator[tuple[str, Tensor]]:
    """The gates and values of a cell at each step, [R, T, D]; a scalar per step becomes a vector of one."""
    hidden = layer.get("hidden")
    looks = "context" in layer or weights_of(layer) is not None
    skipped = {"hidden", *BESIDE, *(LOOKS if looks else ())}
    for name, part in layer.items():
        if name in skipped or not isinstance(part, Tensor) or not isinstance(hidden, Tensor):
            continue
        if part.is_floating_point() and part.shape[:2] == hidden.shape[:2] and part.dim() <= 3:
            yield name, part if part.dim() == 3 else part[..., None]


def array(part: Tensor) -> np.ndarray:
    """A copy of the first row as an array."""
    part = part[0].detach()
    return part.to(torch.promote_types(part.dtype, torch.float32)).cpu().numpy().copy()
