"""Beam search: keep the `width` most probable beginnings, extend each by every word, keep the best again.

    score(y) = Σ_t log P(y_t | y_<t) / |y|^length_penalty

A hypothesis ends when it writes <eos>; a search ends when `width` of its hypotheses have ended. Width 1 is greedy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.decoding.sampling import mask_tokens
from regard.layers.state import State, select_rows
from regard.systems.model import Model

IMPOSSIBLE = -1e30  # a counted model's finite log 0: never a way to go on


@dataclass(frozen=True)
class Hypothesis:
    tokens: list[int]  # ends in <eos> unless the limit came first
    log_probability: float
    score: float


@torch.no_grad()
def beam_search(
    model: Model,
    logits: Tensor,
    state: State,
    *,
    width: int,
    max_tokens: int,
    eos: int,
    forbidden: Sequence[int] = (),
    length_penalty: float = 0.0,
) -> list[list[Hypothesis]]:
    """`logits` [R, V] and `state` (R rows) stand after the prompts; returns, for each row, hypotheses best first."""
    rows, vocabulary = logits.shape
    device = logits.device
    state = select_rows(state, torch.arange(rows, device=device).repeat_interleave(width))
    logits = logits.repeat_interleave(width, 0)
    total = torch.full((rows, width), -torch.inf, dtype=torch.float64, device=device)
    total[:, 0] = 0.0  # at first all beams of a row are the same: only one may speak
    written: list[list[list[int]]] = [[[] for _ in range(width)] for _ in range(rows)]
    finished: list[list[Hypothesis]] = [[] for _ in range(rows)]

    def finish(row: int, tokens: list[int], log_probability: float) -> None:
        score = log_probability / max(len(tokens), 1) ** length_penalty
        finished[row].append(Hypothesis(tokens, log_probability, score))

    for _ in range(max_tokens):
        step = torch.log_softmax(mask_tokens(logits, forbidden).double(), -1).view(rows, width, vocabulary)
        step = step.masked_fill(step < IMPOSSIBLE, -torch.inf)
        candidates = (total[:, :, None] + step).view(rows, -1)
        # 2·width candidates: even if `width` of them end here, `width` remain to go on
        least = candidates.topk(min(2 * width, candidates.size(1)), dim=-1).values[:, -1:]
        chosen_parents = torch.arange(width, device=device).repeat(rows, 1)
        chosen_tokens = torch.full((rows, width), eos, device=device)
        scores = torch.full_like(total, -torch.inf)
        for row in range(rows):
            if len(finished[row]) >= width:
                continue
            live, beginnings = 0, []
            for rank, (value, parent, token) in enumerate(_best(candidates[row], least[row], vocabulary)):
                if value == -torch.inf or live == width:
                    break
                sequence = [*written[row][parent], token]
                if token == eos:
                    if rank < width:
                        finish(row, sequence, value)
                    continue
                chosen_parents[row, live], chosen_tokens[row, live], scores[row, live] = parent, token, value
                beginnings.append(sequence)
                live += 1
            written[row] = beginnings + [[] for _ in range(width - live)]
        total = scores
        if all(len(ends) >= width for ends in finished) or bool((total == -torch.inf).all()):
            break
        origin = (torch.arange(rows, device=device)[:, None] * width + chosen_parents).view(-1)
        hidden, state = model.read(chosen_tokens.view(-1, 1), select_rows(state, origin))
        logits = model.predict(hidden[:, 0])
    for row in range(rows):
        for beam, value in enumerate(total[row].tolist()):
            if len(finished[row]) < width and value > -torch.inf:
                finish(row, written[row][beam], value)
    return [sorted(ends, key=lambda hypothesis: -hypothesis.score)[:width] for ends in finished]


def _best(candidates: Tensor, least: Tensor, vocabulary: int) -> list[tuple[float, int, int]]:
    """(score, beam, token) of the candidates that reach `least`, best first; equals keep their order, as in argmax."""
    index = (candidates >= least).nonzero()[:, 0]
    scores, order = candidates[index].sort(descending=True, stable=True)
    index = index[order]
    return list(zip(scores.tolist(), (index // vocabulary).tolist(), (index % vocabulary).tolist()))
