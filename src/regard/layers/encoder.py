"""Encoders: a whole source in, one vector for each of its words out. They have no state, for nothing follows.

memory = encoder(source, lengths)        source [N, S, D], of which row n's first lengths[n] columns are real

recurrent     h_s = cell(x_s, h_{s-1}) in each layer; in both directions, [→h_s ; ←h_s]      Schuster & Paliwal 1997
Transformer   x = EncoderBlock(x)  layers times                                              Vaswani et al. 2017

Lengths are best given on the CPU, where packing a ragged batch wants them; asking a GPU for them makes it wait.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from regard.layers.blocks import EncoderBlock
from regard.layers.cell import walk
from regard.layers.recurrent import elman, gru, lstm, set_forget_bias
from regard.layers.state import Span, State

FUSED: dict[str, Any] = {"rnn": nn.RNN, "lstm": nn.LSTM, "gru": nn.GRU}
EQUATIONS = {"rnn": elman, "lstm": lstm, "gru": gru}


class RecurrentEncoder(nn.Module):
    """Layers of a recurrent cell, in one direction or both, all of them in one fused kernel.

    Besides the memory it returns each layer's last state, {"0": {"hidden": [N, width], …}, …}; in both directions that
    is [→h_S ; ←h_1], where each direction has read everything.
    """

    def __init__(
        self,
        inputs: int,
        width: int,
        *,
        cell: str = "lstm",
        layers: int = 1,
        bidirectional: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        between = dropout if layers > 1 else 0.0  # the kernel knows no other place for it, and says so aloud
        self.fused: nn.RNNBase = FUSED[cell](
            inputs, width, num_layers=layers, batch_first=True, bidirectional=bidirectional, dropout=between
        )
        self.cell = cell
        self.memory = ("hidden", "cell") if cell == "lstm" else ("hidden",)
        self.directions = ("", "_reverse") if bidirectional else ("",)
        self.width = width * len(self.directions)
        if cell == "lstm":
            set_forget_bias(self.fused, 1.0)

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, State]:
        with torch.autocast(x.device.type, enabled=False):  # a recurrence is a running sum: see Fused
            x = x.to(next(self.fused.parameters()).dtype)
            if lengths is None:
                memory, final = self.fused(x)
            else:
                packed = pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
                packed, final = self.fused(packed)
                memory, _ = pad_packed_sequence(packed, batch_first=True, total_length=x.size(1))
        return memory, self._last(final)

    def explain(self, x: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, State, State]:
        last: State = {}
        parts: State = {}
        for layer in range(self.fused.num_layers):
            x = nn.functional.dropout(x, self.fused.dropout, self.training) if layer else x
            ways = [self._walk(x, lengths, layer, direction) for direction in self.directions]
            x = torch.cat([hidden for hidden, _, _ in ways], dim=-1)
            last[str(layer)] = {name: torch.cat([end[name] for _, end, _ in ways], dim=-1) for name in self.memory}
            parts[str(layer)] = dict(zip(("forward", "backward"), (way for _, _, way in ways), strict=False))
        return x, last, parts

    def _walk(self, x: Tensor, lengths: Tensor | None, layer: int, direction: str) -> tuple[Tensor, State, State]:
        """One layer in one direction, a step at a time; backwards is forwards over the reversed row."""
        suffix = f"_l{layer}{direction}"
        weights: dict[str, Tensor] = {name: getattr(self.fused, name + suffix) for name in WEIGHTS}
        start = x.new_zeros(x.size(0), dtype=torch.int64)
        span = Span(start, None if lengths is None else lengths.to(x.device))
        initial = {name: x.new_zeros(x.size(0), self.fused.hidden_size) for name in self.memory}

        def step(word: Tensor, before: State) -> State:
            drive = word @ weights["weight_ih"].T + weights["bias_ih"]
            recurrent = before["hidden"] @ weights["weight_hh"].T + weights["bias_hh"]
            return EQUATIONS[self.cell](drive, recurrent, before)

        if not direction:
            return walk(step, x, initial, span)
        hidden, end, parts = walk(step, backwards(x, span.lengths), initial, span)
        return backwards(hidden, span.lengths), end, {k: backwards(part, span.lengths) for k, part in parts.items()}

    def _last(self, final: Any) -> State:
        """The kernel's [layers · directions, N, H] by layer, directions side by side."""
        by_name = dict(zip(self.memory, final if len(self.memory) > 1 else (final,), strict=True))
        count = len(self.directions)
        return {
            str(layer): {
                name: torch.cat(list(value[layer * count : (layer + 1) * count]), dim=-1)
                for name, value in by_name.items()
            }
            for layer in range(self.fused.num_layers)
        }


WEIGHTS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


class TransformerEncoder(nn.Module):
    """Blocks one above the other, and a last layer norm where they are pre-norm."""

    def __init__(self, blocks: Iterable[EncoderBlock], finish: nn.Module | None = None) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)
        self.finish = finish or nn.Identity()

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        valid = real_columns(x, lengths)
        for block in self.blocks:
            x = block(x, valid)
        return self.finish(x)

    def explain(self, x: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, State]:
        valid = real_columns(x, lengths)
        parts: State = {}
        for name, block in self.blocks.named_children():
            x, inside = block.explain(x, valid)  # type: ignore[operator]  # ModuleList forgets what it holds
            parts[name] = {**inside, "hidden": x}
        return self.finish(x), parts


def real_columns(source: Tensor, lengths: Tensor | None) -> Tensor | None:
    """Which columns of a source [N, S, …] are real: [N, S] on its device, or None when all are."""
    if lengths is None:
        return None
    columns = torch.arange(source.size(1), device=source.device)
    return columns < lengths.to(source.device, non_blocking=True)[:, None]


def backwards(rows: Tensor, lengths: Tensor | None) -> Tensor:
    """The real columns of each row [N, S, …] in reverse; padding stays where it is."""
    if lengths is None:
        return rows.flip(1)
    columns = torch.arange(rows.size(1), device=rows.device)
    lengths = lengths.to(rows.device, non_blocking=True)[:, None]
    index = torch.where(columns < lengths, lengths - 1 - columns, columns)  # [N, S]
    return rows[torch.arange(len(rows), device=rows.device)[:, None], index]
