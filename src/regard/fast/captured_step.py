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

import torch
from torch import Tensor

from regard.base.errors import RegardError
from regard.fast.graphs import Recorder
from regard.fast.row_table import Row, Use, Why, needs_cuda
from regard.layers.recurrent import Recurrent
from regard.layers.state import State, map_state, overwrite
from regard.systems.model import Model
from regard.systems.recurrent_stack import RecurrentModel
from regard.systems.transformer import Transformer
from regard.text.batches import Batch
from regard.text.pair_batches import PairBatch
from regard.training.hyperparameters import Learning, PairTraining, Training
from regard.training.loop import Trainer
from regard.training.objective import TensorBatch, count, to_device

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
        self.recorder: Recorder | None = None

    @property
    def graph(self) -> torch.cuda.CUDAGraph | None:
        """One that was recorded, if any was."""
        return next((found.graph for found in self.recordings.values() if found.graph is not None), None)

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
            self.recorder = self.recorder or Recorder(batch.tokens.device)
            first = None if self.begin is None else self.begin(shape[0])
            self.recordings[shape] = Recording(self.update, batch, first, self.recorder)
        return self.recordings[shape](batch, state)


def _shape(batch: Batch | PairBatch | TensorBatch) -> tuple[int, ...]:
    source = getattr(batch, "source", None)
    return (*batch.tokens.shape, *(() if source is None else source.shape[1:]))


class Recording:
    """The step of one shape."""

    def __init__(self, update: Update, batch: TensorBatch, first: State | None, recorder: Recorder) -> None:
        self.update, self.first, self.recorder = update, first, recorder
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
            return self.recorder.aside(self._run), self.state
        if self.graph is None:
            self.graph = self.recorder.record(self._run)
        self.graph.replay()
        return self.loss.clone(), self.state

    def _run(self) -> Tensor:
        self.loss, state = self.update(self.batch, self.state)
        if self.state is not None and state is not None:
            overwrite(self.state, state)
        return self.loss


# -- in the trainer --------------------------------------------------------------------------------------------------


class CapturedUpdate:
    """`Trainer.update`, by a graph wherever the batch has one of its shapes."""

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = trainer
        model, pairs = trainer.model, isinstance(trainer.settings, PairTraining)
        begin = (lambda rows: model.begin(rows=rows)) if trainer.carries else None
        self.captured = Captured(self._whole_step, begin, shapes=PAIR_SHAPES if pairs else 1)
        trainer.warm_up, trainer.recorded = WARM_UP + 1, True

    def __call__(self, batch: Batch | PairBatch) -> tuple[Tensor, int]:
        trainer = self.trainer
        if not self.captured.fits(batch):
            return Trainer.update(trainer, batch)
        count = batch.targets.size if batch.lengths is None else int(batch.lengths.sum())
        loss, trainer.state = self.captured(to_device(batch, trainer.device), None if batch.fresh else trainer.state)
        trainer.doing = "update"  # the weights are those after the step already
        return loss, count

    def _whole_step(self, batch: TensorBatch, state: State | None) -> tuple[Tensor, State | None]:
        """Nothing here asks the device, so that a graph can hold it."""
        loss, state = self.trainer.backward(batch, state, count(batch), self.trainer.settings.accumulate)
        self.trainer.descend(loss)
        return loss, state


def allows(trainer: Trainer, use: Use) -> Why:
    if not trainer.group.alone:
        return "several processes exchange their gradients"
    return None if captures(trainer.model, trainer.settings) else "its step is not known to gain from a graph"


ROWS = (
    Row(
        "training step in CUDA graphs",
        "regard.training.loop:Trainer.update",
        makes=CapturedUpdate,
        allows=allows,
        needs=needs_cuda,
    ),
)
