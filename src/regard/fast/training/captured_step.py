"""A whole training step in one CUDA graph: the host launches one graph instead of hundreds of kernels.

In a recurrent net, or with short sentences, a kernel runs for a few microseconds, and launching it takes the host about
as long. A graph (CUDA 10 and later) records forward, backward, clipping and the optimizer, and replays them in one
launch. Every tensor must keep its address: batch and carried state are copied into fixed tensors, the learning rate is
a tensor, and dropout draws from the device's generator, which advances at each replay as it does without a graph. The
numbers equal those of the plain step, which is the reference.

A graph has fixed shapes. Text has few: nearly all batches are full, but each epoch has a smaller one, and a row at the
beginning or the end of the text may be shorter. Sentence pairs are padded to a few (text/batches/pair_shapes.py). Each
is recorded after its warm-up steps. Only one graph replays at a time, so they share their memory.

Its kernels have to be compiled, which takes seconds on a new machine. If a command that trains a language model
`begins_as_written`, the reference methods compute the first step there. Later steps wait for their kernels, unless the
budget is in seconds, so that the number of steps depends on the clock anyway: then the reference methods compute steps
until their kernels are compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from regard.base.errors import RegardError
from regard.fast.compile_ahead import Compiling, describe, is_compiled, size_class, start_compiling
from regard.fast.graphs import Recorder
from regard.fast.recurrence.recurrent_layers import CLOSED
from regard.fast.table import Row, Use, Why, as_written, needs_cuda
from regard.fast.training import padded_step
from regard.fast.training.compiled import RATE
from regard.layers.recurrent import Recurrent
from regard.layers.state import State, map_state, overwrite
from regard.systems.bahdanau import Bahdanau
from regard.systems.model import Model
from regard.systems.recurrent_stack import RecurrentModel
from regard.systems.seq2seq import Seq2Seq
from regard.systems.transformer import Transformer
from regard.text.batches.pair_batches import PairBatch
from regard.text.batches.text_batches import Batch
from regard.training.hyperparameters import GradientTraining
from regard.training.loop import Trainer
from regard.training.objective import TensorBatch, count, to_device
from regard.training.steps import StepRunner

WARM_UP = 3  # steps before capture, as CUDA graphs require: libraries choose kernels and allocate workspaces then
WARM_UP_AGAIN = 1  # steps of a further shape: workspaces are there, only its kernels are still to be chosen
PAIR_SHAPES = 48  # the most shapes of sentence pairs that are recorded
TEXT_SHAPES = 6  # of text: full and smaller batches, with padding and without; an epoch may end with a row more or less
LAUNCHING = 2e-4  # seconds of host time to launch a module, forward and backward, however small

Update = Callable[[TensorBatch, State | None], tuple[Tensor, State | None]]


def captures(model: Model, settings: GradientTraining) -> bool:
    """True if the step is to be captured; `auto` captures recurrent models, translators, and every other model whose
    step takes the host longer to launch than a GPU to compute."""
    wanted = getattr(settings, "capture", "off")
    if wanted == "on" and model.device.type != "cuda":
        raise RegardError(f"training.capture on needs a CUDA device, not {model.device}: leave it at auto.")
    if wanted == "on" and settings.on_pairs and not recordable(model):
        raise RegardError(
            f"training.capture on does not support this {type(model).__name__}, which packs sources by lengths that "
            "only the host knows; leave it at auto."
        )
    if wanted == "auto" and model.device.type == "cuda":
        recurrent = isinstance(model, RecurrentModel) and all(isinstance(layer, Recurrent) for layer in model.layers)
        return recurrent or recordable(model) or (not settings.on_pairs and is_launch_bound(model, settings))
    return wanted == "on"


def is_launch_bound(model: Model, settings: GradientTraining) -> bool:
    """It depends on the settings alone, so a resumed run decides the same."""
    parts = sum(1 for module in model.modules() if not any(module.children()))
    return settings.batch_tokens * model.flops_per_token / RATE < parts * LAUNCHING


def recordable(model: Model) -> bool:
    """True for a translator whose steps never read a length on the host."""
    if isinstance(model, Seq2Seq | Bahdanau):
        return model.encoder.fused.mode in CLOSED
    return isinstance(model, Transformer)


class Captured:
    """`update(batch, state)`, one whole step, recorded for each of a few batch shapes after warm-up steps."""

    def __init__(
        self, update: Update, begin: Callable[[int], State] | None = None, *, shapes: int, ragged: bool = True
    ) -> None:
        """`begin(rows)` makes the initial state; None: no state is carried from batch to batch. `ragged`: the model
        reads the lengths of texts on the device."""
        self.update, self.begin, self.most, self.ragged = update, begin, shapes, ragged
        self.recordings: dict[tuple[int | bool, ...], Recording] = {}
        self._recorder: Recorder | None = None

    @property
    def graph(self) -> torch.cuda.CUDAGraph | None:
        """The first recorded graph, if any."""
        return next((found.graph for found in self.recordings.values() if found.graph is not None), None)

    def is_new(self, batch: Batch | PairBatch) -> bool:
        return _shape(batch) not in self.recordings

    def fits(self, batch: Batch | PairBatch) -> bool:
        """Only the first `shapes` shapes are recorded."""
        if batch.lengths is not None and not (self.ragged or isinstance(batch, PairBatch)):
            return False
        return not self.is_new(batch) or len(self.recordings) < self.most

    def __call__(self, batch: TensorBatch, state: State | None) -> tuple[Tensor, State | None]:
        """Returns the loss and the new state, which the next call overwrites; state None: the initial one."""
        shape = _shape(batch)
        if shape not in self.recordings:
            first = None if self.begin is None else self.begin(shape[0])
            warm_up = WARM_UP_AGAIN if self.recordings else WARM_UP
            self.recordings[shape] = Recording(self.update, batch, first, self.recorder(batch), warm_up)
        return self.recordings[shape](batch, state)

    def release(self) -> None:
        """Forgets the recorded graphs and their memory."""
        self.recordings.clear()
        self._recorder = None

    def recorder(self, batch: TensorBatch) -> Recorder:
        """The one recorder of all shapes."""
        self._recorder = self._recorder or Recorder(batch.tokens.device)
        return self._recorder


def _shape(batch: Batch | PairBatch | TensorBatch) -> tuple[int | bool, ...]:
    """Batches of one shape can be read by the same graph."""
    source, counted = getattr(batch, "source", None), getattr(batch, "counted", None)
    given = batch.lengths is not None, counted is not None
    return (*batch.tokens.shape, *given, *(() if source is None else source.shape[1:]))


class Recording:
    """The recorded step for one batch shape."""

    def __init__(
        self, update: Update, batch: TensorBatch, first: State | None, recorder: Recorder, warm_up: int
    ) -> None:
        self.update, self.first, self.recorder, self.warm_up = update, first, recorder, warm_up
        # Lengths too, which were on the host.
        self.batch = batch.each(lambda part: part.to(batch.tokens.device, copy=True))
        self.state = None if first is None else map_state(Tensor.clone, first)
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
            return self.recorder.warm_up(self._run), self.state
        if self.graph is None:
            self.graph = self.recorder.record(self._run)
        self.graph.replay()
        return self.loss.clone(), self.state

    def _run(self) -> Tensor:
        self.loss, state = self.update(self.batch, self.state)
        if self.state is not None and state is not None:
            overwrite_at_once(self.state, state)
        return self.loss


@torch.no_grad()
def overwrite_at_once(state: State, new: State) -> None:
    """`overwrite` with one kernel for all leaves of a dtype."""
    pairs = list(_pairs(state, new))
    for dtype in dict.fromkeys(held.dtype for held, _ in pairs):
        held, given = zip(*(pair for pair in pairs if pair[0].dtype == dtype), strict=True)
        torch._foreach_copy_(held, given)


def _pairs(state: State, new: State) -> Iterator[tuple[Tensor, Tensor]]:
    for name, part in new.items():
        if isinstance(part, dict):
            yield from _pairs(state[name], part)
        elif part is not state[name]:
            yield state[name], part


# -- in the trainer --------------------------------------------------------------------------------------------------


class CapturedStep(StepRunner):
    """Replays a CUDA graph if the batch has a recorded shape."""

    warm_up_steps = WARM_UP + 1
    needs_tensor_learning_rate = True

    def __init__(self, trainer: Trainer) -> None:
        super().__init__(trainer)
        model, pairs = trainer.model, trainer.settings.on_pairs
        begin = (lambda rows: model.begin(rows=rows)) if trainer.carries else None
        packs = any(isinstance(part, Recurrent) for part in model.modules())  # ragged texts, by lengths on the host
        self.captured = Captured(
            self._whole_step, begin, shapes=PAIR_SHAPES if pairs else TEXT_SHAPES, ragged=not packs
        )
        self.padded: padded_step.PaddedStep | None = None
        self.compiling = Compiling()
        self.began = self.took_written = False

    def __call__(self, batch: Batch | PairBatch) -> tuple[Tensor, int]:
        trainer = self.trainer
        if not self.captured.fits(batch):
            return self._by_pytorch(batch)
        state = None if batch.fresh else trainer.state
        moved = to_device(batch, trainer.device)
        if self.captured.is_new(batch):
            while not self._is_ready(moved, state):
                if (found := self._as_written(batch)) is not None:
                    return found
            self.compiling.wait()
            if self.took_written:
                torch.cuda.empty_cache()  # a graph has a pool of its own
                self.took_written = False
        if self.padded is not None:
            self.padded.refresh()
        count = batch.count if isinstance(batch, Batch) else int(batch.lengths.sum())
        loss, trainer.state = self.captured(moved, state)
        self.changed_weights = True
        return loss, count

    def release(self) -> None:
        self.captured.release()
        self.padded = None

    def _by_pytorch(self, batch: Batch | PairBatch) -> tuple[Tensor, int]:
        """A step whose update is PyTorch's optimizer."""
        found = super().__call__(batch)
        if self.padded is not None:
            self.padded.forget()
        return found

    def _as_written(self, batch: Batch | PairBatch) -> tuple[Tensor, int] | None:
        """The step by the written methods; None if they need more memory than there is."""
        trainer, self.took_written = self.trainer, True
        try:
            with as_written(trainer, trainer.objective):
                return self._by_pytorch(batch)
        except torch.cuda.OutOfMemoryError:
            if self.changed_weights:
                raise
        self.begins_as_written = False
        trainer.optimizer.zero_grad(set_to_none=True)
        trainer.files.set_generators(trainer.random)
        return None

    def _is_ready(self, batch: TensorBatch, state: State | None) -> bool:
        """False if the reference methods compute this step, because its kernels are not compiled."""
        trainer, told, done = self.trainer, self._told(batch), self.compiling.is_done()
        if is_compiled(trainer.device, *told):
            return True
        begins, self.began = not self.began and trainer.progress.step == 0, True
        as_written = self.begins_as_written and not trainer.settings.on_pairs  # their attention is slow to begin
        waits = not as_written or trainer.settings.limit.unit != "seconds"
        if (as_written and begins) or (not waits and not done):
            return False
        self.compiling.wait()
        self.compiling = self._compile(batch, state, told)
        return waits or self.compiling.is_done()

    def _told(self, batch: TensorBatch) -> tuple[object, ...]:
        """All that decides which kernels a step needs."""
        settings = self.trainer.settings
        smoothed = getattr(settings, "label_smoothing", 0.0) > 0, getattr(settings, "consistency", 0.0) > 0
        sizes = [size_class(number) for number in (*_shape(batch), batch.tokens.numel())]
        chosen = settings.optimizer, settings.accumulate, settings.clip > 0, smoothed, self.trainer.bf16
        return "step", describe(self.trainer.model), chosen, sizes

    def _compile(self, batch: TensorBatch, state: State | None, told: tuple[object, ...]) -> Compiling:
        """Starts to compile the kernels of this shape. The step takes its lengths from the device, as it will in the
        graph."""
        trainer = self.trainer
        batch = batch.each(lambda part: part.to(trainer.device))

        def step() -> None:
            if (padded := self._padded()) is not None:
                padded(batch, state)  # only its Triton kernels change weights and moments
            else:
                self.backward(batch, state, count(batch), trainer.settings.accumulate)

        def work() -> None:
            self.captured.recorder(batch).warm_up(step)

        settings = getattr(trainer.model, "settings", None)
        found = start_compiling(work, trainer.device, *told, backward=True, settings=settings)
        trainer.optimizer.zero_grad(set_to_none=True)
        self.changed_weights = False
        return found

    def _padded(self) -> padded_step.PaddedStep | None:
        """The step on padded weights, for trainings that it takes."""
        if self.padded is None and padded_step.takes(self.trainer):
            self.padded = padded_step.PaddedStep(self.trainer)
        return self.padded

    def _whole_step(self, batch: TensorBatch, state: State | None) -> tuple[Tensor, State | None]:
        """Never waits for the device, so a graph can record it."""
        if (padded := self._padded()) is not None:
            return padded(batch, state)
        loss, state = self.backward(batch, state, count(batch), self.trainer.settings.accumulate)
        self.optimizer_step(loss)
        return loss, state


def allows(trainer: Trainer, use: Use) -> Why:
    if not trainer.group.alone:
        return "several processes exchange their gradients"
    return None if captures(trainer.model, trainer.settings) else "its step is not known to gain from a graph"


ROWS = (
    Row(
        "training step in CUDA graphs",
        "regard.training.loop:Trainer.step_runner",
        CapturedStep,
        allows=allows,
        needs=needs_cuda,
    ),
)
