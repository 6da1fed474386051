"""The processes that train together, which torchrun started: one, unless it started more.

    torchrun --nproc-per-node 8 -m -- regard train gpt --data wikitext-103

Every process makes the same batch, takes its own rows of it, and divides its loss by the tokens of the whole batch: the
sum of all gradients is that of one process, and so are the losses. No sample's place depends on how many there are.

data parallel   each holds all weights; gradients are summed while the backward pass goes on           Li et al. 2020
sharded         each holds its share of weights, gradients and moments and borrows the rest           Zhao et al. 2023
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Iterator, Mapping
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

PATIENCE = timedelta(minutes=30)  # how long a process waits for the others: the first may be tokenising a large text
CALLED = ("begin", "read", "predict", "loss", "explain")  # a model's ways in besides `forward`


@dataclass(frozen=True)
class Group:
    """Process `rank` of `size`; rank 0 alone writes files and prints."""

    rank: int = 0
    size: int = 1
    messages: Any = None  # a group for the few numbers that hosts exchange; batches and gradients have the default one

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    @property
    def alone(self) -> bool:
        return self.size == 1

    def share(self, rows: int) -> slice:
        """The rows of a batch that are this process's, never none: see `weight`."""
        start, stop = rows * self.rank // self.size, rows * (self.rank + 1) // self.size
        return slice(start, stop) if stop > start else slice(0, 1)

    def weight(self, rows: int) -> float:
        """What its loss counts: nothing where there were not enough rows for all, and it reads someone else's."""
        return float(rows * (self.rank + 1) // self.size > rows * self.rank // self.size)

    def sum(self, tensor: Tensor) -> Tensor:
        """Summed over all processes."""
        if not self.alone:
            tensor = tensor.clone()
            dist.all_reduce(tensor)
        return tensor

    def all_reduce(self, seconds: float, stop: bool) -> tuple[float, bool]:
        """Rank 0's clock, and whether any rank was asked to stop."""
        if self.alone:
            return seconds, stop
        said = torch.tensor([seconds if self.is_first else 0.0, float(stop)], dtype=torch.float64)
        dist.all_reduce(said, group=self.messages)
        return float(said[0]), bool(said[1] > 0)

    def broadcast(self, word: Any) -> Any:
        """Rank 0's value, on every rank."""
        if self.alone:
            return word
        words = [word]
        dist.broadcast_object_list(words, src=0, group=self.messages)
        return words[0]

    def barrier(self) -> None:
        if not self.alone:
            dist.barrier(group=self.messages)

    def all_gather(self, state: State | None) -> State | None:
        """The carried state of all rows, in their order, from every process's own."""
        if state is None or self.alone:
            return state

        def join(leaf: Tensor) -> Tensor:
            parts: list[Any] = [None] * self.size
            dist.all_gather_object(parts, leaf.cpu(), group=self.messages)
            return torch.cat(parts)

        return map_state(join, state)

    @contextmanager
    def synchronising(self, together: nn.Module, *, last: bool) -> Iterator[None]:
        """Gradients are exchanged with the last micro-batch of a step alone."""
        quiet = isinstance(together, DistributedDataParallel) and not last
        with together.no_sync() if quiet else nullcontext():  # type: ignore[operator]
            yield

    def wrap(self, objective: Objective, *, sharded: bool) -> nn.Module:
        """The objective as all processes compute it together."""
        if self.alone:
            return objective
        if not sharded:
            return DistributedDataParallel(objective, gradient_as_bucket_view=True)
        shard(objective.model, self.size)
        return objective


def join(device: str) -> Group:
    """The process group of torchrun's environment; one process where torchrun started none.
    `device`: what was asked for; a GPU for each process only if that is not the CPU."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        return Group()
    if not dist.is_initialized():
        on_gpus = device != "cpu" and torch.cuda.is_available()
        if on_gpus:
            if local_rank() >= torch.cuda.device_count():
                raise RegardError(
                    f"There are more processes than GPUs ({torch.cuda.device_count()}) here: lower --nproc-per-node."
                )
            torch.cuda.set_device(local_rank())
        dist.init_process_group("cuda:nccl,cpu:gloo" if on_gpus else "gloo", timeout=PATIENCE)
    return Group(dist.get_rank(), size, dist.new_group(backend="gloo", timeout=PATIENCE))


def local_rank() -> int:
    """Which process of its machine this is: it takes the GPU of that number."""
    return int(os.environ.get("LOCAL_RANK", "0"))


def shard(model: Model, size: int) -> None:
    """Cut every weight into as many parts as there are processes, block by block: a block's weights are whole only
    while it computes."""
    from torch.distributed.device_mesh import init_device_mesh  # half a second, which only those who shard should wait
    from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

    # A view is fine here: nothing in Regard's layers writes into what a block returned.
    warnings.filterwarnings("ignore", "FSDP2-wrapped module .* returned a view tensor")
    mesh = init_device_mesh(model.device.type, (size,))
    for block in blocks_of(model):
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    for name in CALLED:
        register_fsdp_forward_method(model, name)


def blocks_of(model: Model) -> Iterable[nn.Module]:
    """The layers that stand one above the other, wherever the model keeps them."""
    for module in model.modules():
        if isinstance(module, nn.ModuleList):
            yield from module


# -- whole tensors and shares of them --------------------------------------------------------------------------------


def whole(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Every tensor in full, on all processes, wherever its parts lie."""
    return {name: t.full_tensor() if is_shared(t) else t for name, t in tensors.items()}  # type: ignore[attr-defined]


def like(tensor: Tensor, pattern: Tensor) -> Tensor:
    """A whole tensor cut as the pattern is; a scalar belongs to all."""
    if not is_shared(pattern) or tensor.dim() == 0:
        return tensor
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(tensor.to(pattern.device), pattern.device_mesh, pattern.placements)  # type: ignore[attr-defined]


def is_shared(tensor: Tensor) -> bool:
    """Is it a DTensor, of which each process holds a part?"""
    return hasattr(tensor, "full_tensor")


def refuse_few_rows(rows: int, group: Group) -> None:
    if rows < group.size:
        raise RegardError(
            f"{group.size} processes need as many rows in a batch, and it has {rows}: raise training.batch_tokens."
        )
