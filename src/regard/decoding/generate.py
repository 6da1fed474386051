"""Generation: the predicted token is fed back as the next input, one call per token.

Prompts of different lengths are read together in one ragged call; a row that has ended stands still (length 0).
A model with a limited context re-reads the second half of what it has seen when it is full.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from regard.decoding.sampling import Sampling, choose, mask_tokens, uniforms
from regard.layers.state import State
from regard.systems.model import Model


def pad(rows: Sequence[Sequence[int]], device: torch.device) -> tuple[Tensor, Tensor]:
    """Rows of tokens, padded on the right: tokens [R, T] and lengths [R]."""
    lengths = torch.tensor([len(row) for row in rows], device=device)
    width = max(len(row) for row in rows)
    tokens = torch.tensor([[*row, *([0] * (width - len(row)))] for row in rows], dtype=torch.long, device=device)
    return tokens, lengths


def read_prompts(model: Model, prompts: Sequence[Sequence[int]], capacity: int | None) -> tuple[Tensor, State]:
    """Read every prompt in one call: the logits after each row's last token [R, V], and the state."""
    tokens, lengths = pad(prompts, model.device)
    state = model.begin(rows=len(prompts), capacity=capacity)
    hidden, state = model.read(tokens, state, lengths)
    return model.predict(last_column(hidden, lengths)), state


def last_column(hidden: Tensor, lengths: Tensor) -> Tensor:
    """hidden [R, T, …] → each row's own last real column [R, …]: rows may be ragged, so not hidden[:, -1]."""
    return hidden[torch.arange(len(lengths), device=hidden.device), lengths - 1]


@torch.no_grad()
def generate(
    model: Model,
    prompts: Sequence[Sequence[int]],
    *,
    max_tokens: int,
    eos: int,
    lines: int = 0,
    sampling: Sampling,
    seed: int = 0,
    forbidden: Sequence[int] = (),
    forbidden_first: Sequence[int] = (),
    on_reread: Callable[[int], None] | None = None,
) -> Iterator[list[int | None]]:
    """Yield the next token of every row, step by step; None where a row has written its last of `lines` lines.

    A prompt is never empty: a language model's first token is <eos>, the boundary before every line.
    """
    model.eval()
    device = model.device
    histories = [list(prompt)[-model.context :] if model.context else list(prompt) for prompt in prompts]
    draws = uniforms(seed, len(prompts))
    ended = [0] * len(prompts)  # lines each row has finished
    logits, state, room = _start(model, histories, max_tokens)
    for step in range(max_tokens):
        banned = [*forbidden, *forbidden_first] if step == 0 else forbidden
        chosen = choose(mask_tokens(logits, banned), sampling, next(draws))
        active = [not (lines and done >= lines) for done in ended]
        tokens = [token if on else None for token, on in zip(chosen.tolist(), active)]
        if not any(active):
            return
        yield tokens
        for row, token in enumerate(tokens):
            if token is not None:
                histories[row].append(token)
                ended[row] += token == eos
        if step + 1 == max_tokens:
            return
        if room == 0:
            assert model.context is not None
            kept = max(model.context // 2, 1)
            if on_reread:
                on_reread(kept)
            histories = [history[-kept:] for history in histories]
            logits, state, room = _start(model, histories, max_tokens - step - 1)
            continue
        lengths = torch.tensor([int(on) for on in active], device=device)
        hidden, state = model.read(chosen[:, None], state, lengths)
        logits = model.predict(hidden[:, 0])
        room -= 1


def _start(model: Model, histories: list[list[int]], max_tokens: int) -> tuple[Tensor, State, int]:
    """A fresh state that has read the histories, and how many more tokens it has room for."""
    longest = max(len(history) for history in histories)
    capacity = longest + max_tokens if model.context is None else min(longest + max_tokens, model.context)
    logits, state = read_prompts(model, histories, capacity)
    return logits, state, capacity - longest
