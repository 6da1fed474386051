"""A training step in one CUDA graph: what the host says kernel by kernel, it says once, and then only "again".

A recurrent net's step is a long chain of kernels of a few microseconds each, and launching one takes the host about as
long. A graph (CUDA 10 and later) records the whole chain, forward, backward, clipping and the optimiser, and replays it
in one launch. For that every tensor must stay where it is: the batch and the carried state are copied into tensors of
fixed address, the learning rate is a tensor, and dropout draws from the device's own generator, which moves on at each
replay as it does without a graph. So the numbers are those of the plain step, which stays the reference.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from regard.errors import RegardError
from regard.layers.recurrent import LSTM, Fused
from regard.layers.state import State, map_state, overwrite
from regard.systems.model import Model
from regard.systems.recurrent import RecurrentModel
from regard.text.batches import Batch
from regard.text.pair_batches import PairBatch
from regard.training.objective import TensorBatch
from regard.training.settings import Learning, Training

WARM_UP = 3  # steps run as they are before one is recorded: libraries then have chosen kernels and made their buffers

Update = Callable[[TensorBatch, State | None], tuple[Tensor, State | None]]


def captures(model: Model, settings: Learning) -> bool:
    """Is the step to be captured? By itself where it is known to pay: the fused recurrent layers on a GPU."""
    wanted = settings.capture if isinstance(settings, Training) else "off"
    if wanted == "on" and model.device.type != "cuda":
        raise RegardError(f"training.capture on needs a CUDA device, not {model.device}: leave it at auto.")
    if wanted == "auto" and model.device.type == "cuda":
        return isinstance(model, RecurrentModel) and all(isinstance(layer, Fused) for layer in model.layers)
    return wanted == "on"


def chain(model: Model) -> None:
    """Let LSTM layers train as chains of kernels: alone slower than cuDNN, in a graph much faster."""
    for layer in model.modules():
        if isinstance(layer, LSTM):
            layer.chained = True


class Captured:
    """`update(batch, state)`, one whole step, for batches of one shape; its first calls are ordinary steps."""

    def __init__(self, update: Update, begin: Callable[[int], State] | None) -> None:
        """`begin(rows)` makes the state that a row starts from; None: nothing is carried from batch to batch."""
        self.update, self.begin = update, begin
        self.graph: torch.cuda.CUDAGraph | None = None
        self.shape: tuple[int, ...] | None = None  # the first full batch decides
        self.warm_up = WARM_UP
        self.batch: TensorBatch
        self.loss: Tensor
        self.first: State | None = None
        self.state: State | None = None

    def fits(self, batch: Batch | PairBatch) -> bool:
        """Ragged batches, at the end of a text, are not for the graph."""
        return batch.lengths is None and self.shape in (None, batch.tokens.shape)

    def __call__(self, batch: TensorBatch, state: State | None) -> tuple[Tensor, State | None]:
        """The step's loss and the state after it, which the next call writes over; state None: a fresh one."""
        if self.shape is None:
            self._settle(batch)
        self.batch.tokens.copy_(batch.tokens)
        self.batch.targets.copy_(batch.targets)
        if self.state is not None and self.first is not None:
            overwrite(self.state, self.first if state is None else state)
        if self.graph is None and self.warm_up:
            self.warm_up -= 1
            return self._aside(), self.state
        if self.graph is None:
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph, stream=self.stream):  # records, and computes nothing yet
                self.loss = self._run()
        self.graph.replay()
        return self.loss.clone(), self.state

    def _settle(self, batch: TensorBatch) -> None:
        """The tensors that stay where they are."""
        self.shape = batch.tokens.shape
        self.batch = batch.each(Tensor.clone)
        self.stream = torch.cuda.Stream(batch.tokens.device)
        if self.begin is not None:
            self.first = self.begin(self.shape[0])
            self.state = map_state(Tensor.clone, self.first)

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
