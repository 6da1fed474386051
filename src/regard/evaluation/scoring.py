"""The log-probability of each line of a text, each read separately after the boundary <eos>.

log P(line) = Σ_t log P(x_t | <eos>, x_<t)        t runs over the line's tokens and its closing <eos>

and of each target given its source, log P(y | x), by a translation model.

Lines are read in batches of similar lengths. On a CPU the shape of a batch decides the order of summation (matrix
kernels are chosen by shape, and threads split rows), so the rest of the batch changes the last digits in fp32. With
`alone`, each line is read separately and its numbers are reproducible to the last bit; this takes 1.2 to 5 times as
long (most for seq2seq).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from regard.decoding.generate import pad
from regard.decoding.translate import closed
from regard.evaluation.perplexity import Method, rows_at_once, segment_losses
from regard.systems.model import Model
from regard.systems.ngram import NGram

LONG = 4096  # a line with more tokens is read in pieces: a single call with a million would not react to Ctrl-C


def alone_by_default(model: Model) -> bool:
    """Whether each line is scored separately: on a CPU, unless the model only looks up counts."""
    return model.device.type == "cpu" and next(model.parameters(), None) is not None


def text_losses(model: Model, ids: np.ndarray, ends: np.ndarray, eos: int) -> np.ndarray:
    """−log P of every token of a text, each line read on its own, in nats. A line ends before each of `ends`."""
    if isinstance(model, NGram):  # no context crosses <eos>, so the lines may follow each other
        return segment_losses(model, ids, Method.of(model, stream=True), eos)
    lines = [line.tolist() for line in np.split(ids, ends[:-1])]
    return np.concatenate(line_losses(model, lines, eos, alone=alone_by_default(model)))


def line_sums(numbers: np.ndarray, ends: np.ndarray) -> list[float]:
    """The sum of each line's numbers, to the last bit as Python's `sum` gives it.

    In fp64 sums of fp32 numbers are exact, in any order, unless some are 2²⁹ times as large as others; if they may not
    be exact, `sum` adds them up.
    """
    starts = np.concatenate([[0], ends[:-1]])
    largest = np.add.reduceat(np.abs(numbers), starts).max()
    if np.isfinite(largest):
        units = np.ldexp(numbers, 52 - np.frexp(largest)[1])  # whole numbers below 2^53 add up exactly
        if np.array_equal(units, np.rint(units)):
            return (np.add.reduceat(numbers, starts) + 0.0).tolist()  # no -0.0, as `sum` begins with 0
    lists = numbers.tolist()
    return [float(sum(lists[start:end])) for start, end in zip(starts.tolist(), ends.tolist())]


@torch.no_grad()
def line_losses(model: Model, lines: Sequence[Sequence[int]], eos: int, *, alone: bool = False) -> list[np.ndarray]:
    """−log P of every token of every line (which ends in <eos>), in nats, in the order given; batches are by length."""
    model.eval()
    losses: list[np.ndarray | None] = [None] * len(lines)
    short = [n for n, line in enumerate(lines) if len(line) <= (model.context or LONG)]
    for n in set(range(len(lines))) - set(short):  # overlapping segments, or in pieces if there is no context to exceed
        losses[n] = segment_losses(model, np.asarray(lines[n]), Method.of(model, stream=model.context is None), eos)
    short.sort(key=lambda n: -len(lines[n]))  # similar lengths; the first of a batch is its longest
    while short:
        rows = 1 if alone else rows_at_once(model, len(lines[short[0]]))
        batch, short = short[:rows], short[rows:]
        targets, lengths = pad([lines[n] for n in batch], model.device)
        tokens, _ = pad([[eos, *lines[n][:-1]] for n in batch], model.device)
        nll, _ = model.loss(tokens, targets, None, lengths)
        for row, n in enumerate(batch):
            losses[n] = nll[row, : len(lines[n])].double().cpu().numpy()
    return [loss for loss in losses if loss is not None]


@torch.no_grad()
def pair_losses(
    model: Model, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]], eos: int, *, alone: bool = False
) -> list[np.ndarray]:
    """−log P of every token of every target given its source, teacher-forced, in nats; the closing `<eos>` is one.

    Sources and targets may come with or without it. Batches are by length, order is kept.
    """
    model.eval()
    read = [closed(source, eos) for source in sources]
    written = [closed(target, eos) for target in targets]
    losses: list[np.ndarray] = [np.empty(0)] * len(written)
    order = sorted(range(len(written)), key=lambda n: (-len(written[n]), -len(read[n])))
    while order:
        rows = 1 if alone else rows_at_once(model, len(written[order[0]]))
        batch, order = order[:rows], order[rows:]
        source, _ = pad([read[n] for n in batch], model.device)
        # On the CPU: reading them from a GPU would synchronize.
        source_lengths = torch.tensor([len(read[n]) for n in batch])
        following, lengths = pad([written[n] for n in batch], model.device)
        tokens, _ = pad([[eos, *written[n][:-1]] for n in batch], model.device)
        nll, _ = model.loss(tokens, following, model.begin(source, source_lengths), lengths)
        for row, n in enumerate(batch):
            losses[n] = nll[row, : len(written[n])].double().cpu().numpy()
    return losses
