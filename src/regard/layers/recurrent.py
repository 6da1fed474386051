"""Long short-term memory: gates decide what the cell forgets, stores and shows.

    f_t = σ(W_f [x_t, h_{t-1}] + b_f)         forget        c_t = f_t * c_{t-1} + i_t * g_t
    i_t = σ(W_i [x_t, h_{t-1}] + b_i)         store         h_t = o_t * tanh(c_t)
    g_t = tanh(W_g [x_t, h_{t-1}] + b_g)      update
    o_t = σ(W_o [x_t, h_{t-1}] + b_o)         output

Hochreiter & Schmidhuber 1997; the forget gate: Gers et al. 2000; its bias of 1: Jozefowicz et al. 2015.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from regard.layers.dropout import drop_weight
from regard.layers.layer import Layer
from regard.layers.state import Span, State

RECURRENT = "weight_hh_l0"


class LSTM(Layer):
    """One layer. Its weights are those of the fused `nn.LSTM`: rows for the gates store, forget, update and output."""

    def __init__(self, inputs: int, width: int, *, forget_bias: float = 1.0, dropout_recurrent: float = 0.0) -> None:
        super().__init__()
        self.width = width
        self.dropout_recurrent = dropout_recurrent
        self.fused = nn.LSTM(inputs, width, batch_first=True)
        input_bias, recurrent_bias = self.fused.get_parameter("bias_ih_l0"), self.fused.get_parameter("bias_hh_l0")
        with torch.no_grad():  # the two biases are added, so one carries the value
            input_bias[width : 2 * width] = forget_bias
            recurrent_bias[width : 2 * width] = 0.0

    def begin(self, rows: int, *, capacity: int | None = None, device: torch.device | str, dtype: torch.dtype) -> State:
        dtype = getattr(self.fused, RECURRENT).dtype  # the weights' own, also under autocast: see `_run`
        return {name: torch.zeros(rows, self.width, device=device, dtype=dtype) for name in ("hidden", "cell")}

    def forward(self, x: Tensor, state: State, span: Span) -> tuple[Tensor, State]:
        if span.lengths is None:
            return self._run(x, state)
        if x.size(1) == 1:  # one token at a time: no packing, nothing leaves the device
            hidden, new = self._run(x, state)
        else:  # packing refuses length 0: such rows run one step, which is then forgotten
            lengths = span.lengths.clamp(min=1).cpu()
            packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
            packed, new = self._run(packed, state)
            hidden, _ = pad_packed_sequence(packed, batch_first=True, total_length=x.size(1))
        moved = (span.lengths > 0)[:, None]
        return hidden, {name: torch.where(moved, new[name], state[name]) for name in state}

    def _run(self, x, state: State):  # x and the result: a tensor or a packed sequence
        """The fused layer from `state`; nn.LSTM wants the number of layers as the first dimension."""
        dtype = getattr(self.fused, RECURRENT).dtype  # a state may come from a call in another precision
        initial = (state["hidden"][None].to(dtype), state["cell"][None].to(dtype))
        # Autocast runs cuDNN's recurrence in fp16, whatever it was asked for, and a cell is a running sum: fp32.
        with torch.autocast(initial[0].device.type, enabled=False):
            if self.training and self.dropout_recurrent > 0.0:
                hidden, (last_hidden, last_cell) = functional_call(self.fused, self._dropped(), (x.to(dtype), initial))
            else:
                hidden, (last_hidden, last_cell) = self.fused(x.to(dtype), initial)
        return hidden, {"hidden": last_hidden[0], "cell": last_cell[0]}

    def explain(self, x: Tensor, state: State, span: Span) -> tuple[Tensor, State, State]:
        weight = self._dropped()
        drive = x @ weight["weight_ih_l0"].T + weight["bias_ih_l0"] + weight["bias_hh_l0"]  # W x_t + b: [R, T, 4D]
        valid = span.valid(x.size(1))
        hidden, cell = state["hidden"], state["cell"]  # [R, D]
        steps: dict[str, list[Tensor]] = {
            name: [] for name in ("forget", "store", "update", "output", "cell", "hidden")
        }
        for t in range(x.size(1)):
            store, forget, update, output = (drive[:, t] + hidden @ weight[RECURRENT].T).chunk(4, dim=-1)
            store, forget, update, output = store.sigmoid(), forget.sigmoid(), update.tanh(), output.sigmoid()
            new_cell = forget * cell + store * update
            new_hidden = output * new_cell.tanh()
            if valid is not None:  # a padded column leaves the row as it was
                new_cell = torch.where(valid[:, t, None], new_cell, cell)
                new_hidden = torch.where(valid[:, t, None], new_hidden, hidden)
            hidden, cell = new_hidden, new_cell
            for name, value in zip(steps, (forget, store, update, output, cell, hidden), strict=True):
                steps[name].append(value)
        parts: State = {name: torch.stack(values, dim=1) for name, values in steps.items()}  # each [R, T, D]
        return parts["hidden"], {"hidden": hidden, "cell": cell}, parts

    def _dropped(self) -> dict[str, Tensor]:
        """The weights by name, with recurrent connections dropped while training (weight-drop)."""
        weights: dict[str, Tensor] = dict(self.fused.named_parameters())
        weights[RECURRENT] = drop_weight(weights[RECURRENT], self.dropout_recurrent, self.training)
        return weights
