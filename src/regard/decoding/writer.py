"""The rows that an engine writes with: a state that stays where it is, and the tokens that steps write beside it.

    read      some rows anew: w_1 from P(· | prompt)            take      steps of all rows: w_{t+1} from P(· | state)

Neither asks anything of the device, so on a GPU both are recorded once and then replayed, choice of the word included:
eight steps are one CUDA graph, and so is the reading of so many prompts up to such a length, if it comes again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any
from warnings import catch_warnings, simplefilter

import numpy as np
import torch
from torch import Tensor

from regard.decoding.generate import last_column, pad, replace_rows
from regard.decoding.sampling import Sampling, mask_tokens
from regard.fast.choose_token import choice_of
from regard.fast.decode_step import fast_step
from regard.fast.lean_step import is_usual, lean_step
from regard.layers.state import State, map_state, select_rows
from regard.systems.model import Model

WARM_UP = 2  # steps taken as they are before any is recorded: libraries then have chosen kernels and made their buffers
COLUMNS = 16  # a recorded reading is of a multiple of so many columns, so that few are recorded
READINGS, TOKENS = 32, 8192  # the most readings that are recorded, and of how many tokens: longer ones gain nothing

Prompts = Sequence[Sequence[int]]  # tokens, for each row
Step = Callable[[Tensor, State], Tensor]  # tokens [R], a state that is advanced in place → logits [R, V]


def short_step(model: Model) -> Step | None:
    """One token for every row by a shorter way than the model's own call, if there is one for this model."""
    if model.device.type == "cuda":
        return fast_step(model) if is_usual(model) else None
    return lean_step(model)


class Recorder:
    """Makes CUDA graphs of work that asks nothing of the device.

    PyTorch does not survive a recording that fails, so whether work can be recorded is tried out before, by `trial`.
    """

    def __init__(self, device: torch.device, trial: Callable[[], Callable[[], object]] | None) -> None:
        """`trial` gives the like of the work, on tensors of its own; None: it is known to ask nothing."""
        self.device, self.trial = device, trial

    @cached_property
    def on(self) -> bool:
        """Is work recorded?"""
        return self.device.type == "cuda" and (self.trial is None or not asks(self.trial()))

    @cached_property
    def stream(self) -> torch.cuda.Stream:
        return torch.cuda.Stream(self.device)

    def aside(self, work: Callable[[], None]) -> None:
        """The work as it is, on the stream that will record: whatever has to be set up there is set up before."""
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            work()
        torch.cuda.current_stream().wait_stream(self.stream)

    def record(self, work: Callable[[], None], pool: Any) -> torch.cuda.CUDAGraph:
        """The work as a graph, whose memory is of the pool; recording computes nothing yet."""
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool, self.stream, capture_error_mode="thread_local"):
            work()
        return graph


def asks(work: Callable[[], object]) -> bool:
    """Does the work make the host wait for the device? What it does the first time, to set things up, is not held
    against it."""
    work()
    before = torch.cuda.get_sync_debug_mode()
    with catch_warnings():
        simplefilter("ignore")  # that not every way to wait is noticed
        torch.cuda.set_sync_debug_mode("error")
        try:
            work()
        except RuntimeError:
            return True
        finally:
            torch.cuda.set_sync_debug_mode(before)
    return False


class Manner:
    """How a model writes: what all rows have in common, whichever they are."""

    def __init__(self, model: Model, sampling: Sampling, forbidden: Sequence[int], steps: int) -> None:
        self.model, self.device, self.sampling, self.steps = model, model.device, sampling, steps
        self.fills = fills(model)
        self.choose = choice_of(model, sampling, forbidden)
        short = short_step(model)
        self.step = short or self._step
        self.recorder = Recorder(self.device, None if short else self._try_step)
        self.reader = Recorder(self.device, self._try_reading)

    def read(self, tokens: Tensor, lengths: Tensor) -> tuple[Tensor, State]:
        """What follows prompts [n, T], of which the first lengths[n] tokens are real: logits [n, V], and a state that
        has read them and has no room for more."""
        state = self.model.begin(rows=len(tokens), capacity=tokens.size(1))
        hidden, state = self.model.read(tokens, state, lengths)
        return self.model.predict(last_column(hidden, lengths.to(hidden.device))), state

    def _step(self, tokens: Tensor, state: State) -> Tensor:
        hidden, _ = self.model.read(tokens[:, None], state)
        return self.model.predict(hidden[:, 0])

    def _try_step(self) -> Callable[[], object]:
        tokens, state = torch.zeros(2, dtype=torch.int64, device=self.device), self.model.begin(rows=2, capacity=2)
        return lambda: self._step(tokens, state)

    def _try_reading(self) -> Callable[[], object]:
        columns = 2 if self.model.context is None else min(2, self.model.context)
        tokens = torch.zeros(2, columns, dtype=torch.int64, device=self.device)
        lengths = torch.ones_like(tokens[:, 0])
        return lambda: self.read(tokens, lengths)


class Writer:
    """R rows. Row r of column 0 is the token that the next step reads; column n is what the n-th step has written."""

    def __init__(self, manner: Manner, rows: int, capacity: int, state: State | None = None) -> None:
        self.manner, self.rows, self.capacity = manner, rows, capacity
        self.state = manner.model.begin(rows=rows, capacity=capacity) if state is None else state
        self.written = torch.zeros(manner.steps + 1, rows, dtype=torch.int64, device=manner.device)
        self.highest = self.written.double()  # the highest logit at each of them
        self.uniform = self.highest[1:].clone()  # for the draws
        self.graphs: dict[int, torch.cuda.CUDAGraph] = {}  # by number of steps
        self.readings: dict[tuple[int, int], Reading] = {}  # by number of prompts and columns
        self.warm_up = WARM_UP if manner.recorder.on else 0
        # All graphs share their memory: none leaves anything in it for another.
        self.pool = torch.cuda.graph_pool_handle() if manner.device.type == "cuda" else None

    # -- reading -----------------------------------------------------------------------------------------------------

    def read(self, rows: Sequence[int], prompts: Prompts, uniform: Sequence[float], unfit: Prompts) -> None:
        """Let these rows have read the prompts, in one call, and choose what comes next; `unfit` may not."""
        shape = self._shape(prompts)
        if shape in self.readings and not any(unfit) and self.manner.reader.on:
            return self.readings[shape](self, rows, prompts, uniform)
        if len(self.readings) < READINGS and shape[0] * shape[1] <= TOKENS:
            self.readings.setdefault(shape, Reading(*shape, self.manner.device))  # the next one will be recorded
        tokens, _ = pad(prompts, self.manner.device)
        lengths = torch.tensor([len(prompt) for prompt in prompts])  # on the CPU: a GPU need not be asked for them
        self.take_in(tokens, lengths, self.on_device(rows), self.on_device(uniform), unfit)

    def take_in(self, tokens: Tensor, lengths: Tensor, rows: Tensor, uniform: Tensor, unfit: Prompts = ()) -> None:
        """`read`, from tensors: tokens [n, T], lengths [n], rows [n], uniform [n]."""
        logits, state = self.manner.read(tokens, lengths)
        for place, words in enumerate(unfit):
            if words:
                logits[place] = mask_tokens(logits[place], words)
        chosen, highest = torch.empty_like(rows), torch.empty_like(uniform)
        self.manner.choose(logits, uniform, chosen, highest)
        replace_rows(self.state, rows, state)
        self.written[0].index_copy_(0, rows, chosen)
        self.highest[0].index_copy_(0, rows, highest)

    def _shape(self, prompts: Prompts) -> tuple[int, int]:
        """Prompts and columns, rounded up."""
        count = min(1 << (len(prompts) - 1).bit_length(), self.rows)
        columns = -(-max(map(len, prompts)) // COLUMNS) * COLUMNS
        return count, min(columns, self.limit)

    @property
    def limit(self) -> int:
        """The most tokens that a row can read."""
        most, context = self.capacity if self.manner.fills else 2**62, self.manner.model.context
        return most if context is None else min(most, context)

    # -- writing -----------------------------------------------------------------------------------------------------

    def draw(self, uniform: np.ndarray) -> None:
        """The random numbers [steps, R] of the next steps."""
        self.uniform[: len(uniform)].copy_(self.on_device(uniform), non_blocking=True)

    def take(self, steps: int) -> Tensor:
        """So many steps of every row: [steps + 1, R] what they read first and wrote, −1 where that was no number."""
        self._steps(steps)
        found = self.written[: steps + 1].where(self.highest[: steps + 1] < math.inf, -1)
        self.written[0].copy_(self.written[steps])
        return found

    def _steps(self, steps: int) -> None:
        recorder = self.manner.recorder
        if not steps or not recorder.on:
            return self._run(steps)
        if self.warm_up:
            self.warm_up -= 1
            return recorder.aside(lambda: self._run(steps))
        if steps not in self.graphs:
            self.graphs[steps] = recorder.record(lambda: self._run(steps), self.pool)
        return self.graphs[steps].replay()

    def _run(self, steps: int) -> None:
        for number in range(steps):
            logits = self.manner.step(self.written[number], self.state)
            self.manner.choose(logits, self.uniform[number], self.written[number + 1], self.highest[number + 1])

    # -- other rows --------------------------------------------------------------------------------------------------

    def rewind(self, rows: Sequence[int]) -> None:
        """Let these rows, whose text nobody asks for, start again."""
        self.state["seen"].index_fill_(0, self.on_device(rows), 0)

    def grown(self, capacity: int) -> Writer:
        """The same rows with more room."""
        larger = Writer(self.manner, self.rows, capacity)
        replace_rows(larger.state, torch.arange(self.rows, device=self.manner.device), self.state)
        larger.written.copy_(self.written)
        return larger

    def only(self, rows: Sequence[int]) -> Writer:
        """Some of the rows."""
        where = self.on_device(rows)
        fewer = Writer(self.manner, len(rows), self.capacity, select_rows(self.state, where))
        fewer.written.copy_(self.written[:, where])
        return fewer

    def on_device(self, numbers: Sequence[float] | np.ndarray) -> Tensor:
        host, device = torch.from_numpy(np.asarray(numbers)), self.manner.device
        return host.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else host.to(device)


class Reading:
    """`take_in` of `count` prompts of at most `columns` tokens, recorded; too few are filled up with the last."""

    def __init__(self, count: int, columns: int, device: torch.device) -> None:
        self.count, self.columns = count, columns
        self.graph: torch.cuda.CUDAGraph | None = None
        # tokens, then the length and the row of each prompt
        self.input = torch.zeros(count, columns + 2, dtype=torch.int64, device=device)
        self.uniform = torch.zeros(count, dtype=torch.float64, device=device)

    def __call__(self, writer: Writer, rows: Sequence[int], prompts: Prompts, uniform: Sequence[float]) -> None:
        given = np.zeros((self.count, self.columns + 2), dtype=np.int64)
        places = np.minimum(np.arange(self.count), len(prompts) - 1)
        for line, place in zip(given, places):
            line[: len(prompts[place])] = prompts[place]
            line[-2:] = len(prompts[place]), rows[place]
        self.input.copy_(writer.on_device(given), non_blocking=True)
        self.uniform.copy_(writer.on_device(np.asarray(uniform)[places]), non_blocking=True)
        reader = writer.manner.reader

        def work() -> None:
            writer.take_in(self.input[:, :-2], self.input[:, -2], self.input[:, -1], self.uniform)

        if self.graph is None:
            reader.aside(work)  # read as it is, and then once more by the graph: the same again
            self.graph = reader.record(work, writer.pool)
        self.graph.replay()


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
