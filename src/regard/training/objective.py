"""The training objective: the sum of −log P(token) over a batch, and the number of tokens.

    L = Σ −log P(x_t | x_<t)  /  number of targets in the whole batch

Sum and count are kept apart, because an average of averages is wrong if rows, micro-batches or processes hold different
numbers of tokens. It is an nn.Module so that DistributedDataParallel can wrap it.

For sentence pairs there are two more terms. Label smoothing (Szegedy et al. 2016) spreads a share ε of the probability
over all words; R-Drop (Liang et al. 2021) reads every pair twice with different dropout and penalises disagreement:

    L' = (1 − ε) L + ε mean_v −log P(v)          L'' = ½ (L'_1 + L'_2) + α/4 (KL(P_1‖P_2) + KL(P_2‖P_1))
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from regard.layers.loss import negative_log_likelihood
from regard.layers.state import State
from regard.systems.model import Model, Stack
from regard.text.batches.pair_batches import PairBatch
from regard.text.batches.text_batches import Batch


class TensorBatch(NamedTuple):
    """A batch on the model's device. `lengths` None: every row is full."""

    tokens: Tensor  # [R, T]
    targets: Tensor  # [R, T]
    lengths: Tensor | None  # [R]
    source: Tensor | None = None  # [R, S]
    source_lengths: Tensor | None = None  # [R], on the host, as packing requires
    counted: Tensor | None = None  # [R, T]: the targets that are learned; None: all

    def each(self, function: Callable[[Tensor], Tensor]) -> TensorBatch:
        """The function applied to every tensor of the batch."""
        rest = (None if part is None else function(part) for part in self[2:])
        return TensorBatch(function(self.tokens), function(self.targets), *rest)


class Objective(nn.Module):
    """loss sum, number of targets, state = objective(batch, state)"""

    def __init__(self, model: Model, *, smoothing: float = 0.0, consistency: float = 0.0, keeps: bool = True):
        """`keeps`: the next batch of text begins with the state after this one."""
        super().__init__()
        self.model, self.smoothing, self.consistency, self.keeps = model, smoothing, consistency, keeps

    def forward(self, batch: TensorBatch, state: State | None) -> tuple[Tensor, int | Tensor, State]:
        return self.text(batch, state) if batch.source is None else self.pairs(batch)

    def text(self, batch: TensorBatch, state: State | None) -> tuple[Tensor, int | Tensor, State]:
        nll, state = self.model.loss(batch.tokens, batch.targets, self.initial_state(batch, state), batch.lengths)
        if batch.counted is not None:
            nll = nll.where(batch.counted, 0.0)
        return nll.sum(), count(batch), state  # nll [R, T], 0 where padded

    def initial_state(self, batch: TensorBatch, state: State | None) -> State | None:
        """The state that a text begins with; one without a cache if the state is not needed afterwards."""
        if state is None and not self.keeps and isinstance(self.model, Stack):
            return self.model.without_cache(len(batch.tokens))
        return state

    def pairs(self, batch: TensorBatch) -> tuple[Tensor, int | Tensor, State]:
        """Padding comes after each target and cannot affect it, so only the sum masks it."""
        valid = real_targets(batch)
        if self.consistency:
            batch = batch.each(lambda part: torch.cat([part, part]))
        logits, state = self.model(batch.tokens, self.model.begin(batch.source, batch.source_lengths))
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        loss = negative_log_likelihood(logits, batch.targets, smoothing=self.smoothing)
        if self.consistency:
            first, second = loss.chunk(2)
            loss = 0.5 * (first + second) + 0.25 * self.consistency * disagreement(logits)
        return loss.where(valid, 0.0).sum(), valid.sum(), state


def count(batch: TensorBatch) -> int | Tensor:
    """The number of targets."""
    if batch.counted is not None:
        return batch.counted.sum().clamp(min=1)
    return batch.targets.numel() if batch.lengths is None else batch.lengths.sum()


def real_targets(batch: TensorBatch) -> Tensor:
    """Mask [R, T] of the targets of sentence pairs that are not padding."""
    assert batch.lengths is not None
    return torch.arange(batch.targets.size(1), device=batch.targets.device) < batch.lengths[:, None]


def disagreement(logits: Tensor) -> Tensor:
    """KL(P‖Q) + KL(Q‖P) for the two halves of logits [2R, T, V]: [R, T]."""
    p, q = logits.log_softmax(-1).chunk(2)
    return ((p.exp() - q.exp()) * (p - q)).sum(-1)


def to_device(batch: Batch | PairBatch, device: torch.device) -> TensorBatch:
    def move(array: np.ndarray) -> Tensor:
        tensor = torch.from_numpy(array)
        return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)

    lengths = None if batch.lengths is None else move(batch.lengths)
    whole = TensorBatch(move(batch.tokens), move(batch.targets), lengths)
    if not isinstance(batch, PairBatch):
        return whole if batch.counted is None else whole._replace(counted=move(batch.counted))
    return whole._replace(source=move(batch.source), source_lengths=torch.from_numpy(batch.source_lengths))


def micro_batches(batch: TensorBatch, parts: int) -> list[tuple[slice, TensorBatch]]:
    """The batch split into at most `parts` groups of rows, each with its slice of rows."""
    rows = batch.tokens.size(0)
    edges = [rows * k // parts for k in range(parts + 1)]
    slices = [slice(a, b) for a, b in pairwise(edges) if b > a]
    return [(chosen, batch.each(lambda part, chosen=chosen: part[chosen])) for chosen in slices]  # type: ignore[misc]
