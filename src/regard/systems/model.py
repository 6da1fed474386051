"""The one call of every system, for a whole text or one token at a time, with the same result.

    logits, state = model(tokens, state)          tokens [R, T], logits [R, T, V]

A system defines how it computes hidden vectors and how it predicts; everything else is here.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from regard.base.errors import RegardError
from regard.layers.embedding import Embedding, Output
from regard.layers.layer import Layer
from regard.layers.loss import negative_log_likelihood
from regard.layers.parts import inside, note
from regard.layers.state import Span, State, overwrite, span_of


class Model(nn.Module):
    """The base class of all systems, which override `initial_past`, `hidden_states`, `predict` and, optionally, `loss`.

    `load_state_dict` on a freshly constructed model (same vocabulary and settings) restores it completely.
    """

    context: int | None = None  # the maximum number of tokens in a row; None = no limit
    vocabulary: int
    settings: Any

    # -- for systems to override ---------------------------------------------------------------------------------------

    def initial_past(self, rows: int, *, capacity: int | None, device: torch.device, dtype: torch.dtype) -> State:
        """state["past"] before any token was read.

        Args:
            rows: The number of texts R.
            capacity: Room for this many tokens in tensors of fixed shape; None: the state grows.
            device: The device of its tensors.
            dtype: Their precision.

        Returns:
            Nested dicts of tensors, rows first.
        """
        raise NotImplementedError

    def hidden_states(self, tokens: Tensor, state: State, span: Span) -> tuple[Tensor, State]:
        """Compute hidden vectors from tokens and what came before them.

        Args:
            tokens: Token numbers [R, T].
            state: The state before them; without a capacity it is not changed.
            span: The position of the columns in each row's text, and how many are real.

        Returns:
            Hidden vectors [R, T, …], and the new state["past"].
        """
        raise NotImplementedError

    def predict(self, hidden: Tensor) -> Tensor:
        """Predict the next token from hidden vectors.

        Args:
            hidden: Hidden vectors […, D].

        Returns:
            Logits […, V].
        """
        raise NotImplementedError

    def auxiliary_loss(self, hidden: Tensor) -> Tensor | None:
        """The term that training adds to −log P.

        Args:
            hidden: Hidden vectors [R, T, …].

        Returns:
            The term of each column [R, T]; None if there is none.
        """
        return None

    def explain_context(self, tokens: Tensor, state: State, span: Span) -> tuple[Tensor, State, State]:
        """`hidden_states` by the written equation, step by step.

        Args:
            tokens: Token numbers [R, T].
            state: The state before them.
            span: The position of the columns in each row's text, and how many are real.

        Returns:
            Hidden vectors, the new state["past"], and the parts of the computation by name.
        """
        return *self.hidden_states(tokens, state, span), {}

    @property
    def flops_per_token(self) -> float:
        """Floating-point operations of one training step per token; 0 for a model that only counts."""
        return 6.0 * sum(weight.numel() for weight in self.parameters())

    @property
    def loss_width(self) -> int:
        """Numbers that `loss` needs per token: the logits, unless the system avoids them."""
        return self.vocabulary

    @property
    def device(self) -> torch.device:
        """The device of its weights."""
        return self._place()[0]

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
        """A complete state that has read nothing.

        Args:
            source: For a translator: the tokens of the sources [N, S].
            lengths: For a translator: the number of real tokens in each source [N]; None: all are real.
            rows: The number of texts; 1 unless given.
            width: The number of hypotheses of each.
            capacity: None: a call returns a new state, which grows and carries gradients. C: room for C tokens; every
                leaf keeps shape, dtype and address, and a call writes in place and consumes its input. Callers must
                check for overflow beforehand: a call reads no values.

        Returns:
            The state, with rows × width rows.

        Raises:
            TypeError: If a language model is given a source.
        """
        if source is not None or lengths is not None:
            raise TypeError(f"{type(self).__name__} is a language model and does not take a source")
        rows = (1 if rows is None else rows) * width
        device, dtype = self._place()
        past = self.initial_past(rows, capacity=capacity, device=device, dtype=dtype)
        return {**self._unread(rows, capacity, device), "past": past}

    def read(self, tokens: Tensor, state: State | None = None, lengths: Tensor | None = None) -> tuple[Tensor, State]:
        """Read tokens.

        Args:
            tokens: Token numbers [R, T].
            state: The state before them; None is the beginning.
            lengths: The number of real columns of each row [R]; None: all are real.

        Returns:
            Hidden vectors [R, T, …], and the state after each row's last real column.

        Raises:
            RegardError: If there are more columns than the model's context.
        """
        state, span = self._open(tokens, state, lengths)
        hidden, past = self.hidden_states(tokens, state, span)
        return hidden, self._advance(state, past, span.end(tokens.size(1)))

    def forward(
        self, tokens: Tensor, state: State | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, State]:
        """Read tokens and predict the next one at every column.

        Args:
            tokens: Token numbers [R, T].
            state: The state before them; None is the beginning.
            lengths: The number of real columns of each row [R]; None: all are real.

        Returns:
            Logits [R, T, V], and the state after each row's last real column.

        Raises:
            RegardError: If there are more columns than the model's context.
        """
        hidden, state = self.read(tokens, state, lengths)
        return self.predict(hidden), state

    def loss(
        self, tokens: Tensor, targets: Tensor, state: State | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, State]:
        """−log P(target) for every column; in training, with the auxiliary loss.

        Args:
            tokens: Token numbers [R, T].
            targets: The token that follows each [R, T].
            state: The state before them; None is the beginning.
            lengths: The number of real columns of each row [R]; None: all are real.

        Returns:
            The loss in nats [R, T], 0 in padded columns, and the state after each row's last real column.

        Raises:
            RegardError: If there are more columns than the model's context.
        """
        hidden, state = self.read(tokens, state, lengths)
        cost = negative_log_likelihood(self.predict(hidden), targets)
        if self.training and (auxiliary := self.auxiliary_loss(hidden)) is not None:
            cost = cost + auxiliary
        valid = span_of(state["seen"], lengths).valid(tokens.size(1))
        return cost if valid is None else cost.where(valid, 0.0), state

    def explain(
        self, tokens: Tensor, state: State | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, State, State]:
        """`forward` by the written equation, step by step.

        Args:
            tokens: Token numbers [R, T].
            state: The state before them; None is the beginning.
            lengths: The number of real columns of each row [R]; None: all are real.

        Returns:
            Logits, the state, and the parts of the computation by name.

        Raises:
            RegardError: If there are more columns than the model's context.
        """
        state, span = self._open(tokens, state, lengths)
        hidden, past, parts = self.explain_context(tokens, state, span)
        return self.predict(hidden), self._advance(state, past, span.end(tokens.size(1))), parts

    # ----------------------------------------------------------------------------------------------------------------

    def _open(self, tokens: Tensor, state: State | None, lengths: Tensor | None) -> tuple[State, Span]:
        rows, columns = tokens.shape
        if self.context is not None and columns > self.context:
            raise RegardError(
                f"This model reads at most {self.context} tokens at once but was given {columns}; "
                "give it less text, or train a model with a larger model.context."
            )
        state = self.begin(rows=rows) if state is None else state
        return state, span_of(state["seen"], lengths)

    @staticmethod
    def _unread(rows: int, capacity: int | None, device: torch.device) -> State:
        """The part of a first state that all systems share."""
        state: State = {"seen": torch.zeros(rows, dtype=torch.int64, device=device)}
        if capacity is not None:  # marks a state of fixed capacity
            state["capacity"] = torch.full((rows,), capacity, dtype=torch.int64, device=device)
        return state

    @staticmethod
    def _advance(state: State, past: State, seen: Tensor) -> State:
        if "capacity" not in state:
            return {**state, "seen": seen, "past": past}
        overwrite(state, {"seen": seen, "past": past})
        return state

    def _place(self) -> tuple[torch.device, torch.dtype]:
        """Device and dtype of the model: those of its first floating-point weight or buffer."""
        for tensor in chain(self.parameters(), self.buffers()):
            if tensor.is_floating_point():
                return tensor.device, tensor.dtype
        return torch.device("cpu"), torch.get_default_dtype()


class Stack(Model):
    """An embedding, a stack of layers, and a prediction from the last; most systems are this."""

    def __init__(
        self,
        embedding: Embedding,
        layers: Iterable[Layer],
        output: Output,
        *,
        entry: nn.Module | None = None,
        between: nn.Module | None = None,
        finish: nn.Module | None = None,
    ) -> None:
        """`entry`, `between` and `finish` act on each position: after the embedding, between layers, after the last."""
        super().__init__()
        self.vocabulary = embedding.vocabulary
        self.context = embedding.context
        self.embedding = embedding
        self.layers = nn.ModuleList(layers)
        self.output = output
        self.entry = entry or nn.Identity()
        self.between = between or nn.Identity()
        self.finish = finish or nn.Identity()

    def initial_past(self, rows: int, *, capacity: int | None, device: torch.device, dtype: torch.dtype) -> State:
        return {name: layer.begin(rows, capacity=capacity, device=device, dtype=dtype) for name, layer in self._named()}

    def without_cache(self, rows: int) -> State:
        """`begin(rows=rows)` for texts that are read in one call: attention then keeps no keys and values, and all rows
        share one position."""
        state = self.begin(rows=rows)
        state["seen"] = state["seen"][:1]
        past = {name: {} if layer.caches else state["past"][name] for name, layer in self._named()}
        return {**state, "past": past}

    def hidden_states(self, tokens: Tensor, state: State, span: Span) -> tuple[Tensor, State]:
        x = self.entry(self.embedding(tokens, span))  # [R, T, D]
        past: State = {}
        for name, layer in self._named():
            x = self.between(x) if past else x
            x, past[name] = layer(x, state["past"][name], span)
        return self.finish(x), past

    def explain_context(self, tokens: Tensor, state: State, span: Span) -> tuple[Tensor, State, State]:
        x = note("embedding", self.entry(self.embedding(tokens, span)))
        parts: State = {"embedding": x, "layers": {}}
        past: State = {}
        for name, layer in self._named():
            x = self.between(x) if past else x
            with inside(f"layer/{name}"):
                x, past[name], shown = layer.explain(x, state["past"][name], span)
            x = note(f"layer/{name}", x)
            parts["layers"][name] = {**shown, "hidden": x}  # its output, whatever else the layer shows
        parts["hidden"] = note("hidden", self.finish(x))
        return parts["hidden"], past, parts

    def predict(self, hidden: Tensor) -> Tensor:
        return self.output(hidden, self.embedding.table.weight)

    @property
    def flops_per_token(self) -> float:
        """A multiplication and an addition per weight forward, twice that backward; a looked-up table costs none."""
        weights = sum(weight.numel() for weight in self.parameters())
        return 6.0 * (weights - self.embedding.lookup_parameters(tied=self.output.weight is None))

    def _named(self) -> Iterable[tuple[str, Layer]]:
        return self.layers.named_children()  # type: ignore[return-value]  # ModuleList forgets what it holds
