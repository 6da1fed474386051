"""The LSTM with two kernels per step, a product and the gates, for a CUDA graph to replay.

    drive = W x + b  for all t at once,    then for each t:    h_t, c_t = gates(drive_t + U h_{t-1}, c_{t-1})

cuDNN's recurrence, outside its persistent case (fp16, widths that are multiples of 128), takes some sixty microseconds
per step, forward and backward, on an H200 at the papers' widths. Separate kernels would be bound by launch time; a CUDA
graph removes it, and they are faster. Widths are padded with zeros to a multiple of eight, because tensor cores read
sixteen bytes at a time; padded units stay at zero. Precision is that of cuDNN's fp32: TF32 products if
`torch.backends.cudnn.allow_tf32`, all else in fp32. For bf16 see `fast/kernels/persistent.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.layers.state import State

ALIGNMENT = 8  # components


def lstm_chain(x: Tensor, state: State, weights: dict[str, Tensor]) -> tuple[Tensor, State]:
    """x [R, T, D] from state on: hidden [R, T, H] and the state at the end; weights are nn.LSTM's, by its names."""
    width = state["hidden"].size(1)
    more, more_inputs = -width % ALIGNMENT, -x.size(2) % ALIGNMENT
    # Both biases get the same gradient; as two views of one tensor, accumulating into one would change the other.
    bias = weights["bias_ih_l0"] + weights["bias_hh_l0"]
    # [4H, D], [4H, H], [4H, 1] with H and D aligned.
    into, recurrent, bias = (
        F.pad(weight.unflatten(0, (4, width)), (*columns, 0, more)).flatten(0, 1)
        for weight, columns in (
            (weights["weight_ih_l0"], (0, more_inputs)),
            (weights["weight_hh_l0"], (0, more)),
            (bias[:, None], (0, 0)),
        )
    )
    hidden, cell = (F.pad(state[name].to(x.dtype), (0, more)) for name in ("hidden", "cell"))
    inputs = F.pad(x, (0, more_inputs)).transpose(0, 1).contiguous()  # [T, R, D]
    hiddens, cell = Chain.apply(inputs, into, bias[:, 0], hidden, cell, recurrent)
    hiddens = hiddens[..., :width]
    return hiddens.transpose(0, 1), {"hidden": hiddens[-1], "cell": cell[:, :width]}


class Chain(torch.autograd.Function):
    """x [T, R, D], W [4H, D], b [4H], hidden and cell [R, H], U [4H, H] → every hidden [T, R, H] and the last cell."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, into: Tensor, bias: Tensor, hidden: Tensor, cell: Tensor, recurrent: Tensor
    ) -> tuple[Tensor, Tensor]:
        hiddens, cells, gates = [hidden], [cell], []
        with products_as_in_cudnn():
            for drive in F.linear(x, into, bias).unbind():  # [R, 4H] each
                hidden, cell, opened = _gates(drive, hidden @ recurrent.T, cell)
                hiddens.append(hidden)
                cells.append(cell)
                gates.append(opened)
        every = torch.stack(hiddens)
        ctx.save_for_backward(x, into, recurrent, every, *cells, *gates)
        return every[1:].clone(), cell

    @staticmethod
    def backward(ctx: Any, d_hiddens: Tensor, d_cell: Tensor) -> tuple[Tensor, ...]:
        x, into, recurrent, hiddens, *kept = ctx.saved_tensors
        steps = len(x)
        cells, gates = kept[: steps + 1], kept[steps + 1 :]
        d_hiddens = d_hiddens.clone()  # each step's recurrent gradient is added in place
        d_drives: list[Tensor] = []
        with products_as_in_cudnn():
            for t in range(steps - 1, -1, -1):
                d_drive, d_cell = _gates_backward(d_hiddens[t], d_cell, cells[t], cells[t + 1], gates[t])
                d_drives.append(d_drive)
                if t:
                    d_hiddens[t - 1].addmm_(d_drive, recurrent)
            d_hidden = d_drives[-1] @ recurrent
            every = torch.stack(d_drives[::-1])  # [T, R, 4H]
            rows = every.flatten(0, 1)
            d_into, d_recurrent = rows.T @ x.flatten(0, 1), rows.T @ hiddens[:-1].flatten(0, 1)
            return every @ into, d_into, rows.sum(dim=0), d_hidden, d_cell, d_recurrent


def _gates(drive: Tensor, past: Tensor, cell: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """One step: hidden, cell and the four opened gates. On a GPU one kernel, elsewhere the equation."""
    if drive.is_cuda:
        return torch.ops.aten._thnn_fused_lstm_cell(drive, past, cell)
    store, forget, update, output = (drive + past).chunk(4, dim=-1)
    store, forget, update, output = store.sigmoid(), forget.sigmoid(), update.tanh(), output.sigmoid()
    cell = forget * cell + store * update
    return output * cell.tanh(), cell, torch.cat([store, forget, update, output], dim=-1)


def _gates_backward(d_hidden: Tensor, d_cell: Tensor, before: Tensor, cell: Tensor, gates: Tensor) -> Any:
    """The gradients of a step's drive and of the cell before it."""
    if gates.is_cuda:
        d_drive, d_before, _ = torch.ops.aten._thnn_fused_lstm_cell_backward_impl(
            d_hidden, d_cell, before, cell, gates, False
        )
        return d_drive, d_before
    store, forget, update, output = gates.chunk(4, dim=-1)
    squashed = cell.tanh()
    d_cell = d_cell + d_hidden * output * (1 - squashed**2)
    d_gates = [
        d_cell * update * store * (1 - store),
        d_cell * before * forget * (1 - forget),
        d_cell * store * (1 - update**2),
        d_hidden * squashed * output * (1 - output),
    ]
    return torch.cat(d_gates, dim=-1), d_cell * forget


@contextmanager
def products_as_in_cudnn() -> Iterator[None]:
    """PyTorch has two switches for TF32 products: one for cuDNN, one for the rest. Here cuDNN's applies."""
    try:
        before, wanted = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    except RuntimeError:  # a program has set PyTorch's newer switches (fp32_precision), which then apply
        yield
        return
    torch.backends.cuda.matmul.allow_tf32 = wanted
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
