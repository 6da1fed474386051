"""Recurrent layers: the state is rewritten at every step.

Elman     h_t = f(W_x x_t + W_h h_{t-1} + b)                 f = tanh, sigmoid or ReLU       Elman 1990

LSTM      f_t = σ(W_f [x_t, h_{t-1}] + b_f)     forget       c_t = f_t * c_{t-1} + i_t * g_t
          i_t = σ(W_i [x_t, h_{t-1}] + b_i)     store        h_t = o_t * tanh(c_t)
          g_t = tanh(W_g [x_t, h_{t-1}] + b_g)  update
          o_t = σ(W_o [x_t, h_{t-1}] + b_o)     output       Hochreiter & Schmidhuber 1997; the forget gate:
                                                             Gers et al. 2000; its bias of 1: Jozefowicz et al. 2015

GRU       r_t = σ(W_r x_t + U_r h_{t-1} + b_r)  reset        n_t = tanh(W_n x_t + b_n + r_t * (U_n h_{t-1} + b_u))
          z_t = σ(W_z x_t + U_z h_{t-1} + b_z)  update       h_t = z_t * h_{t-1} + (1 − z_t) * n_t      Cho et al. 2014

The GRU's reset gate acts after the matrix U_n, as in the fused kernels; Cho et al. write U_n (r_t * h_{t-1}).
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from regard.fast.kernels import persistent
from regard.fast.lstm_chain import lstm_chain
from regard.layers.cell import Cell, walk
from regard.layers.dropout import drop_weight
from regard.layers.state import Span, State

RECURRENT = "weight_hh_l0"
ACTIVATIONS = ("tanh", "sigmoid", "relu")
KERNELS: dict[str, Any] = {"LSTM": torch.lstm, "GRU": torch.gru, "RNN_TANH": torch.rnn_tanh, "RNN_RELU": torch.rnn_relu}
warnings.filterwarnings("ignore", "RNN module weights are not part of single contiguous")  # dropped ones cannot be
INITIALISATIONS = ("default", "orthogonal", "identity")


def elman(drive: Tensor, recurrent: Tensor, state: State, activation: str = "tanh") -> State:
    return {"hidden": getattr(torch, activation)(drive + recurrent)}


def lstm(drive: Tensor, recurrent: Tensor, state: State) -> State:
    store, forget, update, output = (drive + recurrent).chunk(4, dim=-1)
    store, forget, update, output = store.sigmoid(), forget.sigmoid(), update.tanh(), output.sigmoid()
    cell = forget * state["cell"] + store * update
    hidden = output * cell.tanh()
    return {"forget": forget, "store": store, "update": update, "output": output, "cell": cell, "hidden": hidden}


def gru(drive: Tensor, recurrent: Tensor, state: State) -> State:
    reset_drive, update_drive, candidate_drive = drive.chunk(3, dim=-1)
    reset_past, update_past, candidate_past = recurrent.chunk(3, dim=-1)
    reset = (reset_drive + reset_past).sigmoid()
    update = (update_drive + update_past).sigmoid()
    candidate = (candidate_drive + reset * candidate_past).tanh()
    hidden = update * state["hidden"] + (1 - update) * candidate
    return {"reset": reset, "update": update, "candidate": candidate, "hidden": hidden}


@torch.no_grad()
def set_forget_bias(fused: nn.RNNBase, value: float) -> None:
    """The forget gates' biases of an nn.LSTM; there are two, which are added, so one carries the value."""
    forget = slice(fused.hidden_size, 2 * fused.hidden_size)
    for name, bias in fused.named_parameters():
        if name.startswith("bias"):
            bias[forget] = value if name.startswith("bias_ih") else 0.0


class Fused(Cell):
    """One layer whose weights are those of a fused kernel; a subclass says what its rows of weights mean."""

    staying = True  # train in bf16 by one kernel for all steps, where the GPU can: see `persistent`

    def __init__(self, fused: nn.RNNBase, *, dropout_recurrent: float = 0.0) -> None:
        super().__init__(fused.input_size, fused.hidden_size)
        self.fused = fused
        self.dropout_recurrent = dropout_recurrent

    def gates(self, drive: Tensor, recurrent: Tensor, state: State) -> State:
        """The equation of one step, from drive = W x_t + b and recurrent = U h_{t-1} + b, all gates side by side."""
        raise NotImplementedError

    def weight(self, name: str) -> Tensor:
        """One of the kernel's weights, such as "weight_hh" or "bias_ih"."""
        return getattr(self.fused, f"{name}_l0")

    def step(self, x: Tensor, state: State) -> State:
        return self._step(self._dropped(), x, state)

    def begin(self, rows: int, *, capacity: int | None = None, device: torch.device | str, dtype: torch.dtype) -> State:
        dtype = getattr(self.fused, RECURRENT).dtype  # the weights' own, also under autocast: see `_fuse`
        return super().begin(rows, capacity=capacity, device=device, dtype=dtype)

    def forward(self, x: Tensor, state: State, span: Span) -> tuple[Tensor, State]:
        if span.lengths is None:
            return self._run(x, state)
        if x.size(1) == 1:  # one token at a time: no packing, nothing leaves the device
            hidden, new = self._run(x, state)
        else:  # packing refuses length 0: such rows run one step, which is then forgotten
            lengths = span.on_host().clamp(min=1)
            packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
            packed, new = self._run(packed, state)
            hidden, _ = pad_packed_sequence(packed, batch_first=True, total_length=x.size(1))
        moved = (span.lengths > 0)[:, None]
        return hidden, {name: torch.where(moved, new[name], state[name]) for name in state}

    def explain(self, x: Tensor, state: State, span: Span) -> tuple[Tensor, State, State]:
        weights = self._dropped()  # drawn once, so that every step loses the same connections
        return walk(lambda word, before: self._step(weights, word, before), x, state, span)

    def _step(self, weights: dict[str, Tensor], x: Tensor, state: State) -> State:
        drive = x @ weights["weight_ih_l0"].T + weights["bias_ih_l0"]
        recurrent = state["hidden"] @ weights[RECURRENT].T + weights["bias_hh_l0"]
        return self.gates(drive, recurrent, state)

    def _run(self, x: Any, state: State) -> tuple[Any, State]:  # x and the result: a tensor or a packed sequence
        """The fused layer from `state`; it wants the number of layers as the first dimension."""
        dropping = self.training and self.dropout_recurrent > 0.0
        return self._fuse(x, state, self._dropped() if dropping else None)

    def _stays(self, x: Any) -> bool:
        """Is this bf16 training on a GPU that can keep the layer's matrix in its registers from step to step?"""
        if not (self.staying and self.training and isinstance(x, Tensor) and x.is_cuda and x.size(1) > 1):
            return False
        rounded = torch.is_autocast_enabled("cuda") and torch.get_autocast_dtype("cuda") == torch.bfloat16
        rounded = rounded and getattr(self.fused, RECURRENT).dtype == torch.float32
        return rounded and persistent.fits(self.fused.mode, len(x), self.fused.hidden_size, x.device)

    def _fuse(self, x: Any, state: State, weights: dict[str, Tensor] | None = None) -> tuple[Any, State]:
        if self._stays(x):
            with torch.autocast("cuda", enabled=False):
                return persistent.recur(self.fused.mode, x, state, weights or dict(self.fused.named_parameters()))
        dtype = getattr(self.fused, RECURRENT).dtype  # a state may come from a call in another precision
        initial: Any = tuple(state[name][None].to(dtype) for name in self.memory)
        initial = initial if len(self.memory) > 1 else initial[0]
        # Autocast runs cuDNN's recurrence in fp16, whatever it was asked for, and a cell is a running sum: fp32.
        with torch.autocast(state["hidden"].device.type, enabled=False):
            x = x.to(dtype)
            hidden, final = self.fused(x, initial) if weights is None else self._fuse_with(weights, x, initial)
        final = final if len(self.memory) > 1 else (final,)
        return hidden, {name: value[0] for name, value in zip(self.memory, final, strict=True)}

    def _fuse_with(self, weights: dict[str, Tensor], x: Any, initial: Any) -> tuple[Any, Any]:
        """The module's kernel with other weights. The module itself, given other weights, moves all of its own to a new
        place in a GPU's memory at every call, where neither an optimiser's graph nor anyone else would find them."""
        kernel, after = KERNELS[self.fused.mode], (True, 1, 0.0, self.training, False)  # bias, layers, no dropout, …
        names = ("weight_ih_l0", RECURRENT, "bias_ih_l0", "bias_hh_l0")
        ordered = [weights[name] for name in names]
        if not isinstance(x, PackedSequence):
            hidden, *final = kernel(x, initial, ordered, *after, True)
            return hidden, tuple(final) if len(final) > 1 else final[0]
        one = isinstance(initial, Tensor)
        sort = [part.index_select(1, x.sorted_indices) for part in ((initial,) if one else initial)]
        data, *final = kernel(x.data, x.batch_sizes, sort[0] if one else sort, ordered, *after)
        unsorted = tuple(part.index_select(1, x.unsorted_indices) for part in final)
        return x._replace(data=data), unsorted[0] if one else unsorted

    def _dropped(self) -> dict[str, Tensor]:
        """The weights by name, with recurrent connections dropped while training (weight-drop)."""
        weights: dict[str, Tensor] = dict(self.fused.named_parameters())
        weights[RECURRENT] = drop_weight(weights[RECURRENT], self.dropout_recurrent, self.training)
        return weights


class Elman(Fused):
    """The simple recurrent network.

    `initialisation` is that of W_h: PyTorch's default (uniform); orthogonal, with no bias (Saxe et al. 2014); or the
    identity, with no bias and tiny W_x, so that with ReLU the state first only remembers (Le et al. 2015).
    """

    def __init__(self, inputs: int, width: int, *, activation: str = "tanh", initialisation: str = "default") -> None:
        super().__init__(
            nn.RNN(inputs, width, nonlinearity="relu" if activation == "relu" else "tanh", batch_first=True)
        )
        self.activation = activation
        weights = dict(self.fused.named_parameters())
        if initialisation == "orthogonal":
            nn.init.orthogonal_(weights[RECURRENT])
        elif initialisation == "identity":
            nn.init.eye_(weights[RECURRENT])
            nn.init.normal_(weights["weight_ih_l0"], std=0.001)
        if initialisation != "default":
            nn.init.zeros_(weights["bias_ih_l0"])
            nn.init.zeros_(weights["bias_hh_l0"])

    def gates(self, drive: Tensor, recurrent: Tensor, state: State) -> State:
        return elman(drive, recurrent, state, self.activation)

    def _run(self, x: Any, state: State) -> tuple[Any, State]:
        """σ(a) = (1 + tanh(a/2)) / 2: a sigmoid network is a tanh network of g = 2h − 1, which has a fused kernel.

        g_t = tanh(½ (W_x x_t + W_h h_{t-1} + b)) = tanh(½ W_x x_t + ¼ W_h g_{t-1} + ½ b + ¼ W_h 1)
        """
        if self.activation != "sigmoid":
            return super()._run(x, state)
        weights = self._dropped()
        recurrent = weights[RECURRENT] / 4
        halved = {name: weight / 2 for name, weight in weights.items()}
        halved |= {RECURRENT: recurrent, "bias_hh_l0": halved["bias_hh_l0"] + recurrent.sum(dim=1)}
        hidden, final = self._fuse(x, {"hidden": 2 * state["hidden"] - 1}, halved)
        if isinstance(hidden, PackedSequence):
            hidden = hidden._replace(data=(1 + hidden.data) / 2)
        else:
            hidden = (1 + hidden) / 2
        return hidden, {"hidden": (1 + final["hidden"]) / 2}


class LSTM(Fused):
    """Long short-term memory: gates decide what the cell forgets, stores and shows."""

    memory = ("hidden", "cell")
    chained = False  # train as a chain of kernels, not with cuDNN: faster where a CUDA graph replays it

    def __init__(self, inputs: int, width: int, *, forget_bias: float = 1.0, dropout_recurrent: float = 0.0) -> None:
        super().__init__(nn.LSTM(inputs, width, batch_first=True), dropout_recurrent=dropout_recurrent)
        set_forget_bias(self.fused, forget_bias)

    def _run(self, x: Any, state: State) -> tuple[Any, State]:
        if not (self.chained and self.training and isinstance(x, Tensor)) or self._stays(x):
            return super()._run(x, state)
        weights = self._dropped()
        with torch.autocast(x.device.type, enabled=False):  # a recurrence is a running sum: see `_fuse`
            return lstm_chain(x.to(weights[RECURRENT].dtype), state, weights)

    def gates(self, drive: Tensor, recurrent: Tensor, state: State) -> State:
        return lstm(drive, recurrent, state)


class GRU(Fused):
    """The gated recurrent unit: one gate says what of the past is asked, another how much of it stays."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__(nn.GRU(inputs, width, batch_first=True))

    def gates(self, drive: Tensor, recurrent: Tensor, state: State) -> State:
        return gru(drive, recurrent, state)


CELLS: dict[str, Any] = {"rnn": Elman, "lstm": LSTM, "gru": GRU}
