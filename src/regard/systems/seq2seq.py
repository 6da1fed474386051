"""Sequence to sequence: one recurrent network reads the source, another writes the target from its last state.

    h_s = cell(E[x_s], h_{s-1}),  s_0 = h_S,  s_t = cell(E[y_{t-1}], s_{t-1})  in each layer,   P(y_t) = softmax(W s_t)

Sutskever et al. 2014 (LSTM, and the source read backwards, so that its first words are read last); Cho et al. 2014
(GRU). Only each layer's last state reaches the decoder: a vector of fixed size, however long the sentence.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from regard.base.settings import MAX_LAYERS, RATE, CheckedSettings, setting
from regard.layers.embedding import Embedding, Output
from regard.layers.encoder import RecurrentEncoder, backwards
from regard.layers.parts import inside, note
from regard.layers.recurrent import CELLS
from regard.layers.state import Span, State, map_state, spread
from regard.systems.translator import BY_CORPUS, Translator, explain_through, is_shared, rate, through


@dataclass(frozen=True)
class RecurrentPairSettings(CheckedSettings):
    """The settings that both recurrent translators share."""

    cell: str = setting("lstm", "recurrent cell: {}", choices=tuple(CELLS))
    layers: int = setting(1, "number of layers in the encoder and in the decoder", ge=1, le=MAX_LAYERS)
    width: int = setting(512, "size of a layer's hidden state, in each direction", ge=1)
    embedding: int = setting(256, "size of a word vector; 0 = width", ge=0)
    dropout: float = setting(
        BY_CORPUS,
        "dropout rate on word vectors, between layers and before the prediction; -1 = depends on the corpus",
        **RATE,
        unset=BY_CORPUS,
    )
    tied: bool = setting(True, "predict with the target's word vectors")
    shared: bool = setting(True, "one table of word vectors for source and target, if they share a vocabulary")

    @property
    def words(self) -> int:
        """Components of a word vector."""
        return self.embedding or self.width


@dataclass(frozen=True)
class Settings(RecurrentPairSettings):
    layers: int = setting(2, "number of layers in the encoder and in the decoder", ge=1, le=MAX_LAYERS)
    reverse: bool = setting(True, "read the source backwards")


class Seq2Seq(Translator):
    def __init__(self, vocabulary: int, settings: Settings, *, source_vocabulary: int | None = None) -> None:
        words = settings.words
        shared = is_shared(settings.shared, source_vocabulary)
        super().__init__(
            Embedding(vocabulary, words, scale=words**0.5),
            None if shared else Embedding(source_vocabulary or vocabulary, words, scale=words**0.5),
            Output(words if settings.tied else settings.width, vocabulary, tied=settings.tied, bias=True),
            dropout=rate(settings.dropout),
        )
        self.settings = settings
        self.encoder = RecurrentEncoder(
            words, settings.width, cell=settings.cell, layers=settings.layers, dropout=rate(settings.dropout)
        )
        kind = CELLS[settings.cell]
        inputs = [words, *[settings.width] * (settings.layers - 1)]
        self.layers = nn.ModuleList(kind(size, settings.width) for size in inputs)
        narrowed = settings.tied and words != settings.width
        self.readout = nn.Linear(settings.width, words) if narrowed else nn.Identity()
        self.init_embeddings()

    def encode(self, source: Tensor, lengths: Tensor | None) -> State:
        memory, last = self.encoder(self._source_vectors(self._order(source, lengths)), lengths)
        return {"memory": self._order(memory, lengths), "last": last}

    def explain_encode(self, source: Tensor, lengths: Tensor | None) -> tuple[State, State]:
        with inside("encoder"):
            vectors = note("embedding", self._source_vectors(source))
        with inside("encoder", backwards=self.settings.reverse):
            memory, last, layers = self.encoder.explain(self._order(vectors, lengths), lengths)
        # In the source's order, not in reading order.
        layers = map_state(lambda part: self._order(part, lengths), layers)
        return {"memory": self._order(memory, lengths), "last": last}, {"embedding": vectors, "layers": layers}

    def _order(self, rows: Tensor, lengths: Tensor | None) -> Tensor:
        """Reverses the source into reading order, or back."""
        return backwards(rows, lengths) if self.settings.reverse else rows

    def remember(self, encoded: State) -> State:
        return {}

    def initial_decoder_past(self, encoded: State, width: int, *, capacity: int | None, dtype: torch.dtype) -> State:
        return spread(encoded["last"], width)

    def hidden_states(self, tokens: Tensor, state: State, span: Span) -> tuple[Tensor, State]:
        words = self.embedding(tokens, span)  # [R, T, D]
        hidden, past = through(self.layers.named_children(), self.dropout, words, state["past"], span)
        return self.readout(self.dropout(hidden)), past

    def explain_context(self, tokens: Tensor, state: State, span: Span) -> tuple[Tensor, State, State]:
        words = note("embedding", self.embedding(tokens, span))
        hidden, past, layers = explain_through(self.layers.named_children(), self.dropout, words, state["past"], span)
        shown = note("hidden", self.readout(self.dropout(hidden)))
        return shown, past, {"embedding": words, "layers": layers, "hidden": shown}
