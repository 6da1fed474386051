"""The lens: each layer's vectors, read through the model's own output as if the layers above did not exist.

    P_l(w) = softmax(W_o finish(x_l))        nostalgebraist 2020, "logit lens"

x_l is the output of a layer, and of a pre-norm block also the sum after its attention. KL(P_final ‖ P_l) measures how
far the layer is from the prediction.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from regard.base.errors import RegardError
from regard.insight.interventions.reading import Reading
from regard.insight.words import labels
from regard.systems.bahdanau import Bahdanau
from regard.systems.classifier import Classifier
from regard.systems.seq2seq import Seq2Seq


@dataclass(frozen=True)
class LensLayer:
    """The prediction of one layer at every step; `probability` and `rank` are those of the token that followed."""

    name: str
    top: tuple[tuple[tuple[str, float], ...], ...]
    probability: tuple[float | None, ...]
    rank: tuple[int | None, ...]
    divergence: tuple[float, ...]  # KL to the final prediction, in nats


@dataclass(frozen=True)
class Lens:
    words: tuple[str, ...]
    layers: tuple[LensLayer, ...]
    notes: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        return {"words": list(self.words), "layers": [vars(one) for one in self.layers], "notes": list(self.notes)}


@torch.no_grad()
def lens(reading: Reading, top: int = 3) -> Lens:
    """The prediction of each layer at every step."""
    parts = reading.parts()
    read_off = output_map(reading.model)
    final = _log_softmax(reading.logits())[0]
    layers, notes = [], []
    for name, vectors in residuals(reading.model, parts).items():
        try:
            predicted = _log_softmax(read_off(vectors))[0]
        except RuntimeError:
            notes.append(
                f"{name} is {vectors.size(-1)} wide and cannot be decoded: the output layer has a different width."
            )
            continue
        layers.append(_layer(reading, name, predicted, final, top))
    if not layers:
        raise RegardError(notes[0] if notes else "This model has no layers that can be decoded with its output layer.")
    return Lens(reading.words, (*layers, _layer(reading, "prediction", final, final, top)), tuple(notes))


def output_map(model: nn.Module) -> Callable[[Tensor], Tensor]:
    """The map from a layer's vector to logits; an error if a prediction needs more than this vector."""
    if isinstance(model, Bahdanau):
        raise RegardError(
            "Bahdanau's output layer reads the state, the context and the word together, so no layer can be read alone."
        )
    if isinstance(model, Classifier):
        raise RegardError("A classifier predicts from the mean of all words, so no layer can be read at one word.")
    if not isinstance(getattr(model, "layers", None), nn.ModuleList):
        raise RegardError(f"{type(model).__name__} has no layers that can be decoded with its output layer.")
    finish: Any = model.readout if isinstance(model, Seq2Seq) else getattr(model, "finish", nn.Identity())
    return lambda vectors: model.predict(finish(vectors))  # type: ignore[operator]


def residuals(model: nn.Module, parts: dict[str, Tensor]) -> dict[str, Tensor]:
    """The vectors [1, T, D] between the sublayers, in order: after attention if it is a plain sum, after a layer."""
    found, x = {}, parts.get("embedding")
    for number, block in enumerate(getattr(model, "layers", ())):
        if getattr(block, "norm_first", False) and x is not None:
            found[f"layer/{number}/attention"] = x + parts[f"layer/{number}/attention"]
        if f"layer/{number}" in parts:
            found[f"layer/{number}"] = x = parts[f"layer/{number}"]
    return found


def _log_softmax(logits: Tensor) -> Tensor:
    return logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(-1)


def _layer(reading: Reading, name: str, predicted: Tensor, final: Tensor, top: int) -> LensLayer:
    best = predicted.topk(min(top, predicted.size(-1)))
    choices = [
        tuple(zip(labels([reading.tokenizer.token(token) for token in tokens]), values))
        for tokens, values in zip(best.indices.tolist(), best.values.exp().tolist())
    ]
    own = [None if w is None else predicted[step, w] for step, w in enumerate(reading.targets)]
    ranks = [None if one is None else int((predicted[step] > one).sum()) + 1 for step, one in enumerate(own)]
    divergence = (final.exp() * (final - predicted)).nan_to_num().sum(-1).clamp(min=0)
    return LensLayer(
        name, tuple(choices), tuple(None if one is None else float(one.exp()) for one in own), tuple(ranks),
        tuple(divergence.tolist()),
    )  # fmt: skip
