"""Attention: before every word it writes, the decoder attends to the whole source.

    h_s = [→h_s ; ←h_s]                               both directions: each h_s depends on the whole sentence
    c_t = Σ_s α(s_{t-1}, h_s) h_s                     α: any score of layers/scores.py
    s_t = cell([E[y_{t-1}] ; c_t], s_{t-1}),          s_0 = tanh(W [→h_S ; ←h_1])
    P(y_t) = softmax(W_o tanh(W_r [s_t ; c_t ; E[y_{t-1}]]))

Bahdanau et al. 2015. Further decoder layers run over the states of the first, the only one with attention (Wu et al.
2016). Without feeding, the context is not an input of the cell: s_t = cell(E[y_{t-1}], s_{t-1}), c_t = Σ_s α(s_t, h_s)
h_s (global attention, Luong et al. 2015); the cell then runs over all words before attention.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from regard.base.settings import setting
from regard.layers.attention import ScoredAttention
from regard.layers.cell import unroll
from regard.layers.embedding import Embedding, Output
from regard.layers.encoder import RecurrentEncoder
from regard.layers.parts import inside, note
from regard.layers.recurrent import CELLS, Recurrent
from regard.layers.scores import KERNELS, SCORES
from regard.layers.state import Span, State, map_state, spread
from regard.systems.seq2seq import RecurrentPairSettings
from regard.systems.translator import Translator, explain_through, is_shared, rate, through


@dataclass(frozen=True)
class Settings(RecurrentPairSettings):
    cell: str = setting("gru", "recurrent cell: {}", choices=tuple(CELLS))
    score: str = setting("additive", "attention score α: {}", choices=SCORES)
    bandwidth: float = setting(0.0, f"h, the bandwidth of a kernel ({', '.join(KERNELS)}); 0 = √width", ge=0)
    feed: bool = setting(True, "feed the context into the cell (input feeding); false = use it only for the prediction")


class Bahdanau(Translator):
    def __init__(self, vocabulary: int, settings: Settings, *, source_vocabulary: int | None = None) -> None:
        words, width = settings.words, settings.width
        shared = is_shared(settings.shared, source_vocabulary)
        super().__init__(
            Embedding(vocabulary, words, scale=words**0.5),
            None if shared else Embedding(source_vocabulary or vocabulary, words, scale=words**0.5),
            Output(words, vocabulary, tied=settings.tied, bias=True),
            dropout=rate(settings.dropout),
        )
        self.settings = settings
        self.encoder = RecurrentEncoder(
            words, width, cell=settings.cell, layers=settings.layers, bidirectional=True, dropout=rate(settings.dropout)
        )
        memory = self.encoder.width
        kind = CELLS[settings.cell]
        inputs = [words + (memory if settings.feed else 0), *[width] * (settings.layers - 1)]
        self.layers = nn.ModuleList(kind(size, width) for size in inputs)
        self.bridge = nn.ModuleList(
            nn.ModuleDict({name: nn.Linear(memory, width) for name in kind.memory}) for _ in inputs
        )
        self.attend = ScoredAttention(width, memory, score=settings.score, bandwidth=settings.bandwidth or width**0.5)
        self.readout = nn.Linear(width + memory + words, words)
        self.init_embeddings()

    # -- the source --------------------------------------------------------------------------------------------------

    def encode(self, source: Tensor, lengths: Tensor | None) -> State:
        memory, last_states = self.encoder(self._source_vectors(source), lengths)
        return {"memory": memory, "last": last_states}

    def explain_encode(self, source: Tensor, lengths: Tensor | None) -> tuple[State, State]:
        with inside("encoder"):
            vectors = note("embedding", self._source_vectors(source))
            memory, last_states, parts = self.encoder.explain(vectors, lengths)
        return {"memory": memory, "last": last_states}, {"embedding": vectors, "layers": parts}

    def remember(self, encoded: State) -> State:
        """The memory, with the score's precomputed part."""
        return {"memory": encoded["memory"], "keys": self.attend.remember(encoded["memory"])}

    def initial_decoder_past(self, encoded: State, width: int, *, capacity: int | None, dtype: torch.dtype) -> State:
        """s_0 = tanh(W [→h_S ; ←h_1]) in each layer; an LSTM's cell, which is not bounded, without the tanh."""
        past: State = {}
        for layer, bridge in enumerate(self.bridge):
            ended = encoded["last"][str(layer)]
            past[str(layer)] = {name: bridge[name](ended[name]) for name in ended}  # type: ignore[index]
            past[str(layer)]["hidden"] = past[str(layer)]["hidden"].tanh()
        exact = self._first.weight("weight_hh").dtype  # the state accumulates: see Recurrent.begin
        return spread(map_state(lambda leaf: leaf.to(exact), past), width)

    # -- the target --------------------------------------------------------------------------------------------------

    def hidden_states(self, tokens: Tensor, state: State, span: Span) -> tuple[Tensor, State]:
        words = self.dropout(self.embedding(tokens, span))  # [R, T, D]
        past, source = state["past"], state["source"]
        if self.settings.feed:
            hidden, context, first = self.look_and_step(words, past["0"], source, span)
        else:
            hidden, first = self._first(words, past["0"], span)
            context = self.look(hidden, source)["context"]
        hidden, new = through(self._upper, self.dropout, hidden, past, span)
        return self._read_out(hidden, context, words), {"0": first, **new}

    def explain_context(self, tokens: Tensor, state: State, span: Span) -> tuple[Tensor, State, State]:
        words = note("embedding", self.dropout(self.embedding(tokens, span)))
        past, source = state["past"], state["source"]
        with inside("layer/0"):
            if self.settings.feed:
                hidden, first, parts = self.explain_look_and_step(words, past["0"], source, span)
            else:
                hidden, first, parts = self._first.explain(words, past["0"], span)
                parts = {**parts, **self.look(hidden, source)}
                parts["context"] = note("context", parts["context"])
        hidden = note("layer/0", hidden)
        hidden, new, upper = explain_through(self._upper, self.dropout, hidden, past, span)
        shown = note("hidden", self._read_out(hidden, parts["context"], words))
        return shown, {"0": first, **new}, {"embedding": words, "layers": {"0": parts, **upper}, "hidden": shown}

    def look(self, queries: Tensor, source: State) -> State:
        """c = Σ_s α(q, h_s) h_s for queries [R, T, H]: the context [R, T, M], the weights [R, T, S], and their scores.

        The hypotheses of a source are more queries to the same memory.
        """
        memory = source["memory"]
        asked = queries.reshape(memory.size(0), -1, queries.size(-1))  # [N, width·T, H]
        parts = self.attend(asked, source["keys"], source["valid"][:, None])
        parts["context"] = parts["weights"].to(memory.dtype) @ memory
        return {name: part.reshape(*queries.shape[:2], *part.shape[2:]) for name, part in parts.items()}

    def look_and_step(self, words: Tensor, past: State, source: State, span: Span) -> tuple[Tensor, Tensor, State]:
        """The layer with attention: s_t and c_t for every word, [R, T, H] and [R, T, M], and its final state."""
        hidden, end, parts = self.explain_look_and_step(words, past, source, span)
        return hidden, parts["context"], end

    def explain_look_and_step(
        self, words: Tensor, past: State, source: State, span: Span
    ) -> tuple[Tensor, State, State]:
        """Attend, then step: c_t from s_{t-1}, then s_t from the word and c_t."""

        def step(word: Tensor, before: State) -> State:
            found = self.look(before["hidden"][:, None], source)
            found = {name: part[:, 0] for name, part in found.items()}
            found["context"] = note("context", found["context"])
            return {**self._first.step(torch.cat([word, found["context"]], dim=-1), before), **found}

        return unroll(step, words, past, span)

    def attention(self, parts: State) -> dict[str, Tensor]:
        return {"cross/0": parts["layers"]["0"]["weights"][:, None]}  # one head

    def alignment(self, parts: State) -> Tensor:
        return parts["layers"]["0"]["weights"]

    # ----------------------------------------------------------------------------------------------------------------

    @property
    def _first(self) -> Recurrent:
        """The decoder layer that attends."""
        return self.layers[0]  # type: ignore[return-value]  # ModuleList forgets what it holds

    @property
    def _upper(self) -> list[tuple[str, nn.Module]]:
        return list(self.layers.named_children())[1:]

    def _read_out(self, hidden: Tensor, context: Tensor, words: Tensor) -> Tensor:
        return self.dropout(self.readout(torch.cat([hidden, context, words], dim=-1)).tanh())
