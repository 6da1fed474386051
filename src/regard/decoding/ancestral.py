"""Ancestral sampling: each token is drawn from the model's own distribution, until <eos>.

    y_t ~ P(· | y_<t)          by one uniform number per (seed, line, sample, step)

so a line's samples depend neither on the rest of the batch nor on the order of the lines.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from regard.decoding.beam import LEAVE_TOGETHER, Hypothesis, select_memory
from regard.decoding.sampling import Sampling, choose, mask_tokens, random_stream
from regard.layers.state import State, select_rows
from regard.systems.model import Model


def uniform_numbers(seed: int, lines: Sequence[int], samples: int, steps: int) -> Tensor:
    """[lines · samples, steps] numbers in [0, 1); a line's first sample uses the same stream as `generate`."""
    streams = [random_stream(seed, line, sample) for line in lines for sample in range(samples)]
    return torch.from_numpy(np.stack([stream.random(steps) for stream in streams]))


@torch.no_grad()
def sample_hypotheses(
    model: Model,
    logits: Tensor,
    state: State,
    *,
    sampling: Sampling,
    seed: int,
    lines: Sequence[int],
    samples: int,
    max_tokens: Tensor,
    eos: int,
    forbidden: Sequence[int] = (),
    min_tokens: int = 0,
) -> list[list[Hypothesis]]:
    """`logits` [N, V] and `state` (N rows) are those after the prompts; returns N lists of `samples` hypotheses.

    `max_tokens` [N]: the most tokens of each, with `<eos>`.
    """
    device = logits.device
    places = torch.arange(len(logits) * samples, device=device)  # each row's place in the results
    state = select_rows(state, places // samples)
    logits = logits.repeat_interleave(samples, 0)
    limits = max_tokens.repeat_interleave(samples)
    longest = int(limits.max())
    uniform = uniform_numbers(seed, lines, samples, longest).to(device)
    written = places.new_zeros(len(places), longest)
    lengths, total = places.new_zeros(len(places)), uniform.new_zeros(len(places))
    live = torch.ones_like(places, dtype=torch.bool)
    for length in range(1, longest + 1):
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        banned = [*forbidden, eos] if length < min_tokens else forbidden
        chosen = choose(mask_tokens(logits, banned), sampling, uniform[places, length - 1])
        gain = logits.log_softmax(-1).gather(-1, chosen[:, None])[:, 0].double()
        written[places, length - 1] = chosen
        total[places] += gain.where(live, 0.0)
        lengths[places] += live
        live = live & (chosen != eos) & (length < limits[places])
        going = live.view(-1, samples).any(1)  # a source stays until all its samples have ended
        stay = going.nonzero()[:, 0]
        if len(stay) == 0:
            break
        if (len(going) - len(stay)) * LEAVE_TOGETHER >= len(going):
            rows = (stay[:, None] * samples + torch.arange(samples, device=device)).flatten()
            places, live, chosen = places[rows], live[rows], chosen[rows]
            state = select_rows(select_memory(state, stay), rows)
        hidden, state = model.read(chosen[:, None], state)
        logits = model.predict(hidden[:, 0])
    rows_found = [
        Hypothesis(words[:length], log_probability, log_probability, words[length - 1] == eos)
        for words, length, log_probability in zip(written.tolist(), lengths.tolist(), total.tolist())
    ]
    return [rows_found[start : start + samples] for start in range(0, len(rows_found), samples)]
