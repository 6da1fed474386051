"""A training step in one CUDA graph: what the host says kernel by kernel, it says once, and then only "again".

A step is a long chain of kernels, of a few microseconds each in a recurrent net or between short sentences, and
launching one takes the host about as long. A graph (CUDA 10 and later) records the whole chain, forward, backward,
clipping and the optimiser, and replays it in one launch. For that every tensor must stay where it is: the batch and the
carried state are copied into tensors of fixed address, the learning rate is a tensor, and dropout draws from the
device's own generator, which moves on at each replay as it does without a graph. So the numbers are those of the plain
step, which stays the reference.

A graph knows one shape. Text comes in one; sentence pairs are laid into a few (text/pair_shapes.py), each of which is
recorded when it has come often enough. One replays at a time, so all of them work in the same memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from regard.base.errors import RegardError
from regard.layers.recurrent import Recurrent
from regard.layers.state import State, map_state, overwrite
from regard.systems.model import Model
from regard.systems.recurrent_stack import RecurrentModel
from regard.systems.transformer import Transformer
from regard.text.batches import Batch
from regard.text.pair_batches import PairBatch
from regard.training.hyperparameters import Learning, PairTraining, Training
from regard.training.objective import TensorBatch

WARM_UP = 3  # steps run as they are before one is recorded: libraries then have chosen kernels and made their buffers
PAIR_SHAPES = 48  # of sentence pairs that are recorded, each as it comes

Update = Callable[[TensorBatch, State | None], tuple[Tensor, State | None]]


def captures(model: Model, settings: Learning) -> bool:
    """Is the step to be captured? By itself where it is known to pay: fused recurrent layers, and pairs without any."""
    wanted = settings.capture if isinstance(settings, Training | PairTraining) else "off"
    if wanted == "on" and model.device.type != "cuda":
        raise RegardError(f"training.capture on needs a CUDA device, not {model.device}: leave it at auto.")
    if wanted == "on" and isinstance(settings, PairTraining) and not isinstance(model, Transformer):
        raise RegardError(
            f"training.capture on is for the pairs of a Transformer: {type(model).__name__} packs sources by lengths "
            "that only the host knows; leave it at auto."
        )
    if wanted == "auto" and model.device.type == "cuda":
        recurrent = isinstance(model, RecurrentModel) and all(isinstance(layer, Recurrent) for layer in model.layers)
        return recurrent or isinstance(model, Transformer)
    return wanted == "on"


class Captured:
    """`update(batch, state)`, one whole step, for batches of a few shapes; the first of each are ordinary steps."""

    def __init__(self, update: Update, begin: Callable[[int], State] | None = None, *, shapes: int = 1) -> None:
        """`begin(rows)` makes the state that a row starts from; None: nothing is carried from batch to batch."""
        self.update, self.begin, self.most = update, begin, shapes
        self.recordings: dict[tuple[int, ...], Recording] = {}
        self.stream: torch.cuda.Stream | None = None
        self.pool: tuple[int, int] | None = None

    @property
    def graph(self) -> torch.cuda.CUDAGraph | None:
        """One that was recorded, if any was."""
        return next((found.graph for found in self.recordings.values() if found.graph is not None), None)

    @property
    def warm_up(self) -> int:
        """Ordinary steps that are still to come before the first is recorded."""
        return min((found.warm_up for found in self.recordings.values()), default=WARM_UP)

    def fits(self, batch: Batch | PairBatch) -> bool:
        """Ragged text, at its end, is not for a graph; pairs are always ragged, and their lengths are read as tensors.
        The first shapes that come have the places."""
        if batch.lengths is not None and not isinstance(batch, PairBatch):
            return False
        return _shape(batch) in self.recordings or len(self.recordings) < self.most

    def __call__(self, batch: TensorBatch, state: State | None) -> tuple[Tensor, State | None]:
        """The step's loss and the state after it, which the next call writes over; state None: a fresh one."""
        shape = _shape(batch)
        if shape not in self.recordings:
            if self.stream is None:
                self.stream, self.pool = torch.cuda.Stream(batch.tokens.device), torch.cuda.graph_pool_handle()
            first = None if self.begin is None else self.begin(shape[0])
            self.recordings[shape] = Recording(self.update, batch, first, self.stream, self.pool)
        return self.recordings[shape](batch, state)


def _shape(batch: Batch | PairBatch | TensorBatch) -> tuple[int, ...]:
    source = getattr(batch, "source", None)
    return (*batch.tokens.shape, *(() if source is None else source.shape[1:]))


class Recording:
    """The step of one shape."""

    def __init__(
        self, update: Update, batch: TensorBatch, first: State | None, stream: torch.cuda.Stream, pool: Any
    ) -> None:
        self.update, self.first, self.stream, self.pool = update, first, stream, pool
        self.batch = batch.each(lambda part: part.to(batch.tokens.device, copy=True))  # host lengths as well
        self.state = None if first is None else map_state(Tensor.clone, first)
        self.warm_up = WARM_UP
        self.graph: torch.cuda.CUDAGraph | None = None
        self.loss: Tensor

    def __call__(self, batch: TensorBatch, state: State | None) -> tuple[Tensor, State | None]:
        for held, new in zip(self.batch, batch, strict=True):
            if held is not None and new is not None:
                held.copy_(new, non_blocking=True)
        if self.state is not None and self.first is not None:
            overwrite(self.state, self.first if state is None else state)
        if self.graph is None and self.warm_up:
            self.warm_up -= 1
            return self._aside(), self.state
        if self.graph is None:
            self.graph = torch.cuda.CUDAGraph()
            # Only what this thread does is recorded: another may be bringing the next batches.
            with torch.cuda.graph(
                self.graph, pool=self.pool, stream=self.stream, capture_error_mode="thread_local"
            ):  # records, and computes nothing yet
                self.loss = self._run()
        self.graph.replay()
        return self.loss.clone(), self.state

    def _run(self) -> Tensor:
        loss, state = self.update(self.batch, self.state)
        if self.state is not None and state is not None:
            overwrite(self.state, state)
        return loss

    def _aside(self) -> Tensor:
        """The step as it is, on the stream that will record: whatever has to be set up there is set up before."""
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            loss = self._run()
        torch.cuda.current_stream().wait_stream(self.stream)
        return loss
