"""The n-gram: the next word depends on the last n − 1 words, and its probability is stored.

    P(w | h) = p(hw)            if hw was seen, n words long with h the n − 1 words before w
             = β(h) P(w | h′)   otherwise: back off to h′, which is h without its first word; β(h) = 1 if h was not seen

Markov 1913, Shannon 1948; "count + normalize" makes β of a seen context 0; Kneser-Ney smoothing makes it the mass
that the discounts free (kneser_ney.py). Every order is three sorted arrays. A gram's name is its index there, found by
one binary search from the name of its context, so a context is n − 1 numbers: its name in each order.
Id 0, `<eos>`, ends a line where it is predicted and starts the next where it is read (ARPA's </s> and <s>).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import log
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from regard.base.settings import CheckedSettings, setting
from regard.layers.parts import note
from regard.layers.state import Span, State, last
from regard.systems.kneser_ney import FALLBACK, Estimate, count_grams, kneser_ney, relative_frequencies
from regard.systems.model import Model

ORDERS = range(1, 8)


@dataclass(frozen=True)
class Settings(CheckedSettings):
    order: int = setting(
        5,
        "words in the longest n-gram, including the predicted one",
        ge=ORDERS[0],
        le=ORDERS[-1],
    )
    smoothing: str = setting(
        "kneser-ney",
        "kneser-ney (interpolated, modified) or counts (count and normalize)",
        choices=("kneser-ney", "counts"),
    )


class Grams(nn.Module):
    """All k-grams, sorted by key = (name of the first k − 1 words)·V + last word. The last entry means "no gram":
    its key is larger than all others and its weight 1, so a look-up needs neither bounds nor masks."""

    keys: Tensor  # [N + 1] int64
    log_probability: Tensor  # [N + 1] of the last word after the others
    log_backoff: Tensor  # [N + 1] of shorter contexts after this gram

    def __init__(self, estimate: Estimate) -> None:
        super().__init__()
        self.register_buffer("log_probability", torch.empty(0))
        self.register_buffer("log_backoff", torch.empty(0))
        self.register_buffer("keys", torch.empty(0, dtype=torch.int64))
        self.fill(estimate)

    def fill(self, estimate: Estimate) -> None:
        """Replaces the grams, in this module's precision and on its device."""
        like = self.log_probability
        self.keys = _closed(estimate.keys, np.iinfo(np.int64).max).to(like.device)
        self.log_probability = _closed(estimate.log_probability, -np.inf).to(like)
        self.log_backoff = _closed(estimate.log_backoff, 0.0).to(like)

    def __len__(self) -> int:
        return len(self.keys) - 1

    @property
    def nothing(self) -> int:
        """The name of no gram."""
        return len(self)

    def find(self, queries: Tensor) -> Tensor:
        """The names of the grams with these keys, `nothing` for unknown keys."""
        name = torch.searchsorted(self.keys, queries)
        return torch.where(look_up(self.keys, name) == queries, name, self.nothing)

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *rest: Any) -> None:
        for name, buffer in self.named_buffers(recurse=False):  # the sizes come from the file
            if prefix + name in state_dict:
                setattr(self, name, buffer.new_empty(state_dict[prefix + name].shape))
        super()._load_from_state_dict(state_dict, prefix, *rest)


class NGram(Model):
    """`count` estimates it from a text; uncounted, every word is equally likely. It has no weights, only buffers."""

    def __init__(self, vocabulary: int, settings: Settings) -> None:
        super().__init__()
        self.vocabulary = vocabulary
        self.settings = settings
        self.order = settings.order
        self.notes: list[str] = []  # sentences about the estimation, for the user
        uniform = Estimate(np.arange(vocabulary), np.full(vocabulary, -log(vocabulary)), np.zeros(vocabulary))
        empty = Estimate(np.zeros(0, dtype=np.int64), np.zeros(0), np.zeros(0))
        self.orders = nn.ModuleList([Grams(uniform), *(Grams(empty) for _ in range(1, self.order))])

    @property
    def levels(self) -> Sequence[Grams]:
        """The grams of order 1, 2, … n."""
        return self.orders  # type: ignore[return-value]  # ModuleList forgets what it holds

    @property
    def stored_numbers(self) -> int:
        """How many n-grams the model knows, of all orders."""
        return sum(len(level) for level in self.levels)

    @property
    def loss_width(self) -> int:
        return self.order  # one look-up per order, no distribution

    def count(self, ids: np.ndarray, progress: Callable[[], object] | None = None) -> None:
        """Estimate from a text in which every line ends in id 0; `progress` is called after each order."""
        levels = count_grams(ids, self.vocabulary, self.order, progress)
        self.notes = []
        if self.settings.smoothing == "counts":
            self.fill(relative_frequencies(levels, self.vocabulary))
            return
        estimates, fell_back = kneser_ney(levels, self.vocabulary)
        self.fill(estimates)
        if fell_back:
            orders = ", ".join(map(str, fell_back))
            self.notes.append(
                f"too few distinct counts to estimate Kneser-Ney's discounts of order {orders}: "
                f"using {', '.join(f'{discount:g}' for discount in FALLBACK)} instead"
            )

    def fill(self, estimates: Sequence[Estimate]) -> None:
        """The grams of every order, lowest first."""
        for level, estimate in zip(self.levels, estimates, strict=True):
            level.fill(estimate)

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *rest: Any) -> None:
        words = state_dict.get(f"{prefix}orders.0.keys")
        if words is not None and len(words) != self.vocabulary + 1:  # the vocabulary must match
            rest[-1].append(f"the file has {len(words) - 1} words, but the model has {self.vocabulary}")
        super()._load_from_state_dict(state_dict, prefix, *rest)

    # -- the call ----------------------------------------------------------------------------------------------------

    def initial_past(self, rows: int, *, capacity: int | None, device: torch.device, dtype: torch.dtype) -> State:
        nothing = [level.nothing for level in self.levels[:-1]]
        return {"contexts": torch.tensor(nothing, dtype=torch.int64, device=device).repeat(rows, 1)}  # [R, n − 1]

    def hidden_states(self, tokens: Tensor, state: State, span: Span) -> tuple[Tensor, State]:
        before = state["past"]["contexts"]
        _, contexts = self._read(tokens, before, self.order - 1)
        hidden = torch.stack(contexts, dim=-1) if contexts else before.new_empty(*tokens.shape, 0)  # [R, T, n − 1]
        return hidden, {"contexts": last(hidden, before, span)}

    def predict(self, hidden: Tensor) -> Tensor:
        """Log-probabilities [..., V] after the contexts [..., n − 1]; log 0 is the lowest finite number."""
        contexts = hidden.reshape(hidden.shape[:-1].numel(), self.order - 1)
        logits = self.levels[0].log_probability[: self.vocabulary].repeat(len(contexts), 1)  # [M, V]
        for k, context in enumerate(contexts.unbind(-1), start=1):
            logits += self.levels[k - 1].log_backoff[context][:, None]
            row, name = self._children(k, context)
            logits[row, self.levels[k].keys[name] % self.vocabulary] = self.levels[k].log_probability[name]
        return logits.clamp(min=torch.finfo(logits.dtype).min).view(*hidden.shape[:-1], self.vocabulary)

    def loss(
        self, tokens: Tensor, targets: Tensor, state: State | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, State]:
        """−log P(target), inf where P = 0, from one look-up per order and word: no distribution is built."""
        state, span = self._open(tokens, state, lengths)
        valid = span.valid(tokens.size(1))
        before = state["past"]["contexts"]
        if follow(tokens, targets, valid):  # the usual case: targets are the next tokens, so one pass finds both
            names, contexts = self._read(torch.cat([tokens[:, :1], targets], dim=1), before, self.order)
            names = [name[:, 1:] for name in names]
            contexts = [context[:, :-1] for context in contexts]
        else:
            _, contexts = self._read(tokens, before, self.order - 1)
            names = [targets]
            names += [self._child(k, context, targets) for k, context in enumerate(contexts, start=1)]
        score = look_up(self.levels[0].log_probability, targets)  # [R, T]
        for k, (context, name) in enumerate(zip(contexts, names[1:]), start=1):
            backed_off = score + look_up(self.levels[k - 1].log_backoff, context)
            score = torch.where(
                name == self.levels[k].nothing, backed_off, look_up(self.levels[k].log_probability, name)
            )
        past = {"contexts": last(torch.stack(contexts, dim=-1), before, span)} if contexts else {"contexts": before}
        state = self._advance(state, past, span.end(tokens.size(1)))
        return -score if valid is None else (-score).where(valid, 0.0), state

    def explain(
        self, tokens: Tensor, state: State | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, State, State]:
        """The written equation: every order, for every word of the vocabulary.

        Parts: `order` [R, T] the longest n-gram whose context was seen; `contexts` and `weights` [R, T, n − 1] their
        names and β(h); `probabilities` [R, T, n, V] P(w | h) with contexts of 0 … n − 1 words; `answered` [R, T, V] the
        order each word's probability came from.
        """
        hidden, state = self.read(tokens, state, lengths)
        every = torch.arange(self.vocabulary, device=tokens.device).expand(*tokens.shape, -1)
        score = self.levels[0].log_probability[every]
        answered = torch.ones_like(every)
        scores, weights, order = [score], [], torch.ones_like(tokens)
        for k, context in enumerate(hidden.unbind(-1), start=1):
            level, below = self.levels[k], self.levels[k - 1]
            name = self._child(k, context[..., None], every)
            known = note(f"order/{k + 1}", name != level.nothing)
            weights.append(below.log_backoff[context])
            score = torch.where(known, level.log_probability[name], score + weights[-1][..., None])
            scores.append(score)
            answered = torch.where(known, k + 1, answered)
            order = torch.where(known.any(dim=-1), k + 1, order)
        parts: State = {
            "order": order,
            "contexts": hidden,
            "weights": torch.stack(weights, dim=-1).exp() if weights else score.new_empty(*tokens.shape, 0),
            "probabilities": torch.stack(scores, dim=-2).exp(),
            "answered": answered,
        }
        return score.clamp(min=torch.finfo(score.dtype).min), state, parts

    # -- looking up --------------------------------------------------------------------------------------------------

    def _read(self, tokens: Tensor, before: Tensor, orders: int) -> tuple[list[Tensor], list[Tensor]]:
        """The names [R, T] of the grams that end at each column, for orders 1 … `orders`, and of the contexts [R, T]
        that each column leaves behind, for orders up to n − 1; `before` are the contexts before the first column."""
        names: list[Tensor] = []
        contexts: list[Tensor] = []
        line_ends = tokens == 0
        for k in range(orders):
            if k == 0:
                name = context = tokens
            else:
                preceding = torch.cat([before[:, k - 1, None], contexts[-1][:, :-1]], dim=1)
                name = self._child(k, preceding, tokens)
                context = name.masked_fill(line_ends, self.levels[k].nothing)  # no context crosses <eos>
            names.append(name)
            if k < self.order - 1:
                contexts.append(context)
        return names, contexts

    def _child(self, k: int, context: Tensor, word: Tensor) -> Tensor:
        """The names of the grams of k + 1 words, from the names of their first k words and the last."""
        return self.levels[k].find(context * self.vocabulary + word)

    def _children(self, k: int, context: Tensor) -> tuple[Tensor, Tensor]:
        """Every gram of k + 1 words that begins with one of the contexts [M]: which context, and the gram's name."""
        keys = self.levels[k].keys
        begin = torch.searchsorted(keys, context * self.vocabulary)
        number = torch.searchsorted(keys, (context + 1) * self.vocabulary) - begin
        row = torch.arange(len(context), device=context.device).repeat_interleave(number)
        skipped = number.cumsum(0) - number
        return row, torch.arange(len(row), device=row.device) + (begin - skipped)[row]


def look_up(table: Tensor, names: Tensor) -> Tensor:
    """table[names]."""
    return table.index_select(0, names.reshape(-1)).view(names.shape)


def _closed(values: np.ndarray, end: float) -> Tensor:
    """The values, and a last entry that means "no gram"."""
    return torch.from_numpy(np.append(values, np.array(end, dtype=values.dtype)))


def follow(tokens: Tensor, targets: Tensor, valid: Tensor | None) -> bool:
    """Whether each target is the token read next."""
    same = tokens[:, 1:] == targets[:, :-1]
    return bool((same if valid is None else same | ~valid[:, 1:]).all())
