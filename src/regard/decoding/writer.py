"""The engine's rows: a state at fixed addresses, and the tokens that its steps write.

    admit     prompts into rows: w_1 from P(· | prompt)       run_steps     of all rows: w_{t+1} from P(· | state)

Neither waits for the device: rows, tokens and random numbers are given as tensors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from regard.base.install import Install, as_written
from regard.decoding.generate import last_column, pad, replace_rows
from regard.decoding.sampling import Sampling, mask_tokens, sample_tokens
from regard.layers.state import State, map_state, select_rows
from regard.systems.model import Model

Prompts = Sequence[Sequence[int]]  # tokens, for each row
Adjust = Callable[[Sequence[int], Tensor], Tensor]  # rows, their logits → these adjusted


class DecodingStep:
    """One step of a model for any rows: the next logits, and the choice of a token."""

    def __init__(self, model: Model, sampling: Sampling, forbidden: Sequence[int]) -> None:
        self.model, self.device, self.sampling, self.forbidden = model, model.device, sampling, forbidden
        self.cache_grows = has_growing_cache(model)
        self.banned = torch.tensor(list(forbidden), device=self.device) if forbidden else None
        self.adjust: Adjust | None = None

    def read(self, tokens: Tensor, lengths: Tensor) -> tuple[Tensor, State]:
        """Reads prompts [n, T] of lengths[n] tokens: the next logits [n, V], and a state without room for more."""
        state = self.model.begin(rows=len(tokens), capacity=tokens.size(1))
        hidden, state = self.model.read(tokens, state, lengths)
        return self.model.predict(last_column(hidden, lengths.to(hidden.device))), state

    def step(self, tokens: Tensor, state: State) -> Tensor:
        """Reads one token of each row: the next logits [R, V]; advances the state in place."""
        hidden, _ = self.model.read(tokens[:, None], state)
        return self.model.predict(hidden[:, 0])

    def choose(self, logits: Tensor, uniform: Tensor, written: Tensor, highest: Tensor) -> None:
        """Chooses tokens from logits [R, V] and uniform [R]; fills `written` [R], and `highest` with the top logits."""
        tokens, top = sample_tokens(self.allowed(logits), self.sampling, uniform)
        written.copy_(tokens)
        highest.copy_(top)

    def allowed(self, logits: Tensor) -> Tensor:
        return logits if self.banned is None else logits.index_fill(-1, self.banned, -math.inf)


class Writer:
    """R rows. `written[0]` holds the tokens that the next step reads, `written[n]` those that the n-th step wrote."""

    def __init__(
        self,
        one_step: DecodingStep,
        most: int,
        rows: int,
        capacity: int,
        state: State | None = None,
        *,
        install: Install = as_written,
    ) -> None:
        """`most`: steps per launch."""
        self.one_step, self.most, self.rows, self.capacity, self.install = one_step, most, rows, capacity, install
        self.device = one_step.device
        self.state = one_step.model.begin(rows=rows, capacity=capacity) if state is None else state
        self.written = torch.zeros(most + 1, rows, dtype=torch.int64, device=self.device)
        self.highest = self.written.double()  # the highest logit of each step
        self.uniform = self.highest[1:].clone()  # for the draws
        install(self)

    # -- reading -----------------------------------------------------------------------------------------------------

    def admit(self, rows: Sequence[int], prompts: Prompts, uniform: Sequence[float], unfit: Prompts) -> None:
        """Reads the prompts into these rows in one call, and chooses their next tokens, which may not be `unfit`."""
        tokens, _ = pad(prompts, self.device)
        # Lengths stay on the CPU: reading them from a GPU would synchronize.
        logits, state = self.one_step.read(tokens, torch.tensor([len(prompt) for prompt in prompts]))
        for place, words in enumerate(unfit):
            if words:
                logits[place] = mask_tokens(logits[place], words)
        if self.one_step.adjust is not None:
            logits = self.one_step.adjust(rows, logits)
        where, draws = self.on_device(rows), self.on_device(uniform)
        chosen, highest = torch.empty_like(where), torch.empty_like(draws)
        self.one_step.choose(logits, draws, chosen, highest)
        replace_rows(self.state, where, state)
        self.written[0].index_copy_(0, where, chosen)
        self.highest[0].index_copy_(0, where, highest)

    @property
    def limit(self) -> int:
        """The most tokens that a row can read."""
        most, context = self.capacity if self.one_step.cache_grows else 2**62, self.one_step.model.context
        return most if context is None else min(most, context)

    # -- writing -----------------------------------------------------------------------------------------------------

    def draw(self, uniform: np.ndarray) -> None:
        """The random numbers [steps, R] of the next steps."""
        self.uniform[: len(uniform)].copy_(self.on_device(uniform), non_blocking=True)

    def run_steps(self, steps: int) -> Tensor:
        """Takes steps of every row: [steps + 1, R] the tokens read first and written, −1 for a NaN prediction."""
        self.run(steps)
        found = self.written[: steps + 1].where(self.highest[: steps + 1] < math.inf, -1)
        self.written[0].copy_(self.written[steps])
        return found

    def run(self, steps: int) -> None:
        for number in range(steps):
            logits = self.one_step.step(self.written[number], self.state)
            if self.one_step.adjust is not None:
                logits = self.one_step.adjust(range(self.rows), logits)
            self.one_step.choose(logits, self.uniform[number], self.written[number + 1], self.highest[number + 1])

    # -- other rows --------------------------------------------------------------------------------------------------

    def rewind(self, rows: Sequence[int]) -> None:
        """Resets these idle rows."""
        self.state["seen"].index_fill_(0, self.on_device(rows), 0)

    def copy_from(self, smaller: Writer) -> None:
        """Copies the rows of a writer that has at most as many rows and as much capacity."""
        replace_rows(self.state, torch.arange(smaller.rows, device=self.device), smaller.state)
        self.written[:, : smaller.rows].copy_(smaller.written)
        self.highest[:, : smaller.rows].copy_(smaller.highest)

    def subset(self, rows: Sequence[int]) -> Writer:
        """A new writer with some of the rows."""
        where = self.on_device(rows)
        state = select_rows(self.state, where)
        fewer = Writer(self.one_step, self.most, len(rows), self.capacity, state, install=self.install)
        fewer.written.copy_(self.written[:, where])
        return fewer

    def close(self) -> None:
        """Frees its memory at once: installed methods form reference cycles, which only the collector frees."""
        vars(self).clear()

    def on_device(self, numbers: Sequence[float] | np.ndarray) -> Tensor:
        host = torch.from_numpy(np.asarray(numbers))
        return (
            host.pin_memory().to(self.device, non_blocking=True) if self.device.type == "cuda" else host.to(self.device)
        )


def has_growing_cache(model: Model) -> bool:
    """True if a state of fixed capacity grows with the capacity, so that it can fill up."""

    def shapes(capacity: int) -> list[torch.Size]:
        found: list[torch.Size] = []

        def note(leaf: Tensor) -> Tensor:
            found.append(leaf.shape)
            return leaf

        map_state(note, model.begin(rows=1, capacity=capacity))
        return found

    return shapes(1) != shapes(2)
