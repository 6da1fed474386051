"""A translation model is a language model of the target whose first state comes from a source.

    state = model.begin(source, lengths)          source [N, S], each ends in <eos>
    logits, state = model(tokens, state)          tokens [R, T], R = N · width: P(y_t | y_<t, source)

The source is encoded once. Everything its hypotheses share (the memory, its keys and values, the padding mask) is in
state["source"], one row per source, and is never copied; what each has written is in state["past"].
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from regard.base.errors import RegardError
from regard.layers.dropout import Dropout
from regard.layers.embedding import Embedding, Output
from regard.layers.encoder import real_columns
from regard.layers.parts import inside, note
from regard.layers.state import Span, State, map_state
from regard.systems.model import Model

BY_CORPUS = -1.0  # dropout chosen by the number of pairs
DROPOUT = ((200_000, 0.3), (1_000_000, 0.2), (math.inf, 0.1))  # (fewer pairs than, rate)


class Translator(Model):
    """A system overrides `encode`, `remember`, `initial_decoder_past`, `hidden_states` and `explain_context`.

    `embedding` and `output` are the target's; `source_embedding` is None if source and target share one table.
    `dropout` acts on word vectors, and wherever else the system uses it.
    """

    source_context: int | None = None  # the maximum number of tokens in a source; None = no limit

    def __init__(
        self,
        embedding: Embedding,
        source_embedding: Embedding | None,
        output: Output,
        *,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.vocabulary = embedding.vocabulary
        self.context = embedding.context
        self.embedding = embedding
        self.source_embedding = source_embedding
        self.source_vocabulary = self._reader.vocabulary
        self.source_context = self._reader.context
        self.output = output
        self.dropout = Dropout(dropout)

    # -- for systems to override ---------------------------------------------------------------------------------------

    def encode(self, source: Tensor, lengths: Tensor | None) -> State:
        """{"memory": [N, S, D], …}: a vector for each word of the source, and anything else the decoder starts from."""
        raise NotImplementedError

    def explain_encode(self, source: Tensor, lengths: Tensor | None) -> tuple[State, State]:
        """`encode` by the written equation, with the parts it goes through."""
        raise NotImplementedError

    def remember(self, encoded: State) -> State:
        """The memory that all hypotheses of a source attend to, one row per source."""
        raise NotImplementedError

    def initial_decoder_past(self, encoded: State, width: int, *, capacity: int | None, dtype: torch.dtype) -> State:
        """state["past"] before any word is written: `width` rows for each source, in tensors of their own."""
        raise NotImplementedError

    def attention(self, parts: State) -> dict[str, Tensor]:
        """The attention weights among `explain`'s parts, by name ("cross/0", "self/0"): [R, heads, T, S]."""
        return {}

    def alignment(self, parts: State) -> Tensor | None:
        """The attention of the step that predicts target t to source s: [R, T, S]; None = no attention."""
        return None

    # -- the public interface ------------------------------------------------------------------------------------------

    def begin(
        self,
        source: Tensor | None = None,
        lengths: Tensor | None = None,
        *,
        rows: int | None = None,
        width: int = 1,
        capacity: int | None = None,
    ) -> State:
        """A state that has read the source [N, S] and written nothing, for `width` hypotheses of each source.

        Of row n, lengths[n] columns are real: at least one, since every source ends in <eos>. Lengths on the CPU avoid
        synchronizing. As for every model, capacity=C makes room for C target tokens in tensors of fixed shape.
        """
        if source is None:
            raise TypeError(f"{type(self).__name__} is a translator and needs a source: model.begin(source, lengths)")
        if rows is not None and rows != len(source):
            raise ValueError(f"{len(source)} sources were given for {rows} rows")
        if self.source_context is not None and source.size(1) > self.source_context:
            raise RegardError(
                f"This model reads sources of at most {self.source_context} tokens but was given {source.size(1)}; "
                "give it shorter sentences, or train a model with a larger model.context."
            )
        return self.begin_from(self.encode(source, lengths), source, lengths, width=width, capacity=capacity)

    def begin_from(
        self, encoded: State, source: Tensor, lengths: Tensor | None, *, width: int = 1, capacity: int | None = None
    ) -> State:
        """`begin` where the source is already encoded."""
        past = self.initial_decoder_past(encoded, width, capacity=capacity, dtype=self._place()[1])
        if capacity is not None:  # a call writes in place, so it must not share memory
            past = map_state(lambda leaf: leaf.detach().clone(), past)
        valid = real_columns(source, lengths)
        valid = torch.ones_like(source, dtype=torch.bool) if valid is None else valid
        unread = self._unread(source.size(0) * width, capacity, source.device)
        return {**unread, "past": past, "source": {"valid": valid, **self.remember(encoded)}}

    def init_embeddings(self) -> None:
        """Word vectors of length ½: tied they are output weights, and an untrained model should prefer no word. As they
        are read they are scaled to components of size ½, or the cells could hardly distinguish words at first."""
        for table in (self.embedding, self.source_embedding):
            if table is not None:
                nn.init.normal_(table.table.weight, std=0.5 * table.width**-0.5)

    def predict(self, hidden: Tensor) -> Tensor:
        return self.output(hidden, self.embedding.table.weight)

    @property
    def flops_per_token(self) -> float:
        """FLOP per target token, with one source token: a multiplication and an addition per weight forward, twice that
        backward; a looked-up table costs none."""
        weights = sum(weight.numel() for weight in self.parameters())
        looked_up = self.embedding.lookup_parameters(tied=self.output.weight is None)
        if self.source_embedding is not None:
            looked_up += self.source_embedding.lookup_parameters(tied=False)
        return 6.0 * (weights - looked_up)

    # ----------------------------------------------------------------------------------------------------------------

    @property
    def _reader(self) -> Embedding:
        return self.embedding if self.source_embedding is None else self.source_embedding

    def _source_vectors(self, source: Tensor) -> Tensor:
        start = torch.zeros(source.size(0), dtype=torch.int64, device=source.device)
        return self.dropout(self._reader(source, Span(start)))  # [N, S, D]


def rate(dropout: float) -> float:
    """The dropout rate of a setting; an unresolved BY_CORPUS counts as the rate for few pairs."""
    return dropout_for(0) if dropout == BY_CORPUS else dropout


def dropout_for(pairs: int) -> float:
    """The fewer pairs, the more dropout."""
    return next(found for most, found in DROPOUT if pairs < most)


def is_shared(wanted: bool, source_vocabulary: int | None) -> bool:
    """Whether source and target use one table of word vectors: only where they have one vocabulary (None), since two
    of the same size still hold different words."""
    return wanted and source_vocabulary is None


def through(
    layers: Iterable[tuple[str, nn.Module]], dropout: nn.Module, x: Tensor, past: State, span: Span
) -> tuple[Tensor, State]:
    """x through named layers, with dropout before each, and their new states by name."""
    new: State = {}
    for name, layer in layers:
        x, new[name] = layer(dropout(x), past[name], span)
    return x, new


def explain_through(
    layers: Iterable[tuple[str, nn.Module]], dropout: nn.Module, x: Tensor, past: State, span: Span
) -> tuple[Tensor, State, State]:
    new: State = {}
    parts: State = {}
    for name, layer in layers:
        with inside(f"layer/{name}"):
            x, new[name], parts[name] = layer.explain(dropout(x), past[name], span)  # type: ignore[operator]
        x = note(f"layer/{name}", x)
    return x, new, parts
