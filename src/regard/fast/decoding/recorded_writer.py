"""The engine's work recorded in CUDA graphs: decoding steps, and prompts (prefill).

Several decoding steps, with their choice of tokens, are one graph. So is the prefill of a number of prompts up to a
length, if the same shape comes again. Rows, tokens and random numbers are read from tensors at fixed addresses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np
import torch

from regard.decoding.writer import Prompts, Step, Writer
from regard.fast.compile_ahead import compile_ahead, describe, size_class
from regard.fast.graphs import Recorder, synchronises
from regard.fast.table import Row, Use, Why, is_swapped, needs_cuda

WARM_UP = 2  # warm-up steps before capture, as CUDA graphs require
COLUMNS = 16  # prompts are padded to a multiple of this, so that few shapes are recorded
PREFILLS, TOKENS = 32, 8192  # the most shapes of prompts that are recorded, and their most tokens: more gain nothing


class Recording:
    """The recorder of one model's steps, and whether its work can be recorded; that is tested once."""

    def __init__(self, step: Step) -> None:
        self.step = step
        self.recorder = Recorder(step.device)

    @cached_property
    def steps(self) -> bool:
        known = is_swapped(self.step.step)  # fast steps never synchronise
        return known or not synchronises(self._a_step())

    @cached_property
    def prefills(self) -> bool:
        return not synchronises(self._a_prefill())

    def _a_step(self) -> Callable[[], object]:
        model, device = self.step.model, self.step.device
        tokens, state = torch.zeros(2, dtype=torch.int64, device=device), model.begin(rows=2, capacity=2)
        return lambda: self.step.step(tokens, state)

    def _a_prefill(self) -> Callable[[], object]:
        context = self.step.model.context
        tokens = torch.zeros(2, 2 if context is None else min(2, context), dtype=torch.int64, device=self.step.device)
        lengths = torch.ones_like(tokens[:, 0])
        return lambda: self.step.read(tokens, lengths)


def recording_of(writer: Writer) -> Recording:
    found: Recording = vars(writer.one_step).setdefault("_recording", Recording(writer.one_step))
    return found


class RecordedSteps:
    """`Writer.run`: one graph for each number of steps."""

    def __init__(self, writer: Writer) -> None:
        self.run, self.recorder = lambda steps: Writer.run(writer, steps), recording_of(writer).recorder
        self.graphs: dict[int, torch.cuda.CUDAGraph] = {}
        self.warm_up = WARM_UP
        step, sampling = writer.one_step, writer.one_step.sampling
        # All that changes the state are the fast step's kernels, which are not launched.
        if is_swapped(step.step) and not torch.is_autocast_enabled("cuda"):
            drawn = sampling.temperature > 0, sampling.top_k > 0, sampling.top_p < 1
            told = describe(step.model), drawn, writer.rows, size_class(writer.capacity)
            compile_ahead(lambda: self.run(1), writer.device, "tokens", *told)

    def __call__(self, steps: int) -> None:
        if not steps:
            return
        if self.warm_up:
            self.warm_up -= 1
            self.recorder.warm_up(lambda: self.run(steps))
            return
        if steps not in self.graphs:
            self.graphs[steps] = self.recorder.record(lambda: self.run(steps))
        self.graphs[steps].replay()


class RecordedPrefills:
    """`Writer.read`: one graph per number of prompts and columns, both rounded up, from their second use on."""

    def __init__(self, writer: Writer) -> None:
        self.writer, self.recorder = writer, recording_of(writer).recorder
        self.prefills: dict[tuple[int, int], Prefill] = {}

    def __call__(self, rows: Sequence[int], prompts: Prompts, uniform: Sequence[float], unfit: Prompts) -> None:
        shape = self._shape(prompts)
        if shape in self.prefills and not any(unfit):
            return self.prefills[shape](rows, prompts, uniform)
        if len(self.prefills) < PREFILLS and shape[0] * shape[1] <= TOKENS:
            self.prefills.setdefault(shape, Prefill(self.writer, self.recorder, *shape))
        return Writer.read(self.writer, rows, prompts, uniform, unfit)

    def _shape(self, prompts: Prompts) -> tuple[int, int]:
        count = min(1 << (len(prompts) - 1).bit_length(), self.writer.rows)
        columns = -(-max(map(len, prompts)) // COLUMNS) * COLUMNS
        return count, min(columns, self.writer.limit)


class Prefill:
    """`Writer.take_in` of `count` prompts of at most `columns` tokens; the last prompt fills missing rows."""

    def __init__(self, writer: Writer, recorder: Recorder, count: int, columns: int) -> None:
        self.writer, self.recorder, self.count, self.columns = writer, recorder, count, columns
        self.graph: torch.cuda.CUDAGraph | None = None
        # tokens, then the length and the row of each prompt
        self.input = torch.zeros(count, columns + 2, dtype=torch.int64, device=writer.device)
        self.uniform = torch.zeros(count, dtype=torch.float64, device=writer.device)

    def __call__(self, rows: Sequence[int], prompts: Prompts, uniform: Sequence[float]) -> None:
        given = np.zeros((self.count, self.columns + 2), dtype=np.int64)
        places = np.minimum(np.arange(self.count), len(prompts) - 1)
        for line, place in zip(given, places):
            line[: len(prompts[place])] = prompts[place]
            line[-2:] = len(prompts[place]), rows[place]
        self.input.copy_(self.writer.on_device(given), non_blocking=True)
        self.uniform.copy_(self.writer.on_device(np.asarray(uniform)[places]), non_blocking=True)
        if self.graph is None:
            self.recorder.warm_up(self._take_in)  # the replay below repeats it with the same result
            self.graph = self.recorder.record(self._take_in)
        self.graph.replay()

    def _take_in(self) -> None:
        self.writer.take_in(self.input[:, :-2], self.input[:, -2], self.input[:, -1], self.uniform)


def allows_steps(writer: Writer, use: Use) -> Why:
    return None if recording_of(writer).steps else "a step of this model makes the host wait for the device"


def allows_prefills(writer: Writer, use: Use) -> Why:
    return None if recording_of(writer).prefills else "reading makes the host wait for the device"


ROWS = (
    Row(
        "steps in a CUDA graph",
        "regard.decoding.writer:Writer.run",
        makes=RecordedSteps,
        allows=allows_steps,
        needs=needs_cuda,
    ),
    Row(
        "prompts in a CUDA graph",
        "regard.decoding.writer:Writer.read",
        makes=RecordedPrefills,
        allows=allows_prefills,
        needs=needs_cuda,
    ),
)
