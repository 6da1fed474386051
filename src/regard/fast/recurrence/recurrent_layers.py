"""Recurrent layers by fused kernels, instead of one step at a time in Python.

persistent   one kernel for all steps, in bf16; it keeps U in registers                    kernels/persistent.py
chain        two kernels per step, for a CUDA graph to replay                              lstm_chain.py
fused        PyTorch's own, on every device                                                torch.lstm, torch.gru, …

A ragged batch can be packed, so that padding costs nothing; or padding is read too, by gates that are closed. Packing
needs the lengths on the host, and a GPU would wait for it. On a CPU oneDNN's LSTM learns in two thirds of the time of
PyTorch's loop over a packed batch, so only what is mostly padding is packed for it.

All run with autocast off: it would run cuDNN's recurrence in fp16, but a recurrence accumulates, so it needs fp32.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from regard.fast.kernels import persistent
from regard.fast.recurrence.lstm_chain import lstm_chain
from regard.fast.table import Row, Use, Why, needs_cuda, needs_hopper
from regard.layers.encoder import RecurrentEncoder
from regard.layers.recurrent import ACTIVATIONS, Elman, Recurrent
from regard.layers.state import Span, State, last

CALLS: dict[str, Any] = {"LSTM": torch.lstm, "GRU": torch.gru, "RNN_TANH": torch.rnn_tanh, "RNN_RELU": torch.rnn_relu}
Way = Callable[[Recurrent, Sequence[Tensor], Tensor, State, Span], tuple[Tensor, State]]
# With dropped weights (DropConnect) cuDNN warns that the weights are not contiguous, at every call.
warnings.filterwarnings("ignore", "RNN module weights are not part of single contiguous")


def run(way: Way, layer: Recurrent, x: Tensor, state: State, span: Span) -> tuple[Tensor, State]:
    """`forward` of one of the three layers, by one of the three implementations."""
    weights = layer.weights()
    dtype = weights[1].dtype  # a state may come from a call in another precision
    state = {name: part.to(dtype) for name, part in state.items()}
    with torch.autocast(x.device.type, enabled=False):
        span = span._replace(lengths=known_padding(x, span.lengths))
        if span.lengths is not None and x.size(1) > 1 and (x.is_cuda or closes(layer.fused.mode, x, span.lengths)):
            way = partial(padded, way)
        if not (isinstance(layer, Elman) and layer.activation == "sigmoid"):
            return way(layer, weights, x, state, span)
        hidden, state = way(layer, _as_tanh(*weights), x, {"hidden": 2 * state["hidden"] - 1}, span)
        return (1 + hidden) / 2, {"hidden": (1 + state["hidden"]) / 2}


def _as_tanh(w: Tensor, u: Tensor, b: Tensor, b_u: Tensor) -> Sequence[Tensor]:
    """σ(a) = (1 + tanh(a/2)) / 2: a sigmoid network is a tanh network of g = 2h − 1, and there are kernels for tanh.

    g_t = tanh(½ (W x_t + U h_{t-1} + b)) = tanh(½ W x_t + ¼ U g_{t-1} + ½ b + ¼ U 1)
    """
    return [w / 2, u / 4, b / 2, b_u / 2 + u.sum(dim=1) / 4]


# -- ragged batches without packing ----------------------------------------------------------------------------------

CLOSED = {"LSTM": (-1, 1, 0, 0), "GRU": (0, 1, 0)}  # which gates a padded word closes (−1) and opens (1)
FAR = 1e4  # added to a gate, whose sigmoid then is exactly 0 or 1, and its slope 0
MIN_REAL_SHARE = 0.6  # the share of real words in a batch
MARKS = 8  # columns of the padding mark; one is used: tensor cores read 16 bytes at a time


def padded(
    way: Way, layer: Recurrent, weights: Sequence[Tensor], x: Tensor, state: State, span: Span
) -> tuple[Tensor, State]:
    """A ragged batch, by an implementation that knows no lengths.

    A padded word leaves an LSTM's cell and a GRU's state as they were. The hidden state returned is
    that after a row's last word.
    """
    assert span.lengths is not None
    marked = mark_padding(x, span.lengths)
    if layer.fused.mode in CLOSED:
        x, weights = torch.cat([x, marked], dim=-1), [closing(layer.fused.mode, weights[0]), *weights[1:]]
    hidden, new = way(layer, weights, x, state, Span(span.start))
    return hidden, {**new, "hidden": last(hidden, state["hidden"], span)}


def known_padding(x: Tensor, lengths: Tensor | None) -> Tensor | None:
    """The lengths, or None if nothing is padded. Only tested on a CPU: on a GPU every batch is computed alike, so that
    dropout draws the same numbers in a CUDA graph."""
    whole = lengths is not None and not x.is_cuda and int(lengths.sum()) == x.size(0) * x.size(1)
    return None if whole else lengths


def closes(mode: str, x: Tensor, lengths: Tensor) -> bool:
    """True if training on a CPU is faster when padding is read, too."""
    if not (mode == "LSTM" and torch.is_grad_enabled() and torch.backends.mkldnn.is_available()):
        return False
    return int(lengths.sum()) >= MIN_REAL_SHARE * x.size(0) * x.size(1)


def mark_padding(x: Tensor, lengths: Tensor) -> Tensor:
    """More columns for x [R, T, D]: the first is 1 where the word is padding."""
    marks = x.new_zeros(*x.shape[:2], MARKS)
    marks[..., 0] = torch.arange(x.size(1), device=x.device) >= lengths[:, None]
    return marks


def closing(mode: str, into: Tensor) -> Tensor:
    """W with columns for `mark_padding`, which close and open gates."""
    column = into.new_zeros(len(into), MARKS)
    for gate, way in zip(column.chunk(len(CLOSED[mode])), CLOSED[mode], strict=True):
        gate[:, 0].fill_(FAR * way)
    return torch.cat([into, column], dim=1)


# -- PyTorch's fused kernels -----------------------------------------------------------------------------------------


MAX_STEPS = 1 << 15  # steps of one call: cuDNN refuses 65 536


def fused(layer: Recurrent, weights: Sequence[Tensor], x: Tensor, state: State, span: Span) -> tuple[Tensor, State]:
    x = x.to(weights[1].dtype)
    if span.lengths is None:
        return kernel(layer, weights, x, state)
    if x.size(1) == 1:  # one token: no packing, so the host need not know the lengths
        hidden, new = kernel(layer, weights, x, state)
    else:  # packing refuses length 0: such rows run one step, which is discarded
        lengths = span.on_host().clamp(min=1)
        packed, new = kernel(layer, weights, _packed(x, lengths), state)
        hidden = _padded(packed, x.size(1))
    moved = (span.lengths > 0)[:, None]
    return hidden, {name: torch.where(moved, new[name], state[name]) for name in state}


def kernel(layer: Recurrent, weights: Sequence[Tensor], x: Any, state: State) -> tuple[Any, State]:
    """x and the result are a tensor or a packed sequence.

    The kernel gets the weights of this call. `nn.LSTM` itself, given weights of which some were dropped, would move its
    parameters to a new address on the GPU, where neither the optimizer nor a CUDA graph finds them.
    """
    if isinstance(x, Tensor) and x.size(1) > MAX_STEPS:
        first, state = kernel(layer, weights, x[:, :MAX_STEPS].contiguous(), state)
        rest, state = kernel(layer, weights, x[:, MAX_STEPS:].contiguous(), state)
        return torch.cat([first, rest], dim=1), state
    initial = [state[name][None] for name in layer.memory]  # [layers = 1, R, H]
    options = (True, 1, 0.0, layer.training, False)  # bias, layers, dropout between them, training, both directions
    call = CALLS[layer.fused.mode]
    if isinstance(x, PackedSequence):
        initial = [part.index_select(1, x.sorted_indices) for part in initial]
        data, *final = call(x.data, x.batch_sizes, initial if len(initial) > 1 else initial[0], weights, *options)
        hidden, final = x._replace(data=data), [part.index_select(1, x.unsorted_indices) for part in final]
    else:
        hidden, *final = call(x, initial if len(initial) > 1 else initial[0], weights, *options, True)
    return hidden, {name: part[0] for name, part in zip(layer.memory, final, strict=True)}


def encode(encoder: RecurrentEncoder, x: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, State]:
    """`RecurrentEncoder.forward` with both directions in one call, and where nothing is padded all layers too."""
    with torch.autocast(x.device.type, enabled=False):
        x = x.to(encoder.fused.all_weights[0][1].dtype)
        mode, lengths = encoder.fused.mode, known_padding(x, lengths)
        if lengths is not None and (mode in CLOSED if x.is_cuda else closes(mode, x, lengths)):
            return encode_padded(encoder, x, lengths.to(x.device, non_blocking=True))
        if lengths is None:
            memory, final = encoder.fused(x)
        else:
            packed, final = encoder.fused(_packed(x, lengths.cpu().clamp(min=1)))
            memory = _padded(packed, x.size(1))
    ended = final if isinstance(final, tuple) else (final,)  # [layers · directions, N, H] each
    if lengths is not None:  # packing refuses length 0: such a source read one step, which is forgotten
        moved = (lengths > 0).to(x.device)[:, None]
        ended = tuple(part.where(moved, 0.0) for part in ended)
    ways = len(encoder.directions)
    by_layer = [[torch.cat(list(part), dim=-1) for part in whole.split(ways)] for whole in ended]
    return memory, {str(n): dict(zip(encoder.memory, parts)) for n, parts in enumerate(zip(*by_layer, strict=True))}


def encode_padded(encoder: RecurrentEncoder, x: Tensor, lengths: Tensor) -> tuple[Tensor, State]:
    """Layer by layer, with closed gates where a source is padded: the way back begins there, and stays at zero."""
    fused, ways = encoder.fused, len(encoder.directions)
    span = Span(torch.zeros_like(lengths), lengths)
    zero, marks = x.new_zeros(ways, x.size(0), fused.hidden_size), mark_padding(x, lengths)
    final: State = {}
    for number in range(fused.num_layers):
        x = F.dropout(x, fused.dropout, fused.training) if number else x
        weights = fused.all_weights[number * ways : (number + 1) * ways]
        given = [each for into, *others in weights for each in (closing(fused.mode, into), *others)]
        options = (True, 1, 0.0, fused.training, ways == 2, True)
        first = zero if len(encoder.memory) == 1 else (zero, zero)
        x, *ended = CALLS[fused.mode](torch.cat([x, marks], dim=-1), first, given, *options)
        there, *back = x.split(fused.hidden_size, dim=-1)
        hidden = torch.cat([last(there, zero[0], span), *(way[:, 0] for way in back)], dim=-1)
        cells = {name: torch.cat(list(part), dim=-1) for name, part in zip(encoder.memory, ended, strict=True)}
        final[str(number)] = {**cells, "hidden": hidden}
    return x, final


def _packed(x: Tensor, lengths: Tensor) -> PackedSequence:
    return pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)


def _padded(packed: PackedSequence, columns: int) -> Tensor:
    return pad_packed_sequence(packed, batch_first=True, total_length=columns)[0]


# -- kernels of our own ----------------------------------------------------------------------------------------------

NAMES = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")


def run_persistent(
    layer: Recurrent, weights: Sequence[Tensor], x: Tensor, state: State, span: Span
) -> tuple[Tensor, State]:
    return persistent.recur(layer.fused.mode, x, state, dict(zip(NAMES, weights)))


def chained(layer: Recurrent, weights: Sequence[Tensor], x: Tensor, state: State, span: Span) -> tuple[Tensor, State]:
    return lstm_chain(x.to(weights[1].dtype), state, dict(zip(NAMES, weights)))


def fits_persistent(layer: Recurrent, x: Tensor, state: State, span: Span) -> bool:
    """True for bf16 training on a GPU whose registers can hold the layer's recurrent matrix."""
    if not (layer.training and x.is_cuda and span.lengths is None and x.size(1) > 1):
        return False
    rounded = torch.is_autocast_enabled("cuda") and torch.get_autocast_dtype("cuda") == torch.bfloat16
    exact = layer.weight("weight_hh").dtype == torch.float32
    return rounded and exact and persistent.fits(layer.fused.mode, len(x), layer.width, x.device)


def fits_chain(layer: Recurrent, x: Tensor, state: State, span: Span) -> bool:
    return layer.training and x.size(1) > 1


# -- the table -------------------------------------------------------------------------------------------------------


def known(layer: Recurrent, use: Use) -> Why:
    activation = getattr(layer, "activation", "tanh")
    return None if activation in ACTIVATIONS else f"no kernel computes the activation {activation}"


def _known_in_bf16(layer: Recurrent, use: Use) -> Why:
    if use.pairs:
        return "it is compiled for each number of rows, and batches of pairs have many"
    return known(layer, use) or (None if use.training and use.bf16 else "it supports only training in bf16")


def _replayed(layer: Recurrent, use: Use) -> Why:
    return None if use.training and use.captured else "it is slower than cuDNN unless a CUDA graph replays it"


LAYERS = ("Elman", "LSTM", "GRU")
ROWS = (
    *(
        Row(
            f"persistent {name}",
            f"regard.layers.recurrent:{name}.forward",
            partial(run, run_persistent),
            fits=fits_persistent,
            allows=_known_in_bf16,
            needs=needs_hopper,
        )
        for name in LAYERS
    ),
    Row(
        "LSTM chain",
        "regard.layers.recurrent:LSTM.forward",
        partial(run, chained),
        fits=fits_chain,
        allows=_replayed,
        needs=needs_cuda,
    ),
    *(
        Row(f"fused {name}", f"regard.layers.recurrent:{name}.forward", partial(run, fused), allows=known)
        for name in LAYERS
    ),
    Row("fused recurrent encoder", "regard.layers.encoder:RecurrentEncoder.forward", encode),
)
