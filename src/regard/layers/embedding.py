"""From tokens to vectors and back: x_t = E[w_t], the same map as a one-hot vector times the matrix E.

added          x_t + p_t                       concatenated    [x_t ; p_t]
prediction     logits = W_o h + b, with W_o = E when tied      Press & Wolf 2017; Inan et al. 2017
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.layers.dropout import WordDropout
from regard.layers.position import Position, Sine, Sinusoid
from regard.layers.state import Span


class Embedding(nn.Module):
    """The table of word vectors, combined with the position's vector where there is one; the result is `width` wide."""

    def __init__(
        self,
        vocabulary: int,
        width: int,
        position: Position | None = None,
        *,
        concatenate: bool = False,
        word_dropout: float = 0.0,
        scale: float | None = None,
    ) -> None:
        """Word vectors are multiplied by `scale`; None = √width if sinusoids are added, else 1."""
        super().__init__()
        self.vocabulary = vocabulary
        self.width = width
        self.concatenate = concatenate and position is not None
        self.position = position
        self.context = None if position is None else position.context
        words = width - position.width if self.concatenate and position is not None else width
        if words < 1 or (position is not None and position.width > width):
            raise ValueError(f"a position of width {getattr(position, 'width', 0)} does not fit into {width}")
        self.table = nn.Embedding(vocabulary, words)
        # Sinusoids have size 1; words are scaled to match them (Vaswani et al. 2017, section 3.4).
        waves = isinstance(position, Sine | Sinusoid) and not self.concatenate
        self.scale = scale if scale is not None else width**0.5 if waves else 1.0
        self.word_dropout = WordDropout(word_dropout)

    def forward(self, tokens: Tensor, span: Span) -> Tensor:
        words = self.word_dropout(self.table(tokens), tokens, self.vocabulary)  # [R, T, words]
        if self.scale != 1.0:
            words = words * self.scale
        if self.position is None:
            return words
        places = self.position(span.positions(tokens.size(1)), words.dtype)  # [R, T, position.width], or one row
        if self.concatenate:
            return torch.cat([words, places.expand(*words.shape[:2], -1)], dim=-1)
        return words + F.pad(places, (0, self.width - places.size(-1)))  # a narrow encoding takes the first components

    def lookup_parameters(self, tied: bool) -> int:
        """Number of weights that are only looked up, not multiplied: the tables, unless tied to the output."""
        places = 0 if self.position is None else sum(weight.numel() for weight in self.position.parameters())
        return places + (0 if tied else self.table.weight.numel())


class Output(nn.Module):
    """Logits from hidden vectors; when tied there is no matrix here, the embedding's table is used."""

    def __init__(self, width: int, vocabulary: int, *, tied: bool, bias: bool) -> None:
        super().__init__()
        bound = width**-0.5
        self.weight = None if tied else nn.Parameter(torch.empty(vocabulary, width).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.zeros(vocabulary)) if bias else None

    def forward(self, hidden: Tensor, table: Tensor) -> Tensor:
        return F.linear(hidden, *self.of(table))

    def of(self, table: Tensor) -> tuple[Tensor, Tensor | None]:
        """The matrix [V, D] and the bias."""
        return table if self.weight is None else self.weight, self.bias
