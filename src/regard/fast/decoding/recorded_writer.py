"""The engine's decoding steps recorded in CUDA graphs.

Several steps, with their choice of tokens, are one graph. It reads tokens and random numbers at fixed addresses.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import torch

from regard.decoding.writer import DecodingStep, Writer
from regard.fast.compile_ahead import compile_ahead, describe, size_class
from regard.fast.graphs import Recorder, synchronizes
from regard.fast.table import Row, Use, Why, is_swapped, needs_cuda

WARM_UP = 2  # warm-up steps before capture, as CUDA graphs require


class DecodingRecording:
    """The recorder of one model's steps, and whether they can be recorded; that is tested once."""

    def __init__(self, step: DecodingStep) -> None:
        self.step = step
        self.recorder = Recorder(step.device)

    @cached_property
    def steps(self) -> bool:
        known = is_swapped(self.step.step)  # fast steps never synchronize
        return known or not synchronizes(self._a_step())

    def _a_step(self) -> Callable[[], object]:
        model, device = self.step.model, self.step.device
        tokens, state = torch.zeros(2, dtype=torch.int64, device=device), model.begin(rows=2, capacity=2)
        return lambda: self.step.step(tokens, state)


def recording_of(writer: Writer) -> DecodingRecording:
    found: DecodingRecording = vars(writer.one_step).setdefault("_recording", DecodingRecording(writer.one_step))
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


def allows_steps(writer: Writer, use: Use) -> Why:
    if writer.one_step.adjust is not None:
        return "its logits depend on the last token, which the host knows"
    return None if recording_of(writer).steps else "a step of this model makes the host wait for the GPU"


ROWS = (
    Row(
        "steps in a CUDA graph",
        "regard.decoding.writer:Writer.run",
        makes=RecordedSteps,
        allows=allows_steps,
        needs=needs_cuda,
    ),
)
