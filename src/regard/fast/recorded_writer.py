"""What an engine does again and again, recorded in CUDA graphs: some steps of all rows, and the reading of prompts.

Eight steps, the choice of tokens included, are one graph. So is the reading of so many prompts up to such a length, if
it comes again. Rows, tokens and random numbers are read from tensors that stay where they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np
import torch

from regard.decoding.writer import Prompts, Step, Writer
from regard.fast.graphs import Recorder, asks
from regard.fast.row_table import Row, Use, Why, is_swapped, needs_cuda

WARM_UP = 2  # steps taken as they are before any is recorded
COLUMNS = 16  # a recorded reading is of a multiple of so many columns, so that few are recorded
READINGS, TOKENS = 32, 8192  # the most readings that are recorded, and of how many tokens: longer ones gain nothing


class Recording:
    """Of one model's steps: its recorder, and whether its work can be recorded, which is tried once."""

    def __init__(self, step: Step) -> None:
        self.step = step
        self.recorder = Recorder(step.device)

    @cached_property
    def steps(self) -> bool:
        known = is_swapped(self.step.step)  # faster steps ask nothing of the device
        return known or not asks(self._a_step())

    @cached_property
    def readings(self) -> bool:
        return not asks(self._a_reading())

    def _a_step(self) -> Callable[[], object]:
        model, device = self.step.model, self.step.device
        tokens, state = torch.zeros(2, dtype=torch.int64, device=device), model.begin(rows=2, capacity=2)
        return lambda: self.step.step(tokens, state)

    def _a_reading(self) -> Callable[[], object]:
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

    def __call__(self, steps: int) -> None:
        if not steps:
            return
        if self.warm_up:
            self.warm_up -= 1
            self.recorder.aside(lambda: self.run(steps))
            return
        if steps not in self.graphs:
            self.graphs[steps] = self.recorder.record(lambda: self.run(steps))
        self.graphs[steps].replay()


class RecordedReadings:
    """`Writer.read`: one graph for each number of prompts and columns, both rounded up, from the second time on."""

    def __init__(self, writer: Writer) -> None:
        self.writer, self.recorder = writer, recording_of(writer).recorder
        self.readings: dict[tuple[int, int], Reading] = {}

    def __call__(self, rows: Sequence[int], prompts: Prompts, uniform: Sequence[float], unfit: Prompts) -> None:
        shape = self._shape(prompts)
        if shape in self.readings and not any(unfit):
            return self.readings[shape](rows, prompts, uniform)
        if len(self.readings) < READINGS and shape[0] * shape[1] <= TOKENS:
            self.readings.setdefault(shape, Reading(self.writer, self.recorder, *shape))
        return Writer.read(self.writer, rows, prompts, uniform, unfit)

    def _shape(self, prompts: Prompts) -> tuple[int, int]:
        count = min(1 << (len(prompts) - 1).bit_length(), self.writer.rows)
        columns = -(-max(map(len, prompts)) // COLUMNS) * COLUMNS
        return count, min(columns, self.writer.limit)


class Reading:
    """`Writer.take_in` of `count` prompts of at most `columns` tokens; too few are filled up with the last."""

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
            self.recorder.aside(self._take_in)  # read as it is, and then once more by the graph: the same again
            self.graph = self.recorder.record(self._take_in)
        self.graph.replay()

    def _take_in(self) -> None:
        self.writer.take_in(self.input[:, :-2], self.input[:, -2], self.input[:, -1], self.uniform)


def allows_steps(writer: Writer, use: Use) -> Why:
    return None if recording_of(writer).steps else "a step of this model makes the host wait for the device"


def allows_readings(writer: Writer, use: Use) -> Why:
    return None if recording_of(writer).readings else "reading makes the host wait for the device"


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
        makes=RecordedReadings,
        allows=allows_readings,
        needs=needs_cuda,
    ),
)
