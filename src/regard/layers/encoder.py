"""Encoders: a whole source in, one vector for each of its words out. They have no state.

memory = encoder(source, lengths)        source [N, S, D], of which row n's first lengths[n] columns are real

recurrent     h_s = cell(x_s, h_{s-1}) in each layer; in both directions, [→h_s ; ←h_s]      Schuster & Paliwal 1997
Transformer   x = EncoderBlock(x)  layers times                                              Vaswani et al. 2017
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.layers.blocks import EncoderBlock
from regard.layers.cell import unroll
from regard.layers.parts import inside, note
from regard.layers.recurrent import elman, gru, lstm, set_forget_bias
from regard.layers.state import Span, State

KINDS: dict[str, Any] = {"rnn": (nn.RNN, elman), "lstm": (nn.LSTM, lstm), "gru": (nn.GRU, gru)}


class RecurrentEncoder(nn.Module):
    """Layers of a recurrent cell, in one direction or both, with dropout between them.

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
        between = dropout if layers > 1 else 0.0  # PyTorch warns about dropout with one layer
        module, self.equation = KINDS[cell]
        # Only its weights are used here; saved runs know them by this name.
        self.fused: nn.RNNBase = module(
            inputs, width, num_layers=layers, batch_first=True, bidirectional=bidirectional, dropout=between
        )
        self.memory = ("hidden", "cell") if cell == "lstm" else ("hidden",)
        self.directions = ("forward", "backward") if bidirectional else ("forward",)
        self.width = width * len(self.directions)
        if cell == "lstm":
            set_forget_bias(self.fused, 1.0)

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, State]:
        memory, last, _ = self.explain(x, lengths)
        return memory, last

    def explain(self, x: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, State, State]:
        lengths = None if lengths is None else lengths.to(x.device)
        weights = iter(self.fused.all_weights)  # by layer, then by direction
        last: State = {}
        parts: State = {}
        for layer in map(str, range(self.fused.num_layers)):
            x = F.dropout(x, self.fused.dropout, self.training) if last else x
            ways = {}
            for way in self.directions:
                with inside(f"{layer}/{way}"):
                    ways[way] = self._unroll_layer(next(weights), x, lengths, way)
            x = note(layer, torch.cat([hidden for hidden, _, _ in ways.values()], dim=-1))
            ends = [end for _, end, _ in ways.values()]
            last[layer] = {name: torch.cat([end[name] for end in ends], dim=-1) for name in self.memory}
            parts[layer] = {way: shown for way, (_, _, shown) in ways.items()}
        return x, last, parts

    def _unroll_layer(
        self, weights: Sequence[Tensor], x: Tensor, lengths: Tensor | None, way: str
    ) -> tuple[Tensor, State, State]:
        """One layer in one direction; backwards is forwards over the reversed row."""
        w, u, b, b_u = weights

        def step(word: Tensor, before: State) -> State:
            return self.equation(F.linear(word, w, b), F.linear(before["hidden"], u, b_u), before)

        span = Span(torch.zeros(x.size(0), dtype=torch.int64, device=x.device), lengths)
        first = {name: x.new_zeros(x.size(0), self.fused.hidden_size) for name in self.memory}
        if way == "forward":
            return unroll(step, x, first, span)
        with inside("", backwards=True):
            hidden, end, parts = unroll(step, backwards(x, lengths), first, span)
        return backwards(hidden, lengths), end, {name: backwards(part, lengths) for name, part in parts.items()}


class TransformerEncoder(nn.Module):
    """A stack of blocks, with a final layer norm if they are pre-norm."""

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
            with inside(name):
                x, shown = block.explain(x, valid)  # type: ignore[operator]  # ModuleList forgets what it holds
            x = note(name, x)
            parts[name] = {**shown, "hidden": x}
        return self.finish(x), parts


def real_columns(source: Tensor, lengths: Tensor | None) -> Tensor | None:
    """A mask of the real columns of a source [N, S, …]: [N, S] on its device, or None if all are real."""
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
    return rows[torch.arange(rows.size(0), device=rows.device)[:, None], index]
