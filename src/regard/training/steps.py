"""One optimizer step: the gradient of the mean loss, in micro-batches and processes; clipping; the update."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from regard.layers.state import State, detach, map_state
from regard.text.batches.pair_batches import PairBatch
from regard.text.batches.text_batches import Batch
from regard.training.distributed import refuse_few_rows
from regard.training.objective import TensorBatch, micro_batches, to_device
from regard.training.optimizers import clip

if TYPE_CHECKING:
    from regard.training.loop import Trainer


class StepRunner:
    """Takes the optimizer step on one batch. `regard.fast` has a subclass that replays CUDA graphs."""

    warm_up_steps = 0  # steps of each batch shape before its full speed
    needs_tensor_learning_rate = False  # a graph reads the learning rate from a tensor
    begins_as_written = False  # may the first step be a written one while faster ones are prepared?

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = trainer
        self.changed_weights = False  # has the current step begun to change the weights?

    def __call__(self, batch: Batch | PairBatch) -> tuple[Tensor, int]:
        """Returns the mean loss before the step and the number of tokens."""
        loss, count = self.gradient(batch)
        self.optimizer_step(loss)
        return loss, count

    def release(self) -> None:
        """Frees its memory, but not the model's."""

    def gradient(self, batch: Batch | PairBatch) -> tuple[Tensor, int]:
        """Computes the gradient of the mean loss, in micro-batches; returns the loss and the number of tokens."""
        trainer, group, rows = self.trainer, self.trainer.group, len(batch.tokens)
        count = batch.count if isinstance(batch, Batch) else int(batch.lengths.sum())
        state = None if batch.fresh else trainer.state
        if trainer.carries:
            refuse_few_rows(rows, group)
        mine = to_device(batch, trainer.device).each(lambda part: part[group.local_rows(rows)])
        parts = min(trainer.settings.accumulate, max(1, rows // group.size))  # the same in every process
        loss, trainer.state = self.backward(mine, state, count, parts, group.loss_weight(rows))
        return group.sum(loss), count

    def backward(
        self, batch: TensorBatch, state: State | None, count: int | Tensor, parts: int, weight: float = 1.0
    ) -> tuple[Tensor, State | None]:
        """The gradient of this process's rows, divided by the `count` tokens of all processes."""
        trainer, group = self.trainer, self.trainer.group
        trainer.optimizer.zero_grad(set_to_none=True)
        sums: list[Tensor] = []
        states: list[State] = []
        for number, (rows, part) in enumerate(micro_batches(batch, parts), start=1):
            with group.synchronizing(trainer.wrapped, last=number == parts):
                loss_sum, after = trainer.forward(part, None if state is None else _rows(state, rows))
                # DDP and FSDP average gradients over processes; times `size` it is their sum
                (loss_sum * (weight * group.size) / count).backward()
            sums.append(loss_sum.detach() * weight)
            if trainer.carries:
                states.append(detach(after))
        return torch.stack(sums).sum() / count, _join(states) if states else None

    def optimizer_step(self, loss: Tensor) -> None:
        """Checks the loss, clips the gradient and updates the weights."""
        trainer = self.trainer
        if trainer.device.type == "cpu":  # a GPU would have to synchronize; there the log checks, once a second
            trainer.check_finite(float(loss))
        if trainer.settings.clip:
            clip(trainer.model, trainer.settings.clip, trainer.optimizer)
        self.changed_weights = True
        trainer.optimizer.step()


def _rows(state: State, rows: slice) -> State:
    return map_state(lambda leaf: leaf[rows], state)


def _join(states: list[State]) -> State:
    """The states of micro-batches concatenated along rows."""
    first, *others = states
    if not others:
        return first

    def join(part: Any, *more: Any) -> Any:
        if isinstance(part, dict):
            return {name: join(leaf, *(other[name] for other in more)) for name, leaf in part.items()}
        return torch.cat([part, *more])

    return join(first, *others)
