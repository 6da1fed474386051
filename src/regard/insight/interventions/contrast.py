"""Contrast: why A and not B. Which words of the text move log P(A) − log P(B) at one step.

    gradient × input          Σ_d  (e_sd − ē_d) ∂m/∂e_sd                             m = log P(A) − log P(B)
    integrated gradients      Σ_d  (e_sd − ē_d) ∫₀¹ ∂m(ē + z (e − ē))/∂e_sd dz       Sundararajan et al. 2017

e_s is the vector that enters the model for word s. The baseline ē is the mean of the text's vectors, because layer norm
is singular at 0. Integrated gradients add up to m(e) − m(ē); the deviation of their sum, the completeness error, is
printed.
The faithfulness curve deletes words in the order of each method (the most important first) and measures m: the faster
it falls, the more faithful the method (DeYoung et al. 2020). A deleted word has the vector ē.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.base.errors import RegardError
from regard.insight.interventions.changing import Place
from regard.insight.interventions.reading import Reading

POINTS = 64  # of the integral
ORDERS = 20  # number of random orders of deletion


@dataclass(frozen=True, eq=False)
class Contrast:
    """Every array has one number for each word."""

    words: tuple[str, ...]
    answers: tuple[str, str]  # A, B
    step: int
    difference: float  # m
    methods: dict[str, np.ndarray]  # "gradient × input", "integrated gradients", "ablation", perhaps "attention"
    completeness_error: float  # |Σ integrated gradients − (m(e) − m(ē))|
    curves: dict[str, np.ndarray]  # m after 0, 1, … deleted words, by method, and at "random"

    def as_json(self) -> dict[str, Any]:
        rounded = {
            name: {key: np.round(values, 6).tolist() for key, values in group.items()}
            for name, group in (("methods", self.methods), ("curves", self.curves))
        }
        return {**vars(self), **rounded}

    def area(self, method: str) -> float:
        """The mean of the curve: lower is more faithful."""
        return float(self.curves[method].mean())


def contrast(reading: Reading, a: int, b: int, step: int | None = None, seed: int = 0) -> Contrast:
    """Attributions of log P(A) − log P(B) at a step; see `Reading.step_of`."""
    if a == b:
        raise RegardError("Both words begin with the same token: name two words that begin differently.")
    name = "embedding" if reading.source is None else "encoder/embedding"
    parts = reading.parts()
    if name not in parts:
        raise RegardError(
            "This system has no word vectors, so it has no gradients; use --ablate orders, which removes its n-grams."
        )
    step = reading.step_of((a, b), step)
    vectors = parts[name][0]  # [S, D]
    baseline = vectors.mean(0)
    columns = len(vectors) if reading.source is not None else step + 1

    def measure(entered: Tensor) -> Tensor:
        """m of each row of vectors [R, S, D]."""
        logits = reading.logits([(Place(name), entered)], len(entered))
        return logits[:, step, a] - logits[:, step, b]

    away = vectors - baseline
    slopes, last = _slopes(measure, baseline, away, reading.batch)
    plain = (away * last).sum(-1)
    integrated = (away * slopes).sum(-1)
    with torch.no_grad():
        ends = measure(torch.stack([vectors, baseline.expand_as(vectors)]))
        difference = float(ends[0])
        kept = 1 - torch.eye(len(vectors), dtype=vectors.dtype, device=vectors.device)[..., None]
        removed = difference - _in_rows(measure, baseline + away * kept, reading.batch)
    methods = {"gradient × input": plain, "integrated gradients": integrated, "ablation": removed}
    if (looked := _attention(parts, step, reading.source is not None)) is not None and len(looked) == len(vectors):
        methods["attention"] = looked
    values = {key: value.detach().double().cpu().numpy()[:columns] for key, value in methods.items()}
    random = np.random.default_rng(seed)
    orders = {key: [np.argsort(-value, kind="stable")] for key, value in values.items()}
    orders["random"] = [random.permutation(columns) for _ in range(ORDERS)]
    curves = {key: _curve(measure, baseline, away, some, reading.batch) for key, some in orders.items()}
    return Contrast(
        (reading.words if reading.source is None else reading.source_words)[:columns],
        (reading.tokenizer.token(a), reading.tokenizer.token(b)),
        step,
        difference,
        values,
        abs(float(integrated.sum()) - float(ends[0] - ends[1])),
        curves,
    )


def _slopes(measure: Any, baseline: Tensor, away: Tensor, batch: int) -> tuple[Tensor, Tensor]:
    """∂m/∂e averaged over the straight line from the baseline to the vectors (midpoints), and at its end."""
    scales = torch.cat([(torch.arange(POINTS) + 0.5) / POINTS, torch.ones(1)]).to(away)
    total, last = torch.zeros_like(away), torch.zeros_like(away)
    for some in scales.split(batch):
        entered = (baseline + some[:, None, None] * away).requires_grad_()
        with torch.enable_grad():
            (gradient,) = torch.autograd.grad(measure(entered).sum(), entered)
        whole = some == 1
        total += gradient[~whole].sum(0) / POINTS
        last += gradient[whole].sum(0)
    return total, last


def _curve(measure: Any, baseline: Tensor, away: Tensor, orders: Sequence[np.ndarray], batch: int) -> np.ndarray:
    """m after each deletion, the mean of several orders: [words + 1]."""
    rows = []
    for order in orders:
        kept = torch.ones(len(order) + 1, len(away), 1, dtype=away.dtype, device=away.device)
        for place, column in enumerate(order.tolist()):
            kept[place + 1 :, column] = 0
        rows.append(baseline + away * kept)
    with torch.no_grad():
        values = _in_rows(measure, torch.cat(rows), batch)
    return values.view(len(orders), -1).mean(0).double().cpu().numpy()


def _in_rows(measure: Any, entered: Tensor, batch: int) -> Tensor:
    return torch.cat([measure(some) for some in entered.split(batch)])


def _attention(parts: dict[str, Tensor], step: int, across: bool) -> Tensor | None:
    """The mean weight of all heads of all layers at the step; None where there are none."""
    wanted = [
        value[0, :, step].mean(0)
        for name, value in parts.items()
        if name.endswith("/cross/weights" if across else "/weights") and not name.startswith("encoder/")
    ]
    return torch.stack(wanted).mean(0) if wanted else None
