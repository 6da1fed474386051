"""The rows that an engine writes with: a state that stays where it is, and the tokens that steps write beside it.

    read      some rows anew: w_1 from P(· | prompt)            take      steps of all rows: w_{t+1} from P(· | state)

Neither asks anything of the device: which rows, tokens and random numbers are meant stands in tensors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from regard.base.install import Install, as_written
from regard.decoding.generate import last_column, pad, replace_rows
from regard.decoding.sampling import Sampling, mask_tokens, pick
from regard.layers.state import State, map_state, select_rows
from regard.systems.model import Model

Prompts = Sequence[Sequence[int]]  # tokens, for each row


class Step:
    """One step of a model, for any rows: what follows their tokens, and which token is chosen."""

    def __init__(self, model: Model, sampling: Sampling, forbidden: Sequence[int]) -> None:
        self.model, self.device, self.sampling, self.forbidden = model, model.device, sampling, forbidden
        self.fills = fills(model)
        self.banned = torch.tensor(list(forbidden), device=self.device) if forbidden else None

    def read(self, tokens: Tensor, lengths: Tensor) -> tuple[Tensor, State]:
        """What follows prompts [n, T], of which the first lengths[n] tokens are real: logits [n, V], and a state that
        has read them and has no room for more."""
        state = self.model.begin(rows=len(tokens), capacity=tokens.size(1))
        hidden, state = self.model.read(tokens, state, lengths)
        return self.model.predict(last_column(hidden, lengths.to(hidden.device))), state

    def step(self, tokens: Tensor, state: State) -> Tensor:
        """What follows one token of each row: logits [R, V]; the state is advanced in place."""
        hidden, _ = self.model.read(tokens[:, None], state)
        return self.model.predict(hidden[:, 0])

    def choose(self, logits: Tensor, uniform: Tensor, written: Tensor, highest: Tensor) -> None:
        """From logits [R, V] and uniform [R] the next tokens to `written` [R], the highest logits to `highest` [R]."""
        tokens, top = pick(self.allowed(logits), self.sampling, uniform)
        written.copy_(tokens)
        highest.copy_(top)

    def allowed(self, logits: Tensor) -> Tensor:
        return logits if self.banned is None else logits.index_fill(-1, self.banned, -math.inf)


class Writer:
    """R rows. Row r of column 0 is the token that the next step reads; column n is what the n-th step has written."""

    def __init__(
        self,
        one_step: Step,
        most: int,
        rows: int,
        capacity: int,
        state: State | None = None,
        *,
        install: Install = as_written,
    ) -> None:
        """`most`: of steps taken at once."""
        self.one_step, self.most, self.rows, self.capacity, self.install = one_step, most, rows, capacity, install
        self.device = one_step.device
        self.state = one_step.model.begin(rows=rows, capacity=capacity) if state is None else state
        self.written = torch.zeros(most + 1, rows, dtype=torch.int64, device=self.device)
        self.highest = self.written.double()  # the highest logit at each of them
        self.uniform = self.highest[1:].clone()  # for the draws
        install(self)

    # -- reading -----------------------------------------------------------------------------------------------------

    def read(self, rows: Sequence[int], prompts: Prompts, uniform: Sequence[float], unfit: Prompts) -> None:
        """Let these rows have read the prompts, in one call, and choose what comes next; `unfit` may not."""
        tokens, _ = pad(prompts, self.device)
        lengths = torch.tensor([len(prompt) for prompt in prompts])  # on the CPU: a GPU need not be asked for them
        self.take_in(tokens, lengths, self.on_device(rows), self.on_device(uniform), unfit)

    def take_in(self, tokens: Tensor, lengths: Tensor, rows: Tensor, uniform: Tensor, unfit: Prompts = ()) -> None:
        """`read`, from tensors: tokens [n, T], lengths [n], rows [n], uniform [n]."""
        logits, state = self.one_step.read(tokens, lengths)
        for place, words in enumerate(unfit):
            if words:
                logits[place] = mask_tokens(logits[place], words)
        chosen, highest = torch.empty_like(rows), torch.empty_like(uniform)
        self.one_step.choose(logits, uniform, chosen, highest)
        replace_rows(self.state, rows, state)
        self.written[0].index_copy_(0, rows, chosen)
        self.highest[0].index_copy_(0, rows, highest)

    @property
    def limit(self) -> int:
        """The most tokens that a row can read."""
        most, context = self.capacity if self.one_step.fills else 2**62, self.one_step.model.context
        return most if context is None else min(most, context)

    # -- writing -----------------------------------------------------------------------------------------------------

    def draw(self, uniform: np.ndarray) -> None:
        """The random numbers [steps, R] of the next steps."""
        self.uniform[: len(uniform)].copy_(self.on_device(uniform), non_blocking=True)

    def take(self, steps: int) -> Tensor:
        """So many steps of every row: [steps + 1, R] what they read first and wrote, −1 where that was no number."""
        self.run(steps)
        found = self.written[: steps + 1].where(self.highest[: steps + 1] < math.inf, -1)
        self.written[0].copy_(self.written[steps])
        return found

    def run(self, steps: int) -> None:
        for number in range(steps):
            logits = self.one_step.step(self.written[number], self.state)
            self.one_step.choose(logits, self.uniform[number], self.written[number + 1], self.highest[number + 1])

    # -- other rows --------------------------------------------------------------------------------------------------

    def rewind(self, rows: Sequence[int]) -> None:
        """Let these rows, whose text nobody asks for, start again."""
        self.state["seen"].index_fill_(0, self.on_device(rows), 0)

    def enlarged(self, rows: int, capacity: int) -> Writer:
        """The same rows with more room, and more rows."""
        larger = Writer(self.one_step, self.most, rows, capacity, install=self.install)
        replace_rows(larger.state, torch.arange(self.rows, device=self.device), self.state)
        larger.written[:, : self.rows].copy_(self.written)
        larger.highest[:, : self.rows].copy_(self.highest)
        return larger

    def only(self, rows: Sequence[int]) -> Writer:
        """Some of the rows."""
        where = self.on_device(rows)
        state = select_rows(self.state, where)
        fewer = Writer(self.one_step, self.most, len(rows), self.capacity, state, install=self.install)
        fewer.written.copy_(self.written[:, where])
        return fewer

    def close(self) -> None:
        """Free its memory at once: installed methods hold on to their object until the garbage is collected."""
        vars(self).clear()

    def on_device(self, numbers: Sequence[float] | np.ndarray) -> Tensor:
        host = torch.from_numpy(np.asarray(numbers))
        return (
            host.pin_memory().to(self.device, non_blocking=True) if self.device.type == "cuda" else host.to(self.device)
        )


def fills(model: Model) -> bool:
    """Does a fixed state have room for so many tokens and no more?"""

    def shapes(capacity: int) -> list[torch.Size]:
        found: list[torch.Size] = []

        def note(leaf: Tensor) -> Tensor:
            found.append(leaf.shape)
            return leaf

        map_state(note, model.begin(rows=1, capacity=capacity))
        return found

    return shapes(1) != shapes(2)
