"""Elman's network and the GRU, learning on a CPU, with their gradients written out.

Autograd follows a recurrence step by step, with a product for the gradient of each matrix in every step. Here a step
computes only what must wait for the step before it. All else is one operation over all steps:

    before the loop    W x_t + b                                  on the way back: the slopes S_t of the gates
    the loop           h_t = cell(W x_t + b, U h_{t-1} + b_u)     δ_t = S_t * ∂L/∂h_t,   ∂L/∂h_{t-1} = Uᵀ δ_t + …
    after the loop                                                ∂L/∂U = Σ_t δ_t h_{t-1}ᵀ,   ∂L/∂W = Σ_t δ_t x_tᵀ

The rows of a ragged batch are sorted, the longest first, so that a step takes only the rows that still have a word.
Inside, time comes first, so that a step is contiguous. For the LSTM PyTorch has a kernel that is faster than this. As
with cuDNN, gradients of gradients need the written layer (`uninstall`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.fast.recurrence.recurrent_layers import known, known_padding, run
from regard.fast.table import Row, Use, Why, needs_cpu
from regard.layers.encoder import RecurrentEncoder, backwards
from regard.layers.recurrent import Recurrent
from regard.layers.state import Span, State

by_sigmoid = torch.ops.aten.sigmoid_backward  # (d, y) → d · y (1 − y)
by_tanh = torch.ops.aten.tanh_backward  # (d, y) → d · (1 − y²)


def learn(layer: Recurrent, weights: Sequence[Tensor], x: Tensor, state: State, span: Span) -> tuple[Tensor, State]:
    """A way for `recurrence.run`."""
    hidden = unroll(layer.fused.mode, weights, x.to(weights[1].dtype), state["hidden"], span.lengths)
    return hidden, {"hidden": hidden[:, -1].clone()}  # a view would keep all steps in memory


def unroll(mode: str, weights: Sequence[Tensor], x: Tensor, first: Tensor, lengths: Tensor | None) -> Tensor:
    """A layer over x [R, T, D] from the state `first` on: h_t [R, T, H]. Padded columns repeat a row's last state."""
    columns = x.transpose(0, 1)
    if lengths is None:
        return RecurrentLoop.apply(mode, [x.size(0)] * x.size(1), columns, first, *weights).transpose(0, 1)
    order = lengths.argsort(descending=True)
    counts = (lengths[:, None] > torch.arange(x.size(1), device=lengths.device)).sum(dim=0).tolist()
    hidden = RecurrentLoop.apply(mode, counts, columns.index_select(1, order), first.index_select(0, order), *weights)
    return hidden.transpose(0, 1).index_select(0, order.argsort())


def encode(encoder: RecurrentEncoder, x: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, State]:
    """`RecurrentEncoder.forward`."""
    fused, weights = encoder.fused, iter(encoder.fused.all_weights)  # by layer, then by direction
    last: State = {}
    with torch.autocast("cpu", enabled=False):
        x = x.to(fused.all_weights[0][1].dtype)
        zero, lengths = x.new_zeros(x.size(0), fused.hidden_size), known_padding(x, lengths)
        for layer in map(str, range(fused.num_layers)):
            x = F.dropout(x, fused.dropout, fused.training) if last else x
            found = [unroll(fused.mode, next(weights), x, zero, lengths)]
            ended = [found[0][:, -1]]
            if fused.bidirectional:
                back = unroll(fused.mode, next(weights), backwards(x, lengths), zero, lengths)
                found.append(backwards(back, lengths))
                ended.append(back[:, -1])
            x, last[layer] = torch.cat(found, dim=-1), {"hidden": torch.cat(ended, dim=-1)}
    return x, last


class Steps(NamedTuple):
    """The intermediate values of a forward pass, for its gradient."""

    counts: list[int]  # how many rows take each step: never more than the step before
    hidden: Tensor  # [T + 1, R, H], from the state before the first step on
    gates: Tensor  # [T, R, G], before the loop W x_t + b
    asked: Tensor  # [T, R, H], a GRU's U_n h_{t-1} + b_u; empty for Elman

    def rows(self, sequence: Tensor) -> list[Tensor]:
        """For every step of [T, R, …], the rows that take it."""
        return [step[:n] for n, step in zip(self.counts, sequence.unbind(0), strict=True)]


class RecurrentLoop(torch.autograd.Function):
    """x [T, R, D], how many rows take each step, the state before the first, W, U and their biases → h_t [T, R, H]."""

    @staticmethod
    def forward(ctx: Any, mode: str, counts: list[int], x: Tensor, first: Tensor, *weights: Tensor) -> Tensor:
        w, u, b, b_u = weights
        x, gated = x.contiguous(), mode == "GRU"
        drives = F.linear(x, w, b if gated else b + b_u)
        hidden = torch.cat([first[None], first.new_empty(len(x), *first.shape)])
        at = Steps(counts, hidden, drives, torch.empty_like(hidden[1:]) if gated else first.new_empty(0))
        VALUES[mode](at, u.T, b_u)
        for t, n in enumerate(counts):
            if n < len(first):
                hidden[t + 1, n:] = hidden[t, n:]
        ctx.mode, ctx.counts = mode, counts
        ctx.save_for_backward(x, w, u, *at[1:])
        return hidden[1:]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_shown: Tensor) -> Any:
        x, w, u, *saved = ctx.saved_tensors
        at, d_hidden = Steps(ctx.counts, *saved), d_shown[-1].clone()
        with torch.autocast("cpu", enabled=False):
            d_drives, d_products = (part.flatten(0, 1) for part in GRADIENTS[ctx.mode](at, d_shown, d_hidden, u))
            d_x = (d_drives @ w).view(x.shape) if ctx.needs_input_grad[2] else None
            d_w, d_u = d_drives.T @ x.flatten(0, 1), d_products.T @ at.hidden[:-1].flatten(0, 1)
            d_b, d_b_u = d_drives.sum(dim=0), d_products.sum(dim=0)
        return None, None, d_x, d_hidden, d_w, d_u, d_b, d_b_u


# -- cells: all steps in place; and back, from ∂L/∂h_T: ∂L/∂(W x + b) and ∂L/∂(U h + b_u), [T, R, G] each --------------


def elman(at: Steps, u_t: Tensor, b_u: Tensor, activate: Callable[[Tensor], Tensor]) -> None:
    for drive, before, after in zip(*map(at.rows, (at.gates, at.hidden[:-1], at.hidden[1:])), strict=True):
        activate(torch.addmm(drive, before, u_t, out=after))


def gru(at: Steps, u_t: Tensor, b_u: Tensor) -> None:
    width = at.hidden.size(-1)
    sequences = (at.gates, at.hidden[:-1], at.hidden[1:], at.asked)
    for gates, before, after, asked in zip(*map(at.rows, sequences), strict=True):
        product = torch.addmm(b_u, before, u_t)
        reset, update, candidate = gates.split(width, dim=1)
        gates[:, : 2 * width].add_(product[:, : 2 * width]).sigmoid_()
        asked.copy_(product[:, 2 * width :])
        candidate.addcmul_(reset, asked).tanh_()
        torch.lerp(candidate, before, update, out=after)


def elman_back(
    at: Steps, d_shown: Tensor, d_hidden: Tensor, u: Tensor, slope: Callable[[Tensor], Tensor]
) -> tuple[Tensor, Tensor]:
    deltas = only_words(at, slope(at.hidden[1:]))
    for d, delta in way_back(at, d_shown, d_hidden, deltas):
        delta.mul_(d)
        torch.mm(delta, u, out=d)
    return deltas, deltas


def gru_back(at: Steps, d_shown: Tensor, d_hidden: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
    reset, update, candidate = at.gates.chunk(3, dim=-1)
    into = only_words(at, by_tanh(1 - update, candidate))  # of W_n x_t + b
    slopes = (by_sigmoid(into * at.asked, reset), by_sigmoid(at.hidden[:-1] - candidate, update), into * reset)
    deltas = only_words(at, torch.stack(slopes, dim=2))  # [T, R, 3, H], of U h_{t-1} + b_u
    for d, delta, d_into, kept in way_back(at, d_shown, d_hidden, deltas, into, update):
        delta.mul_(d[:, None])
        d_into.mul_(d)
        d.mul_(kept).addmm_(delta.flatten(1), u)
    return torch.cat([deltas[:, :, :2].flatten(2), into], dim=-1), deltas.flatten(2)


def way_back(at: Steps, d_shown: Tensor, d_hidden: Tensor, *sequences: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """The last step first: ∂L/∂h_t, which the caller turns into ∂L/∂h_{t-1}, and the sequences, each for the rows that
    take the step. Then ∂L/∂h_{t-1} also gets what is shown there."""
    steps = list(zip(*map(at.rows, sequences), strict=True))
    for t in reversed(range(len(steps))):
        yield d_hidden[: at.counts[t]], *steps[t]
        if t:
            d_hidden += d_shown[t - 1]


def only_words(at: Steps, slopes: Tensor) -> Tensor:
    """The slopes [T, R, …], 0 where a row has no word."""
    for t, n in enumerate(at.counts):
        if n < slopes.size(1):
            slopes[t, n:] = 0.0
    return slopes


def tanh_slope(hidden: Tensor) -> Tensor:
    return 1 - hidden * hidden


def relu_slope(hidden: Tensor) -> Tensor:
    return (hidden > 0).to(hidden.dtype)


VALUES: dict[str, Any] = {
    "RNN_TANH": partial(elman, activate=Tensor.tanh_),
    "RNN_RELU": partial(elman, activate=Tensor.relu_),
    "GRU": gru,
}
GRADIENTS: dict[str, Any] = {
    "RNN_TANH": partial(elman_back, slope=tanh_slope),
    "RNN_RELU": partial(elman_back, slope=relu_slope),
    "GRU": gru_back,
}


# -- the table -------------------------------------------------------------------------------------------------------


def learns(thing: Recurrent | RecurrentEncoder, x: Tensor, *others: Any, **options: Any) -> bool:
    return x.device.type == "cpu" and torch.is_grad_enabled() and x.size(1) > 1


def _written_out(encoder: RecurrentEncoder, use: Use) -> Why:
    return None if encoder.fused.mode in GRADIENTS else "PyTorch has a faster kernel for the LSTM"


ROWS = (
    *(
        Row(
            f"{name} with its gradient written out",
            f"regard.layers.recurrent:{name}.forward",
            partial(run, learn),
            fits=learns,
            allows=known,
            needs=needs_cpu,
        )
        for name in ("Elman", "GRU")
    ),
    Row(
        "recurrent encoder with its gradient written out",
        "regard.layers.encoder:RecurrentEncoder.forward",
        encode,
        fits=learns,
        allows=_written_out,
        needs=needs_cpu,
    ),
)
