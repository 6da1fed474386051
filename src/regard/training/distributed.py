"""Training in several processes, started by torchrun.

    torchrun --nproc-per-node 8 -m -- regard train gpt --data wikitext-103

Every process makes the same batch, takes its own rows, and divides its loss by the tokens of the whole batch. So the
sums of gradients and losses equal those of one process, and the order of samples does not depend on their number.

data parallel   each holds all weights; gradients are summed during the backward pass                  Li et al. 2020
sharded         each holds a shard of weights, gradients and moments, and gathers the rest            Zhao et al. 2023
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from regard.base.errors import RegardError
from regard.layers.state import State, map_state
from regard.systems.model import Model
from regard.training.objective import Objective

PATIENCE = timedelta(minutes=30)  # how long a process waits for the others: rank 0 may be tokenizing a large text
CALLED = ("begin", "read", "predict", "loss", "explain")  # a model's entry points besides `forward`


@dataclass(frozen=True)
class Group:
    """Process `rank` of `size`; rank 0 alone writes files and prints."""

    rank: int = 0
    size: int = 1
    messages: Any = None  # a gloo group for the numbers that hosts exchange; gradients use the default group

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    @property
    def alone(self) -> bool:
        return self.size == 1

    def local_rows(self, rows: int) -> slice:
        """This process's rows of a batch; at least one, see `loss_weight`."""
        start, stop = rows * self.rank // self.size, rows * (self.rank + 1) // self.size
        return slice(start, stop) if stop > start else slice(0, 1)

    def loss_weight(self, rows: int) -> float:
        """The weight of this process's loss: 0 if it reads a row that belongs to another process."""
        return float(rows * (self.rank + 1) // self.size > rows * self.rank // self.size)

    def sum(self, tensor: Tensor) -> Tensor:
        """The sum over all processes."""
        if not self.alone:
            tensor = tensor.clone()
            dist.all_reduce(tensor)
        return tensor

    def all_reduce(self, clocks: Sequence[float], stop: bool) -> tuple[Sequence[float], bool]:
        """Rank 0's clocks, and whether any rank received a stop signal."""
        if self.alone:
            return clocks, stop
        mine = clocks if self.is_first else [0.0] * len(clocks)
        values = torch.tensor([*mine, float(stop)], dtype=torch.float64)
        dist.all_reduce(values, group=self.messages)
        return values[:-1].tolist(), bool(values[-1] > 0)

    def broadcast(self, value: Any) -> Any:
        """Rank 0's value, on every rank."""
        if self.alone:
            return value
        values = [value]
        dist.broadcast_object_list(values, src=0, group=self.messages)
        return values[0]

    def barrier(self) -> None:
        if not self.alone:
            dist.barrier(group=self.messages)

    def all_gather(self, state: State | None) -> State | None:
        """The carried state of all rows, in order, concatenated over processes."""
        if state is None or self.alone:
            return state

        def join(leaf: Tensor) -> Tensor:
            parts: list[Any] = [None] * self.size
            dist.all_gather_object(parts, leaf.cpu(), group=self.messages)
            return torch.cat(parts)

        return map_state(join, state)

    @contextmanager
    def synchronizing(self, wrapped: nn.Module, *, last: bool) -> Iterator[None]:
        """Gradients are exchanged only with the last micro-batch of a step."""
        local = isinstance(wrapped, DistributedDataParallel) and not last
        with wrapped.no_sync() if local else nullcontext():  # type: ignore[operator]
            yield

    def wrap(self, objective: Objective, *, sharded: bool) -> nn.Module:
        """The objective wrapped for data-parallel or sharded training."""
        if self.alone:
            return objective
        if not sharded:
            return DistributedDataParallel(objective, gradient_as_bucket_view=True)
        shard(objective.model, self.size)
        return objective


def join(device: str) -> Group:
    """The process group from torchrun's environment; a group of one without torchrun. Each process takes a GPU unless
    `device` is "cpu"."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        return Group()
    if not dist.is_initialized():
        on_gpus = device != "cpu" and torch.cuda.is_available()
        if on_gpus:
            if local_rank() >= torch.cuda.device_count():
                raise RegardError(
                    f"There are more processes than GPUs ({torch.cuda.device_count()}) on this machine: lower "
                    "--nproc-per-node."
                )
            torch.cuda.set_device(local_rank())
        dist.init_process_group("cuda:nccl,cpu:gloo" if on_gpus else "gloo", timeout=PATIENCE)
    return Group(dist.get_rank(), size, dist.new_group(backend="gloo", timeout=PATIENCE))


def local_rank() -> int:
    """The number of this process on its machine, and of the GPU that it uses."""
    return int(os.environ.get("LOCAL_RANK", "0"))


def shard(model: Model, size: int) -> None:
    """Shards every weight over the processes, block by block: a block's weights are gathered only while it computes."""
    from torch.distributed.device_mesh import init_device_mesh  # takes half a second to import
    from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

    # A view is fine: no layer of Regard writes into a block's output.
    warnings.filterwarnings("ignore", "FSDP2-wrapped module .* returned a view tensor")
    mesh = init_device_mesh(model.device.type, (size,))
    for block in blocks_of(model):
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    for name in CALLED:
        register_fsdp_forward_method(model, name)


def blocks_of(model: Model) -> Iterable[nn.Module]:
    """The layers in the model's ModuleLists."""
    for module in model.modules():
        if isinstance(module, nn.ModuleList):
            yield from module


# -- full and sharded tensors ------------------------------------------------------------------------------------------


def gather_full(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Every tensor in full, gathered on all processes."""
    return {name: t.full_tensor() if is_dtensor(t) else t for name, t in tensors.items()}  # type: ignore[attr-defined]


def shard_like(tensor: Tensor, pattern: Tensor) -> Tensor:
    """A full tensor sharded as the pattern is; scalars stay whole."""
    if not is_dtensor(pattern) or tensor.dim() == 0:
        return tensor
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(tensor.to(pattern.device), pattern.device_mesh, pattern.placements)  # type: ignore[attr-defined]


def is_dtensor(tensor: Tensor) -> bool:
    """True for a DTensor, which is sharded over the processes."""
    return hasattr(tensor, "full_tensor")


def refuse_few_rows(rows: int, group: Group) -> None:
    if rows < group.size:
        raise RegardError(
            f"{group.size} processes need at least {group.size} sequences per batch, but a batch has only {rows}: "
            "raise training.batch_tokens."
        )
