"""Perplexity: exp of the mean −log P over every token of a text, <eos> of each line included.

    PPL = exp( −1/N Σ log P(x_t | x_<t) )

The text is split into fixed segments, independent of the batch size: each segment first reads `overlap` tokens that
were already counted (warm-up), then predicts the rest. So every token is counted once, and the result does not depend
on the hardware. `stream` reads the text as one row and carries the state, as papers do for recurrent nets.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from regard.base.errors import RegardError
from regard.base.settings import check_range
from regard.systems.model import Model
from regard.text.batches.text_batches import segment_batches

SEGMENT = 256  # tokens that a segment reads of a model without a context; in a comparison and a validation, at most
MAX_SEGMENT = 4096  # … if the context is longer: attention's memory grows with its square
NUMBERS_AT_ONCE = 2**26  # a batch holds at most this many logits (256 MiB in fp32), or 1/128 of a larger GPU's memory
BATCH_ROWS = {"cuda": 256}  # at most this many rows in a batch; elsewhere 64
STREAM_CHUNK = 256  # tokens of the one row read per call; only memory depends on it
LOOKED_UP = 2**15  # … by a model that only looks up counts: enough that calls cost little, and near in memory


def finite_perplexity(loss: float) -> float:
    """exp of a loss in nats per token; of one that is too large for a float, about the largest float."""
    return math.exp(min(loss, 700.0))


@dataclass(frozen=True)
class Method:
    """How the text is read; `sentence` describes it beside every number."""

    length: int
    overlap: int
    stream: bool = False

    @property
    def sentence(self) -> str:
        if self.stream:
            return "one row from end to end, with the state carried throughout"
        warm = f"each after {self.overlap} tokens of warm-up from the one before it" if self.overlap else "no warm-up"
        return f"segments of {self.length} tokens, {warm}"

    @classmethod
    def of(cls, model: Model, segment: int | None = None, overlap: int | None = None, stream: bool = False) -> Method:
        """Defaults: as many tokens as the model's context (at most 4096), or 256 without one, half of them warm-up.

        A model with unlimited positions can read more than its training context, but the context is still used here.
        """
        limit = model.context
        if stream:
            if limit is not None:
                raise RegardError(f"This model reads at most {limit} tokens at once: evaluate without --stream.")
            return cls(0, 0, stream=True)
        read = segment if segment is not None else min(MAX_SEGMENT, _context(model) or SEGMENT)
        warm = overlap if overlap is not None else read // 2
        if limit is not None and read > limit:
            raise RegardError(
                f"--segment {read} is longer than the {limit} tokens that this model can read at once: lower it."
            )
        check_range("--segment", read, 1)
        if not 0 <= warm < read:
            raise RegardError(f"--overlap must be at least 0 and below the segment's {read} tokens, not {warm}.")
        return cls(read - warm, warm)

    @classmethod
    def in_training(cls, model: Model) -> Method:
        """At most 256 tokens whatever the context, half of them warm-up: so that learning curves are comparable."""
        return cls.of(model, min(SEGMENT, _context(model) or SEGMENT))


def _context(model: Model) -> int | None:
    """The maximum number of tokens that the model reads, or learned to read, at once."""
    return model.context or getattr(getattr(model, "settings", None), "context", None)


@dataclass(frozen=True)
class Likelihood:
    """A text's total −log P in nats over `tokens` tokens; `impossible` of them had probability 0."""

    nats: float
    tokens: int
    impossible: int = 0

    def plus(self, losses: np.ndarray) -> Likelihood:
        """Adds the −log P of more tokens."""
        impossible = self.impossible + int(np.isinf(losses).sum())
        return Likelihood(self.nats + float(losses.sum()), self.tokens + len(losses), impossible)

    @property
    def mean(self) -> float:
        return self.nats / max(self.tokens, 1)

    @property
    def perplexity(self) -> float:
        return math.inf if self.mean > 700 else math.exp(self.mean)


def likelihood(
    model: Model, ids: np.ndarray, method: Method, *, eos: int, begin: int | None = None, rows: int | None = None
) -> Iterator[Likelihood]:
    """The likelihood of a token array so far, after each batch; the last one is the whole text's."""
    so_far = Likelihood(0.0, 0)
    for losses in token_losses(model, ids, method, eos=eos, begin=begin, rows=rows):
        so_far = so_far.plus(losses)
        yield so_far


@torch.no_grad()
def token_losses(
    model: Model, ids: np.ndarray, method: Method, *, eos: int, begin: int | None = None, rows: int | None = None
) -> Iterator[np.ndarray]:
    """−log P of every token in the text's order, batch after batch, in nats.

    The boundary between two lines is predicted as `eos` and read as `begin`; None = `eos`.
    """
    model.eval()
    if rows is None:
        rows = rows_at_once(model, max(method.length + method.overlap, 1))
    check_range("--rows", rows, 1)
    edges = (eos, begin)
    batches = _streamed(model, ids, *edges) if method.stream else _segmented(model, ids, method, rows, *edges)
    for losses in batches:
        yield losses.double().cpu().numpy()


def _segmented(
    model: Model, ids: np.ndarray, method: Method, rows: int, eos: int, begin: int | None
) -> Iterator[Tensor]:
    device = model.device
    for tokens, targets, counted, lengths in segment_batches(
        ids, method.length + method.overlap, method.overlap, rows, eos, begin
    ):
        reads = None if lengths is None else torch.from_numpy(lengths).to(device)
        nll, _ = model.loss(torch.from_numpy(tokens).to(device), torch.from_numpy(targets).to(device), None, reads)
        yield nll[torch.from_numpy(counted).to(device)]


def _streamed(model: Model, ids: np.ndarray, eos: int, begin: int | None) -> Iterator[Tensor]:
    device, state = model.device, None
    chunk = LOOKED_UP if next(model.parameters(), None) is None else STREAM_CHUNK
    for start in range(0, len(ids), chunk):
        targets = np.asarray(ids[start : start + chunk], dtype=np.int64)
        before = eos if start == 0 else int(ids[start - 1])
        tokens = np.concatenate([[before], targets[:-1]])
        if begin is not None:
            tokens[tokens == eos] = begin
        nll, state = model.loss(
            torch.from_numpy(tokens)[None].to(device), torch.from_numpy(targets)[None].to(device), state
        )
        yield nll[0]


def rows_at_once(model: Model, length: int) -> int:
    """The rows of a batch of this length, by the memory that their logits take."""
    numbers = NUMBERS_AT_ONCE
    if model.device.type == "cuda":
        numbers = max(numbers, torch.cuda.get_device_properties(model.device).total_memory // (128 * 4))
    return max(1, min(BATCH_ROWS.get(model.device.type, 64), numbers // (model.loss_width * length)))


def segment_losses(model: Model, ids: np.ndarray, method: Method, eos: int) -> np.ndarray:
    """−log P of every token, in the text's order."""
    return np.concatenate([*token_losses(model, ids, method, eos=eos, rows=1)])
