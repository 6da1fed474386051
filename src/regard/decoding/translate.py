"""Translation: for each source the hypotheses of a beam search, or samples.

    state = begin(x, <eos>),   y_t from P(· | x, <eos>, y_<t)   until y_t = <eos>

Lines may come from an endless stream: a bounded number is read ahead, sorted by length, and translated in batches of
similar lengths. Batching affects only the speed. A `Searcher` (beam_engine.py) may be given for the search.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.base.errors import RegardError
from regard.decoding.ancestral import sample_hypotheses
from regard.decoding.beam import BEAM, GREEDY_BEAM, Beam, Hypothesis, beam_search
from regard.decoding.beam_engine import Searcher
from regard.decoding.beam_slots import BeamConfig
from regard.decoding.generate import pad
from regard.decoding.sampling import Sampling
from regard.layers.state import State
from regard.systems.model import Model

AHEAD = 2048  # lines read ahead, so that batches have similar lengths
ENGINE_AHEAD = 8192  # for a GPU, whose batches are larger
BATCH_TOKENS = {"cpu": 8192, "cuda": 32768}  # sources × hypotheses of each × tokens of the longest source


def longest_translation(source: int) -> int:
    """The default limit of a translation's tokens, with <eos>: ten more than twice the source's."""
    return 2 * source + 10


@torch.no_grad()
def translate(
    model: Model,
    sources: Iterable[Sequence[int]],
    *,
    eos: int,
    beam: Beam | Sampling = BEAM,
    forbidden: Sequence[int] = (),
    max_tokens: int | None = None,
    min_tokens: int = 0,
    samples: int = 1,
    seed: int = 0,
    batch_tokens: int | None = None,
    ahead: int | None = None,
    first: int = 0,
    engine: Searcher | None = None,
) -> Iterator[list[Hypothesis]]:
    """For each source its hypotheses, best first, in the order of the sources.

    A source is token ids, with or without their closing `<eos>`; it may be empty. `min_tokens` and `max_tokens` bound
    a translation's tokens, `<eos>` counted (None: `longest_translation`; never more than the model's context).
    With Sampling each source has `samples` independent draws, unsorted; temperature 0 is greedy. `first` is the number
    of the first source, on which its random numbers depend: continue counting within a file. `engine`, if given, does
    the search; it must be of this model. It is not used under autocast, which makes new weights at each call.
    """
    model.eval()
    engine = None if torch.is_autocast_enabled(model.device.type) else engine
    how = beam if isinstance(beam, Beam) else None if beam.temperature > 0 else GREEDY_BEAM
    copies = samples if isinstance(beam, Sampling) else 1  # greedy samples are all the same
    budget = (batch_tokens or BATCH_TOKENS.get(model.device.type, 8192)) // (samples if how is None else how.width)
    bounds: dict[str, Any] = {"eos": eos, "forbidden": tuple(forbidden), "min_tokens": min_tokens}
    ahead = (AHEAD if engine is None else ENGINE_AHEAD) if ahead is None else max(ahead, 1)
    numbered = enumerate(sources, first)
    while chunk := [(line, closed(source, eos)) for line, source in islice(numbered, ahead)]:
        limits = [_limit(model, len(source) - 1, max_tokens, min_tokens) for _, source in chunk]
        _check_lengths(model, chunk)
        found: dict[int, list[Hypothesis]] = {}
        if how is not None and engine is not None:
            terms = BeamConfig(how.width, n_best=how.n_best, length_penalty=how.length_penalty, **bounds)
            found.update(enumerate(engine.search([source for _, source in chunk], limits, terms)))
        else:
            for batch in batches([len(source) for _, source in chunk], budget):
                lines, read = zip(*(chunk[n] for n in batch))
                state, logits = _begin(model, read, eos)
                bounds["max_tokens"] = torch.tensor([limits[n] for n in batch], device=model.device)
                if isinstance(beam, Sampling) and how is None:
                    drawing: dict[str, Any] = {"sampling": beam, "seed": seed, "samples": samples, "lines": lines}
                    hypotheses = sample_hypotheses(model, logits, state, **drawing, **bounds)
                else:
                    assert how is not None
                    hypotheses = beam_search(model, logits, state, **vars(how), **bounds)
                found.update(zip(batch, hypotheses))
        yield from (found[n] * copies if how is not None else found[n] for n in range(len(chunk)))


def closed(line: Sequence[int], eos: int) -> list[int]:
    """The token ids, with <eos> appended if it is missing."""
    return [*line] if len(line) and line[-1] == eos else [*line, eos]


def batches(lengths: Sequence[int], tokens: int) -> Iterator[list[int]]:
    """The numbers 0 … n − 1, longest first, in groups whose padded tokens fit the budget (at least one each)."""
    order = sorted(range(len(lengths)), key=lambda n: -lengths[n])
    while order:
        rows = max(1, tokens // lengths[order[0]])
        yield order[:rows]
        order = order[rows:]


def _begin(model: Model, read: Sequence[Sequence[int]], eos: int) -> tuple[State, Tensor]:
    """The state after the sources and the boundary, and what it predicts: logits [N, V]."""
    tokens, _ = pad(read, model.device)
    lengths = torch.tensor([len(source) for source in read])  # on the CPU: reading them from a GPU would synchronize
    hidden, state = model.read(torch.full_like(tokens[:, :1], eos), model.begin(tokens, lengths))
    return state, model.predict(hidden[:, 0])


def _check_lengths(model: Model, chunk: Sequence[tuple[int, Sequence[int]]]) -> None:
    most = getattr(model, "source_context", None)
    for line, source in chunk:
        if most is not None and len(source) > most:
            raise RegardError(
                f"Sentence {line + 1} has {len(source)} tokens including <eos>, but this model reads at most {most}; "
                "split or shorten it, or train a model with a larger model.context."
            )


def _limit(model: Model, source: int, max_tokens: int | None, min_tokens: int) -> int:
    limit = max(longest_translation(source), min_tokens) if max_tokens is None else max_tokens
    limit = limit if model.context is None else min(limit, model.context)
    if limit < max(min_tokens, 1):
        raise RegardError(
            f"--min-tokens ({max(min_tokens, 1)}) exceeds the limit of {limit} tokens: lower it, or raise the limit."
        )
    return limit


@dataclass(frozen=True)
class Explanation:
    """The attention of a hypothesis's steps: step t wrote its token t; the source's last token is <eos>."""

    attention: dict[str, np.ndarray]  # "cross/0", … of every layer: [heads, T, S]
    alignment: np.ndarray | None  # [T, S]; None if the system has no attention


@torch.no_grad()
def explain_hypotheses(
    model: Any,
    sources: Iterable[Sequence[int]],
    hypotheses: Iterable[Hypothesis | Sequence[int]],
    *,
    eos: int,
) -> Iterator[Explanation]:
    """Reads each hypothesis with its source by the written equation, and yields their attention in order."""
    model.eval()
    budget = BATCH_TOKENS.get(model.device.type, 8192)
    written = (found.tokens if isinstance(found, Hypothesis) else list(found) for found in hypotheses)
    pairs = ((closed(source, eos), tokens) for source, tokens in zip(sources, written, strict=True))
    while chunk := list(islice(pairs, AHEAD)):
        found: dict[int, Explanation] = {}
        for batch in batches([len(source) + len(tokens) for source, tokens in chunk], budget):
            source, _ = pad([chunk[n][0] for n in batch], model.device)
            source_lengths = torch.tensor([len(chunk[n][0]) for n in batch])
            tokens, lengths = pad([[eos, *chunk[n][1][:-1]] for n in batch], model.device)
            _, _, parts = model.explain(tokens, model.begin(source, source_lengths), lengths)
            attention, alignment = model.attention(parts), model.alignment(parts)
            for row, n in enumerate(batch):
                columns = len(chunk[n][1])
                # cut off padding: self-attention at the target's length, cross-attention at the source's
                sizes = {name: columns if name.startswith("self") else len(chunk[n][0]) for name in attention}
                found[n] = Explanation(
                    {name: numbers(weights[row, :, :columns, : sizes[name]]) for name, weights in attention.items()},
                    None if alignment is None else numbers(alignment[row, :columns, : len(chunk[n][0])]),
                )
        yield from (found[n] for n in range(len(chunk)))


def numbers(tensor: Tensor) -> np.ndarray:
    """A copy as an array, so that the batch can be freed."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32)).cpu().numpy().copy()
