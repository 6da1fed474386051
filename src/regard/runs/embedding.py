"""Embeddings of texts: the mean or the last of a layer's states, scaled to length 1, so a dot product is the cosine.

    e(text) = h / |h|,   h = mean_t h_t   or   h_T         h_t: the state of a layer after token t

Language models read the boundary first, which is not part of the mean; translators and classifiers give the states of
their encoder.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from regard.base.errors import RegardError
from regard.decoding.generate import pad
from regard.systems.model import Model
from regard.systems.translator import Translator

POOLS = ("mean", "last")
ROWS = 32  # texts read at once


@torch.no_grad()
def embed_rows(model: Model, rows: Sequence[Sequence[int]], layer: int | None, pool: str) -> np.ndarray:
    """Vectors [N, D] of rows of tokens: the boundary before a language model's text, or <eos> after a source."""
    if not any(True for _ in model.parameters()):
        raise RegardError("An n-gram counts words and has no vectors: use a neural system.")
    found = [_embed(model, rows[start : start + ROWS], layer, pool) for start in range(0, len(rows), ROWS)]
    return np.concatenate(found) if found else np.zeros((0, 0), np.float32)


def _embed(model: Model, rows: Sequence[Sequence[int]], layer: int | None, pool: str) -> np.ndarray:
    tokens, lengths = pad(rows, model.device)
    hidden = _states(model, tokens, lengths, layer).float()  # [R, T, D]
    column = torch.arange(tokens.size(1), device=model.device)
    if pool == "last":
        backwards = getattr(getattr(model, "settings", None), "reverse", False)  # a source that is read backwards
        chosen = column == (0 * lengths if backwards else lengths - 1)[:, None]
    elif isinstance(model, Translator):
        chosen = column < (lengths - 1)[:, None]  # <eos> is the last
    else:
        chosen = (column > 0) & (column < lengths[:, None])
    sums = (hidden * chosen[:, :, None]).nan_to_num().sum(1)
    return torch.nn.functional.normalize(sums, dim=-1).cpu().numpy()  # the mean has the direction of the sum


def _states(model: Model, tokens: Tensor, lengths: Tensor, layer: int | None) -> Tensor:
    """The states [R, T, D] of a layer, from 1; None is the model's last, after its final normalization."""
    if isinstance(model, Translator):
        if layer is None:
            return model.encode(tokens, lengths)["memory"]
        parts = model.explain_encode(tokens, lengths)[1]
    elif layer is None:
        return model.read(tokens, None, lengths)[0]
    else:
        parts = model.explain(tokens, None, lengths)[2]
    layers = [one["hidden"] for one in parts.get("layers", {}).values() if isinstance(one, dict) and "hidden" in one]
    if not 1 <= layer <= len(layers):
        known = f"choose 1 to {len(layers)}" if layers else "leave layer out to get the states of its last layer"
        raise RegardError(f"This model has no states for layer {layer}; {known}.")
    return layers[layer - 1]
