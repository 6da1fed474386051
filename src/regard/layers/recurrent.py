"""Recurrent layers: the state is rewritten at every step.

Elman     h_t = f(W x_t + U h_{t-1} + b)                     f = tanh, sigmoid or ReLU       Elman 1990

LSTM      f_t = σ(W_f x_t + U_f h_{t-1} + b_f)     forget    c_t = f_t * c_{t-1} + i_t * g_t
          i_t = σ(W_i x_t + U_i h_{t-1} + b_i)     store     h_t = o_t * tanh(c_t)
          g_t = tanh(W_g x_t + U_g h_{t-1} + b_g)  update
          o_t = σ(W_o x_t + U_o h_{t-1} + b_o)     output    Hochreiter & Schmidhuber 1997; the forget gate:
                                                             Gers et al. 2000; its bias of 1: Jozefowicz et al. 2015

GRU       r_t = σ(W_r x_t + U_r h_{t-1} + b_r)     reset     n_t = tanh(W_n x_t + b_n + r_t * (U_n h_{t-1} + b_u))
          z_t = σ(W_z x_t + U_z h_{t-1} + b_z)     update    h_t = z_t * h_{t-1} + (1 − z_t) * n_t      Cho et al. 2014

The GRU's reset gate acts after the matrix U_n, as in PyTorch; Cho et al. write U_n (r_t * h_{t-1}). The loop over
the steps of a text is in cell.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.layers.cell import Cell
from regard.layers.dropout import drop_weight
from regard.layers.parts import note
from regard.layers.state import State

ACTIVATIONS = ("tanh", "sigmoid", "relu")
INITIALISATIONS = ("default", "orthogonal", "identity")

# One step, from wx = W x_t + b and uh = U h_{t-1} + b with all gates side by side, and what the layer carries.


def elman(wx: Tensor, uh: Tensor, state: State, activation: str = "tanh") -> State:
    return {"hidden": note("hidden", getattr(torch, activation)(wx + uh))}


def lstm(wx: Tensor, uh: Tensor, state: State) -> State:
    store, forget, update, output = (wx + uh).chunk(4, dim=-1)
    store, forget = note("store", store.sigmoid()), note("forget", forget.sigmoid())
    update, output = note("update", update.tanh()), note("output", output.sigmoid())
    cell = note("cell", forget * state["cell"] + store * update)
    hidden = note("hidden", output * cell.tanh())
    return {"forget": forget, "store": store, "update": update, "output": output, "cell": cell, "hidden": hidden}


def gru(wx: Tensor, uh: Tensor, state: State) -> State:
    wx_reset, wx_update, wx_candidate = wx.chunk(3, dim=-1)
    uh_reset, uh_update, uh_candidate = uh.chunk(3, dim=-1)
    reset = note("reset", (wx_reset + uh_reset).sigmoid())
    update = note("update", (wx_update + uh_update).sigmoid())
    candidate = note("candidate", (wx_candidate + reset * uh_candidate).tanh())
    hidden = note("hidden", update * state["hidden"] + (1 - update) * candidate)
    return {"reset": reset, "update": update, "candidate": candidate, "hidden": hidden}


class Recurrent(Cell):
    """A layer with W, U and b, all gates stacked in PyTorch's order; a subclass defines what the gates do."""

    def __init__(self, fused: nn.RNNBase) -> None:
        super().__init__(fused.input_size, fused.hidden_size)
        self.fused = fused  # only its weights are used; saved runs have them under this name

    def gates(self, wx: Tensor, uh: Tensor, state: State) -> State:
        raise NotImplementedError

    def weights(self) -> Sequence[Tensor]:
        """W, U and the biases of both, for one call."""
        return self.fused.all_weights[0]

    def weight(self, name: str) -> Tensor:
        """One weight by PyTorch's name: "weight_ih" (W), "weight_hh" (U), "bias_ih" or "bias_hh"."""
        return getattr(self.fused, f"{name}_l0")

    def step(self, x: Tensor, state: State, weights: Sequence[Tensor] | None = None) -> State:
        """One word, with the layer's weights, or with those of a call in which some were dropped."""
        w, u, b, b_u = weights or self.fused.all_weights[0]
        return self.gates(F.linear(x, w, b), F.linear(state["hidden"], u, b_u), state)

    def begin(self, rows: int, *, capacity: int | None = None, device: torch.device | str, dtype: torch.dtype) -> State:
        exact = self.weight("weight_hh").dtype  # the state accumulates, so it is at least as precise as the weights
        return super().begin(rows, capacity=capacity, device=device, dtype=exact)


class Elman(Recurrent):
    """The simple recurrent network.

    `initialisation` is that of U: PyTorch's default (uniform); orthogonal, with no bias (Saxe et al. 2014); or the
    identity, with no bias and tiny W, so that with ReLU the state first only remembers (Le et al. 2015).
    """

    def __init__(self, inputs: int, width: int, *, activation: str = "tanh", initialisation: str = "default") -> None:
        kind = "relu" if activation == "relu" else "tanh"  # PyTorch has only these two
        super().__init__(nn.RNN(inputs, width, nonlinearity=kind, batch_first=True))
        self.activation = activation
        w, u, b, b_u = self.weights()
        if initialisation == "orthogonal":
            nn.init.orthogonal_(u)
        elif initialisation == "identity":
            nn.init.eye_(u)
            nn.init.normal_(w, std=0.001)
        if initialisation != "default":
            nn.init.zeros_(b)
            nn.init.zeros_(b_u)

    def gates(self, wx: Tensor, uh: Tensor, state: State) -> State:
        return elman(wx, uh, state, self.activation)


class LSTM(Recurrent):
    """Long short-term memory: gates decide what the cell forgets, stores and shows."""

    memory = ("hidden", "cell")

    def __init__(self, inputs: int, width: int, *, forget_bias: float = 1.0, dropout_recurrent: float = 0.0) -> None:
        super().__init__(nn.LSTM(inputs, width, batch_first=True))
        self.dropout_recurrent = dropout_recurrent
        set_forget_bias(self.fused, forget_bias)

    def gates(self, wx: Tensor, uh: Tensor, state: State) -> State:
        return lstm(wx, uh, state)

    def weights(self) -> Sequence[Tensor]:
        """While training, connections of U are dropped (weight-drop, Merity et al. 2018)."""
        w, u, b, b_u = super().weights()
        return [w, drop_weight(u, self.dropout_recurrent, self.training), b, b_u]

    def step_function(self) -> Callable[[Tensor, State], State]:
        if not self.training or self.dropout_recurrent == 0.0:
            return super().step_function()
        return partial(self.step, weights=self.weights())  # the same connections are dropped in every step of a call


class GRU(Recurrent):
    """The gated recurrent unit: the reset gate filters the past for the candidate, the update gate keeps part of it."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__(nn.GRU(inputs, width, batch_first=True))

    def gates(self, wx: Tensor, uh: Tensor, state: State) -> State:
        return gru(wx, uh, state)


@torch.no_grad()
def set_forget_bias(fused: nn.RNNBase, value: float) -> None:
    """Sets the forget gate's bias of an nn.LSTM; it has two, which are added, so one gets the value."""
    forget = slice(fused.hidden_size, 2 * fused.hidden_size)
    for name, bias in fused.named_parameters():
        if name.startswith("bias"):
            bias[forget] = value if name.startswith("bias_ih") else 0.0


CELLS: dict[str, Any] = {"rnn": Elman, "lstm": LSTM, "gru": GRU}
