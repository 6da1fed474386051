"""Generation: the predicted token is fed back as the next input, one call per token.

Prompts of different lengths are read in one ragged call; a row that has ended no longer changes (length 0). When a
row has filled the model's context, the second half of it is read again. This is the plain loop, the reference for the
engine (engine.py), which writes the same tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from regard.decoding.adjustments import Adjustment
from regard.decoding.constraints import Guide
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
    # On the CPU, too: reading them from a GPU would synchronize.
    host = torch.tensor([len(prompt) for prompt in prompts])
    hidden, state = model.read(tokens, model.begin(rows=len(prompts), capacity=capacity), host)
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
    guides: Callable[[], Guide | None] = lambda: None,
    on_reread: Callable[[int], None] | None = None,
) -> Iterator[list[int | None]]:
    """Yield the next token of every row, step by step; None where a row has written its last of `lines` lines.

    A prompt is never empty: a language model's first token is <eos>, the boundary before every line. `guides` makes the
    guide of each row, which follows the constraint of `sampling`.
    """
    model.eval()
    context = model.context
    histories = [list(prompt)[-context:] if context else list(prompt) for prompt in prompts]
    longest = max(len(history) for history in histories)
    capacity = longest + max_tokens if context is None else min(longest + max_tokens, context)
    rooms = [capacity - len(history) for history in histories]  # tokens each row can still read
    draws = uniforms(seed, len(prompts))
    ended = [0] * len(prompts)  # lines each row has finished
    lines = 1 if sampling.constrained else lines
    adjustments = [Adjustment(sampling, prompt, guides()) for prompt in prompts] if sampling.adjusts else []
    logits, state = read_prompts(model, histories, capacity)
    for step in range(max_tokens):
        banned = [*forbidden, *forbidden_first] if step == 0 else forbidden
        active = [not (lines and done >= lines) for done in ended]
        logits = logits.clone() if adjustments else logits
        for row, adjustment in enumerate(adjustments):
            if active[row]:
                logits[row] = adjustment(logits[row])
        chosen = choose(mask_tokens(logits, banned), sampling, next(draws))
        tokens = [token if on else None for token, on in zip(chosen.tolist(), active)]
        if not any(active):
            return
        yield tokens
        for row, token in enumerate(tokens):
            if token is not None:
                histories[row].append(token)
                ended[row] += token == eos
                if adjustments:
                    adjustments[row].add(token)
        if step + 1 == max_tokens:
            return
        full = [row for row, on in enumerate(active) if on and rooms[row] == 0]
        moving = [on and rooms[row] > 0 for row, on in enumerate(active)]
        rooms = [room - on for room, on in zip(rooms, moving)]
        hidden, state = model.read(chosen[:, None], state, torch.tensor(moving, device=model.device).long())
        logits = model.predict(hidden[:, 0])
        if full:
            assert context is not None
            kept = half(context)
            if on_reread:
                on_reread(kept)
            for row in full:
                histories[row] = histories[row][-kept:]
                rooms[row] = capacity - kept
            again, read = read_prompts(model, [histories[row] for row in full], kept)
            where = torch.tensor(full, device=model.device)
            logits = logits.index_copy(0, where, again)
            replace_rows(state, where, read)


def half(context: int) -> int:
    """How many tokens are read again when the context is full."""
    return max(context // 2, 1)


@torch.no_grad()
def replace_rows(state: State, rows: Tensor, new: State) -> None:
    """Overwrites the rows `rows` of a state with fixed capacity by those of `new`, whose capacity is not larger.

    Tensors that grow with the capacity are filled from the front; slots behind the tokens seen are never read.
    """
    for name, part in new.items():
        if isinstance(part, dict):
            replace_rows(state[name], rows, part)
        elif name != "capacity":
            front = state[name][(slice(None), *(slice(size) for size in part.shape[1:]))]
            front.index_copy_(0, rows, part.to(front.dtype))
