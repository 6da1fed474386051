"""All steps of a recurrent layer in one persistent kernel, forward and backward, for bf16 training on Hopper.

    drive = W x + b  for all t at once,    then for each t:    h_t, … = gates(drive_t + U h_{t-1}, …)

With one kernel per step, U is read again at every step, and each kernel waits for the one before to end. Here every
multiprocessor reads its block of U once and keeps it in registers, and a step waits only for the outputs that it needs
(persistent RNNs: Diamos et al. 2016). Products are in bf16; sums, gates and cells are fp32. The kernel is
`persistent.cu`; `lstm_chain.py` has separate kernels for each step.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cache
from math import ceil
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.fast.kernels.nvrtc import CompiledKernel
from regard.fast.recurrence.padded_weights import ALIGNMENT, PaddedWeight, padded_weight, round_up
from regard.fast.table import has_triton

CELLS = {
    "LSTM": (0, 4),
    "RNN_TANH": (1, 1),
    "RNN_RELU": (2, 1),
    "GRU": (3, 3),
}  # the kernel's number of the cell, and its gates
UNWRITTEN = -1  # as an int16: a NaN that rounding never produces
REGISTERS, OTHER_REGISTERS = 65536, 56  # of a multiprocessor; of a thread, for addresses and gates
SHARED_MEMORY = 220 * 1024
RESIDENT = ((1, 132), (2, 66), (4, 28), (8, 14))  # blocks per cluster, and how many such clusters an H200 can hold
FASTEST = {  # on an H200, forward and backward: groups, parts, members of a cluster, warps down and along
    ("LSTM", 20, 650): ((4, 1, 1, 5, 3), (4, 1, 4, 6, 2)),
    ("LSTM", 20, 1500): ((2, 2, 1, 2, 4), (1, 1, 8, 4, 2)),
    ("LSTM", 64, 1024): ((4, 2, 1, 2, 4), (4, 2, 2, 1, 8)),
    ("LSTM", 64, 1500): ((2, 4, 1, 2, 4), (1, 2, 8, 7, 1)),
    ("LSTM", 80, 1150): ((2, 1, 2, 9, 1), (1, 2, 8, 5, 2)),
    ("LSTM", 80, 400): ((8, 2, 1, 7, 1), (8, 2, 1, 2, 4)),
    ("RNN_TANH", 20, 1500): ((4, 1, 1, 3, 4), (5, 1, 1, 2, 4)),
}
MORE_THAN_HALF = 116 * 1024  # bytes of a multiprocessor's shared memory, so that two blocks never share one


@dataclass(frozen=True)
class GridPlan:
    """How the work is divided; persistent.cu explains the names."""

    CELL: int
    BACKWARD: int
    GROUPS: int
    PARTS: int
    B: int
    H: int
    HP: int
    G: int
    S: int
    UNITS: int
    CLUSTER_UNITS: int
    WM: int
    WK: int
    MT: int
    KG: int
    KR: int
    NT: int
    KPART: int
    KSTRIDE: int

    @property
    def blocks(self) -> int:
        return self.GROUPS * self.S * ceil(self.HP / self.CLUSTER_UNITS)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.GROUPS, self.PARTS, self.S, self.WM, self.WK

    @property
    def threads(self) -> int:
        return 32 * self.WM * self.WK

    @property
    def rows(self) -> int:
        return self.UNITS if self.BACKWARD else self.G * self.UNITS

    @property
    def shared(self) -> int:
        """Bytes of shared memory: inputs, the part of U that does not fit into registers, partial sums."""
        across = self.NT * 8 + 1
        sums = self.WK * 16 * self.WM * self.MT * across + (2 * self.S * self.rows * across if self.S > 1 else 0)
        kept = self.WM * self.WK * self.MT * (self.KG - self.KR) * 1024
        acts = self.NT * 8 * self.KSTRIDE * 2
        return max(acts + kept + sums * 4, MORE_THAN_HALF)

    def cost(self) -> float:
        """A step's estimated nanoseconds, fitted to the times of 41 plans on an H200, within some 10 % for these."""
        warps = self.WM * self.WK
        products = ceil(warps / 4) * self.MT * self.KG * self.NT * 2  # on each of a multiprocessor's four tensor cores
        kept = warps * self.MT * (self.KG - self.KR) * 8  # reads of 128 bytes of shared memory: the matrix,
        inputs = warps * self.KG * self.NT * 4  # what it is multiplied by,
        partial = warps * self.MT * self.NT * 4  # and the partial sums
        items = ceil(self.B * self.UNITS / self.threads) * self.G * (1 + self.BACKWARD)
        fetched = ceil(self.B * self.KPART / 8 / self.threads)  # from global memory, 16 bytes per thread
        sent = ceil(self.S * self.rows * self.NT * 8 / self.threads)
        work = 390 + 7.4 * products + 0.13 * kept + 0.36 * inputs + 1.25 * partial + 26 * items + 131 * fetched
        work += (830 + 42 * sent) * (self.S > 1)
        return self.PARTS * work + 960 * (self.PARTS == 1)  # with one part there is no work to hide the exchange behind


def _registers(down: int, along: int, tiles: int, across: int, gates: int, items: int) -> int:
    """Registers per thread that sums, gates and addresses leave for the matrix."""
    sums = tiles * across * 4 * (2 if tiles * across <= 2 else 1) + across * 4
    return min(255, REGISTERS // (32 * down * along) // 8 * 8) - OTHER_REGISTERS - sums - 3 * items * gates


@cache
def plans(
    kind: str, rows: int, width: int, *, backward: bool, resident: tuple[tuple[int, int], ...] = RESIDENT
) -> list[GridPlan]:
    """All plans that fit, the fastest by estimate first; `resident`: blocks per cluster, and clusters at once."""
    found = [
        plan
        for groups in range(1, 9)
        for parts in (1, 2, 4)
        for members, clusters in resident
        if rows % (groups * parts) == 0 and clusters >= groups
        for plan in _plans(kind, rows, width, backward, groups, parts, members, clusters // groups)
    ]
    timed = FASTEST.get((kind, rows, width), ((), ()))[backward]
    return sorted(found, key=lambda plan: (plan.shape != timed, plan.cost()))


def _plans(
    kind: str, rows: int, width: int, backward: bool, groups: int, parts: int, members: int, clusters: int
) -> Iterator[GridPlan]:
    cell, gates = CELLS[kind]
    rows //= groups * parts
    aligned, across = round_up(width, ALIGNMENT), ceil(rows / 8)
    units = ceil(aligned / clusters / members)
    matrix_rows = ceil(members * units * (1 if backward else gates) / 16)
    part = round_up(ceil((round_up(gates * width, ALIGNMENT) if backward else aligned) / members), ALIGNMENT)
    for down in range(1, min(matrix_rows, 16) + 1):
        for along in range(1, 16 // down + 1):
            tiles, blocks = ceil(matrix_rows / down), ceil(part / 32 / along)
            items = parts * ceil(rows * units / (32 * down * along))
            left = _registers(down, along, tiles, across, gates, items) // (8 * tiles)
            stride = 32 * along * blocks
            stride += (32 - stride) % 64  # rows start sixteen banks apart
            plan = GridPlan(
                cell, int(backward), groups, parts, rows, width, aligned, gates, members, units, members * units,
                down, along, tiles, blocks, min(blocks, left), across, part, stride,
            )  # fmt: skip
            if left > 0 and plan.shared <= SHARED_MEMORY:
                yield plan


@cache
def resident(device: int) -> tuple[tuple[int, int], ...]:
    """How many clusters of each size the device can hold at once, with one block per multiprocessor."""
    source = 'extern "C" __global__ void nothing() {}'
    return tuple(
        (members, CompiledKernel(source, "nothing", [], threads=256, cluster=members, shared=MORE_THAN_HALF).clusters())
        for members, _ in RESIDENT
    )


@cache
def kernel(plan: GridPlan, device: int) -> CompiledKernel:
    source = (Path(__file__).parent / "persistent.cu").read_text(encoding="utf-8")
    defined = [f"-D{name}={value}" for name, value in asdict(plan).items()]
    made = CompiledKernel(
        source, "recurrence", ["--std=c++17", *defined], threads=plan.threads, cluster=plan.S, shared=plan.shared
    )
    if made.clusters() * plan.S < plan.blocks:
        raise RuntimeError(f"{plan.blocks} blocks in clusters of {plan.S} are not resident at once")
    return made


def best(kind: str, rows: int, width: int, device: torch.device, *, backward: bool) -> GridPlan:
    return plans(kind, rows, width, backward=backward, resident=resident(device.index))[0]


@cache
def fits(kind: str, rows: int, width: int, device: torch.device) -> bool:
    """True on a GPU with thread block clusters, and enough registers and shared memory for U."""
    if device.type != "cuda" or kind not in CELLS or torch.cuda.get_device_capability(device)[0] < 9:
        return False
    if Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"), "control").exists():
        return False  # under MPS two processes could deadlock, each waiting for multiprocessors of the other
    try:
        with torch.cuda.device(device):
            for backward in (False, True):
                kernel(best(kind, rows, width, device, backward=backward), device.index)
    except (OSError, RuntimeError, IndexError) as error:
        if not isinstance(error, IndexError):
            warnings.warn(
                f"The persistent recurrent kernel failed, so the layer runs step by step: {error}", stacklevel=2
            )
        return False
    return True


def recur(
    kind: str,
    x: Tensor,
    state: dict[str, Tensor],
    weights: dict[str, Tensor],
    by: tuple[GridPlan, GridPlan] | None = None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """x [R, T, D] from state on: hidden [R, T, H] in bf16 and the state at the end; weights by nn.RNNBase's names."""
    bias = weights["bias_ih_l0"] + weights["bias_hh_l0"]
    if kind == "GRU":  # the reset gate is between the candidate's two biases, so they stay apart
        start = 2 * len(bias) // 3
        bias = torch.cat([bias[:start], weights["bias_ih_l0"][start:], weights["bias_hh_l0"][start:]])
    hidden = state["hidden"].float().contiguous()
    cell = state["cell"].float().contiguous() if "cell" in state else hidden
    into, recurrent = weights["weight_ih_l0"], weights["weight_hh_l0"]
    there, back = by or (best(kind, len(x), hidden.size(1), x.device, backward=backward) for backward in (False, True))
    held = padded_weight(into), padded_weight(recurrent)
    hiddens, cell = Persistent.apply(kind, x.transpose(0, 1), into, recurrent, bias, hidden, cell, there, back, held)
    after = {"hidden": hiddens[-1].to(state["hidden"].dtype)}
    if "cell" in state:
        after["cell"] = cell
    return hiddens.transpose(0, 1), after


class Persistent(torch.autograd.Function):
    """x [T, R, D], W [GH, D], U [GH, H], b [GH], hidden and cell [R, H] → every hidden [T, R, H], the last cell.

    `held`: the padded W and U of a step that has them; their gradients are left there instead of returned."""

    @staticmethod
    def forward(
        ctx: Any, kind: str, x: Tensor, into: Tensor, recurrent: Tensor, bias: Tensor, hidden: Tensor, cell: Tensor,
        plan: GridPlan, back: GridPlan, held: tuple[PaddedWeight | None, PaddedWeight | None] = (None, None),
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        steps, rows, inputs = x.shape
        width = recurrent.size(1)
        x = _filled(x)
        into = _filled(into, whole=True) if held[0] is None else held[0].copy(ALIGNMENT)
        matrix = _filled(recurrent) if held[1] is None else held[1].copy()
        gates = x.flatten(0, 1) @ into.T  # [T R, GH]; the kernel overwrites them by the gates' values
        cells = hidden.new_empty((steps + 1, rows, width) if plan.G > 1 else 1)
        hiddens = _begun(steps, hidden, cell if kind == "LSTM" else None, cells, plan.HP)
        run, none = kernel(plan, x.device.index), gates
        run(plan.blocks, matrix, gates, bias, hiddens, cells, none, none, hidden, none, none, steps, 0, 0)
        ctx.save_for_backward(x, into, matrix, hiddens, cells, gates)
        ctx.kind, ctx.back, ctx.inputs, ctx.width, ctx.held = kind, back, inputs, width, held
        return hiddens[1:, :, :width], cells[-1] if kind == "LSTM" else cell

    @staticmethod
    def backward(ctx: Any, d_hiddens: Tensor, d_cell: Tensor) -> tuple[Tensor | None, ...]:
        x, into, matrix, hiddens, cells, gates = ctx.saved_tensors
        (steps, rows, _), width = x.shape, ctx.width
        plan = ctx.back
        across = round_up(plan.G * width, ALIGNMENT)
        d_gates = _marked(steps, rows, across, x.device)
        if d_hiddens.stride(-1) != 1:
            d_hiddens = d_hiddens.contiguous()
        own_cell = ctx.kind == "LSTM"
        d_cell = d_cell.clone(memory_format=torch.contiguous_format) if own_cell else cells.new_zeros(rows, width)
        d_bias = cells.new_empty(rows, (4 if ctx.kind == "GRU" else plan.G) * width)
        drives = torch.zeros_like(gates) if ctx.kind == "GRU" else None
        run = kernel(plan, x.device.index)
        run(
            plan.blocks, matrix, gates, d_bias, hiddens, cells, d_gates, d_hiddens, d_cell, d_bias,
            gates if drives is None else drives, steps, d_hiddens.stride(0), d_hiddens.stride(1),
        )  # fmt: skip
        flat = d_gates[:-1].flatten(0, 1)
        drives = flat if drives is None else drives
        d_into = _found(ctx.held[0], _product(drives.T, x.flatten(0, 1)), len(matrix), ctx.inputs)
        d_recurrent = _found(ctx.held[1], _product(flat.T, hiddens[:-1].flatten(0, 1)), len(matrix), width)
        d_x = (drives @ into).unflatten(0, (steps, rows))[..., : ctx.inputs]
        d_hidden: Tensor | None = None
        if ctx.needs_input_grad[5]:
            d_hidden = (d_gates[0, :, : len(matrix)] @ matrix)[:, :width].float()
            d_hidden = d_hidden + d_cell if ctx.kind == "GRU" else d_hidden
        of_cell = d_cell if own_cell else None
        return None, d_x, d_into, d_recurrent, d_bias.sum(dim=0), d_hidden, of_cell, None, None, None


def _found(held: PaddedWeight | None, gradient: Tensor, rows: int, columns: int) -> Tensor | None:
    """The gradient for autograd, without its padding; None if it was left with the weight."""
    if held is None:
        return gradient[:rows, :columns]
    held.put(gradient)
    return None


def _begun(steps: int, hidden: Tensor, cell: Tensor | None, cells: Tensor, across: int) -> Tensor:
    """Hiddens [T + 1, R, across] in bf16: the given one, then UNWRITTEN; writes the given cell to cells [0]."""
    rows, width = hidden.shape
    if (kernels := _triton(hidden)) is not None:
        hiddens = torch.empty(steps + 1, rows, across, dtype=torch.int16, device=hidden.device)
        kernels.begun(hidden, cell, hiddens, cells)
        return hiddens.view(torch.bfloat16)
    hiddens = torch.full((steps + 1, rows, across), UNWRITTEN, dtype=torch.int16, device=hidden.device)
    hiddens = hiddens.view(torch.bfloat16)
    hiddens[0, :, :width].copy_(hidden)
    hiddens[0, :, width:].zero_()
    if cell is not None:
        cells[0].copy_(cell)
    return hiddens


def _marked(steps: int, rows: int, across: int, device: torch.device) -> Tensor:
    """The gates' gradients [T + 1, R, across] in bf16: UNWRITTEN, and zero after the last step."""
    d_gates = torch.empty(steps + 1, rows, across, dtype=torch.int16, device=device)
    if (kernels := _triton(d_gates)) is not None:
        kernels.marked(d_gates)
    else:
        d_gates[:-1].fill_(UNWRITTEN)
        d_gates[-1].zero_()
    return d_gates.view(torch.bfloat16)


def _filled(tensor: Tensor, *, whole: bool = False) -> Tensor:
    """In bf16, contiguous, rows padded with zeros to a multiple of 16 bytes; if `whole`, also the number of rows."""
    more, more_rows = -tensor.size(-1) % ALIGNMENT, -len(tensor) % ALIGNMENT if whole else 0
    if not more and not more_rows:
        return tensor.to(torch.bfloat16, memory_format=torch.contiguous_format)
    if not more_rows and tensor.stride(-1) == 1 and (kernels := _triton(tensor)) is not None:
        padded: Tensor = kernels.padded(tensor, torch.bfloat16, ALIGNMENT)
        return padded
    shape = (len(tensor) + more_rows, *tensor.shape[1:-1], tensor.size(-1) + more)
    filled = tensor.new_empty(shape, dtype=torch.bfloat16)
    filled[: len(tensor), ..., : tensor.size(-1)].copy_(tensor)
    filled[..., tensor.size(-1) :].zero_()
    filled[len(tensor) :].zero_()
    return filled


def _product(a: Tensor, b: Tensor) -> Tensor:
    return torch.mm(a, b, out_dtype=torch.float32)


def _triton(tensor: Tensor) -> Any:
    """The kernels that write such tensors in one pass, if Triton is installed."""
    if not tensor.is_cuda or not has_triton():
        return None
    from regard.fast.kernels import padded

    return padded
